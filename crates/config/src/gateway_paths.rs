//! Paths of the gateway's own files.

use std::path::{Path, PathBuf};

use super::{
    config_field::ConfigField,
    load, location,
    settings::{Config, ConfigFlags, StoragePaths},
};

/// The folder of skills: within an agent's own folder, and next to the folder of all agents.
pub const SKILLS: &str = "skills";

/// Paths of the gateway's own files, which no command may touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayPaths {
    /// The file of the configuration.
    pub file: Option<PathBuf>,
    /// The file of the rules.
    pub permissions: PathBuf,
    /// The data directory and the log.
    pub storage: StoragePaths,
    /// The folder of the workspaces.
    pub agents_dir: PathBuf,
    /// The private key of the certificate.
    pub key: Option<PathBuf>,
    /// Files and folders of the process and of its other realms.
    pub others: Vec<PathBuf>,
}

impl GatewayPaths {
    /// Reads them from the file at `path`; a value that cannot be read counts as absent.
    pub(super) fn from_file(root: &ConfigField<'_>, path: &Path, environment: &dyn Fn(&str) -> Option<String>) -> Self {
        let storage = location::resolve_storage(&root.at("storage"), Some(path), &ConfigFlags::default(), environment);
        Self {
            file: Some(path.to_owned()),
            permissions: path.parent().unwrap_or_else(|| Path::new("")).join("permissions.yaml"),
            agents_dir: root.at("agents_dir").path().unwrap_or_else(|| storage.folder.join("agents")),
            key: load::read_tls(&root.at("gateway").at("tls")).map(|tls| tls.key),
            others: Vec::new(),
            storage,
        }
    }
}

/// The folder of the agent that is meant where none is named, below the folder of all of them.
pub const MAIN: &str = "main";

/// Returns the folder of the skills that every agent has: it lies next to the folder of all agents.
pub fn shared_skills(agents: &Path) -> PathBuf {
    agents.parent().unwrap_or(agents).join(SKILLS)
}

impl Config {
    /// Returns the paths of this gateway's own files.
    pub fn gateway_paths(&self) -> GatewayPaths {
        GatewayPaths {
            file: self.file.clone(),
            permissions: self.permissions.clone(),
            storage: self.storage.clone(),
            agents_dir: self.agents_dir.clone(),
            key: self.gateway.tls.as_ref().map(|tls| tls.key.clone()),
            others: self.other_paths.clone(),
        }
    }
}
