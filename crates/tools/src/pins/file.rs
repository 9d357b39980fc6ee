//! Looks at one thing on disk: from a descriptor, without waiting for anything, and never more than is bounded.

use std::{
    collections::BTreeMap,
    fs::{self, File, Metadata, OpenOptions},
    io::Read as _,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use countersign_core::{
    call::pins::{PathState, Pins, UnreadCause},
    digest::DigestBuilder,
};
use nix::fcntl::OFlag;

/// The largest file of which the content is looked at.
const LARGEST: u64 = 64 << 20;
/// Most bytes read of all files of a line.
const MOST: u64 = 256 << 20;
/// The longest first line that is read for what runs the file; the kernel reads as much.
const FIRST_LINE: usize = 256;
/// Folders of the system's own files.
const SYSTEM: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/nix/store", "/snap"];
/// Mode bits of files that others than the owner may write.
const WRITTEN_BY_OTHERS: u32 = 0o022;

/// Result of examining a path.
#[derive(Debug)]
pub(super) struct ExaminedFile {
    /// The path, with links followed.
    pub(super) path: PathBuf,
    pub(super) found: PathState,
    /// Interpreter that its first line names.
    pub(super) interpreter: Option<String>,
}

/// Bytes read so far, and the folders whose files belong to the session.
#[derive(Debug)]
pub(super) struct ReadBudget {
    read: u64,
    /// Files that were known by their metadata alone at the decision: they still are. The child may see other owners, or read
    /// more.
    marked: BTreeMap<PathBuf, UnreadCause>,
    /// The folders that the session works in, with links followed. Files in them are not the system's, at any path.
    own: Vec<PathBuf>,
}

impl ReadBudget {
    /// Creates an unused budget for a session that works in `folders`.
    pub(super) fn new(folders: &[&Path], approved: Option<&Pins>) -> Self {
        let own = folders.iter().filter_map(|folder| fs::canonicalize(folder).ok());
        // A session in `/usr` itself does not work on all of it.
        let is_below =
            |folder: &PathBuf| SYSTEM.iter().any(|system| folder.starts_with(system) && folder != Path::new(system));
        let pins = approved.into_iter().flat_map(|pins| &pins.files);
        let marked = pins.filter_map(|pin| match pin.found {
            PathState::Unread { why, .. } => Some((PathBuf::from(&pin.path), why)),
            PathState::Absent | PathState::Folder { .. } | PathState::File { .. } | PathState::Other { .. } => None,
        });
        let marked = marked.collect();
        Self { read: 0, marked, own: own.filter(is_below).collect() }
    }
}

/// Examines the file at `path`.
pub(super) fn examine_path(path: &Path, budget: &mut ReadBudget) -> ExaminedFile {
    let Ok(real) = fs::canonicalize(path) else {
        return ExaminedFile { path: path.to_owned(), found: PathState::Absent, interpreter: None };
    };
    let (found, interpreter) = match fs::metadata(&real) {
        Err(_) => (PathState::Absent, None),
        Ok(found) if found.is_file() => examine_content(&real, &found, budget),
        Ok(found) => (special_file(&found), None),
    };
    ExaminedFile { path: real, found, interpreter }
}

fn special_file(found: &Metadata) -> PathState {
    let (device, inode) = (found.dev(), found.ino());
    if found.is_dir() { PathState::Folder { device, inode } } else { PathState::Other { device, inode } }
}

fn examine_content(path: &Path, found: &Metadata, budget: &mut ReadBudget) -> (PathState, Option<String>) {
    if let Some(why) = budget.marked.get(path) {
        return (unread_file(found, *why), None);
    }
    if is_of_the_system(path, found) && !budget.own.iter().any(|folder| path.starts_with(folder)) {
        return (unread_file(found, UnreadCause::System), None);
    }
    // It is opened so that a pipe that took its place since does not make us wait.
    let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
    let Ok(mut file) = OpenOptions::new().read(true).custom_flags(flags).open(path) else {
        return (unread_file(found, UnreadCause::Unreadable), None);
    };
    // From here on it is the descriptor that counts.
    let Ok(opened) = file.metadata() else { return (unread_file(found, UnreadCause::Unreadable), None) };
    if !opened.is_file() {
        return (special_file(&opened), None);
    }
    let size = opened.len();
    if size > LARGEST || budget.read.saturating_add(size) > MOST {
        return (unread_file(&opened, UnreadCause::TooLarge), None);
    }
    digest_file(&mut file, &opened, budget)
}

/// Hashes a file. Some files, such as those of `/proc`, claim to be empty and are not: the bytes that are read count.
fn digest_file(file: &mut File, opened: &Metadata, budget: &mut ReadBudget) -> (PathState, Option<String>) {
    let mut digesting = DigestBuilder::default();
    let mut chunk = vec![0; 64 << 10];
    let (mut total, mut first) = (0, Vec::new());
    loop {
        match file.read(&mut chunk) {
            Ok(0) => break,
            // A file that grows while it is read cannot be approved.
            Ok(count) if total + count as u64 > LARGEST || budget.read + count as u64 > MOST => {
                return (unread_file(opened, UnreadCause::TooLarge), None);
            }
            Ok(count) => {
                budget.read += count as u64;
                if total == 0 {
                    first = chunk[..count.min(FIRST_LINE)].to_vec();
                }
                total += count as u64;
                digesting.push(&chunk[..count]);
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return (unread_file(opened, UnreadCause::Unreadable), None),
        }
    }
    let (device, inode) = (opened.dev(), opened.ino());
    (PathState::File { device, inode, size: total, sha256: digesting.finish() }, parse_interpreter(&first))
}

fn parse_interpreter(first: &[u8]) -> Option<String> {
    let rest = first.strip_prefix(b"#!")?;
    let line = rest.split(|byte| *byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).trim().to_owned()).filter(|line| !line.is_empty())
}

fn unread_file(found: &Metadata, why: UnreadCause) -> PathState {
    let nanos = |seconds: i64, nanos: i64| seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
    PathState::Unread {
        device: found.dev(),
        inode: found.ino(),
        size: found.len(),
        modified: nanos(found.mtime(), found.mtime_nsec()),
        changed: nanos(found.ctime(), found.ctime_nsec()),
        why,
    }
}

/// Returns true for a file that only the owner of the system changes. Its metadata are checked all the same.
fn is_of_the_system(path: &Path, found: &Metadata) -> bool {
    found.uid() == 0 && found.mode() & WRITTEN_BY_OTHERS == 0 && SYSTEM.iter().any(|folder| path.starts_with(folder))
}
