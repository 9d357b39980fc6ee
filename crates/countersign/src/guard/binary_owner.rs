//! Owners of our binary: a hook of the machine is only as strong as the file that it starts.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// Bits of a mode with which others than the owner may write.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Bit of a folder in which only the owner of a file may replace it.
const STICKY: u32 = 0o1000;

/// Returns the first part of a path, from the file up, that somebody else than root may replace. None if nobody may.
///
/// # Errors
/// A part cannot be read.
pub(super) fn replaceable_part(binary: &Path) -> io::Result<Option<PathBuf>> {
    let real = fs::canonicalize(binary)?;
    for part in real.ancestors() {
        let found = fs::metadata(part)?;
        let is_shared = found.mode() & WRITABLE_BY_OTHERS != 0 && !(found.is_dir() && found.mode() & STICKY != 0);
        if found.uid() != 0 || is_shared {
            return Ok(Some(part.to_owned()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

    use super::replaceable_part;

    #[test]
    fn a_file_of_root_in_folders_of_root_is_replaced_by_nobody_else() {
        assert_eq!(replaceable_part(Path::new("/bin/sh")).unwrap(), None);
    }

    #[test]
    fn a_file_that_others_may_write_is_replaceable() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let file = folder.join("countersign");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(replaceable_part(&file).unwrap(), Some(file.clone()));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        let found = replaceable_part(&file).unwrap();
        assert!(found == Some(folder) || found == Some(file), "the user of this test may not be root: {found:?}");
    }
}
