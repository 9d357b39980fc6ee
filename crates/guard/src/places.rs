//! Folders in which programs and guards keep their files.

use std::path::{Path, PathBuf};

/// Folders of one user of this machine.
#[derive(Clone, Debug)]
pub struct GuardPlaces {
    /// Home folder.
    pub home: PathBuf,
    /// Folder of Claude Code, if it is not `~/.claude` (`CLAUDE_CONFIG_DIR`).
    pub claude: Option<PathBuf>,
    /// Folder of Codex, if it is not `~/.codex` (`CODEX_HOME`).
    pub codex: Option<PathBuf>,
    /// Folder for configurations, if it is not `~/.config` (`XDG_CONFIG_HOME`).
    pub config: Option<PathBuf>,
    /// Folder for state, if it is not `~/.local/state` (`XDG_STATE_HOME`).
    pub state: Option<PathBuf>,
    /// Folder of the system's settings, `/etc`.
    pub system: PathBuf,
}

impl GuardPlaces {
    /// Finds the folders of the user by the variables of this process. `None` without `HOME`.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let folder = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Some(Self {
            home: folder("HOME")?,
            claude: folder("CLAUDE_CONFIG_DIR"),
            codex: folder("CODEX_HOME"),
            config: folder("XDG_CONFIG_HOME"),
            state: folder("XDG_STATE_HOME"),
            system: PathBuf::from("/etc"),
        })
    }

    pub(crate) fn claude_folder(&self) -> PathBuf {
        self.claude.clone().unwrap_or_else(|| self.home.join(".claude"))
    }

    /// Returns the folder of Codex.
    pub fn codex_folder(&self) -> PathBuf {
        self.codex.clone().unwrap_or_else(|| self.home.join(".codex"))
    }

    /// Returns the folder for configurations.
    pub fn config_folder(&self) -> PathBuf {
        self.config.clone().unwrap_or_else(|| self.home.join(".config"))
    }

    pub(crate) fn opencode_folder(&self) -> PathBuf {
        self.config_folder().join("opencode")
    }

    /// Returns the path of the plugin for opencode.
    pub fn opencode_plugin(&self) -> PathBuf {
        self.receipts().join("opencode/countersign.mjs")
    }

    /// Returns the folder of receipts.
    pub(crate) fn receipts(&self) -> PathBuf {
        self.state.clone().unwrap_or_else(|| self.home.join(".local/state")).join("countersign/guard")
    }

    /// Returns the folders above `path` that do not exist, the highest first.
    pub(crate) fn missing_folders(path: &Path) -> Vec<PathBuf> {
        let mut missing: Vec<PathBuf> =
            path.ancestors().skip(1).take_while(|folder| !folder.exists()).map(Path::to_owned).collect();
        missing.reverse();
        missing
    }
}
