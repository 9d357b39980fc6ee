//! Files that have the name of another with a different extension, which nothing reads.

use std::path::{Path, PathBuf};

/// Returns the files beside `path` that have its name with one of `extensions` in place of its own.
///
/// # Example
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::fs::write(folder.path().join("config.yaml"), "")?;
/// # let path = folder.path().join("config.yml");
/// use countersign_config::misnamed_files;
///
/// let found: Vec<_> = misnamed_files(&path, &["yaml", "json"]).collect();
/// assert_eq!(found, [folder.path().join("config.yaml")]);
/// # std::io::Result::Ok(())
/// ```
pub fn misnamed_files(path: &Path, extensions: &[&str]) -> impl Iterator<Item = PathBuf> {
    let others = extensions.iter().filter(|other| path.extension().is_none_or(|own| own != **other));
    others.map(|other| path.with_extension(other)).filter(|other| other.symlink_metadata().is_ok())
}
