//! Folder of one agent: nothing is read or written outside of it, whatever links say. Shared skills lie next to those
//! of the agent, and can be read as if they were among them.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path as FilePath, PathBuf},
};

use chrono::{DateTime, Utc};
use countersign_config::{SKILLS, shared_skills};
use countersign_protocol::gsv::workspace::{LARGEST_FILE, WorkspacePath};
use countersign_runtime::tools::{
    AllowedRoots,
    disk::{self, FileStamp, ReplaceCondition},
    roots::{AllowedPath, RootsError},
};

/// Most entries of a folder that are listed.
const MOST_ENTRIES: usize = 10_000;

/// Reason why an operation in a folder failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkspaceError {
    /// Missing file or folder.
    #[error("File not found: {0}")]
    Missing(String),
    /// Path that leads out of the folder.
    #[error("Path traversal not allowed")]
    Traversal,
    /// Folder, or another entry without text.
    #[error("{0} is no file")]
    NotAFile(String),
    /// File that is too large to be shown.
    #[error("{path} has {size} bytes, at most {most} are taken")]
    TooLarge {
        /// Path.
        path: String,
        /// Size in bytes.
        size: u64,
        /// Largest size in bytes.
        most: usize,
    },
    /// File with other content than text.
    #[error("{0} is not UTF-8 text")]
    NotText(String),
    /// Folder with too many entries.
    #[error("{0} has more than {MOST_ENTRIES} entries")]
    TooMany(String),
    /// Another writer changed it meanwhile.
    #[error("{0} was changed by somebody else meanwhile")]
    Changed(String),
    /// Error of the file system.
    #[error("{path}: {source}")]
    Io {
        /// Path.
        path: String,
        /// Reason.
        source: io::Error,
    },
}

/// Contents of a folder, as paths from the agent's folder on, sorted. Folders end with `/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkspaceListing {
    pub(crate) files: Vec<String>,
    pub(crate) directories: Vec<String>,
}

/// File.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkspaceFile {
    pub(crate) text: String,
    /// Size in bytes.
    pub(crate) size: usize,
    pub(crate) modified: Option<DateTime<Utc>>,
}

/// Folder of an agent. It need not exist.
#[derive(Clone, Debug)]
pub(crate) struct AgentFolder {
    root: PathBuf,
    /// Shared skills.
    skills: PathBuf,
}

impl AgentFolder {
    /// Returns the folder of an agent, below the folder of all of them.
    pub(crate) fn for_agent(agents: &FilePath, agent: &str) -> Self {
        Self { root: agents.join(agent), skills: shared_skills(agents) }
    }

    /// Lists the entries at a path. A missing folder is empty.
    ///
    /// # Errors
    /// [`WorkspaceError`].
    pub(crate) fn list_entries(&self, path: &WorkspacePath) -> Result<WorkspaceListing, WorkspaceError> {
        let mut listing = WorkspaceListing::default();
        listing.add_entries(&self.root, path.as_text(), path.as_text())?;
        let shared = if path.as_text() == SKILLS { Some("") } else { path.of_skill() };
        if let Some(shared) = shared {
            listing.add_entries(&self.skills, shared, path.as_text())?;
        }
        listing.files.sort_unstable();
        listing.files.dedup();
        listing.directories.sort_unstable();
        listing.directories.dedup();
        Ok(listing)
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// [`WorkspaceError`].
    pub(crate) fn read_text(&self, path: &WorkspacePath) -> Result<WorkspaceFile, WorkspaceError> {
        match (read_text_file(&self.root, path.as_text(), path.as_text()), path.of_skill()) {
            (Err(WorkspaceError::Missing(_)), Some(shared)) => read_text_file(&self.skills, shared, path.as_text()),
            (read, _) => read,
        }
        .map(|(found, _)| found)
    }

    /// Reads a file of any content, if it has at most `most` bytes.
    ///
    /// # Errors
    /// [`WorkspaceError`].
    pub(crate) fn read_bytes(&self, path: &WorkspacePath, most: usize) -> Result<Vec<u8>, WorkspaceError> {
        match (read_file_bytes(&self.root, path.as_text(), path.as_text(), most), path.of_skill()) {
            (Err(WorkspaceError::Missing(_)), Some(shared)) => {
                read_file_bytes(&self.skills, shared, path.as_text(), most)
            }
            (read, _) => read,
        }
        .map(|(bytes, _)| bytes)
    }

    /// Reads the text of a skill's file, and whether it is the agent's own. `None` if none can be read.
    pub(crate) fn read_skill(&self, path: &WorkspacePath) -> Option<(String, bool)> {
        if let Ok((found, _)) = read_text_file(&self.root, path.as_text(), path.as_text()) {
            return Some((found.text, true));
        }
        let (found, _) = read_text_file(&self.skills, path.of_skill()?, path.as_text()).ok()?;
        Some((found.text, false))
    }

    /// Appends a text to a file, unless `mark`, which is part of the text, is in it already.
    ///
    /// # Errors
    /// [`WorkspaceError`].
    pub(crate) fn append_text(&self, path: &WorkspacePath, text: &str, mark: &str) -> Result<(), WorkspaceError> {
        let (mut whole, before) = match read_text_file(&self.root, path.as_text(), path.as_text()) {
            Err(WorkspaceError::Missing(_)) => (String::new(), ReplaceCondition::Anything),
            found => found.map(|(found, stamp)| (found.text, ReplaceCondition::Unchanged(stamp)))?,
        };
        if whole.contains(mark) {
            return Ok(());
        }
        if !whole.is_empty() && !whole.ends_with('\n') {
            whole.push('\n');
        }
        whole.push_str(text);
        if whole.len() > LARGEST_FILE {
            let (path, size) = (path.as_text().to_owned(), whole.len() as u64);
            return Err(WorkspaceError::TooLarge { path, size, most: LARGEST_FILE });
        }
        self.replace_text(path, &whole, before)
    }

    /// Writes a text to a file, and creates its folders. The file has either the old or the new text.
    ///
    /// # Errors
    /// [`WorkspaceError`].
    pub(crate) fn write_text(&self, path: &WorkspacePath, text: &str) -> Result<(), WorkspaceError> {
        self.replace_text(path, text, ReplaceCondition::Anything)
    }

    /// Changes the text of a file.
    ///
    /// # Errors
    /// Error of `change`, or [`WorkspaceError`] as text. The file is unchanged then.
    pub(crate) fn edit_text<T>(
        &self,
        path: &WorkspacePath,
        change: impl FnOnce(&str) -> Result<(String, T), String>,
    ) -> Result<T, String> {
        let own = read_text_file(&self.root, path.as_text(), path.as_text());
        let (found, before) = match (own, path.of_skill()) {
            // A shared file is copied to the agent's own first.
            (Err(WorkspaceError::Missing(_)), Some(shared)) => {
                let (found, _) =
                    read_text_file(&self.skills, shared, path.as_text()).map_err(|error| error.to_string())?;
                (found, ReplaceCondition::Anything)
            }
            (own, _) => own
                .map(|(found, stamp)| (found, ReplaceCondition::Unchanged(stamp)))
                .map_err(|error| error.to_string())?,
        };
        let (text, value) = change(&found.text)?;
        if text.len() > LARGEST_FILE {
            let size = text.len() as u64;
            let too_large = WorkspaceError::TooLarge { path: path.as_text().to_owned(), size, most: LARGEST_FILE };
            return Err(too_large.to_string());
        }
        self.replace_text(path, &text, before).map_err(|error| error.to_string())?;
        Ok(value)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// [`WorkspaceError`].
    pub(crate) fn remove_file(&self, path: &WorkspacePath) -> Result<(), WorkspaceError> {
        let place = resolve_path(&self.root, path.as_text(), path.as_text())?;
        let found = fs::symlink_metadata(place.path()).map_err(|error| io_at(path.as_text(), error))?;
        if !found.is_file() {
            return Err(WorkspaceError::NotAFile(path.as_text().to_owned()));
        }
        disk::remove_file(&place).map_err(|error| io_at(path.as_text(), error))
    }

    fn replace_text(&self, path: &WorkspacePath, text: &str, before: ReplaceCondition) -> Result<(), WorkspaceError> {
        let shown = path.as_text();
        fs::create_dir_all(&self.root).map_err(|error| io_at(shown, error))?;
        let roots = AllowedRoots::new(&self.root, []).map_err(|error| io_at(shown, error))?;
        let place =
            roots.resolve_path(roots.root(), FilePath::new(shown)).map_err(|error| roots_error(shown, error))?;
        match disk::replace_file(&place, text.as_bytes(), before) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                Err(WorkspaceError::NotAFile(shown.to_owned()))
            }
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Err(WorkspaceError::Changed(shown.to_owned())),
            Err(error) => Err(io_at(shown, error)),
        }
    }
}

impl WorkspaceListing {
    fn add_entries(&mut self, root: &FilePath, path: &str, shown: &str) -> Result<(), WorkspaceError> {
        let place = match resolve_path(root, path, shown) {
            Err(WorkspaceError::Missing(_)) => return Ok(()),
            place => place?,
        };
        let entries = match fs::read_dir(place.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(()),
            entries => entries.map_err(|error| io_at(shown, error))?,
        };
        let roots = AllowedRoots::new(root, []).map_err(|error| io_at(shown, error))?;
        let boundary = roots.boundary();
        for (count, entry) in entries.enumerate() {
            if count >= MOST_ENTRIES {
                return Err(WorkspaceError::TooMany(shown.to_owned()));
            }
            let entry = entry.map_err(|error| io_at(shown, error))?;
            // A name that is no text cannot be requested either, and a link out of the folder counts as missing.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let Ok(place) = boundary.resolve_path(roots.root(), &entry.path()) else { continue };
            let Ok(found) = fs::symlink_metadata(place.path()) else { continue };
            let full = if shown.is_empty() { name } else { format!("{shown}/{name}") };
            if found.is_dir() {
                self.directories.push(format!("{full}/"));
            } else if found.is_file() {
                self.files.push(full);
            }
        }
        Ok(())
    }
}

fn resolve_path(root: &FilePath, path: &str, shown: &str) -> Result<AllowedPath, WorkspaceError> {
    let roots = AllowedRoots::new(root, []).map_err(|error| io_at(shown, error))?;
    let path = if path.is_empty() { "." } else { path };
    let place = roots.resolve_path(roots.root(), FilePath::new(path)).map_err(|error| roots_error(shown, error))?;
    if place.exists() { Ok(place) } else { Err(WorkspaceError::Missing(shown.to_owned())) }
}

fn read_text_file(root: &FilePath, path: &str, shown: &str) -> Result<(WorkspaceFile, FileStamp), WorkspaceError> {
    let (bytes, found) = read_file_bytes(root, path, shown, LARGEST_FILE)?;
    let size = bytes.len();
    let text = String::from_utf8(bytes).map_err(|_| WorkspaceError::NotText(shown.to_owned()))?;
    let modified = found.modified().ok().map(DateTime::from);
    Ok((WorkspaceFile { text, size, modified }, FileStamp::from_metadata(&found)))
}

fn read_file_bytes(
    root: &FilePath,
    path: &str,
    shown: &str,
    most: usize,
) -> Result<(Vec<u8>, fs::Metadata), WorkspaceError> {
    let place = resolve_path(root, path, shown)?;
    let mut file = disk::open_file(&place).map_err(|error| io_at(shown, error))?;
    let found = file.metadata().map_err(|error| io_at(shown, error))?;
    if !found.is_file() {
        return Err(WorkspaceError::NotAFile(shown.to_owned()));
    }
    let too_large = |size| WorkspaceError::TooLarge { path: shown.to_owned(), size, most };
    if found.len() > most as u64 {
        return Err(too_large(found.len()));
    }
    let mut bytes = Vec::new();
    (&mut file).take(most as u64 + 1).read_to_end(&mut bytes).map_err(|error| io_at(shown, error))?;
    if bytes.len() > most {
        return Err(too_large(bytes.len() as u64));
    }
    Ok((bytes, found))
}

fn roots_error(shown: &str, error: RootsError) -> WorkspaceError {
    match error {
        RootsError::Outside { .. } | RootsError::Reserved(_) | RootsError::Process(_) | RootsError::Links(_) => {
            WorkspaceError::Traversal
        }
        RootsError::Io { source, .. } => io_at(shown, source),
        RootsError::Empty | RootsError::Nul => WorkspaceError::NotAFile(shown.to_owned()),
    }
}

fn io_at(shown: &str, source: io::Error) -> WorkspaceError {
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => WorkspaceError::Missing(shown.to_owned()),
        _ => WorkspaceError::Io { path: shown.to_owned(), source },
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use countersign_protocol::gsv::workspace::WorkspacePath;

    use super::{AgentFolder, WorkspaceListing};

    fn path(text: &str) -> WorkspacePath {
        WorkspacePath::from_text(text).unwrap()
    }

    fn texts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn nothing_outside_of_the_folder_is_listed_read_written_or_removed() {
        let world = tempfile::tempdir().unwrap();
        let agents = world.path().join("agents");
        fs::create_dir_all(agents.join("a/sub")).unwrap();
        fs::create_dir_all(agents.join("b")).unwrap();
        fs::write(agents.join("b/secret"), "s").unwrap();
        symlink("../b", agents.join("a/out")).unwrap();
        symlink("../b/secret", agents.join("a/leak")).unwrap();
        symlink("/etc/hostname", agents.join("a/host")).unwrap();
        symlink("sub", agents.join("a/in")).unwrap();
        let folder = AgentFolder::for_agent(&agents, "a");
        let listed = folder.list_entries(&path("")).unwrap();
        assert_eq!(listed, WorkspaceListing { files: Vec::new(), directories: texts(&["in/", "sub/"]) });
        for at in ["out/secret", "leak", "host", "out/new"] {
            assert_eq!(folder.read_text(&path(at)).unwrap_err().to_string(), "Path traversal not allowed", "{at}");
            assert_eq!(
                folder.write_text(&path(at), "x").unwrap_err().to_string(),
                "Path traversal not allowed",
                "{at}"
            );
            assert_eq!(folder.remove_file(&path(at)).unwrap_err().to_string(), "Path traversal not allowed", "{at}");
        }
        assert_eq!(fs::read_to_string(agents.join("b/secret")).unwrap(), "s");
        folder.write_text(&path("in/deep/x"), "ü").unwrap();
        assert_eq!(folder.read_text(&path("sub/deep/x")).unwrap().text, "ü");
        assert_eq!(folder.list_entries(&path("sub")).unwrap().directories, texts(&["sub/deep/"]));
    }

    #[test]
    fn what_is_not_there_is_missing_and_an_empty_listing() {
        let world = tempfile::tempdir().unwrap();
        let folder = AgentFolder::for_agent(&world.path().join("agents"), "nobody");
        assert_eq!(folder.list_entries(&path("")).unwrap(), WorkspaceListing::default());
        assert_eq!(folder.read_text(&path("a/b")).unwrap_err().to_string(), "File not found: a/b");
        assert_eq!(folder.remove_file(&path("a")).unwrap_err().to_string(), "File not found: a");
        folder.write_text(&path("a"), "").unwrap();
        assert_eq!(folder.read_text(&path("a/b")).unwrap_err().to_string(), "File not found: a/b");
        folder.write_text(&path("f/x"), "1").unwrap();
        assert_eq!(folder.read_text(&path("f")).unwrap_err().to_string(), "f is no file");
        assert_eq!(folder.remove_file(&path("f")).unwrap_err().to_string(), "f is no file");
        assert_eq!(folder.write_text(&path("f"), "x").unwrap_err().to_string(), "f is no file");
    }

    #[test]
    fn skills_of_everybody_are_read_behind_those_of_the_agent_and_written_as_its_own() {
        let world = tempfile::tempdir().unwrap();
        let agents = world.path().join("agents");
        fs::create_dir_all(world.path().join("skills/one")).unwrap();
        fs::write(world.path().join("skills/one/SKILL.md"), "everybody's").unwrap();
        let folder = AgentFolder::for_agent(&agents, "a");
        let at = path("skills/one/SKILL.md");
        assert_eq!(folder.read_text(&at).unwrap().text, "everybody's");
        assert_eq!(folder.list_entries(&path("skills")).unwrap().directories, texts(&["skills/one/"]));
        assert_eq!(folder.list_entries(&path("skills/one")).unwrap().files, texts(&["skills/one/SKILL.md"]));
        folder.edit_text(&at, |text| Ok((text.replace("everybody", "mine, once everybody"), ()))).unwrap();
        assert_eq!(folder.read_text(&at).unwrap().text, "mine, once everybody's");
        assert_eq!(fs::read_to_string(world.path().join("skills/one/SKILL.md")).unwrap(), "everybody's");
        folder.remove_file(&at).unwrap();
        assert_eq!(folder.read_text(&at).unwrap().text, "everybody's");
        assert!(folder.remove_file(&at).is_err());
    }
}
