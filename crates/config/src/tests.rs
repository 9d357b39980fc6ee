//! Meaning of a configuration file, shown with real files.

mod empty_values;
mod faults;
mod files;
mod keys;
mod mcp;
mod noise;
mod rules;

use std::{os::unix::fs::PermissionsExt as _, path::Path};

use super::{ConfigErrors, ConfigFlags, LoadedConfig, load_config};

/// A folder with `config.yaml` and the files that it names.
struct ConfigFixture(tempfile::TempDir);

impl ConfigFixture {
    fn new(text: &str) -> Self {
        let scene = Self(tempfile::tempdir().unwrap());
        scene.write("config.yaml", text);
        scene
    }

    /// Writes a file that only the owner can read.
    fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        std::fs::write(&path, text).unwrap();
        self.mode(name, 0o600);
    }

    fn mode(&self, name: &str, mode: u32) {
        std::fs::set_permissions(self.path().join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn load_with(&self, flags: &ConfigFlags, variables: &[(&str, &str)]) -> Result<LoadedConfig, ConfigErrors> {
        let environment =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        load_config(Some(&self.path().join("config.yaml")), flags, &environment)
    }

    fn load(&self) -> Result<LoadedConfig, ConfigErrors> {
        self.load_with(&ConfigFlags::default(), VARIABLES)
    }

    /// Returns the problems, without the folder's name.
    fn problems(&self) -> Vec<String> {
        self.relative_lines(&self.load().err().map(|errors| errors.to_string()).unwrap_or_default())
    }

    fn relative_lines(&self, text: &str) -> Vec<String> {
        text.replace(&format!("{}/", self.path().display()), "").lines().map(str::to_owned).collect()
    }
}

const VARIABLES: &[(&str, &str)] = &[
    ("AGENT_TOKEN", "agent-secret"),
    ("WEB_PASSWORD", "web-secret"),
    ("GUARDIAN_BOT_TOKEN", "42:bot-secret"),
    ("HA_TOKEN", "ha-secret"),
    ("NUMBER", "12"),
    ("LIST", "[111, 112]"),
    ("EMPTY", ""),
    ("BLANK", " \t"),
    ("TILDE", "~"),
    ("HOLES", "[111, ~]"),
];
