//! Trees less other trees.
//!
//! It must not know what may be done with them.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Returns `path` with every link followed as far as it exists; the rest as it is written, without `..`.
pub(super) fn real_path(path: &Path) -> PathBuf {
    let mut rest = Vec::new();
    let mut at = path;
    loop {
        if let Ok(found) = fs::canonicalize(at) {
            return rest.iter().rev().fold(found, |made: PathBuf, part| match part {
                Some(name) => made.join(name),
                None => made.parent().map(Path::to_owned).unwrap_or(made),
            });
        }
        let Some(parent) = at.parent() else { return path.to_owned() };
        rest.push(at.file_name());
        at = parent;
    }
}

/// Returns the same path with the home folder in place of `~`.
pub(super) fn expand_home(path: &Path, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => real_path(&home.join(rest)),
        (Ok(_), None) | (Err(_), _) => real_path(path),
    }
}

/// Returns the largest trees of `root` that hold nothing of `without`. All are real paths; what is a link is left out.
pub(super) fn without_trees(root: &Path, without: &[PathBuf]) -> Vec<PathBuf> {
    if without.iter().any(|tree| root.starts_with(tree)) {
        return Vec::new();
    }
    if !without.iter().any(|tree| tree.starts_with(root)) {
        return vec![root.to_owned()];
    }
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    let real = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()));
    real.flat_map(|entry| without_trees(&entry.path(), without)).collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::PathBuf};

    use super::{real_path, without_trees};

    #[test]
    fn a_tree_less_another_is_its_neighbours_without_links() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for made in ["a/own", "a/near", "b"] {
            fs::create_dir_all(root.join(made)).unwrap();
        }
        symlink(root.join("a/own"), root.join("link")).unwrap();
        for (without, want) in [
            (vec!["a/own"], vec!["a/near", "b"]),
            (vec!["a/absent"], vec!["a/near", "a/own", "b"]),
            (vec!["a", "b"], vec![]),
            (vec!["../elsewhere"], vec![""]),
            (vec![""], vec![]),
        ] {
            let trees = |names: &[&str]| names.iter().map(|name| root.join(name)).collect::<Vec<PathBuf>>();
            let without: Vec<PathBuf> = trees(&without).iter().map(|path| real_path(path)).collect();
            let mut got = without_trees(&root, &without);
            got.sort();
            let want: Vec<PathBuf> = trees(&want).iter().map(|path| real_path(path)).collect();
            assert_eq!(got, want, "{without:?}");
        }
    }

    #[test]
    fn a_path_that_is_not_there_is_real_as_far_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        symlink(&root, root.join("link")).unwrap();
        assert_eq!(real_path(&root.join("link/new/deep")), root.join("new/deep"));
        assert_eq!(real_path(&root.join("link/new/../own")), root.join("own"));
    }
}
