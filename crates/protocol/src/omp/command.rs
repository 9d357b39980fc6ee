//! Reads what a host sends: commands, and answers to dialogs.
//!
//! It must not decide whether a command makes sense now; it only reports whether the line is one. Source: the RPC reference of
//! omp, Command Schema; docs/protocol/omp.md, Commands.

mod adopted;
pub(crate) mod fields;
mod inbound_frame;
mod later;
mod malformed;

use serde::{Deserialize, Serialize};

pub use self::adopted::AdoptedCommand;
pub(crate) use self::adopted::{host_tool_answer, read_adopted, uri_result};
use self::fields::CommandFields;
#[cfg(feature = "fuzzing")]
pub(crate) use self::inbound_frame::assert_refusal;
#[cfg(feature = "fuzzing")]
pub use self::inbound_frame::fuzz;
pub(crate) use self::inbound_frame::ui_response;
pub use self::inbound_frame::{OmpInboundFrame, OmpRequestId, parse_line, receive_line};
pub use self::later::{PageLimit, SubscriptionLevel};
pub use self::malformed::{FieldFault, OmpParseError};
use super::message::ImageContent;

/// Every command of the protocol.
#[derive(Clone, Debug, PartialEq)]
pub enum OmpCommand {
    /// Starts a run, or queues the message if one is running and `streaming_behavior` is given.
    Prompt {
        /// Message of the person.
        message: String,
        /// Absent means none.
        images: Vec<ImageContent>,
        /// Queue for the message during a run. Absent means that a prompt during a run is refused.
        streaming_behavior: Option<StreamingBehavior>,
    },
    /// Queues a message that interrupts the run.
    Steer {
        /// Message of the person.
        message: String,
        /// Absent means none.
        images: Vec<ImageContent>,
    },
    /// Queues a message for when the run would end.
    FollowUp {
        /// Message of the person.
        message: String,
        /// Absent means none.
        images: Vec<ImageContent>,
    },
    /// Stops the run; answered when it has stopped.
    Abort,
    /// Stops the run and starts another.
    AbortAndPrompt {
        /// Message of the person.
        message: String,
        /// Absent means none.
        images: Vec<ImageContent>,
    },
    /// Starts an empty session.
    NewSession {
        /// Kept in the header of the new session as it is.
        parent_session: Option<String>,
    },
    /// Asks for [`RpcSessionState`](super::state::RpcSessionState).
    GetState,
    /// Chooses a model.
    SetModel {
        /// Id of its provider.
        provider: String,
        /// Its id at that provider.
        model_id: String,
    },
    /// Chooses the next model.
    CycleModel,
    /// Asks for all models that could be chosen.
    GetAvailableModels,
    /// Chooses how hard the model thinks.
    SetThinkingLevel {
        /// Any string: one that is no level leaves the level unset.
        level: String,
    },
    /// Chooses the next thinking level.
    CycleThinkingLevel,
    /// Sets the number of steering messages that are taken at once.
    SetSteeringMode {
        /// `all` or `one-at-a-time`; any other string is stored and shown too.
        mode: String,
    },
    /// Sets the number of follow-ups that are taken at once.
    SetFollowUpMode {
        /// `all` or `one-at-a-time`; any other string is stored and shown too.
        mode: String,
    },
    /// Sets whether steering cuts a turn short.
    SetInterruptMode {
        /// `immediate` or `wait`; any other string is stored and shown too.
        mode: String,
    },
    /// Summarises the older part of the context.
    Compact {
        /// Instructions for the summary.
        custom_instructions: Option<String>,
    },
    /// Turns compaction by itself on or off.
    SetAutoCompaction {
        /// On or off.
        enabled: bool,
    },
    /// Turns retrying on or off.
    SetAutoRetry {
        /// On or off.
        enabled: bool,
    },
    /// Gives up the retry that is being waited for.
    AbortRetry,
    /// Runs a shell command for the person, outside any run.
    Bash {
        /// The command line.
        command: String,
    },
    /// Stops what [`OmpCommand::Bash`] runs.
    AbortBash,
    /// Asks for [`SessionStats`](super::state::SessionStats).
    GetSessionStats,
    /// Writes the session as one HTML file.
    ExportHtml {
        /// Path of the file; absent means a name made from the session, in the working folder.
        output_path: Option<String>,
    },
    /// Switches to another session.
    SwitchSession {
        /// Path of its file.
        session_path: String,
    },
    /// Starts a new session from the part before a user message.
    Branch {
        /// The entry of that message.
        entry_id: String,
    },
    /// Asks for the messages that can be branched from.
    GetBranchMessages,
    /// Asks for the text of the newest assistant message.
    GetLastAssistantText,
    /// Names the session.
    SetSessionName {
        /// The name, not yet trimmed.
        name: String,
    },
    /// Asks for the messages of the context.
    GetMessages,
    /// Chooses a version of the protocol. Of omp 17 and later.
    NegotiateProtocol {
        /// The version.
        version: u64,
    },
    /// Turns the faster and dearer way of a provider on or off. Of omp 18.
    SetFastMode {
        /// On or off.
        enabled: bool,
    },
    /// Asks for the slash commands. Of omp 18.
    GetAvailableCommands,
    /// The same. Of pi.
    GetCommands,
    /// Sets the detail of reports about subagents. Of omp 18.
    SetSubagentSubscription {
        /// Level of detail.
        level: SubscriptionLevel,
    },
    /// Asks for the subagents. Of omp 18.
    GetSubagents,
    /// Asks for the transcript of a subagent. Of omp 18.
    GetSubagentMessages {
        /// Its id, or the file of its session; none if neither is given.
        subagent: Option<String>,
    },
    /// Asks for a part of the messages of the context. Of omp 18.
    GetMessagesPage {
        /// Cursor at the end of the page before; absent for the first.
        cursor: Option<String>,
        /// The most messages of the page.
        limit: PageLimit,
    },
    /// Asks for the levels that the model can think at. Of pi.
    GetAvailableThinkingLevels,
    /// The same as [`OmpCommand::Branch`]. Of pi.
    Fork {
        /// The entry of a user message.
        entry_id: String,
    },
    /// Starts a new session with the whole conversation of this one. Of pi.
    Clone,
    /// The same as [`OmpCommand::GetBranchMessages`]. Of pi.
    GetForkMessages,
    /// A command of a released client that is not served.
    NotServed {
        /// Its name.
        name: &'static str,
        /// Reason, and the command to send instead.
        reason: &'static str,
    },
}

/// Queue for a prompt during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StreamingBehavior {
    /// Before the run continues.
    Steer,
    /// At the end of the run.
    FollowUp,
}

/// Reads the fields of the command called `name`; none if there is no such command. Also for dialects of this wire.
pub(crate) fn read_command(name: &str, fields: &CommandFields<'_>) -> Result<Option<OmpCommand>, OmpParseError> {
    let message = || fields.required_field::<String>("message");
    let images = || fields.optional_field::<Vec<ImageContent>>("images").map(Option::unwrap_or_default);
    Ok(Some(match name {
        "prompt" => OmpCommand::Prompt {
            message: message()?,
            images: images()?,
            streaming_behavior: fields.optional_field("streamingBehavior")?,
        },
        "steer" => OmpCommand::Steer { message: message()?, images: images()? },
        "follow_up" => OmpCommand::FollowUp { message: message()?, images: images()? },
        "abort" => OmpCommand::Abort,
        "abort_and_prompt" => OmpCommand::AbortAndPrompt { message: message()?, images: images()? },
        "new_session" => OmpCommand::NewSession { parent_session: fields.optional_field("parentSession")? },
        "get_state" => OmpCommand::GetState,
        "set_model" => OmpCommand::SetModel {
            provider: fields.required_field("provider")?,
            model_id: fields.required_field("modelId")?,
        },
        "cycle_model" => OmpCommand::CycleModel,
        "get_available_models" => OmpCommand::GetAvailableModels,
        "set_thinking_level" => OmpCommand::SetThinkingLevel { level: fields.required_field("level")? },
        "cycle_thinking_level" => OmpCommand::CycleThinkingLevel,
        "set_steering_mode" => OmpCommand::SetSteeringMode { mode: fields.required_field("mode")? },
        "set_follow_up_mode" => OmpCommand::SetFollowUpMode { mode: fields.required_field("mode")? },
        "set_interrupt_mode" => OmpCommand::SetInterruptMode { mode: fields.required_field("mode")? },
        "compact" => OmpCommand::Compact { custom_instructions: fields.optional_field("customInstructions")? },
        "set_auto_compaction" => OmpCommand::SetAutoCompaction { enabled: fields.required_field("enabled")? },
        "set_auto_retry" => OmpCommand::SetAutoRetry { enabled: fields.required_field("enabled")? },
        "abort_retry" => OmpCommand::AbortRetry,
        "bash" => {
            fields.optional_field::<NotExcluded>("excludeFromContext")?;
            OmpCommand::Bash { command: fields.required_field("command")? }
        }
        "abort_bash" => OmpCommand::AbortBash,
        "get_session_stats" => OmpCommand::GetSessionStats,
        "export_html" => OmpCommand::ExportHtml { output_path: fields.optional_field("outputPath")? },
        "switch_session" => OmpCommand::SwitchSession { session_path: fields.required_field("sessionPath")? },
        "branch" => OmpCommand::Branch { entry_id: fields.required_field("entryId")? },
        "get_branch_messages" => OmpCommand::GetBranchMessages,
        "get_last_assistant_text" => OmpCommand::GetLastAssistantText,
        "set_session_name" => OmpCommand::SetSessionName { name: fields.required_field("name")? },
        "get_messages" => OmpCommand::GetMessages,
        _ => return Ok(None),
    }))
}

/// The one value that `excludeFromContext` of a later pi may have.
struct NotExcluded;

impl fields::FieldValue for NotExcluded {
    const EXPECTED: &'static str = "false: the model is told what the commands of a host print";

    fn read_json(json: &str) -> Option<Self> {
        (json == "false").then_some(Self)
    }
}

impl OmpCommand {
    /// Returns the `type` of the command, which its response repeats.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Prompt { .. } => "prompt",
            Self::Steer { .. } => "steer",
            Self::FollowUp { .. } => "follow_up",
            Self::Abort => "abort",
            Self::AbortAndPrompt { .. } => "abort_and_prompt",
            Self::NewSession { .. } => "new_session",
            Self::GetState => "get_state",
            Self::SetModel { .. } => "set_model",
            Self::CycleModel => "cycle_model",
            Self::GetAvailableModels => "get_available_models",
            Self::SetThinkingLevel { .. } => "set_thinking_level",
            Self::CycleThinkingLevel => "cycle_thinking_level",
            Self::SetSteeringMode { .. } => "set_steering_mode",
            Self::SetFollowUpMode { .. } => "set_follow_up_mode",
            Self::SetInterruptMode { .. } => "set_interrupt_mode",
            Self::Compact { .. } => "compact",
            Self::SetAutoCompaction { .. } => "set_auto_compaction",
            Self::SetAutoRetry { .. } => "set_auto_retry",
            Self::AbortRetry => "abort_retry",
            Self::Bash { .. } => "bash",
            Self::AbortBash => "abort_bash",
            Self::GetSessionStats => "get_session_stats",
            Self::ExportHtml { .. } => "export_html",
            Self::SwitchSession { .. } => "switch_session",
            Self::Branch { .. } => "branch",
            Self::GetBranchMessages => "get_branch_messages",
            Self::GetLastAssistantText => "get_last_assistant_text",
            Self::SetSessionName { .. } => "set_session_name",
            Self::GetMessages => "get_messages",
            Self::NegotiateProtocol { .. } => "negotiate_protocol",
            Self::SetFastMode { .. } => "set_fast_mode",
            Self::GetAvailableCommands => "get_available_commands",
            Self::GetCommands => "get_commands",
            Self::SetSubagentSubscription { .. } => "set_subagent_subscription",
            Self::GetSubagents => "get_subagents",
            Self::GetSubagentMessages { .. } => "get_subagent_messages",
            Self::GetMessagesPage { .. } => "get_messages_page",
            Self::GetAvailableThinkingLevels => "get_available_thinking_levels",
            Self::Fork { .. } => "fork",
            Self::Clone => "clone",
            Self::GetForkMessages => "get_fork_messages",
            Self::NotServed { name, .. } => name,
        }
    }
}
