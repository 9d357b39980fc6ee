//! Storage of outputs that are too long to show: a folder per session, in one folder of this user, for a week.
//!
//! It must not know their contents. Results name the files, so a session's folder outlives the session.

use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use nix::{fcntl::OFlag, unistd::Uid};

/// Lifetime of a folder after the last file was made in it.
const KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Prefix of the name of a session's folder; digits of `NAME` bytes follow.
const PREFIX: &str = "outputs-";
const NAME: usize = 12;

/// Returns the folder of one session, in this user's folder below `temporary`. Nothing is made yet.
pub fn session_folder(temporary: &Path, name: [u8; NAME]) -> PathBuf {
    temporary.join(format!("countersign-{}", Uid::effective())).join(format!("{PREFIX}{}", hex::encode(name)))
}

/// Makes the folder of a session if it is missing, readable by this user only. Other folders next to it into which nothing was
/// put for a week are removed then.
///
/// # Errors
/// Errors of the system; [`io::ErrorKind::PermissionDenied`] if another user made the folder around it.
pub(crate) fn create_folder(folder: &Path, now: SystemTime) -> io::Result<()> {
    if fs::symlink_metadata(folder).is_ok_and(|found| is_own_folder(&found)) {
        return Ok(());
    }
    let around = folder.parent().ok_or(io::ErrorKind::InvalidInput)?;
    DirBuilder::new().recursive(true).mode(0o700).create(around)?;
    claim_parent(around)?;
    remove_expired(around, now);
    DirBuilder::new().mode(0o700).create(folder)
}

/// Makes sure that a folder whose name others can guess is ours, and closed to them.
fn claim_parent(around: &Path) -> io::Result<()> {
    let flags = (OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW).bits();
    let opened: File = OpenOptions::new().read(true).custom_flags(flags).open(around)?;
    let found = opened.metadata()?;
    if !is_own_folder(&found) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the folder for outputs belongs to another user"));
    }
    if found.mode() & 0o077 != 0 {
        opened.set_permissions(Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Removes expired folders. A folder that cannot be removed is left for the next time.
fn remove_expired(around: &Path, now: SystemTime) {
    let Ok(entries) = fs::read_dir(around) else { return };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(is_name);
        let is_old = |found: &Metadata| {
            found.modified().ok().and_then(|modified| now.duration_since(modified).ok()).is_some_and(|age| age > KEPT)
        };
        // Not through a link: this looks at the entry itself.
        if is_ours && entry.metadata().is_ok_and(|found| is_own_folder(&found) && is_old(&found)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_name(name: &str) -> bool {
    let digits = name.strip_prefix(PREFIX);
    digits.is_some_and(|digits| digits.len() == 2 * NAME && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn is_own_folder(found: &Metadata) -> bool {
    found.is_dir() && found.uid() == Uid::effective().as_raw()
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File, Permissions},
        io,
        os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
        path::Path,
        time::{Duration, SystemTime},
    };

    use super::{KEPT, claim_parent, create_folder, session_folder};

    const MINUTE: Duration = Duration::from_secs(60);

    fn age(path: &Path, modified: SystemTime) {
        File::open(path).unwrap().set_modified(modified).unwrap();
    }

    #[test]
    fn what_is_older_than_a_week_goes_when_a_new_folder_is_made() {
        let temporary = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let [old, recent, new] = [1, 2, 3].map(|name| session_folder(temporary.path(), [name; 12]));
        let around = new.parent().unwrap();
        let (elsewhere, link) = (temporary.path().join("elsewhere"), session_folder(temporary.path(), [4; 12]));
        let (other, short) = (around.join("other"), around.join("outputs-01"));
        for made in [&old, &recent, &elsewhere, &other, &short] {
            fs::create_dir_all(made).unwrap();
            fs::write(made.join("bash-1.log"), "x").unwrap();
        }
        symlink(&elsewhere, &link).unwrap();
        symlink(&elsewhere, old.join("link")).unwrap();
        for path in [&old, &elsewhere, &other, &short] {
            age(path, now - KEPT - MINUTE);
        }
        age(&recent, now - KEPT + MINUTE);

        create_folder(&new, now).unwrap();
        let left = [&old, &recent, &new, &other, &short, &link, &elsewhere].map(|path| path.exists());
        assert_eq!(left, [false, true, true, true, true, true, true]);
        assert!(elsewhere.join("bash-1.log").exists());
        for made in [around, &new] {
            assert_eq!(fs::metadata(made).unwrap().mode() & 0o777, 0o700, "{}", made.display());
        }
        // Nothing is swept for a folder that is there.
        age(&recent, now - KEPT - MINUTE);
        create_folder(&new, now).unwrap();
        assert!(recent.exists());
    }

    #[test]
    fn the_folder_around_must_be_ours_and_is_closed_to_others() {
        let temporary = tempfile::tempdir().unwrap();
        let new = session_folder(temporary.path(), [5; 12]);
        let around = new.parent().unwrap();
        fs::create_dir(around).unwrap();
        fs::set_permissions(around, Permissions::from_mode(0o777)).unwrap();
        create_folder(&new, SystemTime::now()).unwrap();
        assert_eq!(fs::metadata(around).unwrap().mode() & 0o777, 0o700);

        let link = temporary.path().join("link");
        symlink(around, &link).unwrap();
        assert_eq!(claim_parent(&link).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        if !nix::unistd::Uid::effective().is_root() {
            assert_eq!(claim_parent(Path::new("/usr")).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
    }
}
