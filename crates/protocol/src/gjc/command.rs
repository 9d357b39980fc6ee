//! Reads what a host sends: commands, answers to dialogs, and what it says about calls and URIs of its own.
//!
//! It must not decide whether a command makes sense now; it only says whether the line is one. What omp has too is read
//! by omp's reader. Source: the RPC reference of gjc, Command Schema; docs/protocol/gjc.md, Commands.

mod malformed;
mod needs;

pub use self::malformed::{Malformed, Strictness};
pub use self::needs::Lane;
use super::host_tool::HostToolAnswer;
use super::host_uri::HostUriResult;
use super::state::{Include, THINKING_LEVELS};
use crate::json::{Json, mend};
use crate::lines::Line;
use crate::omp;
use crate::omp::command::fields::Fields;
use crate::omp::command::{host_tool_answer, uri_result};
use crate::omp::{AdoptedCommand, Id, UiAnswer};

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
    /// An answer to a dialog. It gets no response, and one for an unknown dialog is ignored.
    UiResponse {
        /// The id of the `extension_ui_request`.
        id: String,
        /// What the person said.
        answer: UiAnswer,
    },
    /// What the host says about a call. It gets no response, and one for an unknown call is ignored.
    HostTool {
        /// The id of the `host_tool_call`.
        id: String,
        /// What it says.
        answer: HostToolAnswer,
    },
    /// What the host says about a request at a URI. It gets no response, and one for an unknown request is ignored.
    HostUri {
        /// The id of the `host_uri_request`.
        id: String,
        /// What it says.
        result: HostUriResult,
    },
    /// Asks for the frames behind one that the host has seen. Ours, and of the socket only: elsewhere it is unknown.
    Resume {
        /// The number of that frame.
        last_seq: u64,
    },
    /// An object whose `type` names no command, or that is no answer of the form that it must have. Answered with
    /// [`Response::unknown_with`](super::Response::unknown_with).
    Unknown {
        /// Echoed in the answer.
        id: Option<Id>,
        /// The `type`; one that is no string is given as its JSON text. None if there is none.
        type_name: Option<String>,
    },
}

/// Every command of the dialect.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// One that omp has too, in the same form. Never omp's `GetState`.
    Shared(omp::Command),
    /// Asks for [`SessionState`](super::state::SessionState).
    GetState {
        /// What to give beside what is always given.
        include: Include,
    },
    /// One of later versions of omp too, in the same form.
    Adopted(AdoptedCommand),
    /// Promises to stay within limits, and enters unattended mode.
    NegotiateUnattended {
        /// Not yet looked at: [`Declaration::check`](super::unattended::Declaration::check).
        declaration: Option<Json>,
    },
    /// Answers a gate.
    WorkflowGateResponse {
        /// Which one.
        gate_id: String,
        /// Not yet looked at; null if there is none.
        answer: Json,
        /// The same key with the same answer is the same answer.
        idempotency_key: Option<String>,
    },
    /// Asks for the gates that wait.
    GetPendingWorkflowGates,
    /// Says what the host can do.
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
/// As [`parse`], and for a line that the decoder could not read.
pub fn receive(line: &Line) -> Result<Incoming, Malformed> {
    match line {
        Line::Text(text) => parse(text),
        Line::TooLong { limit } => Err(Malformed::of(omp::Malformed::TooLong { limit: *limit })),
        Line::NotUtf8 => Err(Malformed::of(omp::Malformed::NotUtf8)),
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
    let fields = Fields::of(&line).map_err(Malformed::of)?;
    let unknown =
        |type_name: Option<&str>| Incoming::Unknown { id: fields.id(), type_name: type_name.map(str::to_owned) };
    let Some(name) = fields.type_name() else { return Ok(unknown(None)) };
    Ok(match name {
        "extension_ui_response" => {
            let (id, answer) = omp::command::ui_response(&fields).map_err(Malformed::of)?;
            Incoming::UiResponse { id, answer }
        }
        "host_tool_update" | "host_tool_result" => {
            let answer = fields.optional("id").ok().flatten().zip(host_tool_answer(name, &fields));
            answer.map_or_else(|| unknown(Some(name)), |(id, answer)| Incoming::HostTool { id, answer })
        }
        "host_uri_result" => {
            let result = fields.optional("id").ok().flatten().zip(uri_result(&line));
            result.map_or_else(|| unknown(Some(name)), |(id, result)| Incoming::HostUri { id, result })
        }
        "resume" => match fields.optional("last_seq").map_err(Malformed::of)? {
            Some(last_seq) => Incoming::Resume { last_seq },
            None => unknown(Some(name)),
        },
        _ => match command(name, &fields, Strictness::Stdio)? {
            Some(command) => Incoming::Command { id: fields.id(), command },
            None => unknown(Some(name)),
        },
    })
}

/// Reads, for a fuzz loop, `bytes` as one line, and as the bodies of requests to the bridge.
#[cfg(feature = "fuzzing")]
pub fn fuzz(bytes: &[u8]) {
    let line = String::from_utf8_lossy(bytes);
    match parse(&line) {
        Ok(Incoming::Command { command, .. }) => {
            command.lane();
            command.scope();
            command.name();
        }
        Ok(_) => {}
        Err(malformed) => omp::command::refuses(&crate::encode(&malformed.response())),
    }
    super::bridge::fuzz(&line);
}

/// Reads the fields of the command called `name`; none if there is no such command.
pub(crate) fn command(name: &str, fields: &Fields<'_>, strictness: Strictness) -> Result<Option<Command>, Malformed> {
    let refused = |reason: String| Malformed::refused(fields, reason);
    let read = |command: Result<Command, omp::Malformed>| command.map(Some).map_err(Malformed::of);
    match name {
        "get_state" => {
            let names: Vec<String> = fields.optional("include").map_err(Malformed::of)?.unwrap_or_default();
            let (include, unknown) = Include::read(&names);
            match unknown.filter(|_| strictness == Strictness::Bridge) {
                Some(unknown) => Err(Malformed::shape(fields, format!("get_state: `include` cannot be {unknown:?}"))),
                None => Ok(Some(Command::GetState { include })),
            }
        }
        "negotiate_unattended" => {
            let declaration = fields.raw("declaration").map(|raw| Json::from(raw.to_owned()));
            Ok(Some(Command::NegotiateUnattended { declaration }))
        }
        "workflow_gate_response" => gate_response(fields, strictness).map(Some),
        "get_pending_workflow_gates" => Ok(Some(Command::GetPendingWorkflowGates)),
        "set_capabilities" => {
            read(fields.required("capabilities").map(|capabilities| Command::SetCapabilities { capabilities }))
        }
        "set_default_model_selection" => default_model(fields).map(Some),
        _ => {
            if let Some(command) = omp::command::adopted(name, fields).map_err(Malformed::of)? {
                return Ok(Some(Command::Adopted(command)));
            }
            let Some(command) = omp::command::command(name, fields).map_err(Malformed::of)? else { return Ok(None) };
            values(&command).map_err(refused)?;
            Ok(Some(Command::Shared(command)))
        }
    }
}

fn gate_response(fields: &Fields<'_>, strictness: Strictness) -> Result<Command, Malformed> {
    let answer = fields.raw("answer").map(|raw| Json::from(raw.to_owned()));
    if answer.is_none() && strictness == Strictness::Bridge {
        return Err(Malformed::shape(fields, "workflow_gate_response: `answer` is required".to_owned()));
    }
    Ok(Command::WorkflowGateResponse {
        gate_id: fields.required("gate_id").map_err(Malformed::of)?,
        answer: answer.unwrap_or_else(|| Json::of(&())),
        idempotency_key: fields.optional("idempotency_key").map_err(Malformed::of)?,
    })
}

fn default_model(fields: &Fields<'_>) -> Result<Command, Malformed> {
    let named = |field: &'static str| -> Result<String, Malformed> {
        let text: String = fields.required(field).map_err(Malformed::of)?;
        match text.trim().is_empty() {
            false => Ok(text),
            true => Err(Malformed::shape(fields, format!("set_default_model_selection: `{field}` must not be blank"))),
        }
    };
    let (provider, model_id) = (named("provider")?, named("modelId")?);
    let thinking_level: Option<String> = fields.optional("thinkingLevel").map_err(Malformed::of)?;
    let wrong = |level: &&String| *level == "inherit" || !THINKING_LEVELS.contains(&level.as_str());
    if let Some(level) = thinking_level.as_ref().filter(wrong) {
        return Err(Malformed::refused(fields, format!("Invalid thinking level: {level}")));
    }
    Ok(Command::SetDefaultModelSelection { provider, model_id, thinking_level })
}

/// Looks at values that omp takes whatever they are.
fn values(command: &omp::Command) -> Result<(), String> {
    let (what, value, known): (_, _, &[&str]) = match command {
        omp::Command::SetThinkingLevel { level } => ("thinking level", level, &THINKING_LEVELS),
        omp::Command::SetSteeringMode { mode } => ("steering mode", mode, &["all", "one-at-a-time"]),
        omp::Command::SetFollowUpMode { mode } => ("follow-up mode", mode, &["all", "one-at-a-time"]),
        omp::Command::SetInterruptMode { mode } => ("interrupt mode", mode, &["immediate", "wait"]),
        _ => return Ok(()),
    };
    if known.contains(&value.as_str()) { Ok(()) } else { Err(format!("Invalid {what}: {value}")) }
}
