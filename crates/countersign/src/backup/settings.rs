//! Settings of a gateway: its configuration, rules and tools, in a place of their own in a backup.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Component, Path, PathBuf},
};

use anyhow::Context as _;

use super::{cannot, copy_job::copy_file, folder::FolderHandle};

/// The files, wherever they lie.
pub(crate) struct SettingsFiles {
    /// Holds secrets as a rule.
    config: Option<PathBuf>,
    /// The rest: rules and tools.
    others: Vec<PathBuf>,
}

/// Result of the copy.
#[derive(Default)]
pub(super) struct CopiedSettings {
    /// Left out, for the secrets in them.
    pub(super) left: Vec<String>,
    /// Those that could not keep their names, with those that they have.
    pub(super) renamed: Vec<(PathBuf, PathBuf)>,
}

impl SettingsFiles {
    /// Returns the configuration with the tools that it names, and the rules.
    pub(crate) fn new(config: Option<PathBuf>, rules: Option<PathBuf>) -> Self {
        let environment = |name: &str| std::env::var(name).ok();
        let tools = config.as_deref().map(|config| countersign_config::tool_files(config, &environment));
        let mut others = Vec::new();
        for file in rules.into_iter().chain(tools.unwrap_or_default()) {
            if !others.contains(&file) {
                others.push(file);
            }
        }
        Self { config, others }
    }

    /// Returns device and number of each: one in the data directory is not copied a second time.
    pub(super) fn file_ids(&self) -> Vec<(u64, u64)> {
        let found = self.config.iter().chain(&self.others).filter_map(|file| fs::metadata(file).ok());
        found.map(|found| (found.dev(), found.ino())).collect()
    }

    /// Copies them into a new folder of `backup`.
    pub(super) fn copy_files(
        &self,
        backup: &FolderHandle,
        name: &str,
        secrets: bool,
    ) -> anyhow::Result<CopiedSettings> {
        let (mut taken, mut folder) = (CopiedSettings::default(), None);
        let files = self.config.iter().chain(&self.others).filter(|file| file.is_file());
        for file in files {
            let Some(base) = file.file_name() else { continue };
            if self.config.as_ref() == Some(file) && !secrets {
                taken.left.push(base.to_string_lossy().into_owned());
                continue;
            }
            let folder = match &folder {
                Some(folder) => folder,
                None => folder.insert(backup.make_folder(name.as_ref()).context("cannot create the settings")?),
            };
            let place = self.put_file(folder, file, base.to_owned()).with_context(|| cannot("copy", file))?;
            if place != self.relative_path(file).unwrap_or_else(|| PathBuf::from(base)) {
                taken.renamed.push((file.clone(), Path::new(name).join(place)));
            }
        }
        Ok(taken)
    }

    /// Returns the path of a file relative to the configuration, if it is below it: the configuration names its tools from there.
    fn relative_path(&self, file: &Path) -> Option<PathBuf> {
        let beside = self.config.as_deref()?.parent()?;
        let place = file.strip_prefix(beside).ok()?;
        let is_below = place.components().all(|part| matches!(part, Component::Normal(_)));
        is_below.then(|| place.to_owned())
    }

    /// Copies one to its place, or under another name if that is taken.
    fn put_file(&self, folder: &FolderHandle, file: &Path, base: OsString) -> io::Result<PathBuf> {
        let numbered = (2..).map(|number: u32| {
            let mut name = OsString::from(format!("{number}-"));
            name.push(&base);
            PathBuf::from(name)
        });
        let source = File::open(file)?;
        for place in self.relative_path(file).into_iter().chain([PathBuf::from(&base)]).chain(numbered) {
            match put_at(folder, &source, &place) {
                Err(error) if is_taken(&error) => {}
                done => return done.map(|()| place),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

fn put_at(folder: &FolderHandle, source: &File, place: &Path) -> io::Result<()> {
    let name = place.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let mut inside = None;
    for part in place.parent().into_iter().flat_map(Path::components) {
        let above = inside.as_ref().unwrap_or(folder);
        let next = match above.make_folder(part.as_os_str()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => above.open_folder(part.as_os_str())?,
            made => made?,
        };
        inside = Some(next);
    }
    copy_file(source, inside.as_ref().unwrap_or(folder), name)
}

/// Reports whether a name is taken: by a file, or by a file where a folder should be.
fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::InvalidData)
}
