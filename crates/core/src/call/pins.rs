//! Files that a call would run from disk, as they were when the call was judged.
//!
//! Plain data: code with access to the disk collects it, records carry it, and the executor compares it with the disk before the run.

use std::fmt;

pub use countersign_shell_analysis::files::FileRole;
use serde::{Deserialize, Serialize};

use crate::digest::{Digest, canonical_json};

/// Number of digits of a digest that an approver is shown.
const SHORT: usize = 12;
/// Maximum number of lines that an approver is shown; the record has all of them.
const MOST_SHOWN: usize = 24;
/// Maximum number of lines about unpinned files, if there are more lines.
const MOST_UNPINNED: usize = 12;

/// Everything that a call would run from disk, as far as its text shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pins {
    /// The folder of the session's shell.
    pub at: String,
    /// The folder in which the call begins.
    pub folder: Pin,
    /// Files that it would run, in the order in which its text names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<Pin>,
    /// Files that could not be pinned, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unpinned: Vec<String>,
}

/// One thing on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// Name that the call uses.
    pub name: String,
    /// Absolute target of that name; links are followed.
    pub path: String,
    /// Its role in the call.
    pub role: FileRole,
    /// State of the path.
    pub found: PathState,
}

/// State of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathState {
    /// Nothing.
    Absent,
    /// A folder.
    Folder {
        /// The device that it is on.
        device: u64,
        /// Its number there.
        inode: u64,
    },
    /// A file whose content is known.
    File {
        /// The device that it is on.
        device: u64,
        /// Its number there.
        inode: u64,
        /// Its bytes.
        size: u64,
        /// Digest of its content.
        sha256: Digest,
    },
    /// A file that is identified by its metadata alone: the system's own, one that is too large, one that cannot be read.
    Unread {
        /// The device that it is on.
        device: u64,
        /// Its number there.
        inode: u64,
        /// Its bytes.
        size: u64,
        /// Time of the last change of its content, in nanoseconds.
        modified: i64,
        /// Time of the last change of content or metadata, in nanoseconds.
        changed: i64,
        /// Reason for which its content was not read.
        why: UnreadCause,
    },
    /// Path that is neither a file nor a folder.
    Other {
        /// The device that it is on.
        device: u64,
        /// Its number there.
        inode: u64,
    },
}

/// Reason for which the content of a file was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnreadCause {
    /// One of the system's own files, which only the system's owner can change.
    System,
    /// The file is too large, or all of them together are.
    TooLarge,
    /// The file may not be read.
    Unreadable,
}

impl Pins {
    /// Returns the digest of all of it, as in the fact of the call.
    pub fn digest(&self) -> Digest {
        let value = serde_json::to_value(self).expect("pins are plain data with text keys");
        Digest::hash_bytes(canonical_json(&value).as_bytes())
    }

    /// Returns the lines that an approver is shown: scripts and programs with their digest, and files that are not pinned.
    pub fn summary_lines(&self) -> Vec<String> {
        let shown = |pin: &&Pin| match &pin.found {
            PathState::File { .. } | PathState::Other { .. } => pin.role != FileRole::Folder,
            PathState::Unread { why, .. } => *why != UnreadCause::System,
            PathState::Absent => true,
            PathState::Folder { .. } => pin.role != FileRole::Folder,
        };
        let files = std::iter::once(&self.folder).chain(&self.files).filter(shown).map(Pin::to_string);
        let unpinned = self.unpinned.iter().map(|what| format!("not pinned: {}", single_line(what)));
        let (mut files, mut unpinned) = (once_each(files), once_each(unpinned));
        let all = files.len() + unpinned.len();
        if all > MOST_SHOWN {
            // Many files must not hide the lines about unpinned files.
            unpinned.truncate(MOST_UNPINNED.max(MOST_SHOWN.saturating_sub(files.len())));
            files.truncate(MOST_SHOWN.saturating_sub(unpinned.len()));
            unpinned.push(format!("and {} more, which the record lists", all - MOST_SHOWN));
        }
        files.extend(unpinned);
        files
    }

    /// Describes the first difference between this and `now`; none if they are equal.
    pub fn describe_change(&self, now: &Self) -> Option<String> {
        if let Some(difference) = self.folder.describe_change(&now.folder) {
            return Some(difference);
        }
        let mut left: Vec<&Pin> = now.files.iter().collect();
        self.files.iter().find_map(|pin| {
            let same = |other: &&Pin| other.role == pin.role && other.name == pin.name;
            let exact = left.iter().position(|other| same(other) && other.path == pin.path);
            match exact.or_else(|| left.iter().position(same)) {
                Some(at) => pin.describe_change(left.remove(at)),
                None => Some(format!("{} cannot be looked at again", quote_name(&pin.name))),
            }
        })
    }
}

impl Pin {
    fn describe_change(&self, now: &Self) -> Option<String> {
        let name = quote_name(&self.name);
        if self.path != now.path && self.found != PathState::Absent && now.found != PathState::Absent {
            let (then, now) = (quote_name(&self.path), quote_name(&now.path));
            return Some(format!("{name} leads to {now} now, and led to {then} when it was decided"));
        }
        if self.found == now.found {
            return None;
        }
        Some(match (&self.found, &now.found) {
            (PathState::Absent, _) => format!("{name} is not what was approved: it was not there at the decision"),
            (_, PathState::Absent) => format!("{name} is not what was approved: it is gone since the decision"),
            (PathState::Folder { .. }, PathState::Folder { .. }) => {
                format!("{name} is not what was approved: another folder has its name since the decision")
            }
            (PathState::File { sha256: then, .. }, PathState::File { sha256: now, .. }) if then == now => {
                format!(
                    "{name} is not what was approved: another file with the same content has its place since the decision"
                )
            }
            (PathState::File { sha256: then, .. }, PathState::File { sha256: now, .. }) => {
                format!(
                    "{name} is not what was approved: it changed after the decision (sha256 {} then, {} now)",
                    short_digest(then),
                    short_digest(now)
                )
            }
            _ => format!("{name} is not what was approved: it changed after the decision"),
        })
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = quote_name(&self.name);
        f.write_str(&name)?;
        if !self.path.ends_with(self.name.trim_start_matches("./")) {
            write!(f, " ({})", quote_name(&self.path))?;
        }
        match &self.found {
            PathState::Absent => f.write_str(", which is not there"),
            PathState::Folder { .. } => f.write_str(", a folder"),
            PathState::File { size, sha256, .. } => {
                write!(f, ", sha256 {}…, {}", short_digest(sha256), size_text(*size))
            }
            PathState::Unread { size, why, .. } => {
                let why = match why {
                    UnreadCause::System => "of the system",
                    UnreadCause::TooLarge => "known by its size and times alone: too large",
                    UnreadCause::Unreadable => "known by its size and times alone: it cannot be read",
                };
                write!(f, ", {}, {why}", size_text(*size))
            }
            PathState::Other { .. } => f.write_str(", which is no file"),
        }
    }
}

/// Returns the beginning of a digest, for display.
fn short_digest(digest: &Digest) -> String {
    digest.to_string().chars().take(SHORT).collect()
}

fn size_text(bytes: u64) -> String {
    const KIB: u64 = 1024;
    match bytes {
        0..KIB => format!("{bytes} bytes"),
        KIB..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

/// Returns a name in one line: one that could pass for more than a name is quoted.
fn quote_name(name: &str) -> String {
    let is_strange = |letter: char| letter.is_control() || letter.is_whitespace() || matches!(letter, ',' | '"' | '(');
    if name.chars().any(is_strange) { format!("{name:?}") } else { name.to_owned() }
}

/// Returns a text in one line.
fn single_line(text: &str) -> String {
    if text.chars().any(char::is_control) { format!("{text:?}") } else { text.to_owned() }
}

fn once_each(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut each: Vec<String> = Vec::new();
    for line in lines {
        if !each.contains(&line) {
            each.push(line);
        }
    }
    each
}

#[cfg(test)]
mod tests {
    use super::{FileRole, PathState, Pin, Pins, UnreadCause};
    use crate::digest::Digest;

    fn pin(name: &str, role: FileRole, found: PathState) -> Pin {
        Pin { name: name.to_owned(), path: format!("/w/{name}"), role, found }
    }

    fn file(inode: u64, content: &str) -> PathState {
        let size = content.len() as u64;
        PathState::File { device: 1, inode, size, sha256: Digest::hash_bytes(content.as_bytes()) }
    }

    fn pins(files: Vec<Pin>) -> Pins {
        let folder = Pin {
            name: "/w".to_owned(),
            path: "/w".to_owned(),
            role: FileRole::Folder,
            found: PathState::Folder { device: 1, inode: 2 },
        };
        Pins { at: "/w".to_owned(), folder, files, unpinned: Vec::new() }
    }

    #[test]
    fn what_changed_is_named_and_what_stayed_is_not() {
        let then = || {
            pins(vec![pin("a.sh", FileRole::Script, file(7, "one")), pin("b", FileRole::Program, PathState::Absent)])
        };
        assert_eq!(then().describe_change(&then()), None);
        let elsewhere = Pin { path: "/x/a.sh".to_owned(), ..pin("a.sh", FileRole::Script, file(7, "one")) };
        let absent = || pin("b", FileRole::Program, PathState::Absent);
        for (case, now, want) in [
            (
                "rewritten",
                vec![pin("a.sh", FileRole::Script, file(7, "two")), absent()],
                "a.sh is not what was approved: it changed",
            ),
            (
                "replaced",
                vec![pin("a.sh", FileRole::Script, file(8, "one")), absent()],
                "another file with the same content",
            ),
            ("gone", vec![pin("a.sh", FileRole::Script, PathState::Absent), absent()], "it is gone since"),
            (
                "there by now",
                vec![pin("a.sh", FileRole::Script, file(7, "one")), pin("b", FileRole::Program, file(9, ""))],
                "b is not what",
            ),
            ("elsewhere", vec![elsewhere, absent()], "a.sh leads to /x/a.sh now"),
            ("not looked at", vec![absent()], "a.sh cannot be looked at again"),
        ] {
            let difference = then().describe_change(&pins(now)).unwrap_or_default();
            assert!(difference.contains(want), "{case}: {difference}");
        }
        let mut moved = then();
        moved.folder.found = PathState::Folder { device: 1, inode: 3 };
        assert!(then().describe_change(&moved).unwrap_or_default().contains("another folder has its name"));
    }

    #[test]
    fn a_person_is_shown_scripts_and_what_is_not_pinned() {
        let system =
            PathState::Unread { device: 1, inode: 3, size: 9, modified: 0, changed: 0, why: UnreadCause::System };
        let mut shown = pins(vec![
            pin("sh", FileRole::Program, system),
            pin("build.sh", FileRole::Script, file(7, "one")),
            pin("a\nb", FileRole::Script, PathState::Absent),
        ]);
        shown.unpinned.push("$X: its value is not known".to_owned());
        let digest = Digest::hash_bytes(b"one").to_string();
        assert_eq!(
            shown.summary_lines(),
            [
                format!("build.sh, sha256 {}…, 3 bytes", &digest[..12]),
                "\"a\\nb\", which is not there".to_owned(),
                "not pinned: $X: its value is not known".to_owned(),
            ]
        );
    }

    #[test]
    fn many_files_hide_nothing_that_is_not_pinned() {
        let scripts =
            |count: u64| (0..count).map(|at| pin(&format!("{at}.sh"), FileRole::Script, file(at, "one"))).collect();
        for (files, unpinned, shown_files, shown_unpinned, more) in
            [(300, 1, 23, 1, 277), (300, 40, 12, 12, 316), (2, 40, 2, 22, 18), (20, 4, 20, 4, 0)]
        {
            let mut many = pins(scripts(files));
            many.unpinned = (0..unpinned).map(|at| format!("${at}")).collect();
            let lines = many.summary_lines();
            let hidden = lines.iter().filter(|line| line.starts_with("not pinned")).count();
            assert_eq!(hidden, shown_unpinned, "{files} {unpinned}");
            assert_eq!(lines.iter().filter(|line| line.contains("sha256")).count(), shown_files, "{files} {unpinned}");
            let want = format!("and {more} more, which the record lists");
            assert_eq!(lines.last() == Some(&want), more > 0, "{files} {unpinned}: {lines:?}");
        }
    }

    #[test]
    fn no_name_passes_for_more_than_a_name() {
        let spoofed = "x.sh, sha256 000000000000…, 1 bytes";
        let lines =
            pins(vec![pin(spoofed, FileRole::Script, file(7, "one")), pin("a b", FileRole::Script, file(8, "two"))])
                .summary_lines();
        assert!(lines[0].starts_with("\"x.sh, sha256 000000000000…, 1 bytes\", sha256 "), "{lines:?}");
        assert!(lines[1].starts_with("\"a b\", sha256 "), "{lines:?}");
    }
}
