//! Reads and answers the handshake of the bridge.
//!
//! It must not know which session it is about.

use serde::{Deserialize, Serialize};

use super::{BridgeError, EndpointPaths, ExpectedInput};
use crate::gjc::event::{FrameType, PROTOCOL_VERSION};
use crate::gjc::unattended::CommandScope;
use crate::json::{RawJson, wire_values};

/// Capabilities of the bridge.
pub const CAPABILITIES: [&str; 8] =
    ["events", "prompt", "permission", "elicitation", "ui.declarative", "host_tools", "host_uri", "workflow_gate"];

/// The body of `POST /v1/handshake`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename = "Handshake")]
pub struct HandshakeRequest {
    /// The versions that the client speaks.
    protocol_version_range: VersionRange,
    /// Capabilities of the client, known and unknown.
    pub capabilities: Vec<String>,
    /// Scopes that the client requests, known and unknown.
    pub requested_scopes: Vec<String>,
    /// The last frame that it has seen.
    #[serde(default)]
    pub last_seq: Option<u64>,
    /// Not yet checked: see [`UnattendedDeclaration::from_json`](crate::gjc::unattended::UnattendedDeclaration::from_json).
    /// Null counts as absent.
    #[serde(default)]
    pub unattended: Option<RawJson>,
    /// Id of the session; absent means the one that the bridge began with. Ours.
    #[serde(default)]
    pub session_id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename = "Range")]
struct VersionRange {
    min: i64,
    max: i64,
}

/// The answer to a handshake that succeeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "status", rename = "accepted")]
pub struct HandshakeAccepted {
    protocol_version: u32,
    session_id: String,
    accepted_capabilities: Vec<String>,
    accepted_scopes: Vec<CommandScope>,
    unsupported: Vec<String>,
    endpoints: EndpointPaths,
    frame_types: [FrameType; 10],
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted_unattended: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unattended_active: Option<bool>,
}

/// The answer to a handshake of a client that speaks no version of ours. Its status code is 200.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename = "rejected")]
pub struct HandshakeRejected {
    reason: &'static str,
    message: String,
}

impl HandshakeRequest {
    /// Reads the body.
    ///
    /// # Errors
    /// [`BridgeError::InvalidJson`] and [`ExpectedInput::Request`].
    pub fn from_body(body: &str) -> Result<Self, BridgeError> {
        super::read_json(body, ExpectedInput::Request)
    }

    /// Refuses a client that speaks no version of ours.
    ///
    /// # Errors
    /// The answer to send.
    pub fn speaks_ours(&self) -> Result<(), HandshakeRejected> {
        let VersionRange { min, max } = self.protocol_version_range;
        if (min..=max).contains(&i64::from(PROTOCOL_VERSION)) {
            return Ok(());
        }
        let message = format!("Bridge protocol v{PROTOCOL_VERSION} is outside client range {min}..{max}");
        Err(HandshakeRejected { reason: "incompatible_version", message })
    }

    /// Returns the requested scopes that are granted.
    pub fn granted_scopes(&self, scopes: &[CommandScope]) -> Vec<CommandScope> {
        self.requested_scopes
            .iter()
            .filter_map(|name| CommandScope::from_name(name))
            .filter(|scope| scopes.contains(scope))
            .collect()
    }

    /// Accepts the client into a session. `unattended` is the accepted part of a declaration; only a client that knows gates
    /// receives it.
    pub fn accept_client(
        &self,
        session_id: String,
        scopes: &[CommandScope],
        endpoints: EndpointPaths,
        unattended: Option<RawJson>,
    ) -> HandshakeAccepted {
        let known = |name: &String| CAPABILITIES.contains(&name.as_str());
        let (accepted_capabilities, unsupported) = self.capabilities.iter().cloned().partition(known);
        let unattended = unattended.filter(|_| self.capabilities.iter().any(|name| name == "workflow_gate"));
        HandshakeAccepted {
            protocol_version: PROTOCOL_VERSION,
            session_id,
            accepted_capabilities,
            accepted_scopes: self.granted_scopes(scopes),
            unsupported,
            endpoints,
            frame_types: FrameType::ALL,
            unattended_active: unattended.is_some().then_some(true),
            accepted_unattended: unattended,
        }
    }
}

wire_values! { HandshakeAccepted, HandshakeRejected }
