//! The folders in which conversations work. All of them are below that of agents, even with links.

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

use countersign_config::MAIN;

use super::ChatError;

/// Returns the workspaces that are there, by name, and the usual one.
pub(super) fn list_folders(root: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(root).into_iter().flatten().flatten();
    let folders = listed.filter(|one| one.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut folders: Vec<PathBuf> = folders.map(|one| one.path()).collect();
    folders.push(root.join(MAIN));
    folders.sort_unstable();
    folders.dedup();
    folders
}

/// Returns the folder below `root` that `requested` names, by name or whole path, made if it is not there. Nothing is made below a
/// link that leads elsewhere. `root` is a real path.
///
/// # Errors
/// [`ChatError::Invalid`] if it is none, [`ChatError::Failed`] if it cannot be made.
pub(super) fn ensure_folder(root: &Path, requested: &str) -> Result<PathBuf, ChatError> {
    let refused = || ChatError::Invalid(format!("Workspace is not a folder of this gateway: {requested}"));
    let path = Path::new(requested);
    let inner = path.strip_prefix(root).unwrap_or(path);
    let is_plain = inner.components().all(|part| matches!(part, Component::Normal(_)));
    if !is_plain || inner.as_os_str().is_empty() || requested.contains('\0') {
        return Err(refused());
    }
    let mut folder = root.to_owned();
    for part in inner.components() {
        let next = folder.join(part);
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::InvalidFilename | io::ErrorKind::NotADirectory => refused(),
            _ => ChatError::Failed(format!("{}: {error}", next.display())),
        };
        folder = match fs::canonicalize(&next) {
            Ok(real) => real,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Of a link to nowhere the system says that it exists.
                fs::create_dir(&next)
                    .or_else(|error| if next.is_dir() { Ok(()) } else { Err(error) })
                    .map_err(failed)?;
                fs::canonicalize(&next).map_err(failed)?
            }
            Err(error) => return Err(failed(error)),
        };
        if !folder.starts_with(root) || folder == root || !folder.is_dir() {
            return Err(refused());
        }
    }
    Ok(folder)
}

/// Returns the real path of an existing folder of this machine.
///
/// # Errors
/// [`ChatError::Invalid`] if it is none.
pub(super) async fn check_folder(folder: PathBuf) -> Result<PathBuf, ChatError> {
    let check = move || match fs::canonicalize(&folder) {
        _ if !folder.is_absolute() => Err(format!("{} is not an absolute path", folder.display())),
        Ok(real) if real.is_dir() => Ok(real),
        Ok(_) => Err(format!("{} is not a folder", folder.display())),
        Err(error) => Err(format!("{} cannot be opened: {error}", folder.display())),
    };
    let checked = tokio::task::spawn_blocking(check).await;
    checked.map_err(|error| ChatError::Failed(error.to_string()))?.map_err(ChatError::Invalid)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::{ChatError, ensure_folder, list_folders};

    #[test]
    fn nothing_is_made_behind_a_link_that_leads_elsewhere() {
        let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = root.path().canonicalize().unwrap();
        let other = other.path().canonicalize().unwrap();
        fs::create_dir(root.join("own")).unwrap();
        symlink(root.join("own"), root.join("inside")).unwrap();
        symlink(&other, root.join("outside")).unwrap();
        symlink(other.join("later"), root.join("nowhere")).unwrap();
        fs::write(root.join("file"), "").unwrap();
        assert_eq!(ensure_folder(&root, "new/deep"), Ok(root.join("new/deep")));
        assert_eq!(ensure_folder(&root, "inside/deep"), Ok(root.join("own/deep")));
        assert_eq!(ensure_folder(&root, root.join("own").to_str().unwrap()), Ok(root.join("own")));
        for requested in
            ["outside", "outside/new", "nowhere", "nowhere/new", "file", "file/new", "..", "own/../x", "/etc", ".", ""]
        {
            assert!(ensure_folder(&root, requested).is_err(), "{requested}");
        }
        assert!(matches!(ensure_folder(&root, &"x".repeat(300)), Err(ChatError::Invalid(_))));
        assert!(matches!(ensure_folder(&root, "file/new"), Err(ChatError::Invalid(_))));
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
        assert_eq!(list_folders(&root), ["main", "new", "own"].map(|name| root.join(name)));
    }
}
