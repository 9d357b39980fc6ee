//! Folders that last as long as one measurement.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::Context as _;

/// A folder of its own, removed when dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> anyhow::Result<Self> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("countersign-bench-{}-{name}-{number}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("{} could not be made", path.display()))?;
        Ok(Self(path))
    }

    /// A home with a working folder, and an agent directory whose only model is at `base_url`.
    pub(crate) fn with_agent(base_url: &str) -> anyhow::Result<Self> {
        let scratch = Self::new("agent")?;
        fs::create_dir(scratch.work())?;
        fs::create_dir(scratch.agent())?;
        let models = format!(
            "providers:\n  local:\n    baseUrl: {base_url}\n    auth: none\n    api: openai-completions\n    models:\n      \
             - {{ id: small-1, contextWindow: 1000000, maxTokens: 100000 }}\n"
        );
        fs::write(scratch.agent().join("models.yml"), models)?;
        Ok(scratch)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The agent directory.
    pub(crate) fn agent(&self) -> PathBuf {
        self.0.join("agent")
    }

    /// The working folder.
    pub(crate) fn work(&self) -> PathBuf {
        self.0.join("work")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed lies in the temp folder, which somebody else sweeps.
        let _ = fs::remove_dir_all(&self.0);
    }
}
