//! Builds the answers to commands.
//!
//! It must not know what a command does. Source: the RPC reference of omp, Response Schema.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

use super::command::OmpRequestId;
use crate::json::{RawJson, WireValue};

/// The answer to one command: `id?, type, command?, success, data? | error`, in this order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OmpResponse {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<OmpRequestId>,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<Cow<'static, str>>,
    success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ResponseError>,
    /// Error code for programs, in addition to the text. Of later versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
}

/// Reason that a command failed: a text, or, in dialects that have it, an object with a `code`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum ResponseError {
    Text(String),
    Typed(RawJson),
}

impl WireValue for OmpResponse {}

impl OmpResponse {
    /// Creates the response to a command that was done, or accepted, without data: no `data` key.
    pub fn ack(id: Option<OmpRequestId>, command: impl Into<Cow<'static, str>>) -> Self {
        Self { id, kind: "response", command: Some(command.into()), success: true, data: None, error: None, code: None }
    }

    /// Creates the response to a command that was done. `data` may be null: `OmpResponse::success(id, name, &())`.
    pub fn success(
        id: Option<OmpRequestId>,
        command: impl Into<Cow<'static, str>>,
        data: &(impl WireValue + ?Sized),
    ) -> Self {
        Self { data: Some(RawJson::from_wire(data)), ..Self::ack(id, command) }
    }

    /// Creates the response to a command that failed, with the reason.
    pub fn failure(id: Option<OmpRequestId>, command: impl Into<Cow<'static, str>>, error: impl Into<String>) -> Self {
        Self { success: false, error: Some(ResponseError::Text(error.into())), ..Self::ack(id, command) }
    }

    /// Creates the response to a command that failed, with the reason and its code for programs. Of later versions of omp.
    pub fn coded_failure(
        id: Option<OmpRequestId>,
        command: impl Into<Cow<'static, str>>,
        error: impl Into<String>,
        code: &'static str,
    ) -> Self {
        Self { code: Some(code), ..Self::failure(id, command, error) }
    }

    /// Creates the response to a command that failed, with an object that has a `code`. Of the gjc dialect.
    pub fn typed_failure(
        id: Option<OmpRequestId>,
        command: impl Into<Cow<'static, str>>,
        error: &(impl WireValue + ?Sized),
    ) -> Self {
        Self { success: false, error: Some(ResponseError::Typed(RawJson::from_wire(error))), ..Self::ack(id, command) }
    }

    /// Reports whether the command with this id and name succeeded; none if the response is to another one.
    pub fn success_of(&self, id: Option<&OmpRequestId>, command: &str) -> Option<bool> {
        (self.id.as_ref() == id && self.command.as_deref() == Some(command)).then_some(self.success)
    }

    /// Creates the response to a line that could not be read as a command, or a command that broke off.
    pub fn parse_failure(id: Option<OmpRequestId>, reason: impl fmt::Display) -> Self {
        Self::failure(id, "parse", format!("Failed to parse command: {reason}"))
    }

    /// Creates the response to an unknown command `type_name`. Always without an id, which its clients expect; without a `type`
    /// there is no `command` key either.
    pub fn unknown_command(type_name: Option<String>) -> Self {
        Self::unknown_command_with_id(None, type_name)
    }

    /// Creates the same response with the id of the request. Of the gjc dialect.
    pub fn unknown_command_with_id(id: Option<OmpRequestId>, type_name: Option<String>) -> Self {
        let error = format!("Unknown command: {}", type_name.as_deref().unwrap_or("undefined"));
        Self {
            id,
            kind: "response",
            command: type_name.map(Cow::Owned),
            success: false,
            data: None,
            error: Some(ResponseError::Text(error)),
            code: None,
        }
    }
}
