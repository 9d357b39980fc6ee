//! Texts about the sandbox: for models whose commands it may have made fail, and for operators of the machine.
//!
//! It must not decide anything.

use std::path::{Path, PathBuf};

use super::{NetworkAccess, Sandbox, SandboxMode, trees};
use crate::environment::CommandEnvironment;

impl Sandbox {
    /// Returns the hint for the model after a failed command, if the sandbox may be the cause.
    pub(crate) fn failure_hint(&self, output: &str, cwd: &Path) -> Option<String> {
        let settings = &self.0.settings;
        let says = |words: &[&str]| words.iter().any(|word| output.contains(word));
        let refused =
            says(&["ermission denied", "not permitted", "EACCES", "EPERM", "ead-only file system", "cross-device"]);
        let network = settings.network != NetworkAccess::On
            && says(&["resolve", "ame resolution", "unreachable", "EAI_AGAIN", "ENOTFOUND", "onnect", "ocket"]);
        if !self.is_on() || !(refused || network) {
            return None;
        }
        let write = match settings.mode {
            SandboxMode::Workspace => format!("it may write only in {}", self.writable_summary(cwd)),
            SandboxMode::Off | SandboxMode::Guard => {
                "it may write everywhere except to the gateway's own files".to_owned()
            }
        };
        let network = match settings.network {
            NetworkAccess::Off => ", and reaches no other machine",
            NetworkAccess::Hosts(_) => ", and reaches only listed hosts, through the proxy that http_proxy names",
            NetworkAccess::On => "",
        };
        Some(format!(
            "[This ran in a sandbox: {write}{network}. If that is why it failed, ask for exactly what it needs: call again with needs, such as {{\"write\": [\"/path\"], \"hosts\": [\"example.org:443\"]}}. A person decides, for that call alone.]"
        ))
    }

    /// Returns one line for operators of the machine.
    pub fn settings_summary(&self) -> String {
        let settings = &self.0.settings;
        let mode = match settings.mode {
            SandboxMode::Off => return "off: commands have the rights of the user".to_owned(),
            SandboxMode::Guard => "guard: commands write everywhere except to the gateway's own files",
            SandboxMode::Workspace => "workspace: commands write in their working folder and temporary folders",
        };
        let more: Vec<String> = settings.write.iter().map(|path| path.display().to_string()).collect();
        let more = if more.is_empty() { String::new() } else { format!(", and in {}", more.join(", ")) };
        let network = match &settings.network {
            NetworkAccess::Off => "off".to_owned(),
            NetworkAccess::On => "on".to_owned(),
            NetworkAccess::Hosts(hosts) => {
                let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
                format!("of named hosts ({})", hosts.join(", "))
            }
        };
        format!("{mode}{more}; network {network}")
    }

    /// Returns the writable folders in which commands cannot make anything new, because the gateway's own files are somewhere
    /// below them; each with such a path. Files that do not exist yet do not count.
    pub fn crowded_folders(&self) -> Vec<(PathBuf, PathBuf)> {
        if self.0.settings.mode != SandboxMode::Workspace {
            return Vec::new();
        }
        let own: Vec<PathBuf> = self.0.protected.iter().map(|path| trees::real_path(path)).collect();
        let home = std::env::home_dir();
        let more = self.0.settings.write.iter().map(|path| trees::expand_home(path, home.as_deref()));
        let open = self.temporary_folders(&CommandEnvironment::clean_with([])).chain(more);
        let is_below = |path: &Path, tree: &Path| path.starts_with(tree) && path.exists();
        open.filter_map(|tree| own.iter().find(|path| is_below(path, &tree)).map(|path| (tree, path.clone()))).collect()
    }

    pub(super) fn writable_summary(&self, cwd: &Path) -> String {
        let more = self.0.settings.write.iter().map(|path| path.display().to_string());
        let named: Vec<String> = std::iter::once(cwd.display().to_string()).chain(more).collect();
        format!("{} and folders for temporary files", named.join(", "))
    }
}
