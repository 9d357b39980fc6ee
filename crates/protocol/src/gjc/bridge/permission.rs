//! Writes calls that need permission, and reads the answers.
//!
//! It must not know which calls need permission.

use serde::{Deserialize, Serialize};

use super::{BridgeError, ExpectedInput};
use crate::json::{RawJson, wire_values};

/// The payload of a `permission_request`. Its `correlation_id` is the call's id.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename = "permission", rename_all = "camelCase")]
pub struct PermissionRequest {
    /// The call.
    pub tool_call: ToolCallCard,
    /// Possible answers.
    pub options: Vec<PermissionOption>,
}

/// A call that needs permission, on its way from an adapter to the bridge. No client sees it in this form.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename = "permission_request")]
pub struct PermissionFrame {
    /// Names the dialog that it takes the place of. It is answered as a choice of one of the options' ids.
    pub id: String,
    /// Payload that the client sees.
    pub payload: PermissionRequest,
}

/// A call as a person sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCallCard {
    /// Id of the call in the assistant message.
    pub tool_call_id: String,
    /// Name of the tool.
    pub tool_name: String,
    /// One line.
    pub title: String,
    /// Kind of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Status of the call.
    pub status: String,
    /// Its arguments.
    pub raw_input: RawJson,
    /// Change that the call would make.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<RawJson>,
    /// The files that it is about.
    pub locations: Vec<RawJson>,
}

/// One possible answer to a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PermissionOption {
    /// Names it; the name of its kind.
    pub option_id: PermissionKind,
    /// Label for people.
    pub name: String,
    /// Meaning of the option.
    pub kind: PermissionKind,
}

/// Possible answers to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PermissionKind {
    /// This one.
    AllowOnce,
    /// This and all like it.
    AllowAlways,
    /// Not this one.
    RejectOnce,
    /// Neither this nor any like it.
    RejectAlways,
}

/// Answer to a call.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum PermissionAnswer {
    /// One of the options.
    Selected {
        /// Id of the chosen option.
        #[serde(rename = "optionId")]
        option_id: PermissionKind,
    },
    /// No choice.
    Cancelled,
}

impl PermissionKind {
    /// Returns the name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllowOnce => "allow_once",
            Self::AllowAlways => "allow_always",
            Self::RejectOnce => "reject_once",
            Self::RejectAlways => "reject_always",
        }
    }
}

impl PermissionOption {
    /// Makes the option that means `kind`.
    pub fn new(kind: PermissionKind, name: impl Into<String>) -> Self {
        Self { option_id: kind, name: name.into(), kind }
    }
}

impl PermissionAnswer {
    /// Reads the body of `POST …/ui-responses/{call id}`.
    ///
    /// # Errors
    /// [`BridgeError::InvalidJson`] and [`ExpectedInput::UiResponse`].
    pub fn from_body(body: &str) -> Result<Self, BridgeError> {
        super::read_json(body, ExpectedInput::UiResponse)
    }
}

wire_values! { PermissionRequest, PermissionFrame }
