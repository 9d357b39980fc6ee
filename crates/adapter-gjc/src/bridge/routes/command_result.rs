//! Result of a command, as read from the response of the adapter.
//!
//! It must not know what commands do, nor how they are sent.

use countersign_protocol::RawJson;
use serde::Deserialize;
use serde_json::json;

use crate::bridge::BridgeAnswer;

/// Result of a command.
pub(super) enum CommandResult {
    Done(Option<RawJson>),
    Failed(RawJson),
}

#[derive(Deserialize)]
struct CommandResponse {
    success: bool,
    #[serde(default)]
    data: Option<RawJson>,
    #[serde(default)]
    error: Option<RawJson>,
}

pub(super) fn command_result(response: &RawJson) -> CommandResult {
    match response.decode_as::<CommandResponse>() {
        Ok(CommandResponse { success: true, data, .. }) => CommandResult::Done(data),
        Ok(CommandResponse { error: Some(error), .. }) => CommandResult::Failed(error),
        Ok(_) | Err(_) => CommandResult::Failed(RawJson::from_wire("the command failed")),
    }
}

/// Builds the answer to an answered gate: the resolution, or an error with its code.
pub(super) fn gate_resolution(result: CommandResult) -> BridgeAnswer {
    match result {
        CommandResult::Done(data) => {
            BridgeAnswer { status: 200, body: data.unwrap_or_else(|| RawJson::from_wire(&())) }
        }
        CommandResult::Failed(error) => {
            let body = with_code(error, "unattended_not_negotiated");
            #[derive(Deserialize)]
            struct ErrorWithCode {
                code: String,
            }
            let is_denied = body.decode_as::<ErrorWithCode>().is_ok_and(|error| error.code.ends_with("_denied"));
            BridgeAnswer { status: if is_denied { 403 } else { 409 }, body }
        }
    }
}

/// Returns an error as an object with a code. One that is a text gets `code`.
pub(super) fn with_code(error: RawJson, code: &str) -> RawJson {
    match error.decode_as::<String>() {
        Ok(message) => json!({ "code": code, "message": message }).into(),
        Err(_) => error,
    }
}
