//! Project of `countersign demo`, with the bug that its scripted model finds.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::ensure;

use crate::agents::process::bounded_command;

/// The request that the scripted model knows.
pub(crate) const PROMPT: &str = "The test of greet.sh in this folder fails. Please find the bug, fix it, run the test, and publish \
                                 the project next to this folder.";
/// Part of its script without the bug, and with it.
const FIXED: &str = "$name!";
const BROKEN: &str = "$nmae!";
/// Folder of the project, and that of its last published version.
const FOLDERS: [&str; 2] = ["project", "published"];

/// Project with a bug, and next to it its last published version.
pub(crate) struct DemoProject {
    folder: PathBuf,
    files: BTreeMap<String, Vec<u8>>,
}

impl DemoProject {
    /// Creates it in `folder`, as docs/start/editors.md does.
    pub(crate) fn create(binary: &Path, home: &Path, folder: &Path) -> anyhow::Result<Self> {
        let output = bounded_command(binary, home).args(["demo", "--no", "--dir"]).arg(folder).output()?;
        ensure!(output.status.success(), "countersign demo: {}", String::from_utf8_lossy(&output.stderr));
        let script = folder.join("project/greet.sh");
        let text = fs::read_to_string(&script)?;
        ensure!(text.contains(FIXED), "the demo has left the bug in {}", script.display());
        fs::write(&script, text.replace(FIXED, BROKEN))?;
        Ok(Self { folder: folder.to_owned(), files: read_files(folder)? })
    }

    /// Returns the folder in which the agent works.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(FOLDERS[0])
    }

    /// Returns the names of the files that are not as they were, in order.
    pub(crate) fn changed_files(&self) -> anyhow::Result<Vec<String>> {
        let now = read_files(&self.folder)?;
        let mut names: Vec<String> = self.files.keys().chain(now.keys()).cloned().collect();
        names.sort();
        names.dedup();
        names.retain(|name| self.files.get(name) != now.get(name));
        Ok(names)
    }
}

fn read_files(folder: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for name in FOLDERS {
        for entry in fs::read_dir(folder.join(name))? {
            let entry = entry?;
            files.insert(format!("{name}/{}", entry.file_name().to_string_lossy()), fs::read(entry.path())?);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{DemoProject, read_files};

    #[test]
    fn a_file_that_came_or_went_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        for name in ["project", "published"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        for name in ["project/a", "project/b", "published/a"] {
            write(name, "1");
        }
        let files = read_files(folder.path()).unwrap();
        let project = DemoProject { folder: folder.path().to_owned(), files };
        assert!(project.changed_files().unwrap().is_empty());
        write("project/a", "2");
        write("published/b", "1");
        fs::remove_file(folder.path().join("published/a")).unwrap();
        assert_eq!(project.changed_files().unwrap(), ["project/a", "published/a", "published/b"]);
    }
}
