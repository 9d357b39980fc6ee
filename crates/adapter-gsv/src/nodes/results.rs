//! Results of calls from nodes. A node gets its acknowledgement once the result is recorded.

use std::sync::Arc;

use countersign_core::message::MessageBlock;
use countersign_protocol::{
    RawJson,
    gsv::{
        GsvError, code,
        tool::{AckResult, NoResultReason, ToolResultParams},
    },
};
use countersign_runtime::{PeerExchange, ResultTiming, tools::CallOutput};
use serde_json::{Value, json};

use super::{
    super::{GsvAdapter, method_result::MethodResult, peer::ConnectedPeer},
    in_flight_calls::{AnsweredCall, CallPurpose},
    started_calls_view,
};

/// Longest part of a result in the record and for models, in bytes. A client gets all of it.
const LONGEST: usize = 1 << 20;

/// Text for a call that its node did not begin, if the node gives no reason.
pub(super) const NEVER_BEGAN: &str = "the node never began this call";
/// Text for a call whose outcome the node does not know.
pub(super) const NOT_KNOWN: &str = "the node does not know what became of this call";

/// Longest name of an execution, in bytes. It is part of a fact, which has a limit.
const LONGEST_EXECUTION: usize = 1024;

/// Handles `tool.result`.
pub(super) async fn handle_result(
    door: &Arc<GsvAdapter>,
    peer: &ConnectedPeer,
    outcome: ToolResultParams,
) -> MethodResult {
    let answered = match door.nodes.calls.take_answered(&outcome.call_id, &peer.connect.id) {
        Err(fault) if fault.code == code::NOT_FOUND && outcome.fate.is_none() => {
            find_forgotten(door, peer, &outcome).await.unwrap_or(Err(fault))?
        }
        answered => answered?,
    };
    let waiting = &door.nodes.call_waiters;
    let ack = match answered {
        AnsweredCall::Open(exchange, purpose) => {
            let call = exchange.call();
            let recorded = waiting.wait_recorded(call);
            // Taken before its end is recorded: no other path may answer the client.
            let client = waiting.take_client(call);
            let timing = report_outcome(exchange, purpose, &outcome).await;
            // An error means that the gateway closes.
            let _ = recorded.await;
            match (purpose, timing) {
                (CallPurpose::Request, _) => return Err(GsvError::unknown_session_call(&outcome.call_id)),
                (CallPurpose::Run, ResultTiming::InTime) => AckResult::TAKEN,
                (CallPurpose::Run, ResultTiming::TooLate) => AckResult::DROPPED,
                (CallPurpose::Invoke, _) => match client.map(|client| client.send(Ok(outcome))) {
                    Some(Ok(())) => AckResult::TAKEN,
                    Some(Err(_)) | None => AckResult::DROPPED,
                },
            }
        }
        AnsweredCall::Past(late) => {
            let recorded = waiting.wait_recorded(late.call());
            late.send_output(to_output(&outcome)).await;
            let _ = recorded.await;
            AckResult::DROPPED
        }
        AnsweredCall::Over => AckResult::DROPPED,
    };
    Ok(RawJson::from_wire(&ack))
}

/// Ends a call whose result cannot be read, as unknown. A readable result that follows is late.
pub(super) async fn end_unreadable(door: &Arc<GsvAdapter>, peer: &ConnectedPeer, call_id: String, fault: &GsvError) {
    let Some((exchange, purpose)) = door.nodes.calls.take_unreadable(&call_id, &peer.connect.id) else { return };
    let call = exchange.call();
    let recorded = door.nodes.call_waiters.wait_recorded(call);
    let client = door.nodes.call_waiters.take_client(call);
    let error = Some(format!("the node's result was refused: {}", fault.message));
    let outcome = ToolResultParams { call_id, result: None, error, fate: Some(NoResultReason::Unknown) };
    report_outcome(exchange, purpose, &outcome).await;
    // An error means that the gateway closes.
    let _ = recorded.await;
    if let Some(client) = client {
        // The client may have gone.
        let _ = client.send(Ok(outcome));
    }
}

/// Finds a call that this process does not know: an earlier process gave it, or it was forgotten. None if it never existed.
async fn find_forgotten(
    door: &GsvAdapter,
    peer: &ConnectedPeer,
    outcome: &ToolResultParams,
) -> Option<Result<AnsweredCall, GsvError>> {
    let (node, late) = started_calls_view::find_call(door, &outcome.call_id).await?;
    let is_its = node == peer.connect.id;
    Some(is_its.then_some(AnsweredCall::Past(late)).ok_or_else(GsvError::not_its_call))
}

async fn report_outcome(exchange: PeerExchange, purpose: CallPurpose, outcome: &ToolResultParams) -> ResultTiming {
    let why = |otherwise: &str| format!("Error: {}", outcome.error.as_deref().unwrap_or(otherwise));
    match outcome.fate {
        Some(NoResultReason::NotBegun) => exchange.never_began(why(NEVER_BEGAN)),
        Some(NoResultReason::Unknown) => exchange.mark_lost(why(NOT_KNOWN)),
        None => {
            let left_behind = left_behind(outcome).filter(|_| purpose == CallPurpose::Run);
            exchange.end_leaving(to_output(outcome), left_behind.map(Into::into)).await
        }
    }
}

/// Returns the node's id of the execution that continues after a result.
fn left_behind(outcome: &ToolResultParams) -> Option<String> {
    // Most results are larger than that of a command which has only begun, and need not be parsed.
    let result: Value = outcome.result.as_ref().filter(|result| result.as_text().len() < LONGEST)?.decode_as().ok()?;
    let is_running = outcome.error.is_none() && result["status"] == "running";
    let is_name = |id: &&str| !id.is_empty() && id.len() <= LONGEST_EXECUTION;
    result["sessionId"].as_str().filter(is_name).filter(|_| is_running).map(str::to_owned)
}

/// Returns the output for models and for the record.
fn to_output(outcome: &ToolResultParams) -> CallOutput {
    let mut text = outcome.model_text();
    if text.len() > LONGEST {
        let all = text.len();
        text.truncate(text.floor_char_boundary(LONGEST));
        text.push_str(&format!("\n[{} bytes more were left out]", all - text.len()));
    }
    let is_error = outcome.error.is_some();
    CallOutput { content: vec![MessageBlock::from_text(text)], details: Some(json!({})), is_error }
}

#[cfg(test)]
mod tests {
    use countersign_protocol::gsv::tool::ToolResultParams;
    use serde_json::{Value, json};

    use super::{LONGEST, left_behind, to_output};

    fn outcome(result: Value) -> ToolResultParams {
        ToolResultParams { call_id: "c".to_owned(), result: Some(result.into()), error: None, fate: None }
    }

    #[test]
    fn what_goes_on_behind_a_result_is_named() {
        let running = outcome(json!({ "status": "running", "sessionId": "x-1", "pid": 7 }));
        assert_eq!(left_behind(&running).as_deref(), Some("x-1"));
        assert_eq!(left_behind(&outcome(json!({ "status": "completed", "sessionId": "x-1" }))), None);
        assert_eq!(left_behind(&outcome(json!("running"))), None);
        assert_eq!(left_behind(&ToolResultParams { error: Some("no".to_owned()), ..running }), None);
    }

    #[test]
    fn a_result_that_no_model_could_read_is_cut() {
        let text = to_output(&outcome(json!("é".repeat(LONGEST)))).content[0].as_text().unwrap().to_owned();
        assert!(text.len() < LONGEST + 64 && text.ends_with(&format!("[{LONGEST} bytes more were left out]")));
    }
}
