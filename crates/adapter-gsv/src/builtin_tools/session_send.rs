//! `gsv__SessionSend`: the agent sends a message to another session, and waits for the answer.

use std::time::Duration;

use countersign_core::{id::PrincipalId, tool::ToolEffect};
use countersign_protocol::gsv::{chat::ChatSendResult, command::ReplyStyle};
use countersign_runtime::tools::CallFailure;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::{
    super::{
        broadcast_event::{BroadcastEvent, RunEnding},
        chat::{self, MessageAuthor},
    },
    BuiltinCall, BuiltinResult, BuiltinTool, accept_unchanged,
};

/// Default and longest wait, in seconds.
const USUAL: u64 = 30;
const LONGEST: u64 = 120;

pub(super) const TOOL: BuiltinTool = BuiltinTool {
    name: "SessionSend",
    description: "Says something in another session and waits for the answer of the agent there. The answer is accepted (not waited for), ok with the reply, or timeout.",
    schema: || {
        json!({"type": "object", "required": ["sessionKey", "message"], "properties": {
            "sessionKey": {"type": "string", "description": "The session, as gsv__SessionsList names it"},
            "message": {"type": "string", "description": "What to say"},
            "waitSeconds": {"type": "integer", "minimum": 0, "maximum": LONGEST, "description": "How long to wait for the reply (default: 30; 0: not at all)"},
        }})
    },
    signature: &["sessionKey", "message"],
    effect: ToolEffect::Changes,
    form: accept_unchanged,
    run: |call| Box::pin(run(call)),
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionSendArguments {
    session_key: String,
    message: String,
    wait_seconds: Option<u64>,
}

async fn run(mut call: BuiltinCall) -> BuiltinResult {
    let SessionSendArguments { session_key, message, wait_seconds } = call.read_arguments()?;
    let key = chat::canonical_key(&call.door, &session_key).map_err(|fault| CallFailure::Invalid(fault.message))?;
    let wait = Duration::from_secs(wait_seconds.unwrap_or(USUAL).min(LONGEST));
    if key == call.key && !wait.is_zero() {
        // A message there would wait for this run, which would wait for it.
        return Err(CallFailure::Invalid(
            "this is your own session: it answers once you are done (waitSeconds: 0)".to_owned(),
        ));
    }
    let mut events = call.door.events.subscribe();
    let by = PrincipalId::new(format!("gsv:agent:{}", call.agent));
    let speaker = MessageAuthor { by, origin: None, style: ReplyStyle::Plain, came: call.door.cards.current_moment() };
    let before = format!("[{}] ", call.key);
    let sent = chat::send_plain_message(&call.door, &key, &message, before, &speaker).await;
    let sent = sent.map_err(|fault| CallFailure::NotBegun(fault.message))?;
    let ChatSendResult::Started { run_id, .. } = sent else {
        return Err(CallFailure::Failed("nothing began".to_owned()));
    };
    if wait.is_zero() {
        return Ok(json!({ "status": "accepted", "sessionKey": key, "runId": run_id }).to_string());
    }
    let end = tokio::select! {
        end = tokio::time::timeout(wait, end_of(&mut events, &key, &run_id)) => end.ok().flatten(),
        () = call.cancel.cancelled() => {
            return Err(CallFailure::Cancelled("it was said, and its answer is not waited for".to_owned()));
        }
    };
    Ok(match end {
        Some(RunEnding::Answered(reply)) => {
            json!({ "status": "ok", "sessionKey": key, "runId": run_id, "reply": reply })
        }
        Some(RunEnding::Failed(error)) => {
            json!({ "status": "error", "sessionKey": key, "runId": run_id, "error": error })
        }
        None => json!({ "status": "timeout", "sessionKey": key, "runId": run_id }),
    }
    .to_string())
}

/// Waits for the end of a run. `None` if the adapter closes before.
async fn end_of(events: &mut Receiver<std::sync::Arc<BroadcastEvent>>, key: &str, run: &str) -> Option<RunEnding> {
    loop {
        match events.recv().await {
            Ok(event) => {
                if let Some(end) = event.end_of(key, run) {
                    return Some(end);
                }
            }
            // The missed events may include it: then the wait ends by its timeout.
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return None,
        }
    }
}
