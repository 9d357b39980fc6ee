//! Reads what a host sends: commands, and answers to dialogs.
//!
//! It must not decide whether a command makes sense now; it only reports whether the line is one. Source: the RPC reference of
//! omp, Command Schema; docs/protocol/omp.md, Commands.

mod adopted;
pub(crate) mod fields;
mod later;
mod malformed;

use serde::{Deserialize, Serialize};

pub use self::adopted::AdoptedCommand;
pub(crate) use self::adopted::{host_tool_answer, read_adopted, uri_result};
use self::fields::CommandFields;
pub use self::later::{PageLimit, SubscriptionLevel};
pub use self::malformed::{FieldFault, OmpParseError};
use super::host_tool::HostToolAnswer;
use super::host_uri::HostUriResult;
use super::message::ImageContent;
use super::ui::UiAnswer;
use crate::json::{RawJson, WireValue, replace_lone_surrogates};
use crate::lines::DecodedLine;

/// The `id` of a request, echoed as it came.
///
/// Ids are strings; a number or anything else but null is echoed as the same JSON. Null counts as absent, as does what holds a number
/// beyond the range of a double.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct OmpRequestId(RawJson);

impl WireValue for OmpRequestId {}

impl From<&str> for OmpRequestId {
    fn from(text: &str) -> Self {
        Self(RawJson::from_wire(text))
    }
}

impl From<RawJson> for OmpRequestId {
    fn from(json: RawJson) -> Self {
        Self(json)
    }
}

/// One frame from the host.
#[derive(Clone, Debug, PartialEq)]
pub enum OmpInboundFrame {
    /// A command that is owed exactly one response.
    Command {
        /// Echoed in the response.
        id: Option<OmpRequestId>,
        /// The command.
        command: OmpCommand,
    },
    /// A command of later versions that the dialect of gjc has too, in the same form. It is owed exactly one response.
    Adopted {
        /// Echoed in the response.
        id: Option<OmpRequestId>,
        /// The command.
        command: AdoptedCommand,
    },
    /// Words of the host about a call of one of its tools. It gets no response, and one for an unknown call is ignored.
    HostTool {
        /// The id of the `host_tool_call`.
        id: String,
        /// The result or update.
        answer: HostToolAnswer,
    },
    /// Words of the host about a request at one of its URIs. It gets no response, and one for an unknown request is ignored.
    HostUri {
        /// The id of the `host_uri_request`.
        id: String,
        /// The result.
        result: HostUriResult,
    },
    /// An answer to a dialog. It gets no response, and one for an unknown dialog is ignored.
    UiResponse {
        /// The id of the `extension_ui_request`.
        id: String,
        /// Answer of the person.
        answer: UiAnswer,
    },
    /// An object whose `type` names no command. Answered without an id:
    /// [`OmpResponse::unknown_command`](super::OmpResponse::unknown_command).
    Unknown {
        /// The `type`; one that is no string is given as its JSON text. None if there is none.
        type_name: Option<String>,
    },
}

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

/// Reads a line as the decoder hands it out.
///
/// # Errors
/// As [`parse_line`], and for a line that the decoder could not read.
pub fn receive_line(line: &DecodedLine) -> Result<OmpInboundFrame, OmpParseError> {
    match line {
        DecodedLine::Text(text) => parse_line(text),
        DecodedLine::TooLong { limit } => Err(OmpParseError::TooLong { limit: *limit }),
        DecodedLine::NotUtf8 => Err(OmpParseError::NotUtf8),
    }
}

/// Reads one line: first `type` and `id`, then the fields of that type. Other fields are ignored.
///
/// For an optional field null counts as absent. Of two members of one name the last counts.
///
/// # Errors
/// [`OmpParseError`] holds the answer to send.
pub fn parse_line(line: &str) -> Result<OmpInboundFrame, OmpParseError> {
    let line = replace_lone_surrogates(line);
    let fields = CommandFields::from_line(&line)?;
    match fields.type_name() {
        Some("extension_ui_response") => {
            let (id, answer) = ui_response(&fields)?;
            Ok(OmpInboundFrame::UiResponse { id, answer })
        }
        Some(name @ ("host_tool_update" | "host_tool_result")) => {
            let answer = fields.optional_field("id").ok().flatten().zip(host_tool_answer(name, &fields));
            let unknown = || OmpInboundFrame::Unknown { type_name: Some(name.to_owned()) };
            Ok(answer.map_or_else(unknown, |(id, answer)| OmpInboundFrame::HostTool { id, answer }))
        }
        Some(name @ "host_uri_result") => {
            let result = fields.optional_field("id").ok().flatten().zip(uri_result(&line));
            let unknown = || OmpInboundFrame::Unknown { type_name: Some(name.to_owned()) };
            Ok(result.map_or_else(unknown, |(id, result)| OmpInboundFrame::HostUri { id, result }))
        }
        Some(name) => {
            let command = match read_command(name, &fields)? {
                Some(command) => Some(command),
                None => later::read_later_command(name, &fields)?,
            };
            if let Some(command) = command {
                return Ok(OmpInboundFrame::Command { id: fields.id(), command });
            }
            Ok(match read_adopted(name, &fields)? {
                Some(command) => OmpInboundFrame::Adopted { id: fields.id(), command },
                None => OmpInboundFrame::Unknown { type_name: Some(name.to_owned()) },
            })
        }
        None => Ok(OmpInboundFrame::Unknown { type_name: None }),
    }
}

/// Reads, for a fuzz loop, `bytes` as one line, and checks that what is refused is refused on one line of JSON, in words.
///
/// # Panics
/// If that does not hold: a finding.
#[cfg(feature = "fuzzing")]
pub fn fuzz(bytes: &[u8]) {
    if let Err(malformed) = parse_line(&String::from_utf8_lossy(bytes)) {
        assert_refusal(&crate::encode_line(&malformed.to_response()));
    }
}

/// Checks that `line` is what a host reads as a refusal.
#[cfg(feature = "fuzzing")]
pub(crate) fn assert_refusal(line: &[u8]) {
    let text = String::from_utf8_lossy(line);
    let response: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    assert!(!text.trim_end_matches('\n').contains(['\n', '\r']), "{text:?} is not one line");
    assert_eq!((&response["type"], &response["success"]), (&"response".into(), &false.into()), "{text:?}");
    let says = &response["error"];
    assert!(says.as_str().is_some_and(|says| !says.is_empty()) || says.is_object(), "{text:?} says nothing");
}

/// Reads the fields of the command called `name`; none if there is no such command. Also for dialects of this wire.
pub(crate) fn read_command(name: &str, fields: &CommandFields<'_>) -> Result<Option<OmpCommand>, OmpParseError> {
    Ok(Some(match name {
        "prompt" => OmpCommand::Prompt {
            message: fields.required_field("message")?,
            images: fields.optional_field("images")?.unwrap_or_default(),
            streaming_behavior: fields.optional_field("streamingBehavior")?,
        },
        "steer" => OmpCommand::Steer {
            message: fields.required_field("message")?,
            images: fields.optional_field("images")?.unwrap_or_default(),
        },
        "follow_up" => OmpCommand::FollowUp {
            message: fields.required_field("message")?,
            images: fields.optional_field("images")?.unwrap_or_default(),
        },
        "abort" => OmpCommand::Abort,
        "abort_and_prompt" => OmpCommand::AbortAndPrompt {
            message: fields.required_field("message")?,
            images: fields.optional_field("images")?.unwrap_or_default(),
        },
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

/// Reads an answer, which must have one meaning only: of two that differ, neither may release anything.
pub(crate) fn ui_response(fields: &CommandFields<'_>) -> Result<(String, UiAnswer), OmpParseError> {
    let id = fields.required_field("id").map_err(without_id)?;
    let cancelled: Option<bool> = fields.optional_field("cancelled").map_err(without_id)?;
    let value: Option<String> = fields.optional_field("value").map_err(without_id)?;
    let confirmed: Option<bool> = fields.optional_field("confirmed").map_err(without_id)?;
    let timed_out: Option<bool> = fields.optional_field("timedOut").map_err(without_id)?;
    let answer = match (cancelled == Some(true), value, confirmed) {
        (true, _, _) => UiAnswer::Cancelled { timed_out: timed_out == Some(true) },
        (false, Some(value), None) => UiAnswer::Value(value),
        (false, None, Some(confirmed)) => UiAnswer::Confirmed(confirmed),
        (false, None, None) | (false, Some(_), Some(_)) => return Err(OmpParseError::Answer),
    };
    Ok((id, answer))
}

/// Removes the id: that of an answer names a dialog of ours, not a request of the host.
fn without_id(malformed: OmpParseError) -> OmpParseError {
    match malformed {
        OmpParseError::Field { id: _, command, field, fault } => {
            OmpParseError::Field { id: None, command, field, fault }
        }
        other @ (OmpParseError::TooLong { .. }
        | OmpParseError::NotUtf8
        | OmpParseError::NotJson { .. }
        | OmpParseError::NotAnObject
        | OmpParseError::Refused { .. }
        | OmpParseError::Answer) => other,
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
