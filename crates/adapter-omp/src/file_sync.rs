//! Brings a session's log in step with its file: for the conversation the file wins, for decisions the log.
//!
//! It must not write the file: what the file lacks is given back.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use countersign_core::{
    engine::Command,
    id::{EntryId, Lsn, SessionId},
    session::{self, FilePart, ImportedEntry, SessionEntry, StagedEntry},
};
use countersign_protocol::omp::session_file::SessionFileEntry as FileEntry;
use countersign_runtime::{CommandSource, OwnerHandle};

use super::{entries, open_session_error::OpenSessionError};
use crate::session_file::{BlobStore, OpenedFile};

/// Maximum size of one batch of an import, in bytes, unless a single entry is larger.
const BATCH: usize = 256 * 1024;
/// Number of contents that are read at once.
const READ: usize = 512;

/// Entries of a session, and how much of the record they are of.
pub(super) struct EntryTree {
    pub(super) entries: Vec<SessionEntry>,
    /// The last fact that they know of.
    pub(super) head: Lsn,
}

/// Result of following a file.
pub(super) struct FileSyncResult {
    /// Entries that the file lacks.
    pub(super) missing: EntryTree,
    /// True if the content of the file replaced that of the log.
    pub(super) is_changed: bool,
}

/// State of the log about a session and its file.
struct RecordedSession {
    entries: Vec<SessionEntry>,
    head: Lsn,
    /// Length and digest of the file, as they were recorded last.
    file: Option<(u64, String)>,
    is_at_rest: bool,
}

/// Brings the log to the content of the file, and returns the entries that the file lacks: its end was lost, or they are newer. More
/// may come at any time, after the fact that it names.
///
/// An entry that the file holds unchanged stays as it is in the log. Once the file has something else, its content is the tree: an id means
/// the file's entry, and the earlier one remains in the log's history only. Nothing in the tree has changed if this process dies before the
/// last batch.
pub(super) async fn follow_file(
    handle: &OwnerHandle,
    requests: &CommandSource,
    id: &SessionId,
    opened: &Arc<OpenedFile>,
    blobs: &BlobStore,
) -> Result<FileSyncResult, OpenSessionError> {
    let known = recorded_session(requests, id).await?;
    let file = &opened.file.entries;
    let proven = unchanged_count(&known, opened).await?;
    let gathered = compare_entries(handle, &known, opened, proven, blobs).await?;
    let in_file: BTreeSet<&str> = file.iter().map(|entry| entry.id.as_str()).collect();
    let lacks = |entry: &SessionEntry| !in_file.contains(entry.id.as_str());
    // Entries that are missing before an end that is as we left it were never written: they were not removed.
    let left: BTreeSet<&str> = file[..proven].iter().map(|entry| entry.id.as_str()).collect();
    let sure = known.entries.iter().rposition(|entry| left.contains(entry.id.as_str())).map_or(0, |at| at + 1);
    let lost = known.entries[sure..].iter().skip_while(|entry| !lacks(entry)).all(lacks);
    let first_foreign = gathered.iter().position(|entry| matches!(entry, StagedEntry::Foreign(_)));
    let Some(first_foreign) = first_foreign.or_else(|| (!lost).then_some(gathered.len())) else {
        let entries = known.entries.into_iter().filter(|entry| lacks(entry)).collect();
        return Ok(FileSyncResult { missing: EntryTree { entries, head: known.head }, is_changed: false });
    };
    let is_whole = !known.entries.iter().any(lacks);
    let ids: BTreeSet<&EntryId> = known.entries.iter().map(|entry| &entry.id).collect();
    let is_new = |entry: &StagedEntry| matches!(entry, StagedEntry::Foreign(entry) if !ids.contains(&entry.id));
    let leaf = file.last().map(|entry| EntryId::new(entry.id.as_str()));
    let tail = &gathered[first_foreign..];
    if known.is_at_rest && is_whole && size_of(tail) <= BATCH && tail.iter().all(is_new) {
        let entries = gathered.into_iter().filter_map(foreign_entry).collect();
        requests.send_command(Command::Session(id.clone(), session::Command::Import { entries, leaf })).await?;
    } else {
        gather_entries(requests, id, gathered, leaf).await?;
    }
    let known = self::recorded_session(requests, id).await?;
    let missing = EntryTree { entries: known.entries.into_iter().filter(lacks).collect(), head: known.head };
    Ok(FileSyncResult { missing, is_changed: true })
}

/// Puts `entries` into a session that has none, and makes the last of them the leaf.
pub(super) async fn begin_with(
    requests: &CommandSource,
    id: &SessionId,
    entries: Vec<ImportedEntry>,
) -> Result<(), OpenSessionError> {
    let leaf = entries.last().map(|entry| entry.id.clone());
    let gathered: Vec<StagedEntry> = entries.into_iter().map(StagedEntry::Foreign).collect();
    if size_of(&gathered) > BATCH {
        return gather_entries(requests, id, gathered, leaf).await;
    }
    let entries = gathered.into_iter().filter_map(foreign_entry).collect();
    requests.send_command(Command::Session(id.clone(), session::Command::Import { entries, leaf })).await?;
    Ok(())
}

async fn gather_entries(
    requests: &CommandSource,
    id: &SessionId,
    entries: Vec<StagedEntry>,
    leaf: Option<EntryId>,
) -> Result<(), OpenSessionError> {
    let mut part = FilePart::First;
    let mut batch = Vec::new();
    let mut size = 0;
    let mut entries = entries.into_iter().peekable();
    while let Some(entry) = entries.next() {
        size += size_of(std::slice::from_ref(&entry));
        batch.push(entry);
        let is_full = entries.peek().is_none_or(|next| size + size_of(std::slice::from_ref(next)) > BATCH);
        if is_full {
            let gather = session::Command::Gather { part, entries: std::mem::take(&mut batch) };
            requests.send_command(Command::Session(id.clone(), gather)).await?;
            (part, size) = (FilePart::Next, 0);
        }
    }
    requests.send_command(Command::Session(id.clone(), session::Command::Replace { leaf })).await?;
    Ok(())
}

fn foreign_entry(entry: StagedEntry) -> Option<ImportedEntry> {
    match entry {
        StagedEntry::Foreign(entry) => Some(entry),
        StagedEntry::Known(_) => None,
    }
}

fn size_of(entries: &[StagedEntry]) -> usize {
    let size = |entry: &StagedEntry| match entry {
        StagedEntry::Known(id) => 8 + id.as_str().len(),
        StagedEntry::Foreign(entry) => 128 + entry.id.as_str().len() + entry.message.content.len(),
    };
    entries.iter().map(size).sum()
}

async fn recorded_session(requests: &CommandSource, id: &SessionId) -> Result<RecordedSession, OpenSessionError> {
    let id = id.clone();
    let read = requests.read_state(move |engine| {
        let session = engine.state().session(&id)?;
        Some(RecordedSession {
            entries: session.entries().to_vec(),
            head: engine.state().head_lsn(),
            file: session.session_file().map(|(_, length, digest)| (length, digest.to_owned())),
            is_at_rest: session.is_at_rest(),
        })
    });
    read.await.and_then(|(known, _)| known).ok_or(OpenSessionError::Closed)
}

/// Returns the number of entries of the file that the recorded digest proves to be unchanged.
async fn unchanged_count(known: &RecordedSession, opened: &Arc<OpenedFile>) -> Result<usize, OpenSessionError> {
    let Some((length, digest)) = known.file.clone() else { return Ok(0) };
    let opened = Arc::clone(opened);
    off_the_loop(move || {
        let found = opened.digest_of_prefix(length);
        let is_ours = found.is_some_and(|found| found.to_string() == digest);
        let proven = is_ours.then(|| opened.entries_within(length)).flatten();
        proven.unwrap_or(0).min(opened.file.entries.len())
    })
    .await
}

/// Does what reads or compares much.
async fn off_the_loop<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, OpenSessionError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| OpenSessionError::Owner(error.to_string()))
}

/// Compares the log with each entry of the file, of which the first `proven` need not be checked.
async fn compare_entries(
    handle: &OwnerHandle,
    known: &RecordedSession,
    opened: &Arc<OpenedFile>,
    proven: usize,
    blobs: &BlobStore,
) -> Result<Vec<StagedEntry>, OpenSessionError> {
    let by_id: BTreeMap<&str, &SessionEntry> = known.entries.iter().map(|entry| (entry.id.as_str(), entry)).collect();
    let mut gathered = Vec::with_capacity(opened.file.entries.len());
    for (at, some) in opened.file.entries.chunks(READ).enumerate() {
        let first = at * READ;
        let ours: Vec<Option<SessionEntry>> =
            some.iter().map(|entry| by_id.get(entry.id.as_str()).map(|entry| (*entry).clone())).collect();
        let unproven = ours.iter().enumerate().filter(|(index, _)| first + index >= proven);
        let lsns: Vec<_> = unproven.filter_map(|(_, entry)| Some(entry.as_ref()?.content)).collect();
        let contents =
            handle.contents().get(&lsns).await.map_err(|error| OpenSessionError::Owner(error.to_string()))?;
        let (opened, blobs) = (Arc::clone(opened), blobs.clone());
        let stood = off_the_loop(move || {
            let mut contents = contents.into_iter();
            let theirs = opened.file.entries[first..].iter();
            let stood = theirs.zip(ours).enumerate().map(|(index, (theirs, ours))| {
                let same = ours.filter(|ours| {
                    first + index < proven
                        || contents
                            .next()
                            .flatten()
                            .is_some_and(|content| is_same_entry(ours, &content, theirs, &blobs))
                });
                match same {
                    Some(ours) => StagedEntry::Known(ours.id),
                    None => StagedEntry::Foreign(entries::from_file(theirs, &blobs)),
                }
            });
            stood.collect::<Vec<_>>()
        });
        gathered.extend(stood.await?);
    }
    Ok(gathered)
}

/// Reports whether an entry of the log and one of the file are equal, in whatever form.
fn is_same_entry(ours: &SessionEntry, content: &str, theirs: &FileEntry, blobs: &BlobStore) -> bool {
    let value = |entry: Option<FileEntry>| serde_json::to_value(entry?).ok();
    let (Some(mut mine), Some(line)) = (value(entries::to_file(ours, content)), value(Some(theirs.clone()))) else {
        return false;
    };
    if mine == line {
        return true;
    }
    // Another program writes the same in another form: the parsed entry counts.
    let read = entries::from_file(theirs, blobs);
    let entry =
        SessionEntry { parent: read.parent, kind: read.kind, at: read.made_at.unwrap_or(ours.at), ..ours.clone() };
    if value(entries::to_file(&entry, &read.message.content)).as_ref() == Some(&mine) {
        return true;
    }
    // Images and long texts are not in the file as they are in the log.
    blobs.externalise_images(&mut mine).is_ok() && mine == line
}
