//! Folders in which an agent may work: it reads there without approval, so it must be the folder of a project.

use std::{os::unix::fs::MetadataExt as _, path::Path};

/// Reports whether a folder is the root of the file system or the home folder, under any name.
pub(crate) fn is_too_wide(folder: &Path, home: Option<&Path>) -> bool {
    [Some(Path::new("/")), home].into_iter().flatten().any(|wide| is_same_folder(wide, folder))
}

/// Reports whether two paths lead to the same folder, through links, `..`, or a second mount.
fn is_same_folder(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| std::fs::metadata(path).ok().map(|folder| (folder.dev(), folder.ino()));
    place(one).is_some_and(|found| place(other) == Some(found))
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::symlink, path::Path};

    use super::is_too_wide;

    #[test]
    fn the_root_and_the_home_folder_are_too_wide_under_any_name() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let home = path("home");
        std::fs::create_dir_all(home.join("project")).unwrap();
        symlink("/", path("to-root")).unwrap();
        symlink(&home, path("to-home")).unwrap();
        symlink("home/project", path("to-project")).unwrap();
        for (folder, want) in [
            ("/".into(), true),
            ("//".into(), true),
            ("/.".into(), true),
            ("/tmp/..".into(), true),
            ("/proc/self/root".into(), true),
            (path("to-root"), true),
            (path("to-root/."), true),
            (home.clone(), true),
            (home.join("project/.."), true),
            (path("to-home"), true),
            (path("to-home/project"), false),
            (path("to-project"), false),
            (home.join("absent"), false),
            (place.path().to_owned(), false),
        ] {
            assert_eq!(is_too_wide(&folder, Some(&home)), want, "{}", folder.display());
        }
        assert!(is_too_wide(Path::new("/usr/.."), None));
        assert!(!is_too_wide(&home, None));
    }
}
