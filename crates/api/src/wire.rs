//! Bodies of requests and replies as types. The document at `/api/v1/openapi.json` is made of them: the name of a schema is the
//! one for `schemars`, and the text for a member is its comment.
//!
//! They must not decide anything. *Shape:* members in the order in which they stand.

pub(crate) mod audit;
pub(crate) mod events;
pub(crate) mod gates;
pub(crate) mod mcp_servers;
pub(crate) mod policy;
pub(crate) mod sessions;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// Problem document of RFC 9457. For a resolved gate it has the resolution and who resolved it.
#[derive(JsonSchema)]
#[schemars(rename = "Problem")]
#[expect(dead_code, reason = "the port writes it, and adds the other members of a failure")]
pub(crate) struct ProblemDocument {
    /// Always about:blank.
    r#type: String,
    /// Reason phrase of the status.
    title: String,
    status: u16,
    /// The problem by name, and the accepted values.
    detail: String,
    /// Id of the resolved gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    gate: Option<String>,
    /// Resolution of the gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "gates::ResolutionWord")]
    resolution: Option<gates::ResolutionWord>,
    /// Scope of its approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "gates::GrantScope")]
    scope: Option<gates::GrantScope>,
    /// Approver or program that resolved the gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    /// Reason why a cursor is not valid in this record.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "crate::cursor::Misplaced")]
    reason: Option<crate::cursor::Misplaced>,
}

/// The model of a session.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Model")]
pub(crate) struct ModelName {
    pub(crate) provider: String,
    pub(crate) id: String,
}

/// This document: OpenAPI 3.1.
#[derive(JsonSchema)]
#[schemars(rename = "Interface", transparent)]
#[expect(dead_code, reason = "the document is what it is about")]
pub(crate) struct InterfaceDocument(serde_json::Map<String, Value>);
