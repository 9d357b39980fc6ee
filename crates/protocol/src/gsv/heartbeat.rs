//! Methods about heartbeats: parameters and answers.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Fault;
use super::channel::Peer;
use super::fields::Fields;
use crate::json::Wire;

/// Whose heartbeat or skills are meant if nothing is said.
pub const DEFAULT_AGENT: &str = "main";

/// Parameters of `heartbeat.trigger`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// The agent.
    pub agent: String,
}

impl Trigger {
    pub(super) fn read(mut fields: Fields) -> Result<Self, Fault> {
        Ok(Self { agent: agent(&mut fields)?.unwrap_or_else(|| DEFAULT_AGENT.to_owned()) })
    }
}

pub(super) fn agent(fields: &mut Fields) -> Result<Option<String>, Fault> {
    Ok(fields.text("agentId")?.map(|agent| agent.trim().to_owned()).filter(|agent| !agent.is_empty()))
}

/// Where an agent was last spoken to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LastActive {
    /// Which network.
    pub channel: String,
    /// Which account of it.
    pub account_id: String,
    /// In which chat.
    pub peer: Peer,
    /// When.
    pub timestamp: u64,
}

/// The state of an agent's heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The agent.
    pub agent_id: String,
    /// When it is due next. Null if it is off.
    pub next_heartbeat_at: Option<u64>,
    /// When it was last.
    pub last_heartbeat_at: Option<u64>,
    /// What was said then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_text: Option<String>,
    /// When something was last told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_sent_at: Option<u64>,
    /// Where the agent was last spoken to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_active: Option<LastActive>,
}

/// The answer to `heartbeat.status`, and with a message to `heartbeat.start`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Status {
    /// What people should know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// By agent.
    pub agents: BTreeMap<String, State>,
}

impl Wire for Status {}

/// What `heartbeat.start` says.
pub const STARTED: &str = "Heartbeat scheduler started";

/// The answer to `heartbeat.trigger`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Triggered {
    /// Whether it ran.
    pub ok: bool,
    /// What came of it.
    pub message: String,
    /// True if there was nothing to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<bool>,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_reason: Option<String>,
}

impl Wire for Triggered {}

impl Triggered {
    /// It runs in this session.
    pub fn ran(agent: &str, session: &str) -> Self {
        let message = format!("Heartbeat triggered for agent {agent} (session: {session})");
        Self { ok: true, message, skipped: None, skip_reason: None }
    }

    /// There was nothing to run.
    pub fn skipped(agent: &str, reason: &str) -> Self {
        let message = format!("Heartbeat skipped for agent {agent}: {reason}");
        Self { ok: true, message, skipped: Some(true), skip_reason: Some(reason.to_owned()) }
    }

    /// It could not run.
    pub fn failed(agent: &str, error: &str) -> Self {
        let message = format!("Heartbeat failed for agent {agent}: {error}");
        Self { ok: false, message, skipped: None, skip_reason: None }
    }
}
