//! The Agent Client Protocol, version 1: JSON-RPC 2.0 with one message a line. Source: docs/protocol/acp.md.
//!
//! It has what an agent reads and writes. What an editor offers to its agent (files, terminals) is not used and so not here.

mod config_option;
mod content;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
mod message;
mod param_reader;
mod params;
mod replies;
mod update;

pub use config_option::{ConfigOption, ConfigSelectOption};
pub use content::{ContentBlock, EmbeddedContents};
pub use message::{
    ErrorCode, IncomingMessage, MessageFault, RequestId, encode_error, encode_notification, encode_request,
    encode_result, parse_message,
};
pub use param_reader::ParamFault;
pub use params::{
    ClientFeatures, ElicitationAnswer, InitializeParams, ListSessionsParams, McpServerParam, OpenSessionParams,
    PermissionAnswer, PromptParams, SessionParams, SetConfigOptionParams, SetModeParams,
};
pub use replies::{
    AgentCapabilities, ElicitationRequest, InitializeReply, ListSessionsReply, ListedSession, NewSessionReply,
    PermissionOption, PermissionOptionKind, PermissionRequest, PromptCapabilities, PromptReply, SessionMode,
    SessionModes, StopReason,
};
pub use update::{
    AvailableCommand, PlanEntry, PlanStatus, SessionUpdate, ToolCall, ToolCallContent, ToolCallFields, ToolCallStatus,
    ToolKind, ToolLocation, UpdateNotification, UsageCost,
};

/// The version that is spoken.
pub const VERSION: u32 = 1;

/// Names of the methods that an editor calls.
pub mod methods {
    /// Opens the connection.
    pub const INITIALIZE: &str = "initialize";
    /// Logs in. No agent of ours needs it.
    pub const AUTHENTICATE: &str = "authenticate";
    /// Opens a session.
    pub const NEW: &str = "session/new";
    /// Opens a session of the record, and replays it.
    pub const LOAD: &str = "session/load";
    /// Opens a session of the record.
    pub const RESUME: &str = "session/resume";
    /// Lists sessions of the record.
    pub const LIST: &str = "session/list";
    /// Ends the work in a session, and leaves it.
    pub const CLOSE: &str = "session/close";
    /// Sends a message of the person.
    pub const PROMPT: &str = "session/prompt";
    /// Stops the work in a session. A notification.
    pub const CANCEL: &str = "session/cancel";
    /// Chooses the mode of a session.
    pub const SET_MODE: &str = "session/set_mode";
    /// Chooses the value of an option of a session.
    pub const SET_CONFIG_OPTION: &str = "session/set_config_option";
    /// Cancels a request, in either direction. A notification.
    pub const CANCEL_REQUEST: &str = "$/cancel_request";
    /// Tells the editor about a session. A notification.
    pub const UPDATE: &str = "session/update";
    /// Asks the person for a permission.
    pub const REQUEST_PERMISSION: &str = "session/request_permission";
    /// Asks the person a question.
    pub const CREATE_ELICITATION: &str = "elicitation/create";

    /// The methods that an editor may call, for texts.
    pub const OF_AGENT: [&str; 11] =
        [INITIALIZE, AUTHENTICATE, NEW, LOAD, RESUME, LIST, CLOSE, PROMPT, CANCEL, SET_MODE, SET_CONFIG_OPTION];
}
