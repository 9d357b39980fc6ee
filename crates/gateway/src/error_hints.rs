//! Hints for gateways that do not start.

use std::path::{Path, PathBuf};

use countersign_runtime::store;

/// Adds a hint to the error of an address that is taken.
pub(super) fn in_use(problem: std::io::Error, hint: &'static str) -> std::io::Error {
    match problem.kind() {
        std::io::ErrorKind::AddrInUse => std::io::Error::new(problem.kind(), hint),
        _ => problem,
    }
}

/// Returns the reason why a record was not opened, with the file, and with a hint if there is one.
pub(super) fn log_open_error(path: &Path, problem: &store::LogOpenError) -> String {
    let named =
        |why: String| if why.contains(&*path.to_string_lossy()) { why } else { format!("{}: {why}", path.display()) };
    match problem {
        store::LogOpenError::Owned { .. } => {
            format!(
                "another gateway uses this data directory: {problem}. Stop it, or choose another directory with --data"
            )
        }
        store::LogOpenError::Corrupt { cause, .. } => {
            format!(
                "{}. The record is damaged, or the file is not a record: run `countersign doctor`",
                named(cause.to_string())
            )
        }
        store::LogOpenError::Io { cause, .. } => named(cause.to_string()),
        store::LogOpenError::Database(store::DatabaseError::Owned { .. }) => {
            format!("another gateway uses this database: {problem}. Stop it, or set another database in storage.url")
        }
        store::LogOpenError::Database(error @ store::DatabaseError::NodeExists { .. }) => error.to_string(),
        store::LogOpenError::Database(error) => format!("{error}. Run `countersign doctor` for advice"),
        problem => named(problem.to_string()),
    }
}

/// Returns the error for a path of the data directory that is something else, with a hint.
pub(super) fn no_folder(folder: &Path, problem: std::io::Error) -> std::io::Error {
    // Without the part after the last slash: a file is no folder because of that either.
    let folder: PathBuf = folder.components().collect();
    let is_astray = |path: &&Path| {
        path.is_symlink() && path.metadata().is_err_and(|problem| problem.kind() == std::io::ErrorKind::NotFound)
    };
    let why = match (problem.kind(), folder.ancestors().find(is_astray)) {
        _ if folder.is_dir() => return problem,
        (_, Some(link)) if link == folder => "it is a dangling symlink".to_owned(),
        (_, Some(link)) => format!("{} is a dangling symlink", link.display()),
        (_, None) if folder.exists() => "it is not a folder".to_owned(),
        (std::io::ErrorKind::NotADirectory, None) => "one of its parents is not a folder".to_owned(),
        (_, None) => return problem,
    };
    std::io::Error::new(problem.kind(), format!("{why}; choose another directory with --data or storage.path"))
}
