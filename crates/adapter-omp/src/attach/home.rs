//! Home of a session, if that is not a log of its own: a small file in the agent directory.
//!
//! It must not open a log.

use std::{
    io,
    path::{Path, PathBuf},
};

use countersign_config::yaml::LARGEST;
use countersign_core::{digest::Digest, id::SessionId};
use countersign_files::replace::{FileAccess, replace_file};
use countersign_runtime::tools::regular;
use serde::{Deserialize, Serialize};

/// The gateway that has a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionHome {
    /// The session.
    pub session: String,
    /// The data directory of the gateway.
    pub gateway: PathBuf,
    /// Path of its session file, or its planned path.
    pub file: PathBuf,
}

/// Returns the folder of an agent directory in which logs lie, and the files that name those that lie elsewhere.
pub fn countersign_folder(root: &Path) -> PathBuf {
    root.join("countersign")
}

/// Reports whether an id can be the name of a file and of nothing else. That of a foreign file need not be.
pub(crate) fn is_plain(id: &SessionId) -> bool {
    let id = id.as_str();
    (1..=128).contains(&id.len())
        && id.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_'))
}

/// Returns the name of a session's files, without what tells them apart.
pub(crate) fn file_stem(id: &SessionId) -> String {
    if is_plain(id) { id.to_string() } else { Digest::hash_bytes(id.as_str().as_bytes()).to_string() }
}

/// Returns the log of a session that has one of its own.
pub(crate) fn own_log(root: &Path, id: &SessionId) -> PathBuf {
    countersign_folder(root).join(format!("{}.db", file_stem(id)))
}

fn home_path(root: &Path, id: &SessionId) -> PathBuf {
    countersign_folder(root).join(format!("{}.home", file_stem(id)))
}

/// Returns the home of a session of the agent directory `root`, if that is not a log of its own.
///
/// # Errors
/// Error of the system; an empty file is an error too, for the session may well live elsewhere.
pub fn read_home(root: &Path, id: &SessionId) -> io::Result<Option<SessionHome>> {
    read_at(&home_path(root, id))
}

/// Reads the file at `path`.
pub(crate) fn read_at(path: &Path) -> io::Result<Option<SessionHome>> {
    let bytes = match regular::read_bytes(path, LARGEST) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error_with_path(path, &error)),
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| error_with_path(path, &error))
}

/// Writes where a session lives.
pub fn write_home(root: &Path, id: &SessionId, home: &SessionHome) -> io::Result<()> {
    let path = home_path(root, id);
    let text = serde_json::to_string(home)?;
    replace_file(&path, format!("{text}\n").as_bytes(), FileAccess::Private)
        .map_err(|error| error_with_path(&path, &error))
}

/// Takes that back: the session was never anything.
pub fn remove_home(root: &Path, id: &SessionId) {
    let _ = std::fs::remove_file(home_path(root, id));
}

fn error_with_path(path: &Path, error: &dyn std::error::Error) -> io::Error {
    io::Error::other(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use countersign_core::id::SessionId;

    use super::{SessionHome, read_home, remove_home, write_home};

    #[test]
    fn a_home_reads_back_and_one_that_says_nothing_is_no_absence() {
        let root = tempfile::tempdir().unwrap();
        for id in ["abc", "a/../b", "agent:pi"].map(SessionId::new) {
            let home = SessionHome { session: id.to_string(), gateway: "/data".into(), file: "/s/a.jsonl".into() };
            assert_eq!(read_home(root.path(), &id).unwrap(), None);
            write_home(root.path(), &id, &home).unwrap();
            assert_eq!(read_home(root.path(), &id).unwrap(), Some(home));
            remove_home(root.path(), &id);
            assert_eq!(read_home(root.path(), &id).unwrap(), None);
        }
        std::fs::write(root.path().join("countersign/torn.home"), "{").unwrap();
        assert!(read_home(root.path(), &SessionId::new("torn")).is_err());
    }
}
