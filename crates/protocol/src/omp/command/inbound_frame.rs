//! Reads a line of a host as one frame: a command, or words about a dialog, a tool or a URI.
//!
//! It must not know the fields of any command.

use serde::Serialize;

use super::fields::CommandFields;
use super::later::read_later_command;
use super::{AdoptedCommand, OmpCommand, OmpParseError, host_tool_answer, read_adopted, read_command, uri_result};
use crate::json::{RawJson, WireValue, replace_lone_surrogates};
use crate::lines::DecodedLine;
use crate::omp::host_tool::HostToolAnswer;
use crate::omp::host_uri::HostUriResult;
use crate::omp::ui::UiAnswer;

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
    /// [`OmpResponse::unknown_command`](crate::omp::OmpResponse::unknown_command).
    Unknown {
        /// The `type`; one that is no string is given as its JSON text. None if there is none.
        type_name: Option<String>,
    },
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
                None => read_later_command(name, &fields)?,
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
