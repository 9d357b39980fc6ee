//! Writes and reads the file by which programs find the sessions that run.
//!
//! It must not know the path of the file. Source: docs/protocol/gjc.md, Files.

use serde::{Deserialize, Serialize};

use crate::json::WireValue;

/// One session that runs: the whole of `rpc-sessions/<sessionId>.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionRecord {
    /// Names the session, and the file.
    pub session_id: String,
    /// Id of the process. The reader of a record removes it if its process is gone.
    pub pid: u32,
    /// Transport of the session.
    pub transport: SessionTransport,
    /// Its working folder.
    pub cwd: String,
    /// `provider/id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// ISO 8601; readers sort by it.
    pub started_at: String,
    /// The socket's path, or the bridge's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
}

impl WireValue for SessionRecord {}

/// Transport by which a session is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionTransport {
    /// Standard input and output of the process, for the one that started it.
    Stdio,
    /// By a socket.
    Socket,
    /// By the bridge.
    Bridge,
}

/// Returns the name of a session's file, if its id makes one.
pub fn file_name(session_id: &str) -> Option<String> {
    let safe = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    (!session_id.is_empty() && session_id.chars().all(safe)).then(|| format!("{session_id}.json"))
}
