//! Notes about gates, and about what answers them.

use countersign_core::{digest::Digest, gate::GateStage, id::SessionId, time::Millis};
use countersign_protocol::gjc::{
    audit::{AuditEvent, AuditOutcome},
    gate_id::gate_id,
};

use super::{AuditGate, AuditNote};
use crate::gate_form;

/// Returns the key that identifies the line about an answer to a gate.
pub(crate) fn dedupe_key(event: AuditEvent, name: &str, answer: Option<&str>) -> String {
    let word = serde_json::to_string(&event).unwrap_or_default();
    format!("{}:{name}:{}", word.trim_matches('"'), answer.unwrap_or_default())
}

/// Returns the columns of a line about a gate.
pub(crate) fn gate_columns(name: String, stage: GateStage) -> AuditGate {
    AuditGate { id: name, stage: gate_form::wire_stage(stage), kind: gate_form::wire_kind(stage) }
}

/// Returns the line about an answer that counted, as the log has it: the same as was written when it did.
pub(crate) fn accepted_note(
    session: &SessionId,
    (stage, number): (GateStage, u32),
    answer: Digest,
    at: Millis,
) -> AuditNote {
    let name = gate_id(session.as_str(), gate_form::wire_stage(stage), number);
    let (event, answer) = (AuditEvent::GateResponseAccepted, answer.to_string());
    let note = AuditNote::new(at, event, AuditOutcome::Accepted, dedupe_key(event, &name, Some(&answer)));
    AuditNote { gate: Some(gate_columns(name, stage)), answer_hash: Some(answer), ..note }
}
