//! Paths as the system sees them, links followed, also where nothing is yet.

use std::path::{Path, PathBuf};

/// `path` without links as far as it exists, the rest as it is. `None` if the rest leads upwards or nothing of it exists.
pub fn resolved(path: &Path) -> Option<PathBuf> {
    match path.canonicalize() {
        Ok(real) => Some(real),
        Err(_) => Some(resolved(path.parent()?)?.join(path.file_name()?)),
    }
}

/// `path` as it is, and as [`resolved`] where that is another.
pub fn both(path: PathBuf) -> impl Iterator<Item = PathBuf> {
    let real = resolved(&path).filter(|real| *real != path);
    std::iter::once(path).chain(real)
}

/// `given` with the home folder in place of a `~` that begins it.
pub fn expanded(given: &str, home: &Path) -> PathBuf {
    let below = match given.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => Some(rest.trim_start_matches('/')),
        Some(_) | None => None,
    };
    below.map_or_else(|| PathBuf::from(given), |rest| home.join(rest))
}

/// Whether `folder` is `inner` or above it.
pub fn holds(folder: &Path, inner: &Path) -> bool {
    resolved(folder).zip(resolved(inner)).is_some_and(|(folder, inner)| inner.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use super::{both, expanded, resolved};

    #[test]
    fn a_path_is_resolved_as_far_as_it_exists() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir(root.join("real")).unwrap();
        symlink("real", root.join("link")).unwrap();
        for (given, want) in [
            ("link", Some("real")),
            ("link/new/s.jsonl", Some("real/new/s.jsonl")),
            ("link/../new", Some("new")),
            ("new/../../x", None),
        ] {
            assert_eq!(resolved(&root.join(given)), want.map(|want| root.join(want)), "{given}");
        }
        assert_eq!(both(root.join("link")).collect::<Vec<_>>(), [root.join("link"), root.join("real")]);
        assert_eq!(both(Path::new("/").to_owned()).count(), 1);
    }

    #[test]
    fn a_tilde_that_begins_a_path_is_the_home_folder() {
        let home = Path::new("/home/a");
        for (given, want) in
            [("~", "/home/a/"), ("~/x.html", "/home/a/x.html"), ("~b/x", "~b/x"), ("a/~", "a/~"), ("/x", "/x")]
        {
            assert_eq!(expanded(given, home), Path::new(want), "{given}");
        }
    }
}
