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
use countersign_runtime::{CommandSource, OwnerHandle, Subscriber};

use super::{entries, open_session_error::OpenSessionError};
use crate::session_file::{BlobStore, OpenedFile, SessionFileOpenError};

/// Size at which a batch of an import is full, in bytes. An import holds no more of the file than two batches, and each is one
/// commit: a smaller size would make a long file wait for the disk more often.
const BATCH: usize = 1024 * 1024;
/// Maximum number of entries that are compared at once.
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
    /// Number of images that could not be read with what was imported.
    pub(super) lost_images: usize,
    /// Follower of what happens after `missing` was read, if something was imported: one from before would read all of that again.
    pub(super) following: Option<Subscriber>,
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
    let file = opened.notes();
    let proven = unchanged_count(&known, opened).await?;
    let statuses = compare_entries(handle, &known, opened, proven, blobs).await?;
    let in_file: BTreeSet<&str> = file.iter().map(|entry| entry.id.as_str()).collect();
    let lacks = |entry: &SessionEntry| !in_file.contains(entry.id.as_str());
    // Entries that are missing before an end that is as we left it were never written: they were not removed.
    let left: BTreeSet<&str> = file[..proven].iter().map(|entry| entry.id.as_str()).collect();
    let sure = known.entries.iter().rposition(|entry| left.contains(entry.id.as_str())).map_or(0, |at| at + 1);
    let lost = known.entries[sure..].iter().skip_while(|entry| !lacks(entry)).all(lacks);
    let first_foreign = statuses.iter().position(|status| *status == SyncStatus::Foreign);
    let Some(first_foreign) = first_foreign.or_else(|| (!lost).then_some(statuses.len())) else {
        let entries = known.entries.into_iter().filter(|entry| lacks(entry)).collect();
        return Ok(FileSyncResult {
            missing: EntryTree { entries, head: known.head },
            is_changed: false,
            lost_images: 0,
            following: None,
        });
    };
    let is_whole = !known.entries.iter().any(lacks);
    let ids: BTreeSet<&str> = known.entries.iter().map(|entry| entry.id.as_str()).collect();
    let tail = statuses[first_foreign..].iter().zip(&file[first_foreign..]);
    let are_new = tail.clone().all(|(status, note)| *status == SyncStatus::Foreign && !ids.contains(note.id.as_str()));
    let leaf = file.last().map(|entry| EntryId::new(entry.id.as_str()));
    let source = FileSource { opened: Arc::clone(opened), statuses: statuses.into(), blobs: blobs.clone() };
    let small = if known.is_at_rest && is_whole && are_new {
        source.clone().next_batch(first_foreign).await?.into_last()
    } else {
        None
    };
    let lost_images = match small {
        Some(FileBatch { entries, lost_images, .. }) => {
            let entries = entries.into_iter().filter_map(foreign_entry).collect();
            requests.send_command(Command::Session(id.clone(), session::Command::Import { entries, leaf })).await?;
            lost_images
        }
        None => gather_file(requests, id, source, leaf).await?,
    };
    // Nothing may fall between this read and what is followed.
    let following = handle.subscribe().await.ok_or(OpenSessionError::Closed)?;
    let known = self::recorded_session(requests, id).await?;
    let missing = EntryTree { entries: known.entries.into_iter().filter(lacks).collect(), head: known.head };
    Ok(FileSyncResult { missing, is_changed: true, lost_images, following: Some(following) })
}

/// How an entry of the file stands to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SyncStatus {
    /// The log has it as it is in the file.
    Known,
    /// It is to be read from the file.
    Foreign,
}

/// Entries of a file as a log takes them. What is foreign is read when its batch is due.
#[derive(Clone)]
struct FileSource {
    opened: Arc<OpenedFile>,
    statuses: Arc<[SyncStatus]>,
    blobs: BlobStore,
}

/// A part of a file's entries.
#[derive(Debug)]
struct FileBatch {
    entries: Vec<StagedEntry>,
    /// Number of images in them that cannot be read.
    lost_images: usize,
    /// The place behind the last of them; none behind the last of the file.
    next: Option<usize>,
}

impl FileBatch {
    /// Returns the batch if its entries are the last ones.
    fn into_last(self) -> Option<Self> {
        self.next.is_none().then_some(self)
    }
}

impl FileSource {
    /// Reads the batch that begins at a place.
    async fn next_batch(self, from: usize) -> Result<FileBatch, OpenSessionError> {
        Ok(off_the_loop(move || self.read_batch(from)).await??)
    }

    /// Reads entries until they have [`BATCH`] bytes.
    fn read_batch(&self, from: usize) -> Result<FileBatch, SessionFileOpenError> {
        let mut entries = Vec::new();
        let (mut size, mut lost_images) = (0, 0);
        let mut at = from;
        while at < self.statuses.len() && size < BATCH {
            let entry = match self.statuses[at] {
                SyncStatus::Known => StagedEntry::Known(EntryId::new(self.opened.notes()[at].id.as_str())),
                SyncStatus::Foreign => {
                    let entry = self.opened.read_entry(at)?;
                    let import = entries::from_file(&entry, &self.blobs);
                    lost_images += import.lost_images;
                    StagedEntry::Foreign(import.entry)
                }
            };
            size += size_of(std::slice::from_ref(&entry));
            entries.push(entry);
            at += 1;
        }
        Ok(FileBatch { entries, lost_images, next: (at < self.statuses.len()).then_some(at) })
    }
}

/// Puts the entries of a file in place of the tree, and returns the number of images that cannot be read. While one batch is committed,
/// the next one is read.
async fn gather_file(
    requests: &CommandSource,
    id: &SessionId,
    source: FileSource,
    leaf: Option<EntryId>,
) -> Result<usize, OpenSessionError> {
    let mut part = FilePart::First;
    let mut batch = source.clone().next_batch(0).await?;
    let mut lost_images = 0;
    loop {
        lost_images += batch.lost_images;
        let gather = session::Command::Gather { part, entries: batch.entries };
        let gathered = requests.send_command(Command::Session(id.clone(), gather));
        let Some(next) = batch.next else {
            gathered.await?;
            break;
        };
        let (gathered, read) = tokio::join!(gathered, source.clone().next_batch(next));
        gathered?;
        batch = read?;
        part = FilePart::Next;
    }
    requests.send_command(Command::Session(id.clone(), session::Command::Replace { leaf })).await?;
    Ok(lost_images)
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
        proven.unwrap_or(0).min(opened.notes().len())
    })
    .await
}

/// Does what reads or compares much.
async fn off_the_loop<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, OpenSessionError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| OpenSessionError::Owner(error.to_string()))
}

/// Compares the log with each entry of the file, of which the first `proven` need not be checked. Only entries that the log has too are
/// read.
async fn compare_entries(
    handle: &OwnerHandle,
    known: &RecordedSession,
    opened: &Arc<OpenedFile>,
    proven: usize,
    blobs: &BlobStore,
) -> Result<Vec<SyncStatus>, OpenSessionError> {
    let by_id: BTreeMap<&str, &SessionEntry> = known.entries.iter().map(|entry| (entry.id.as_str(), entry)).collect();
    let notes = opened.notes();
    let mut statuses = Vec::with_capacity(notes.len());
    while statuses.len() < notes.len() {
        let mut compared = Vec::new();
        let mut size = 0;
        while statuses.len() < notes.len() && compared.len() < READ && size < BATCH {
            let at = statuses.len();
            let ours = by_id.get(notes[at].id.as_str());
            if let Some(ours) = ours.filter(|_| at >= proven) {
                size += opened.line_length(at);
                compared.push((at, (*ours).clone()));
            }
            // What is compared is said below.
            statuses.push(if ours.is_some() { SyncStatus::Known } else { SyncStatus::Foreign });
        }
        if compared.is_empty() {
            continue;
        }
        let lsns: Vec<_> = compared.iter().map(|(_, ours)| ours.content).collect();
        let contents =
            handle.contents().get(&lsns).await.map_err(|error| OpenSessionError::Owner(error.to_string()))?;
        let (opened, blobs) = (Arc::clone(opened), blobs.clone());
        let changed = off_the_loop(move || {
            let mut changed = Vec::new();
            for ((at, ours), content) in compared.into_iter().zip(contents) {
                let theirs = opened.read_entry(at)?;
                if content.is_none_or(|content| !is_same_entry(&ours, &content, &theirs, &blobs)) {
                    changed.push(at);
                }
            }
            Ok::<_, SessionFileOpenError>(changed)
        });
        for at in changed.await?? {
            statuses[at] = SyncStatus::Foreign;
        }
    }
    Ok(statuses)
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
    let read = entries::from_file(theirs, blobs).entry;
    let entry =
        SessionEntry { parent: read.parent, kind: read.kind, at: read.made_at.unwrap_or(ours.at), ..ours.clone() };
    if value(entries::to_file(&entry, &read.message.content)).as_ref() == Some(&mine) {
        return true;
    }
    // Images and long texts are not in the file as they are in the log.
    blobs.externalise_images(&mut mine).is_ok() && mine == line
}

#[cfg(test)]
mod tests {
    use std::{fmt::Write as _, sync::Arc};

    use countersign_core::session::StagedEntry;

    use super::{BATCH, FileSource, SyncStatus, size_of};
    use crate::session_file::{BlobStore, open_file};

    /// Returns a file of so many messages of `length` bytes of text each.
    fn source(folder: &tempfile::TempDir, count: usize, length: usize) -> FileSource {
        let path = folder.path().join("s.jsonl");
        let mut text =
            "{\"type\":\"session\",\"version\":3,\"id\":\"s\",\"timestamp\":\"\",\"cwd\":\"/w\"}\n".to_owned();
        let said = "x".repeat(length);
        for at in 0..count {
            let parent = at.checked_sub(1).map_or_else(|| "null".to_owned(), |before| format!("\"{before}\""));
            let message = format!(
                "{{\"role\":\"user\",\"content\":[{{\"type\":\"text\",\"text\":\"{said}\"}}],\"timestamp\":5}}"
            );
            writeln!(
                text,
                "{{\"type\":\"message\",\"id\":\"{at}\",\"parentId\":{parent},\"timestamp\":\"\",\"message\":{message}}}"
            )
            .unwrap();
        }
        std::fs::write(&path, text).unwrap();
        FileSource {
            opened: Arc::new(open_file(&path).unwrap().unwrap()),
            statuses: vec![SyncStatus::Foreign; count].into(),
            blobs: BlobStore::new(folder.path().join("blobs")),
        }
    }

    #[test]
    fn a_long_file_is_read_once_in_batches_of_bounded_size() {
        for (count, length) in [(10, 1_000_000), (1_000, 10_000), (100_000, 10)] {
            let folder = tempfile::tempdir().unwrap();
            let source = source(&folder, count, length);
            let (mut read, mut at) = (0, Some(0));
            while let Some(from) = at {
                let batch = source.read_batch(from).unwrap();
                let largest = batch.entries.iter().map(|entry| size_of(std::slice::from_ref(entry))).max().unwrap();
                assert!(size_of(&batch.entries) < BATCH + largest, "{count}");
                for (index, entry) in batch.entries.iter().enumerate() {
                    let StagedEntry::Foreign(entry) = entry else { panic!("{count}") };
                    assert_eq!(entry.id.as_str(), (from + index).to_string());
                }
                read += batch.entries.len();
                at = batch.next;
            }
            assert_eq!(read, count);
        }
    }

    #[test]
    fn an_entry_that_the_log_has_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let mut source = source(&folder, 3, 10);
        source.statuses = [SyncStatus::Known, SyncStatus::Known].into();
        std::fs::write(folder.path().join("s.jsonl"), "").unwrap();
        let batch = source.read_batch(0).unwrap();
        assert_eq!(batch.into_last().map(|batch| batch.entries.len()), Some(2));
        source.statuses = [SyncStatus::Foreign].into();
        assert!(source.read_batch(0).is_err(), "the line is gone");
    }
}
