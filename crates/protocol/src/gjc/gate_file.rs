//! Writes and reads the file in which the original keeps a session's gates, because people's tools read it.
//!
//! It must not know the log that the file is written from. Source: docs/protocol/gjc.md, Files.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::gate_id::StageCounters;
use super::workflow::{AnswerResolution, WorkflowGate};
use crate::json::WireValue;

/// The whole file, pretty-printed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GateFile {
    /// Number of gates that each stage has opened.
    pub counters: StageCounters,
    /// Every gate by its id.
    pub gates: BTreeMap<String, GateRecord>,
}

/// One gate of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GateRecord {
    /// The gate as it was sent.
    pub gate: WorkflowGate,
    /// Status of the gate.
    pub status: GateStatus,
    /// The key of the answer that counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Hash that distinguishes that answer from others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_hash: Option<String>,
    /// The answer that counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Value>,
    /// Resolution that its sender received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<AnswerResolution>,
    /// True if the workflow continued with it.
    pub advanced: bool,
}

/// Status of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GateStatus {
    /// Pending.
    Pending,
    /// An answer counted.
    Accepted,
}

impl GateFile {
    /// Returns the text of the file.
    pub fn to_pretty_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a wire value always encodes")
    }
}

impl WireValue for GateFile {}
