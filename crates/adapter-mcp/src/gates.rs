//! Gates of a client: their state, and the wait for their decision. Looking takes no decision from the call that waits for it.

use std::time::Duration;

use countersign_core::{
    engine::{Engine, ResidencyScope},
    gate::{GatePhase, GateResolution},
    id::{GateId, SessionId},
};
use countersign_foreign_calls::Requester;
use countersign_view::{record::resolution_text, time::format_iso};
use rmcp::model::CallToolResult;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::{adapter::McpAdapter, answers::error_result};

/// Wait if the client names none.
const USUAL_WAIT: Duration = Duration::from_secs(60);
/// Longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3600);

/// State of a gate.
struct GateState {
    is_pending: bool,
    shown: Value,
}

/// Returns the state of a gate of the requester.
pub(super) async fn gate_status(
    adapter: &McpAdapter,
    requester: &Requester,
    arguments: &Map<String, Value>,
) -> CallToolResult {
    match find_gate(adapter, requester, arguments).await {
        Ok((_, state)) => state_result(state.shown),
        Err(problem) => error_result(&problem),
    }
}

/// Waits for the decision at a gate of the requester, and returns its state then, or at the end of the wait.
pub(super) async fn gate_wait(
    adapter: &McpAdapter,
    requester: &Requester,
    arguments: &Map<String, Value>,
    cancel: &CancellationToken,
) -> CallToolResult {
    let wait = match arguments.get("seconds").and_then(Value::as_f64) {
        None => USUAL_WAIT,
        Some(seconds) => match Duration::try_from_secs_f64(seconds) {
            Ok(wait) => wait.min(LONGEST_WAIT),
            Err(_) => return error_result("Invalid value for seconds: expected a number from 0"),
        },
    };
    let gate = match arguments.get("gate").and_then(Value::as_str).and_then(GateId::parse) {
        Some(gate) => gate,
        None => return error_result(&unknown_gate(arguments)),
    };
    // Before the look at the state, so that no resolution is missed between.
    let resolved = adapter.calls.wait_for_gate(gate);
    match find_gate(adapter, requester, arguments).await {
        Ok((_, state)) if state.is_pending => {}
        Ok((_, state)) => {
            drop(resolved);
            adapter.calls.forget_closed_gate(gate);
            return state_result(state.shown);
        }
        Err(problem) => {
            drop(resolved);
            adapter.calls.forget_closed_gate(gate);
            return error_result(&problem);
        }
    }
    tokio::select! {
        _ = resolved => {}
        () = tokio::time::sleep(wait) => {}
        () = cancel.cancelled() => {}
        () = adapter.end.cancelled() => {}
    }
    adapter.calls.forget_closed_gate(gate);
    gate_status(adapter, requester, arguments).await
}

async fn find_gate(
    adapter: &McpAdapter,
    requester: &Requester,
    arguments: &Map<String, Value>,
) -> Result<(GateId, GateState), String> {
    let given = arguments.get("gate").and_then(Value::as_str).and_then(GateId::parse);
    let gate = given.ok_or_else(|| unknown_gate(arguments))?;
    let session = requester.session().clone();
    let read =
        adapter.calls.requests().read_of(ResidencyScope::Gate(gate), move |engine| gate_state(engine, gate, &session));
    let (state, _) = read.await.ok_or("The gateway is closing")?;
    state.map(|state| (gate, state)).ok_or_else(|| unknown_gate(arguments))
}

/// Returns the state of a gate, if it is of this session: a gate of others is as unknown as none.
fn gate_state(engine: &Engine, gate: GateId, session: &SessionId) -> Option<GateState> {
    let gate = engine.state().gate(gate).filter(|gate| gate.session() == Some(session))?;
    let id = gate.id().to_string();
    Some(match gate.phase() {
        GatePhase::Pending => GateState {
            is_pending: true,
            shown: json!({ "gate": id, "status": "pending", "deadline": gate.deadline().map(format_iso) }),
        },
        GatePhase::Resolved { resolution, at, .. } => {
            let mut shown = json!({ "gate": id, "status": resolution_text(resolution), "at": format_iso(*at) });
            if let Some(decision) = decision_of(resolution) {
                shown["decision"] = decision.into();
            }
            GateState { is_pending: false, shown }
        }
    })
}

const fn decision_of(resolution: &GateResolution) -> Option<&'static str> {
    match resolution {
        GateResolution::Allowed { .. } | GateResolution::Granted => Some("allow"),
        GateResolution::Denied | GateResolution::Expired | GateResolution::Withdrawn => Some("deny"),
        GateResolution::Answered | GateResolution::Declined => None,
    }
}

fn unknown_gate(arguments: &Map<String, Value>) -> String {
    let given = arguments.get("gate").and_then(Value::as_str).unwrap_or_default();
    let shown: String = given.chars().take(100).collect();
    format!("There is no gate {shown} of yours")
}

fn state_result(shown: Value) -> CallToolResult {
    CallToolResult::structured(shown)
}
