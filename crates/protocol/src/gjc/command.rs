//! Reads the frames of a host: commands, answers to dialogs, and results of its own tools and URIs.
//!
//! It must not decide whether a command makes sense now; it only reports whether the line is one. What omp has too is read by
//! omp's reader. Source: the RPC reference of gjc, Command Schema; docs/protocol/gjc.md, Commands.

mod malformed;
mod requirements;

pub use self::malformed::{CommandStrictness, GjcParseError};
pub use self::requirements::CommandOrder;
use super::host_tool::HostToolAnswer;
use super::host_uri::HostUriResult;
use super::state::{StateIncludes, THINKING_LEVELS};
use crate::json::{RawJson, replace_lone_surrogates};
use crate::lines::DecodedLine;
use crate::omp::command::fields::CommandFields;
use crate::omp::command::{host_tool_answer, uri_result};
use crate::omp::{self, AdoptedCommand, OmpRequestId, UiAnswer};

/// One frame from the host.
#[derive(Clone, Debug, PartialEq)]
pub enum GjcInboundFrame {
    /// A command that is owed exactly one response.
    Command {
        /// Echoed in the response.
        id: Option<OmpRequestId>,
        /// The command.
        command: GjcCommand,
    },
    /// An answer to a dialog. It gets no response, and one for an unknown dialog is ignored.
    UiResponse {
        /// The id of the `extension_ui_request`.
        id: String,
        /// Answer of the person.
        answer: UiAnswer,
    },
    /// Result or update of a call of a host tool. It gets no response, and one for an unknown call is ignored.
    HostTool {
        /// The id of the `host_tool_call`.
        id: String,
        /// The result or update.
        answer: HostToolAnswer,
    },
    /// Result of a request at a URI. It gets no response, and one for an unknown request is ignored.
    HostUri {
        /// The id of the `host_uri_request`.
        id: String,
        /// The result.
        result: HostUriResult,
    },
    /// Requests the frames after the last one that the host has seen. Ours, and of the socket only: elsewhere it is unknown.
    Resume {
        /// The number of that frame.
        last_seq: u64,
    },
    /// An object whose `type` names no command, or that is no answer of the form that it must have. Answered with
    /// [`OmpResponse::unknown_command_with_id`](super::OmpResponse::unknown_command_with_id).
    Unknown {
        /// Echoed in the answer.
        id: Option<OmpRequestId>,
        /// The `type`; one that is no string is given as its JSON text. None if there is none.
        type_name: Option<String>,
    },
}

/// Every command of the dialect.
#[derive(Clone, Debug, PartialEq)]
pub enum GjcCommand {
    /// One that omp has too, in the same form. Never omp's `GetState`.
    Shared(omp::OmpCommand),
    /// Asks for [`GjcSessionState`](super::state::GjcSessionState).
    GetState {
        /// Parts to give in addition to those that are always given.
        include: StateIncludes,
    },
    /// One of later versions of omp too, in the same form.
    Adopted(AdoptedCommand),
    /// Promises to stay within limits, and enters unattended mode.
    NegotiateUnattended {
        /// Not yet checked: see [`UnattendedDeclaration::from_json`](super::unattended::UnattendedDeclaration::from_json).
        declaration: Option<RawJson>,
    },
    /// Answers a gate.
    WorkflowGateResponse {
        /// Id of the gate.
        gate_id: String,
        /// Not yet looked at; null if there is none.
        answer: RawJson,
        /// Idempotency key: the same key with the same answer is the same answer.
        idempotency_key: Option<String>,
    },
    /// Asks for the gates that wait.
    GetPendingWorkflowGates,
    /// Declares the capabilities of the host.
    SetCapabilities {
        /// Names, known and unknown.
        capabilities: Vec<String>,
    },
    /// Chooses the model that new sessions begin with.
    SetDefaultModelSelection {
        /// Id of its provider; not blank.
        provider: String,
        /// Its id at that provider; not blank.
        model_id: String,
        /// A level, but not `inherit`.
        thinking_level: Option<String>,
    },
}

/// Reads a line as the decoder hands it out.
///
/// # Errors
/// As [`parse_line`], and for a line that the decoder could not read.
pub fn receive_line(line: &DecodedLine) -> Result<GjcInboundFrame, GjcParseError> {
    match line {
        DecodedLine::Text(text) => parse_line(text),
        DecodedLine::TooLong { limit } => Err(GjcParseError::from_omp(omp::OmpParseError::TooLong { limit: *limit })),
        DecodedLine::NotUtf8 => Err(GjcParseError::from_omp(omp::OmpParseError::NotUtf8)),
    }
}

/// Reads one line: first `type` and `id`, then the fields of that type. Other fields are ignored.
///
/// For an optional field null counts as absent. Of two members of one name the last counts.
///
/// # Errors
/// [`GjcParseError`] holds the answer to send.
pub fn parse_line(line: &str) -> Result<GjcInboundFrame, GjcParseError> {
    let line = replace_lone_surrogates(line);
    let fields = CommandFields::from_line(&line).map_err(GjcParseError::from_omp)?;
    let unknown =
        |type_name: Option<&str>| GjcInboundFrame::Unknown { id: fields.id(), type_name: type_name.map(str::to_owned) };
    let Some(name) = fields.type_name() else { return Ok(unknown(None)) };
    Ok(match name {
        "extension_ui_response" => {
            let (id, answer) = omp::command::ui_response(&fields).map_err(GjcParseError::from_omp)?;
            GjcInboundFrame::UiResponse { id, answer }
        }
        "host_tool_update" | "host_tool_result" => {
            let answer = fields.optional_field("id").ok().flatten().zip(host_tool_answer(name, &fields));
            answer.map_or_else(|| unknown(Some(name)), |(id, answer)| GjcInboundFrame::HostTool { id, answer })
        }
        "host_uri_result" => {
            let result = fields.optional_field("id").ok().flatten().zip(uri_result(&line));
            result.map_or_else(|| unknown(Some(name)), |(id, result)| GjcInboundFrame::HostUri { id, result })
        }
        "resume" => match fields.optional_field("last_seq").map_err(GjcParseError::from_omp)? {
            Some(last_seq) => GjcInboundFrame::Resume { last_seq },
            None => unknown(Some(name)),
        },
        _ => match read_command(name, &fields, CommandStrictness::Stdio)? {
            Some(command) => GjcInboundFrame::Command { id: fields.id(), command },
            None => unknown(Some(name)),
        },
    })
}

/// Reads, for a fuzz loop, `bytes` as one line, and as the bodies of requests to the bridge.
#[cfg(feature = "fuzzing")]
pub fn fuzz(bytes: &[u8]) {
    let line = String::from_utf8_lossy(bytes);
    match parse_line(&line) {
        Ok(GjcInboundFrame::Command { command, .. }) => {
            command.order();
            command.required_scope();
            command.name();
        }
        Ok(_) => {}
        Err(malformed) => omp::command::assert_refusal(&crate::encode_line(&malformed.to_response())),
    }
    super::bridge::fuzz(&line);
}

/// Reads the fields of the command called `name`; none if there is no such command.
pub(crate) fn read_command(
    name: &str,
    fields: &CommandFields<'_>,
    strictness: CommandStrictness,
) -> Result<Option<GjcCommand>, GjcParseError> {
    let refused = |reason: String| GjcParseError::refused_value(fields, reason);
    let read = |command: Result<GjcCommand, omp::OmpParseError>| command.map(Some).map_err(GjcParseError::from_omp);
    match name {
        "get_state" => {
            let names: Vec<String> =
                fields.optional_field("include").map_err(GjcParseError::from_omp)?.unwrap_or_default();
            let (include, unknown) = StateIncludes::from_names(&names);
            match unknown.filter(|_| strictness == CommandStrictness::Bridge) {
                Some(unknown) => {
                    Err(GjcParseError::wrong_shape(fields, format!("get_state: `include` cannot be {unknown:?}")))
                }
                None => Ok(Some(GjcCommand::GetState { include })),
            }
        }
        "negotiate_unattended" => {
            let declaration = fields.raw_member("declaration").map(|raw| RawJson::from(raw.to_owned()));
            Ok(Some(GjcCommand::NegotiateUnattended { declaration }))
        }
        "workflow_gate_response" => gate_response(fields, strictness).map(Some),
        "get_pending_workflow_gates" => Ok(Some(GjcCommand::GetPendingWorkflowGates)),
        "set_capabilities" => {
            read(fields.required_field("capabilities").map(|capabilities| GjcCommand::SetCapabilities { capabilities }))
        }
        "set_default_model_selection" => default_model(fields).map(Some),
        _ => {
            if let Some(command) = omp::command::read_adopted(name, fields).map_err(GjcParseError::from_omp)? {
                return Ok(Some(GjcCommand::Adopted(command)));
            }
            let Some(command) = omp::command::read_command(name, fields).map_err(GjcParseError::from_omp)? else {
                return Ok(None);
            };
            check_values(&command).map_err(refused)?;
            Ok(Some(GjcCommand::Shared(command)))
        }
    }
}

fn gate_response(fields: &CommandFields<'_>, strictness: CommandStrictness) -> Result<GjcCommand, GjcParseError> {
    let answer = fields.raw_member("answer").map(|raw| RawJson::from(raw.to_owned()));
    if answer.is_none() && strictness == CommandStrictness::Bridge {
        return Err(GjcParseError::wrong_shape(fields, "workflow_gate_response: `answer` is required".to_owned()));
    }
    Ok(GjcCommand::WorkflowGateResponse {
        gate_id: fields.required_field("gate_id").map_err(GjcParseError::from_omp)?,
        answer: answer.unwrap_or_else(|| RawJson::from_wire(&())),
        idempotency_key: fields.optional_field("idempotency_key").map_err(GjcParseError::from_omp)?,
    })
}

fn default_model(fields: &CommandFields<'_>) -> Result<GjcCommand, GjcParseError> {
    let named = |field: &'static str| -> Result<String, GjcParseError> {
        let text: String = fields.required_field(field).map_err(GjcParseError::from_omp)?;
        match text.trim().is_empty() {
            false => Ok(text),
            true => Err(GjcParseError::wrong_shape(
                fields,
                format!("set_default_model_selection: `{field}` must not be blank"),
            )),
        }
    };
    let (provider, model_id) = (named("provider")?, named("modelId")?);
    let thinking_level: Option<String> = fields.optional_field("thinkingLevel").map_err(GjcParseError::from_omp)?;
    let wrong = |level: &&String| *level == "inherit" || !THINKING_LEVELS.contains(&level.as_str());
    if let Some(level) = thinking_level.as_ref().filter(wrong) {
        return Err(GjcParseError::refused_value(fields, format!("Invalid thinking level: {level}")));
    }
    Ok(GjcCommand::SetDefaultModelSelection { provider, model_id, thinking_level })
}

/// Checks values that omp accepts unchecked.
fn check_values(command: &omp::OmpCommand) -> Result<(), String> {
    let (what, value, known): (_, _, &[&str]) = match command {
        omp::OmpCommand::SetThinkingLevel { level } => ("thinking level", level, &THINKING_LEVELS),
        omp::OmpCommand::SetSteeringMode { mode } => ("steering mode", mode, &["all", "one-at-a-time"]),
        omp::OmpCommand::SetFollowUpMode { mode } => ("follow-up mode", mode, &["all", "one-at-a-time"]),
        omp::OmpCommand::SetInterruptMode { mode } => ("interrupt mode", mode, &["immediate", "wait"]),
        _ => return Ok(()),
    };
    if known.contains(&value.as_str()) { Ok(()) } else { Err(format!("Invalid {what}: {value}")) }
}
