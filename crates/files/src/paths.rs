//! Paths as the system sees them, links followed, also where nothing is yet.

use std::path::{Path, PathBuf};

/// Returns `path` without links as far as it exists, the rest as it is. `None` if the rest leads upwards or nothing of it exists.
pub fn resolve_path(path: &Path) -> Option<PathBuf> {
    match path.canonicalize() {
        Ok(real) => Some(real),
        Err(_) => Some(resolve_path(path.parent()?)?.join(path.file_name()?)),
    }
}

/// Returns `path` as it is, and as [`resolve_path`] if that differs.
pub fn path_variants(path: PathBuf) -> impl Iterator<Item = PathBuf> {
    let real = resolve_path(&path).filter(|real| *real != path);
    std::iter::once(path).chain(real)
}

/// Returns `given` with the home folder in place of a leading `~`.
pub fn expand_home(given: &str, home: &Path) -> PathBuf {
    let below = match given.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => Some(rest.trim_start_matches('/')),
        Some(_) | None => None,
    };
    below.map_or_else(|| PathBuf::from(given), |rest| home.join(rest))
}

/// Returns true if `folder` is `inner` or above it.
pub fn contains_path(folder: &Path, inner: &Path) -> bool {
    resolve_path(folder).zip(resolve_path(inner)).is_some_and(|(folder, inner)| inner.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use super::{expand_home, path_variants, resolve_path};

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
            assert_eq!(resolve_path(&root.join(given)), want.map(|want| root.join(want)), "{given}");
        }
        assert_eq!(path_variants(root.join("link")).collect::<Vec<_>>(), [root.join("link"), root.join("real")]);
        assert_eq!(path_variants(Path::new("/").to_owned()).count(), 1);
    }

    #[test]
    fn a_tilde_that_begins_a_path_is_the_home_folder() {
        let home = Path::new("/home/a");
        for (given, want) in
            [("~", "/home/a/"), ("~/x.html", "/home/a/x.html"), ("~b/x", "~b/x"), ("a/~", "a/~"), ("/x", "/x")]
        {
            assert_eq!(expand_home(given, home), Path::new(want), "{given}");
        }
    }
}
