//! The little that the prompt needs of a file system.
//!
//! It must not know which files matter.

use std::{
    fs::OpenOptions,
    io::Read as _,
    path::{Path, PathBuf},
};

use countersign_runtime::tools::regular;

/// The beginning of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHead {
    /// At most the requested number of bytes.
    pub text: String,
    /// True if there is more.
    pub cut: bool,
}

/// Files as they are at one moment.
pub trait PromptFiles {
    /// Reads at most `limit` bytes of an ordinary file. `None` if there is none or it cannot be read.
    fn read_head(&self, path: &Path, limit: usize) -> Option<FileHead>;

    /// Reports whether a path exists.
    fn path_exists(&self, path: &Path) -> bool;

    /// Returns the names of the entries of a folder. None if there is no such folder.
    fn file_names(&self, folder: &Path) -> Vec<String>;
}

/// The real file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFiles;

impl PromptFiles for DiskFiles {
    fn read_head(&self, path: &Path, limit: usize) -> Option<FileHead> {
        // The opened file is the one that is checked: a pipe that is put in a file's place meanwhile is not waited for.
        let file = regular::open_file(path, OpenOptions::new().read(true)).ok()?;
        let mut bytes = Vec::new();
        file.take(limit as u64 + 1).read_to_end(&mut bytes).ok()?;
        Some(cut_to_limit(&bytes, limit))
    }

    fn path_exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn file_names(&self, folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }
}

fn cut_to_limit(bytes: &[u8], limit: usize) -> FileHead {
    let cut = bytes.len() > limit;
    let mut end = bytes.len().min(limit);
    // Never inside a character.
    while cut && end > 0 && (bytes[end] & 0b1100_0000) == 0b1000_0000 {
        end -= 1;
    }
    FileHead { text: String::from_utf8_lossy(&bytes[..end]).into_owned(), cut }
}

/// Files that only exist in a table.
impl PromptFiles for std::collections::BTreeMap<PathBuf, String> {
    fn read_head(&self, path: &Path, limit: usize) -> Option<FileHead> {
        self.get(path).map(|text| cut_to_limit(text.as_bytes(), limit))
    }

    fn path_exists(&self, path: &Path) -> bool {
        self.keys().any(|file| file.starts_with(path))
    }

    fn file_names(&self, folder: &Path) -> Vec<String> {
        let within = self.keys().filter(|file| file.parent() == Some(folder));
        within.filter_map(|file| Some(file.file_name()?.to_str()?.to_owned())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{DiskFiles, FileHead, PromptFiles as _};

    #[test]
    fn only_regular_files_are_read_up_to_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, "aßb").unwrap();
        for (limit, text, cut) in [(9, "aßb", false), (4, "aßb", false), (3, "aß", true), (2, "a", true), (0, "", true)]
        {
            assert_eq!(DiskFiles.read_head(&file, limit), Some(FileHead { text: text.to_owned(), cut }), "{limit}");
        }
        std::os::unix::fs::symlink("a", folder.path().join("link")).unwrap();
        assert!(DiskFiles.read_head(&folder.path().join("link"), 9).is_some());
        assert!(std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap().success());
        assert_eq!(DiskFiles.read_head(&folder.path().join("pipe"), 9), None);
        assert_eq!(DiskFiles.read_head(folder.path(), 9), None);
        assert_eq!(DiskFiles.read_head(&folder.path().join("absent"), 9), None);
    }
}
