//! Folder and name of the file of a session.
//!
//! It must not touch a file. Source: docs/protocol/omp.md, Configuration.

use std::path::{Path, PathBuf};

use countersign_core::{id::SessionId, time::Millis};
use countersign_view::time::format_iso;

/// Returns the name of the folder that holds the sessions of one working directory.
///
/// In the home folder it is `-` and the path from there, in the temporary folder `-tmp-` and the rest, elsewhere the
/// whole path between two `--`. Separators and colons become `-`.
pub fn folder_name(cwd: &Path, home: &Path, temporary: &Path) -> String {
    if let Ok(rest) = cwd.strip_prefix(home) {
        return format!("-{}", joined_path(rest));
    }
    if let Ok(rest) = cwd.strip_prefix(temporary) {
        let rest = joined_path(rest);
        return if rest.is_empty() { "-tmp".to_owned() } else { format!("-tmp-{rest}") };
    }
    absolute_name(cwd)
}

/// Returns the folder's name in older versions, whatever its place.
pub fn absolute_name(cwd: &Path) -> String {
    format!("--{}--", joined_path(cwd))
}

fn joined_path(path: &Path) -> String {
    path.to_string_lossy().trim_start_matches(['/', '\\']).replace(['/', '\\', ':'], "-")
}

/// Returns the file of a session that begins at `at`.
pub fn file_path(folder: &Path, at: Millis, id: &SessionId) -> PathBuf {
    // An id that came from elsewhere must not name another folder.
    let id: String = id.as_str().chars().map(|letter| if "/\\:\0".contains(letter) { '-' } else { letter }).collect();
    folder.join(format!("{}_{id}.jsonl", format_iso(at).replace([':', '.'], "-")))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Millis, SessionId, absolute_name, file_path, folder_name};

    #[test]
    fn a_folder_is_named_after_the_working_directory() {
        for (cwd, want) in [
            ("/home/ana", "-"),
            ("/home/ana/code/my.app", "-code-my.app"),
            ("/home/anabel/x", "--home-anabel-x--"),
            ("/tmp", "-tmp"),
            ("/tmp/a/b", "-tmp-a-b"),
            ("/srv/a:b", "--srv-a-b--"),
            ("/", "----"),
        ] {
            assert_eq!(folder_name(Path::new(cwd), Path::new("/home/ana"), Path::new("/tmp")), want, "{cwd}");
        }
        assert_eq!(absolute_name(Path::new("/home/ana/x")), "--home-ana-x--");
    }

    #[test]
    fn a_file_is_named_after_its_time_and_id() {
        let name = |id: &str| file_path(Path::new("/s"), Millis(1_770_091_506_789), &SessionId::new(id));
        assert_eq!(name("0123456789abcdef"), Path::new("/s/2026-02-03T04-05-06-789Z_0123456789abcdef.jsonl"));
        assert_eq!(name("../../x"), Path::new("/s/2026-02-03T04-05-06-789Z_..-..-x.jsonl"));
    }
}
