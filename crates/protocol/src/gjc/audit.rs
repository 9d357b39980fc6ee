//! Writes and reads the audit file of an unattended run, one line for each thing that was decided.
//!
//! It must not know how a line reaches the disk. Answers are never part of it, only their hashes. Source:
//! docs/protocol/gjc.md, Files.

use serde::{Deserialize, Serialize};

use super::workflow::{WorkflowGateKind, WorkflowStage};
use crate::json::{RawJson, WireValue};

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditLine {
    /// See [`event_id`].
    pub event_id: String,
    /// 1.
    pub schema_version: u32,
    /// `unattended_lifecycle`.
    pub category: String,
    /// ISO 8601 with milliseconds and `Z`.
    pub timestamp: String,
    /// The run.
    pub run_id: String,
    /// The session, which has the same id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Actor that is responsible for the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// The event.
    pub event: AuditEvent,
    /// Outcome of the event.
    pub outcome: AuditOutcome,
    /// A line with the key of one before it is not written.
    pub dedupe_key: String,
    /// Id of the gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate_id: Option<String>,
    /// Stage of that gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<WorkflowStage>,
    /// Kind of that gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<WorkflowGateKind>,
    /// The scope that was missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The class of actions that was missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The budget that was used up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<RawJson>,
    /// The hash of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_hash: Option<String>,
    /// The error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RawJson>,
}

impl WireValue for AuditLine {}

/// Event of an unattended run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditEvent {
    /// A declaration was accepted.
    UnattendedNegotiated,
    /// A budget was used up.
    BudgetExceeded,
    /// The run is being ended.
    UnattendedAborted,
    /// The run ended.
    UnattendedAbortSettled,
    /// A command was refused for its scope.
    ScopeDenied,
    /// An action was refused for its class.
    ActionDenied,
    /// A gate was opened.
    GateEmitted,
    /// An answer counted.
    GateResponseAccepted,
    /// An answer did not count.
    GateResponseRejected,
    /// An answer came again.
    GateResponseIdempotentReplay,
    /// Another answer came under the same key.
    GateResponseIdempotencyConflict,
    /// An answer came too late.
    GateResponseAlreadyResolved,
    /// An answer was for no gate.
    GateResponseUnknownGate,
    /// After a restart the workflow went on with an answer that had counted.
    GateAdvanceRecovered,
}

/// Outcome of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditOutcome {
    /// The answer counted.
    Accepted,
    /// The answer did not count.
    Rejected,
    /// The command or action was not allowed.
    Denied,
    /// There was too much of it.
    Exceeded,
    /// The run was ended.
    Aborted,
    /// Information only.
    Info,
}

/// Members that every line has.
pub const SCHEMA_VERSION: u32 = 1;

/// Members that every line has.
pub const CATEGORY: &str = "unattended_lifecycle";

/// Returns the id of the `number`th line, written at `millis` since 1970.
pub fn event_id(millis: u64, number: u64) -> String {
    format!("ae_{}_{}", to_base36(millis), to_base36(number))
}

/// Returns the name of a run's file.
pub fn file_name(run_id: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '_' };
    let name: String = run_id.chars().map(safe).collect();
    format!("{name}.jsonl")
}

fn to_base36(mut number: u64) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(b"0123456789abcdefghijklmnopqrstuvwxyz"[(number % 36) as usize]);
        number /= 36;
        if number == 0 {
            break;
        }
    }
    digits.iter().rev().map(|digit| char::from(*digit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_and_short() {
        assert_eq!(event_id(1_780_635_600_000, 37), "ae_mq0ggm80_11");
        assert_eq!(event_id(0, 0), "ae_0_0");
        assert_eq!(file_name("../a b/é"), ".._a_b__.jsonl");
    }
}
