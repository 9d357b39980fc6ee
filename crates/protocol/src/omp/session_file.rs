//! Reads and writes the lines of session files.
//!
//! It must not touch a file, nor know what a context is made of. Source: docs/protocol/omp.md, Session files.

mod entry;
mod first_kept;
mod links;
mod migration;
mod orphans;
mod title_line;
mod unique;
mod unreadable;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::entry::{
    BranchSummaryEntry, CompactionEntry, CustomEntry, CustomMessageEntry, LabelEntry, MessageEntry, ModeChange,
    ModelChange, ParentMember, ServiceTierChange, SessionEntryBody, SessionFileEntry, SessionInfo, SessionInit,
    ThinkingLevelChange, TtsrInjection,
};
pub use self::links::{EntryLinks, EntryReference, LinkRepair, repair_links};
pub use self::migration::{MigrationResult, migrate_lines};
pub use self::title_line::TitleLine;
pub use self::unreadable::{UnreadableLines, id_of_unreadable};
use crate::json::{ExtraMembers, WireValue, replace_lone_surrogates};

/// The version that we write.
pub const VERSION: u32 = 3;

/// The header of a session file: its first line, or the one after a title line.
///
/// # Example
///
/// ```
/// use countersign_protocol::omp::session_file::SessionHeader;
///
/// let mut lines = [r#"{"type":"session","version":3,"id":"s1","timestamp":"","cwd":"/w","x":1}"#].into_iter();
/// let mut header = SessionHeader::parse(&mut lines).expect("the line is a header");
/// header.set_title(Some("Lamps".to_owned()), "2026-02-28T12:00:00.000Z");
///
/// let line = String::from_utf8(header.encode()).expect("a line is UTF-8");
/// assert!(line.contains(r#""title":"Lamps""#));
/// assert!(line.contains(r#""x":1"#), "unknown members are kept");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "session", rename_all = "camelCase")]
pub struct SessionHeader {
    /// Absent means 1.
    #[serde(default = "first_version")]
    pub version: u32,
    /// Opaque.
    pub id: String,
    /// Start of the session, in ISO 8601.
    #[serde(default)]
    pub timestamp: String,
    /// The working folder.
    #[serde(default)]
    pub cwd: String,
    /// The name of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The file that the session was branched from, or what `new_session` was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_session: Option<String>,
    /// Other members, written back unchanged.
    #[serde(flatten)]
    pub extra: ExtraMembers,
    /// The line before it that has the name as well, where there is one.
    #[serde(skip)]
    pub title_line: Option<TitleLine>,
}

impl WireValue for SessionHeader {}

impl SessionHeader {
    /// Returns the header at the beginning of a file's `lines`, with the title line that may precede it and whose name counts.
    /// Blank lines are skipped. `None` if there is no header. No line after the header is taken.
    pub fn parse<L: AsRef<str>>(lines: &mut impl Iterator<Item = L>) -> Option<Self> {
        let mut lines = lines.filter(|line| !line.as_ref().trim_ascii().is_empty());
        let first = lines.next()?;
        let first = first.as_ref();
        let first = first.strip_prefix('\u{feff}').unwrap_or(first);
        let Some(title_line) = TitleLine::parse(first) else { return parse_header(first) };
        let mut header = parse_header(lines.next()?.as_ref())?;
        if let Some(title) = title_line.title() {
            header.title = Some(title.to_owned()).filter(|title| !title.is_empty());
        }
        header.title_line = Some(title_line);
        Some(header)
    }

    /// Names the session, in the title line as well where there is one. `at` is the time of it, in ISO 8601.
    pub fn set_title(&mut self, title: Option<String>, at: &str) {
        if let Some(line) = &mut self.title_line {
            line.set_title(title.as_deref().unwrap_or_default(), at);
        }
        self.title = title;
    }

    /// Writes the beginning of a file: the title line where there is one, and the header, each with its line break.
    pub fn encode(&self) -> Vec<u8> {
        let mut lines = self.title_line.as_ref().map(TitleLine::encode).unwrap_or_default();
        lines.extend_from_slice(&crate::encode_line(self));
        lines
    }
}

fn first_version() -> u32 {
    1
}

/// A session file that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionFile {
    /// The line that it begins with, after a title line if there is one.
    pub header: SessionHeader,
    /// Its other lines in order.
    pub entries: Vec<SessionFileEntry>,
    /// Number of lines that could not be read and are not in `entries`.
    pub unreadable: usize,
    /// Number of entries that named a parent that is not in the file; their parent is the entry before them instead.
    pub reattached: usize,
    /// Number of circles of parents that were cut: the parent of the earliest entry of each is the entry before it instead. An
    /// entry that is its own parent counts as one.
    pub looped: usize,
    /// Form of the file on disk.
    pub form: FileForm,
}

/// Form of a file on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileForm {
    /// The form that we write.
    Current,
    /// Older, or with a duplicate id or a line without `parentId`: it should be written again as it was read.
    Older,
}

/// The file does not begin with the header of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the first line is not the header of a session")]
pub struct NotASession;

/// Reads a whole file, bringing older forms up to date. `fresh` gives ids for entries that have none, or one that an entry
/// before them has; it must not repeat itself.
///
/// Lenient: a line that is no entry is counted and left out. An entry whose parent is not in the file hangs on the entry before
/// it, and so do one whose line has no `parentId` and the earliest of a circle of parents. A compaction that keeps what is not in the
/// file keeps the first entry after it. An entry of an unknown type or form keeps its place in the tree. A line may lack its line break, as after a crash, and the file may begin with a byte order mark.
///
/// # Errors
/// [`NotASession`] if the first line that is neither blank nor a title line is no header.
pub fn read_session_file(text: &str, mut fresh: impl FnMut() -> String) -> Result<SessionFile, NotASession> {
    let text = replace_lone_surrogates(text.strip_prefix('\u{feff}').unwrap_or(text));
    let mut lines = text.split('\n').filter(|line| !line.trim_ascii().is_empty());
    let header = SessionHeader::parse(&mut lines).ok_or(NotASession)?;
    if header.version >= VERSION {
        let lines = lines.map(|line| SessionFileEntry::parse_with_parent(line).map_err(|_| line));
        return Ok(collect_entries(header, lines, FileForm::Current, fresh));
    }
    let title_line = header.title_line.clone();
    let first = serde_json::to_value(&header).ok().and_then(|header| header.as_object().cloned());
    let lines: Vec<&str> = lines.collect();
    let members = lines.iter().map(|line| parse_members(line).filter(|members| may_be_entry(members, line)));
    let migrated = migrate_lines(std::iter::once(first).chain(members).collect(), &mut fresh).into_lines();
    let mut migrated = migrated.into_iter().map(|line| line.map(|line| Value::Object(line).to_string()));
    let header = migrated.next().flatten().as_deref().and_then(self::parse_header).ok_or(NotASession)?;
    let header = SessionHeader { title_line, ..header };
    let entries = migrated
        .zip(lines)
        .map(|(migrated, line)| SessionFileEntry::parse_with_parent(&migrated.ok_or(line)?).map_err(|_| line));
    Ok(collect_entries(header, entries, FileForm::Older, fresh))
}

/// Reads, for a fuzz loop, `bytes` as a session file, and checks that what was read, written out again, reads the same, with every
/// line readable and no id twice.
///
/// # Panics
/// If that does not hold: a finding.
#[cfg(feature = "fuzzing")]
pub fn fuzz(bytes: &[u8]) {
    let mut ids = 0..;
    let mut fresh = || ids.next().map_or_else(String::new, |id: u32| format!("fresh{id:08x}"));
    let Ok(file) = read_session_file(&String::from_utf8_lossy(bytes), &mut fresh) else { return };
    let mut text = file.header.encode();
    file.entries.iter().for_each(|entry| text.extend_from_slice(&crate::encode_line(entry)));
    let text = String::from_utf8(text).expect("JSON is UTF-8");
    let again = read_session_file(&text, fresh).unwrap_or_else(|error| panic!("{error}: {text:?}"));
    assert_eq!((again.unreadable, again.reattached, again.looped), (0, 0, 0), "{text:?}");
    assert_eq!((again.header, again.entries), (file.header, file.entries), "{text:?}");
}

fn parse_header(line: &str) -> Option<SessionHeader> {
    let is_session = parse_members(line)?.get("type")? == "session";
    serde_json::from_str(line).ok().filter(|_| is_session)
}

impl SessionFileEntry {
    /// Returns true for a second header in a file. It is no entry, with any id: later entries would continue from it.
    pub fn is_header(&self) -> bool {
        matches!(&self.body, SessionEntryBody::Unknown(line) if parse_header(line.as_text()).is_some())
    }
}

/// Reports whether a line of an older form can be an entry that another one follows.
fn may_be_entry(members: &Map<String, Value>, line: &str) -> bool {
    members.get("type").is_some_and(Value::is_string) && parse_header(line).is_none()
}

fn parse_members(line: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(line).ok()
}

/// Collects the entries of a file from its lines, of which one that cannot be read is given as it is.
fn collect_entries<'a>(
    header: SessionHeader,
    lines: impl Iterator<Item = Result<(SessionFileEntry, ParentMember), &'a str>>,
    form: FileForm,
    fresh: impl FnMut() -> String,
) -> SessionFile {
    let mut entries: Vec<SessionFileEntry> = Vec::new();
    let mut links = Vec::new();
    let mut unreadable = UnreadableLines::default();
    for line in lines {
        match line {
            Ok((entry, _)) if entry.is_header() => unreadable.add("", entries.len()),
            Ok((entry, parent)) => {
                links.push(entry.links(parent));
                entries.push(entry);
            }
            Err(line) => unreadable.add(line, entries.len()),
        }
    }
    let LinkRepair { form: repaired, reattached, looped, changed } = repair_links(&mut links, &unreadable, fresh);
    for at in changed {
        entries[at].set_links(&links[at]);
    }
    let form = if form == FileForm::Current { repaired } else { form };
    SessionFile { header, entries, unreadable: unreadable.count(), reattached, looped, form }
}
