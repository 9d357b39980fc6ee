//! What an agent tells about a session.

use serde::Serialize;
use serde_json::Value;

use super::{config_option::ConfigOption, content::ContentBlock};

/// Parameters of `session/update`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateNotification<'a> {
    /// The session.
    pub session_id: &'a str,
    /// The update.
    pub update: &'a SessionUpdate,
}

/// An update of a session.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "sessionUpdate", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum SessionUpdate {
    /// More of a message of the person.
    UserMessageChunk {
        /// The block.
        content: ContentBlock,
    },
    /// More of the agent's answer.
    AgentMessageChunk {
        /// The block.
        content: ContentBlock,
    },
    /// More of the agent's thoughts.
    AgentThoughtChunk {
        /// The block.
        content: ContentBlock,
    },
    /// A call begins.
    ToolCall(ToolCall),
    /// A call changes.
    ToolCallUpdate(ToolCall),
    /// The whole list of tasks.
    Plan {
        /// The tasks.
        entries: Vec<PlanEntry>,
    },
    /// The commands that a message may begin with.
    AvailableCommandsUpdate {
        /// The commands.
        available_commands: Vec<AvailableCommand>,
    },
    /// Another mode is in force.
    CurrentModeUpdate {
        /// Its id.
        current_mode_id: String,
    },
    /// The options changed.
    ConfigOptionUpdate {
        /// All of them.
        config_options: Vec<ConfigOption>,
    },
    /// The title changed.
    SessionInfoUpdate {
        /// The title.
        title: String,
    },
    /// The context that the session takes.
    UsageUpdate {
        /// Tokens in the context.
        used: u64,
        /// Tokens that fit.
        size: u64,
        /// Cost of the session so far, if it is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        cost: Option<UsageCost>,
    },
    /// A notice that is no part of the conversation, for editors that show them.
    Notice {
        /// `info`, `warning` or `error`.
        severity: &'static str,
        /// One line.
        title: String,
    },
}

/// A cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct UsageCost {
    /// The amount.
    pub amount: f64,
    /// Always `USD`.
    pub currency: &'static str,
}

/// A call, or what changed of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    /// Names it in its session.
    pub tool_call_id: String,
    /// Its parts. In an update those that are absent stay.
    #[serde(flatten)]
    pub fields: ToolCallFields,
}

/// Parts of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCallFields {
    /// One line for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The tool's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<ToolKind>,
    /// The status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<ToolCallStatus>,
    /// Content for people: all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Vec<ToolCallContent>>,
    /// The files that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locations: Option<Vec<ToolLocation>>,
    /// The exact arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_input: Option<Value>,
    /// The result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_output: Option<Value>,
}

/// Kind of a call, by which editors choose a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    /// Reads files.
    Read,
    /// Changes files.
    Edit,
    /// Searches.
    Search,
    /// Runs a command.
    Execute,
    /// Plans, or asks.
    Think,
    /// Anything else.
    Other,
}

/// Status of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolCallStatus {
    /// It has not begun.
    Pending,
    /// It runs.
    InProgress,
    /// It ended.
    Completed,
    /// It failed, or was not run.
    Failed,
}

/// Content of a call, for people.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ToolCallContent {
    /// A block.
    Content {
        /// The block.
        content: ContentBlock,
    },
    /// A change of a file.
    Diff {
        /// The file, an absolute path.
        path: String,
        /// The text before; absent for a new file.
        #[serde(skip_serializing_if = "Option::is_none")]
        old_text: Option<String>,
        /// The text after.
        new_text: String,
    },
}

impl ToolCallContent {
    /// Returns a block of text.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self::Content { content: ContentBlock::from_text(text) }
    }
}

/// A file that a call is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ToolLocation {
    /// An absolute path.
    pub path: String,
    /// A line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlanEntry {
    /// One line.
    pub content: String,
    /// Always `medium`: tasks have no priority here.
    pub priority: &'static str,
    /// The status.
    pub status: PlanStatus,
}

/// Status of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanStatus {
    /// Not begun.
    Pending,
    /// Begun.
    InProgress,
    /// Done.
    Completed,
}

/// A command that a message may begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AvailableCommand {
    /// Its name, without the slash.
    pub name: &'static str,
    /// Its effect, for people.
    pub description: &'static str,
}
