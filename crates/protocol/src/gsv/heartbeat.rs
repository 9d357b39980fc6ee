//! Methods about heartbeats: parameters and answers.

use std::collections::BTreeMap;

use serde::Serialize;

use super::GsvError;
use super::channel::ChatPeer;
use super::fields::ParamFields;
use crate::json::wire_values;

/// Default agent of heartbeat and skill methods.
pub const DEFAULT_AGENT: &str = "main";

/// Parameters of `heartbeat.trigger`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatTriggerParams {
    /// The agent.
    pub agent: String,
}

impl HeartbeatTriggerParams {
    pub(super) fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        Ok(Self { agent: read_agent(&mut fields)?.unwrap_or_else(|| DEFAULT_AGENT.to_owned()) })
    }
}

pub(super) fn read_agent(fields: &mut ParamFields) -> Result<Option<String>, GsvError> {
    Ok(fields.take_text("agentId")?.map(|agent| agent.trim().to_owned()).filter(|agent| !agent.is_empty()))
}

/// Chat in which an agent was last addressed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LastActive {
    /// Name of the chat network.
    pub channel: String,
    /// Account in that network.
    pub account_id: String,
    /// The chat.
    pub peer: ChatPeer,
    /// Time of that message.
    pub timestamp: u64,
}

/// The state of an agent's heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentHeartbeat {
    /// The agent.
    pub agent_id: String,
    /// Time of the next heartbeat. Null if it is off.
    pub next_heartbeat_at: Option<u64>,
    /// Time of the last heartbeat.
    pub last_heartbeat_at: Option<u64>,
    /// Text of that heartbeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_text: Option<String>,
    /// Time of the last delivered text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_sent_at: Option<u64>,
    /// Chat in which the agent was last addressed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_active: Option<LastActive>,
}

/// The answer to `heartbeat.status`, and with a message to `heartbeat.start`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HeartbeatStatusResult {
    /// Message for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// By agent.
    pub agents: BTreeMap<String, AgentHeartbeat>,
}

/// Message of `heartbeat.start`.
pub const STARTED: &str = "Heartbeat scheduler started";

/// The answer to `heartbeat.trigger`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeartbeatTriggerResult {
    /// True if it ran.
    pub ok: bool,
    /// Outcome, as text.
    pub message: String,
    /// True if there was nothing to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<bool>,
    /// Reason that it did not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_reason: Option<String>,
}

impl HeartbeatTriggerResult {
    /// Creates the answer for a heartbeat that runs in this session.
    pub fn started_in(agent: &str, session: &str) -> Self {
        let message = format!("Heartbeat triggered for agent {agent} (session: {session})");
        Self { ok: true, message, skipped: None, skip_reason: None }
    }

    /// Creates the answer for a heartbeat with nothing to run.
    pub fn skipped(agent: &str, reason: &str) -> Self {
        let message = format!("Heartbeat skipped for agent {agent}: {reason}");
        Self { ok: true, message, skipped: Some(true), skip_reason: Some(reason.to_owned()) }
    }

    /// Creates the answer for a heartbeat that could not run.
    pub fn failed(agent: &str, error: &str) -> Self {
        let message = format!("Heartbeat failed for agent {agent}: {error}");
        Self { ok: false, message, skipped: None, skip_reason: None }
    }
}

wire_values! { HeartbeatStatusResult, HeartbeatTriggerResult }
