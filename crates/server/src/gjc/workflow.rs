//! Gates of workflows: what a run asks a person or a program outside.

use countersign_protocol::omp::{Id, Response};

use crate::omp::Door;

/// What an answer is told before there can be gates.
const NOT_NEGOTIATED: &str = "workflow gates are not available until unattended mode is negotiated";

/// Answers a gate.
pub(super) fn answer(door: &mut Door, id: Option<Id>) {
    door.write(&Response::failure(id, "workflow_gate_response", NOT_NEGOTIATED));
}

/// Lists the gates that wait.
pub(super) fn pending(door: &mut Door, id: Option<Id>) {
    door.write(&Response::failure(id, "get_pending_workflow_gates", NOT_NEGOTIATED));
}
