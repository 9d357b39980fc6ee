//! Reads what a host sends: commands, and answers to dialogs.
//!
//! It must not decide whether a command makes sense now; it only says whether the line is one. Source: the RPC
//! reference of omp, Command Schema; docs/protocol/omp.md, Commands.

mod adopted;
pub(crate) mod fields;
mod later;
mod malformed;

use serde::{Deserialize, Serialize};

pub use self::adopted::AdoptedCommand;
pub(crate) use self::adopted::{adopted, host_tool_answer, uri_result};
use self::fields::Fields;
pub use self::later::{PageLimit, SubscriptionLevel};
pub use self::malformed::{Fault, Malformed};
use super::host_tool::HostToolAnswer;
use super::host_uri::HostUriResult;
use super::message::ImageContent;
use super::ui::UiAnswer;
use crate::json::{Json, Wire, mend};
use crate::lines::Line;

/// The `id` of a request, echoed as it came.
///
/// Ids are strings; a number or anything else but null is echoed as the same JSON. Null counts as absent, as does what holds a number
/// beyond the range of a double.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Id(Json);

impl Wire for Id {}

impl From<&str> for Id {
    fn from(text: &str) -> Self {
        Self(Json::of(text))
    }
}

impl From<Json> for Id {
    fn from(json: Json) -> Self {
        Self(json)
    }
}

/// One frame from the host.
#[derive(Clone, Debug, PartialEq)]
pub enum Incoming {
    /// A command that is owed exactly one response.
    Command {
        /// Echoed in the response.
        id: Option<Id>,
        /// What is asked for.
        command: Command,
    },
    /// A command of later versions that the dialect of gjc has too, in the same form. It is owed exactly one response.
    Adopted {
        /// Echoed in the response.
        id: Option<Id>,
        /// What is asked for.
        command: AdoptedCommand,
    },
    /// Words of the host about a call of one of its tools. It gets no response, and one for an unknown call is ignored.
    HostTool {
        /// The id of the `host_tool_call`.
        id: String,
        /// What it says.
        answer: HostToolAnswer,
    },
    /// Words of the host about a request at one of its URIs. It gets no response, and one for an unknown request is ignored.
    HostUri {
        /// The id of the `host_uri_request`.
        id: String,
        /// What it says.
        result: HostUriResult,
    },
    /// An answer to a dialog. It gets no response, and one for an unknown dialog is ignored.
    UiResponse {
        /// The id of the `extension_ui_request`.
        id: String,
        /// What the person said.
        answer: UiAnswer,
    },
    /// An object whose `type` names no command. Answered without an id:
    /// [`Response::unknown`](super::Response::unknown).
    Unknown {
        /// The `type`; one that is no string is given as its JSON text. None if there is none.
        type_name: Option<String>,
    },
}

/// Every command of the protocol.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Starts a run, or queues the message if one is running and `streaming_behavior` says how.
    Prompt {
        /// What the person says.
        message: String,
        /// Absent means none.
        images: Vec<ImageContent>,
        /// Where to queue the message during a run. Absent means that a prompt during a run is refused.
        streaming_behavior: Option<StreamingBehavior>,
    },
    /// Queues a message that interrupts the run.
    Steer {
        /// What the person says.
        message: String,
        /// Absent means none.
        images: Vec<ImageContent>,
    },
    /// Queues a message for when the run would end.
    FollowUp {
        /// What the person says.
        message: String,
        /// Absent means none.
        images: Vec<ImageContent>,
    },
    /// Stops the run; answered when it has stopped.
    Abort,
    /// Stops the run and starts another.
    AbortAndPrompt {
        /// What the person says.
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
    /// Says how many steering messages are taken at once.
    SetSteeringMode {
        /// `all` or `one-at-a-time`; any other string is stored and shown too.
        mode: String,
    },
    /// Says how many follow-ups are taken at once.
    SetFollowUpMode {
        /// `all` or `one-at-a-time`; any other string is stored and shown too.
        mode: String,
    },
    /// Says whether steering cuts a turn short.
    SetInterruptMode {
        /// `immediate` or `wait`; any other string is stored and shown too.
        mode: String,
    },
    /// Summarises the older part of the context.
    Compact {
        /// What the summary should keep in mind.
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
    /// Stops what [`Command::Bash`] runs.
    AbortBash,
    /// Asks for [`SessionStats`](super::state::SessionStats).
    GetSessionStats,
    /// Writes the session as one HTML file.
    ExportHtml {
        /// Where to; absent means a name made from the session, in the working folder.
        output_path: Option<String>,
    },
    /// Goes on with another session.
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
    /// Says how much is told of subagents. Of omp 18.
    SetSubagentSubscription {
        /// How much.
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
        /// Where the page before ended; absent for the first.
        cursor: Option<String>,
        /// The most messages of the page.
        limit: PageLimit,
    },
    /// Asks for the levels that the model can think at. Of pi.
    GetAvailableThinkingLevels,
    /// The same as [`Command::Branch`]. Of pi.
    Fork {
        /// The entry of a user message.
        entry_id: String,
    },
    /// Starts a new session with the whole conversation of this one. Of pi.
    Clone,
    /// The same as [`Command::GetBranchMessages`]. Of pi.
    GetForkMessages,
    /// A command of a released client that is not served.
    NotServed {
        /// Its name.
        name: &'static str,
        /// Why, and what to send instead.
        reason: &'static str,
    },
}

/// Where a prompt during a run is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StreamingBehavior {
    /// Before the run goes on.
    Steer,
    /// When the run would end.
    FollowUp,
}

/// Reads a line as the decoder hands it out.
///
/// # Errors
/// As [`parse`], and for a line that the decoder could not read.
pub fn receive(line: &Line) -> Result<Incoming, Malformed> {
    match line {
        Line::Text(text) => parse(text),
        Line::TooLong { limit } => Err(Malformed::TooLong { limit: *limit }),
        Line::NotUtf8 => Err(Malformed::NotUtf8),
    }
}

/// Reads one line: first `type` and `id`, then the fields of that type. Other fields are ignored.
///
/// For an optional field null counts as absent. Of two members of one name the last counts.
///
/// # Errors
/// [`Malformed`] says what to answer.
pub fn parse(line: &str) -> Result<Incoming, Malformed> {
    let line = mend(line);
    let fields = Fields::of(&line)?;
    match fields.type_name() {
        Some("extension_ui_response") => {
            let (id, answer) = ui_response(&fields)?;
            Ok(Incoming::UiResponse { id, answer })
        }
        Some(name @ ("host_tool_update" | "host_tool_result")) => {
            let answer = fields.optional("id").ok().flatten().zip(host_tool_answer(name, &fields));
            let unknown = || Incoming::Unknown { type_name: Some(name.to_owned()) };
            Ok(answer.map_or_else(unknown, |(id, answer)| Incoming::HostTool { id, answer }))
        }
        Some(name @ "host_uri_result") => {
            let result = fields.optional("id").ok().flatten().zip(uri_result(&line));
            let unknown = || Incoming::Unknown { type_name: Some(name.to_owned()) };
            Ok(result.map_or_else(unknown, |(id, result)| Incoming::HostUri { id, result }))
        }
        Some(name) => {
            let command = match command(name, &fields)? {
                Some(command) => Some(command),
                None => later::command(name, &fields)?,
            };
            if let Some(command) = command {
                return Ok(Incoming::Command { id: fields.id(), command });
            }
            Ok(match adopted(name, &fields)? {
                Some(command) => Incoming::Adopted { id: fields.id(), command },
                None => Incoming::Unknown { type_name: Some(name.to_owned()) },
            })
        }
        None => Ok(Incoming::Unknown { type_name: None }),
    }
}

/// Reads, for a fuzz loop, `bytes` as one line, and checks that what is refused is refused on one line of JSON, in words.
///
/// # Panics
/// Where that does not hold: a finding.
#[cfg(feature = "fuzzing")]
pub fn fuzz(bytes: &[u8]) {
    if let Err(malformed) = parse(&String::from_utf8_lossy(bytes)) {
        refuses(&crate::encode(&malformed.response()));
    }
}

/// Checks that `line` is what a host reads as a refusal.
#[cfg(feature = "fuzzing")]
pub(crate) fn refuses(line: &[u8]) {
    let text = String::from_utf8_lossy(line);
    let told: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    assert!(!text.trim_end_matches('\n').contains(['\n', '\r']), "{text:?} is not one line");
    assert_eq!((&told["type"], &told["success"]), (&"response".into(), &false.into()), "{text:?}");
    let says = &told["error"];
    assert!(says.as_str().is_some_and(|says| !says.is_empty()) || says.is_object(), "{text:?} says nothing");
}

/// Reads the fields of the command called `name`; none if there is no such command. Also for dialects of this wire.
pub(crate) fn command(name: &str, fields: &Fields<'_>) -> Result<Option<Command>, Malformed> {
    Ok(Some(match name {
        "prompt" => Command::Prompt {
            message: fields.required("message")?,
            images: fields.optional("images")?.unwrap_or_default(),
            streaming_behavior: fields.optional("streamingBehavior")?,
        },
        "steer" => Command::Steer {
            message: fields.required("message")?,
            images: fields.optional("images")?.unwrap_or_default(),
        },
        "follow_up" => Command::FollowUp {
            message: fields.required("message")?,
            images: fields.optional("images")?.unwrap_or_default(),
        },
        "abort" => Command::Abort,
        "abort_and_prompt" => Command::AbortAndPrompt {
            message: fields.required("message")?,
            images: fields.optional("images")?.unwrap_or_default(),
        },
        "new_session" => Command::NewSession { parent_session: fields.optional("parentSession")? },
        "get_state" => Command::GetState,
        "set_model" => {
            Command::SetModel { provider: fields.required("provider")?, model_id: fields.required("modelId")? }
        }
        "cycle_model" => Command::CycleModel,
        "get_available_models" => Command::GetAvailableModels,
        "set_thinking_level" => Command::SetThinkingLevel { level: fields.required("level")? },
        "cycle_thinking_level" => Command::CycleThinkingLevel,
        "set_steering_mode" => Command::SetSteeringMode { mode: fields.required("mode")? },
        "set_follow_up_mode" => Command::SetFollowUpMode { mode: fields.required("mode")? },
        "set_interrupt_mode" => Command::SetInterruptMode { mode: fields.required("mode")? },
        "compact" => Command::Compact { custom_instructions: fields.optional("customInstructions")? },
        "set_auto_compaction" => Command::SetAutoCompaction { enabled: fields.required("enabled")? },
        "set_auto_retry" => Command::SetAutoRetry { enabled: fields.required("enabled")? },
        "abort_retry" => Command::AbortRetry,
        "bash" => {
            fields.optional::<NotExcluded>("excludeFromContext")?;
            Command::Bash { command: fields.required("command")? }
        }
        "abort_bash" => Command::AbortBash,
        "get_session_stats" => Command::GetSessionStats,
        "export_html" => Command::ExportHtml { output_path: fields.optional("outputPath")? },
        "switch_session" => Command::SwitchSession { session_path: fields.required("sessionPath")? },
        "branch" => Command::Branch { entry_id: fields.required("entryId")? },
        "get_branch_messages" => Command::GetBranchMessages,
        "get_last_assistant_text" => Command::GetLastAssistantText,
        "set_session_name" => Command::SetSessionName { name: fields.required("name")? },
        "get_messages" => Command::GetMessages,
        _ => return Ok(None),
    }))
}

/// The one value that `excludeFromContext` of a later pi may have.
struct NotExcluded;

impl fields::Field for NotExcluded {
    const EXPECTED: &'static str = "false: the model is told what the commands of a host print";

    fn read(json: &str) -> Option<Self> {
        (json == "false").then_some(Self)
    }
}

/// An answer must say one thing only: of two that differ, neither may release anything.
pub(crate) fn ui_response(fields: &Fields<'_>) -> Result<(String, UiAnswer), Malformed> {
    let id = fields.required("id").map_err(without_id)?;
    let cancelled: Option<bool> = fields.optional("cancelled").map_err(without_id)?;
    let value: Option<String> = fields.optional("value").map_err(without_id)?;
    let confirmed: Option<bool> = fields.optional("confirmed").map_err(without_id)?;
    let timed_out: Option<bool> = fields.optional("timedOut").map_err(without_id)?;
    let answer = match (cancelled == Some(true), value, confirmed) {
        (true, _, _) => UiAnswer::Cancelled { timed_out: timed_out == Some(true) },
        (false, Some(value), None) => UiAnswer::Value(value),
        (false, None, Some(confirmed)) => UiAnswer::Confirmed(confirmed),
        (false, None, None) | (false, Some(_), Some(_)) => return Err(Malformed::Answer),
    };
    Ok((id, answer))
}

/// The id of an answer names a dialog of ours, not a request of the host.
fn without_id(malformed: Malformed) -> Malformed {
    match malformed {
        Malformed::Field { id: _, command, field, fault } => Malformed::Field { id: None, command, field, fault },
        other @ (Malformed::TooLong { .. }
        | Malformed::NotUtf8
        | Malformed::NotJson { .. }
        | Malformed::NotAnObject
        | Malformed::Refused { .. }
        | Malformed::Answer) => other,
    }
}

impl Command {
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
