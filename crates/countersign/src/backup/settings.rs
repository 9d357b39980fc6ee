//! What a gateway was set up with: its configuration and rules, in a place of their own in a backup.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
};

use anyhow::Context as _;

use super::{copying::copy_file, folder::Folder, shown};

/// The files, wherever they lie.
pub(crate) struct Settings {
    /// Holds secrets as a rule.
    config: Option<PathBuf>,
    others: Vec<PathBuf>,
}

impl Settings {
    pub(crate) fn of(config: Option<PathBuf>, rules: Option<PathBuf>) -> Self {
        Self { config, others: rules.into_iter().collect() }
    }

    /// Device and number of each: where one lies in the data directory, it is not taken along a second time.
    pub(super) fn numbers(&self) -> Vec<(u64, u64)> {
        let found = self.config.iter().chain(&self.others).filter_map(|file| fs::metadata(file).ok());
        found.map(|found| (found.dev(), found.ino())).collect()
    }

    /// Copies them into a new folder of `backup`, and names those that were left out for the secrets in them.
    pub(super) fn copy(&self, backup: &Folder, name: &str, secrets: bool) -> anyhow::Result<Vec<String>> {
        let (mut left, mut folder) = (Vec::new(), None);
        for file in self.others.iter().chain(&self.config).filter(|file| file.is_file()) {
            let Some(base) = file.file_name() else { continue };
            if self.config.as_ref() == Some(file) && !secrets {
                left.push(base.to_string_lossy().into_owned());
                continue;
            }
            let folder = match &folder {
                Some(folder) => folder,
                None => folder.insert(backup.make_folder(name.as_ref()).context("settings")?),
            };
            let copied = File::open(file).and_then(|source| copy_file(&source, folder, base));
            copied.with_context(|| shown(file))?;
        }
        Ok(left)
    }
}
