//! Policy file for an agent, for as long as its proxy runs.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

/// File with a name that no other process knows. It is removed when dropped.
pub(super) struct PolicyFile(PathBuf);

impl PolicyFile {
    pub(super) fn create(text: &str) -> anyhow::Result<Self> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("no random numbers: {error}"))?;
        let path = std::env::temp_dir().join(format!("countersign-policy-{:016x}.toml", u64::from_ne_bytes(random)));
        let shown = path.display().to_string();
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("cannot create {shown}"))?;
        let file_guard = Self(path);
        file.write_all(text.as_bytes()).with_context(|| format!("cannot write {shown}"))?;
        Ok(file_guard)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PolicyFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
