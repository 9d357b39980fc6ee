//! Clients of the Agent Client Protocol: their versions and their command line.

use std::{path::Path, process::Command};

use crate::agents::{pinned_program::PinnedProgram, process::bounded_command};

/// Script of the client on the official SDK, in `tests/agents`.
const SCRIPT: &str = "acp_client.mjs";

/// Client that makes one prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcpClient {
    Acpx,
    /// A script of this repository on the official SDK.
    Sdk,
}

/// Answer of the client to each request for a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientAnswer {
    Allow,
    Deny,
}

/// Run of a client.
pub(crate) struct ClientSetup<'a> {
    /// Folder with the installed programs.
    pub(crate) programs: &'a Path,
    /// Folder with the scripts of this suite.
    pub(crate) scripts: &'a Path,
    pub(crate) home: &'a Path,
    /// Folder of the session.
    pub(crate) project: &'a Path,
    /// Command of the agent.
    pub(crate) agent: &'a [String],
    pub(crate) answer: ClientAnswer,
    pub(crate) prompt: &'a str,
}

impl AcpClient {
    pub(crate) const ALL: [Self; 2] = [Self::Acpx, Self::Sdk];

    /// Returns its package in the version that is tried.
    pub(crate) const fn pinned(self) -> PinnedProgram {
        let (name, package, version, file) = match self {
            Self::Acpx => ("acpx", "acpx", "0.19.1", ".bin/acpx"),
            Self::Sdk => ("acp-sdk", "@agentclientprotocol/sdk", "1.9.0", "@agentclientprotocol/sdk/dist/acp.js"),
        };
        PinnedProgram { name, package, version, file }
    }

    /// Returns the command of a client that makes one prompt and leaves.
    pub(crate) fn command(self, setup: &ClientSetup<'_>) -> Command {
        let path = self.pinned().path(setup.programs);
        match self {
            Self::Acpx => {
                let mut command = bounded_command(&path, setup.home);
                command.arg(match setup.answer {
                    ClientAnswer::Allow => "--approve-all",
                    ClientAnswer::Deny => "--deny-all",
                });
                command.args(["--agent", &setup.agent.join(" "), "--cwd"]).arg(setup.project);
                command.args(["exec", setup.prompt]);
                command
            }
            Self::Sdk => {
                let mut command = bounded_command(Path::new("node"), setup.home);
                command.arg(setup.scripts.join(SCRIPT)).arg(path);
                command.arg(match setup.answer {
                    ClientAnswer::Allow => "allow_once",
                    ClientAnswer::Deny => "reject_once",
                });
                command.arg(setup.project).arg(setup.prompt).args(setup.agent);
                command
            }
        }
    }
}
