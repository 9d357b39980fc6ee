//! Replies of the agent, and its requests.

use serde::Serialize;
use serde_json::Value;

use super::{config_option::ConfigOption, update::ToolCall};

/// Reply to `initialize`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeReply {
    /// The version that is spoken.
    pub protocol_version: u32,
    /// What the agent can do.
    pub agent_capabilities: AgentCapabilities,
    /// Name, title and version of the agent.
    pub agent_info: Value,
    /// Ways to log in; none is needed.
    pub auth_methods: Vec<Value>,
}

/// What an agent can do.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentCapabilities {
    /// It replays sessions.
    pub load_session: bool,
    /// Blocks that a prompt may have, in addition to text and links.
    pub prompt_capabilities: PromptCapabilities,
    /// Transports of MCP servers that an editor may name.
    pub mcp_capabilities: Value,
    /// Further methods of sessions.
    pub session_capabilities: Value,
}

/// Blocks that a prompt may have, in addition to text and links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptCapabilities {
    /// Images.
    pub image: bool,
    /// Sound.
    pub audio: bool,
    /// Resources with their content.
    pub embedded_context: bool,
}

/// Reply to `session/new`. The replies to `session/load` and `session/resume` have no id.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewSessionReply {
    /// The session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The modes.
    pub modes: SessionModes,
    /// The options.
    pub config_options: Vec<ConfigOption>,
}

/// The modes of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionModes {
    /// The one in force.
    pub current_mode_id: String,
    /// Those that can be chosen.
    pub available_modes: Vec<SessionMode>,
}

/// A mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionMode {
    /// Its id.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// Its effect, for people.
    pub description: String,
}

/// Reply to `session/list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListSessionsReply {
    /// The sessions, the latest first.
    pub sessions: Vec<ListedSession>,
    /// The cursor of the next page, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A session in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListedSession {
    /// Its id.
    pub session_id: String,
    /// The folder in which it works.
    pub cwd: String,
    /// Its title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Time of its last message, ISO 8601.
    pub updated_at: String,
}

/// Reply to `session/prompt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptReply {
    /// Why the turn ended.
    pub stop_reason: StopReason,
}

/// Why a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The agent is done.
    EndTurn,
    /// The model may write no more.
    MaxTokens,
    /// It was stopped.
    Cancelled,
}

/// Parameters of `session/request_permission`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionRequest {
    /// The session.
    pub session_id: String,
    /// The call that waits.
    pub tool_call: ToolCall,
    /// The answers, at least one.
    pub options: Vec<PermissionOption>,
}

/// An answer that a person may choose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionOption {
    /// Its id.
    pub option_id: String,
    /// Its text for people.
    pub name: String,
    /// Its kind, by which clients without a person choose.
    pub kind: PermissionOptionKind,
}

/// Kind of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PermissionOptionKind {
    /// Allows this call.
    AllowOnce,
    /// Allows this call and the same call later.
    AllowAlways,
    /// Denies this call.
    RejectOnce,
}

/// Parameters of `elicitation/create`, as a form.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ElicitationRequest {
    /// Always `form`.
    pub mode: &'static str,
    /// The session.
    pub session_id: String,
    /// The call that asks, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The question.
    pub message: String,
    /// The JSON Schema of the answer.
    pub requested_schema: Value,
}
