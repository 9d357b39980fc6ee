//! Options of all servers: the means to start them, and the bounds of everything that they send.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use countersign_runtime::tools::{GatewaySecrets, Sandbox, exec::ExecLauncher};

use crate::questions::QuestionAsker;

/// Variable of the MCP servers that a gateway or a stdio adapter starts: the data directory of the one that started them. A
/// `countersign mcp` among them would call itself.
pub const STARTED_BY: &str = "COUNTERSIGN_MCP";

/// Options of [`crate::McpServers`].
#[derive(Clone, Debug)]
pub struct McpOptions {
    /// Starts the exec child that runs a server.
    pub launcher: ExecLauncher,
    /// Confines the servers that the gateway starts.
    pub sandbox: Sandbox,
    /// The folder in which each server has one with its name: its `HOME`, which it may write, and where it starts if it names none.
    pub homes: PathBuf,
    /// Names of all servers. The folder of one is closed to the others.
    pub names: Vec<String>,
    /// Variables of every server that the gateway starts. They precede those of its definition.
    pub variables: BTreeMap<String, String>,
    /// Headers of every request to a server at an address. They precede those of its definition.
    pub headers: BTreeMap<String, String>,
    /// Secrets that variables and headers may name, and that arguments of calls may hold.
    pub secrets: GatewaySecrets,
    /// Asks people what servers want to know; without it servers hear that they cannot ask.
    pub asker: Option<Arc<dyn QuestionAsker>>,
    /// Bounds of everything that a server sends.
    pub limits: McpLimits,
}

impl McpOptions {
    /// Creates options without a sandbox and without secrets.
    pub fn new(launcher: ExecLauncher, homes: PathBuf) -> Self {
        Self {
            launcher,
            sandbox: Sandbox::default(),
            homes,
            names: Vec::new(),
            variables: BTreeMap::new(),
            headers: BTreeMap::new(),
            secrets: GatewaySecrets::default(),
            asker: None,
            limits: McpLimits::default(),
        }
    }
}

/// Bounds of everything that a server sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct McpLimits {
    /// Largest message that is read into memory, in bytes.
    pub message: usize,
    /// Text kept of one result, in bytes. The rest is cut.
    pub text: usize,
    /// Images kept of one result, in bytes of base64. Later ones are left out.
    pub images: usize,
    /// Most pages of a list.
    pub pages: usize,
    /// Most entries of a list.
    pub entries: usize,
    /// Largest list, in bytes of JSON.
    pub listing: usize,
    /// Most messages of a server within one second, answers not counted.
    pub messages_per_second: u32,
    /// Most lines of a server's output that are no messages.
    pub noise_lines: u32,
    /// Most questions to people during one call.
    pub questions: u32,
    /// Most rounds of input that a server may want for one call.
    pub rounds: u32,
}

impl Default for McpLimits {
    fn default() -> Self {
        Self {
            message: 8 << 20,
            text: 1 << 20,
            images: 4 << 20,
            pages: 50,
            entries: 1000,
            listing: 4 << 20,
            messages_per_second: 1000,
            noise_lines: 100,
            questions: 16,
            rounds: 8,
        }
    }
}
