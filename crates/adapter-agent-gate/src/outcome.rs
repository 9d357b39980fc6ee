//! Encodes the end of a request: as the reply to it, and as a row of pending results.

use std::sync::Arc;

use countersign_core::{
    call::CallEnd,
    id::{CallId, GateId},
};
use countersign_protocol::agent_gate::{self as wire, JsonRpcError, LARGEST_FRAME, code};
use serde_json::{Value, json};

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ToolCallOutcome {
    pub(super) call: CallId,
    /// Gate that decided it, if it was looked up: only the reply to an unknown outcome names it.
    pub(super) gate: Option<GateId>,
    pub(super) end: CallEnd,
    /// Result of the service as JSON text, or the reason why there is none.
    pub(super) content: Arc<str>,
}

impl ToolCallOutcome {
    /// Returns the reply under the client's own id, which is JSON text.
    pub(super) fn to_reply(&self, id: &str) -> String {
        let reply = match self.to_fault() {
            // Contents can be removed from the record; the action stays done.
            None if self.content.is_empty() => wire::encode_result(id, &wire::executed_result("null")),
            None => wire::encode_result(id, &wire::executed_result(&self.content)),
            Some(fault) => wire::encode_error(id, &fault),
        };
        if reply.len() <= LARGEST_FRAME {
            return reply;
        }
        let fault = JsonRpcError::new(code::FAILED, format!("Response too large ({} bytes)", reply.len()));
        wire::encode_error(id, &fault)
    }

    fn to_fault(&self) -> Option<JsonRpcError> {
        let with_reason = |code, message: &str| {
            let data = (message != &*self.content).then(|| json!({ "reason": &*self.content }));
            Some(JsonRpcError { code, message: message.to_owned(), data })
        };
        match self.end {
            CallEnd::Done { error: false } => None,
            CallEnd::Done { error: true } | CallEnd::Failed => Some(JsonRpcError::new(code::FAILED, &*self.content)),
            CallEnd::Denied => with_reason(code::DENIED, "Denied by policy"),
            CallEnd::Refused => with_reason(code::REFUSED, "Denied by user"),
            CallEnd::Expired => with_reason(code::EXPIRED, "Approval timed out"),
            CallEnd::Limited => with_reason(code::LIMITED, "Too many pending approvals"),
            CallEnd::Skipped | CallEnd::Cancelled => with_reason(code::FAILED, "Not run"),
            CallEnd::Unknown => {
                let data = self.gate.map(|gate| json!({ "gate_id": gate.to_string() }));
                Some(JsonRpcError { code: code::FAILED, message: self.content.to_string(), data })
            }
        }
    }

    /// Returns the result as a row of pending results.
    pub(super) fn result_row(&self) -> Value {
        match self.end {
            CallEnd::Done { error: false } => {
                json!({ "status": "executed", "data": serde_json::from_str::<Value>(&self.content).unwrap_or_default() })
            }
            CallEnd::Refused => json!({ "status": "denied", "data": "Denied by user" }),
            CallEnd::Expired => json!({ "status": "denied", "data": "Approval timed out" }),
            CallEnd::Denied => json!({ "status": "denied", "data": "Denied by policy" }),
            CallEnd::Unknown => json!({ "status": "error", "data": "Outcome unknown" }),
            CallEnd::Done { error: true }
            | CallEnd::Failed
            | CallEnd::Limited
            | CallEnd::Skipped
            | CallEnd::Cancelled => {
                json!({ "status": "error", "data": &*self.content })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::id::CallId;

    use super::{CallEnd, ToolCallOutcome};

    fn outcome(end: CallEnd, content: &str) -> ToolCallOutcome {
        let call = CallId::parse("00000000000000000000000000000001").unwrap();
        ToolCallOutcome { call, gate: None, end, content: content.into() }
    }

    #[test]
    fn every_end_has_its_reply_and_its_row() {
        for (end, content, reply, row) in [
            (
                CallEnd::Done { error: false },
                "[1]",
                r#""result":{"status":"executed","data":[1]}"#,
                r#"{"status":"executed","data":[1]}"#,
            ),
            (
                CallEnd::Done { error: true },
                "gone",
                r#""error":{"code":-32004,"message":"gone"}"#,
                r#"{"status":"error","data":"gone"}"#,
            ),
            (
                CallEnd::Failed,
                "Unknown tool: x",
                r#""error":{"code":-32004,"message":"Unknown tool: x"}"#,
                r#"{"status":"error","data":"Unknown tool: x"}"#,
            ),
            (
                CallEnd::Denied,
                "rule",
                r#""error":{"code":-32003,"message":"Denied by policy","data":{"reason":"rule"}}"#,
                r#"{"status":"denied","data":"Denied by policy"}"#,
            ),
            (
                CallEnd::Refused,
                "no",
                r#""error":{"code":-32001,"message":"Denied by user","data":{"reason":"no"}}"#,
                r#"{"status":"denied","data":"Denied by user"}"#,
            ),
            (
                CallEnd::Expired,
                "late",
                r#""error":{"code":-32002,"message":"Approval timed out","data":{"reason":"late"}}"#,
                r#"{"status":"denied","data":"Approval timed out"}"#,
            ),
            (
                CallEnd::Limited,
                "Too many pending approvals",
                r#""error":{"code":-32006,"message":"Too many pending approvals"}"#,
                r#"{"status":"error","data":"Too many pending approvals"}"#,
            ),
            (
                CallEnd::Unknown,
                "who knows",
                r#""error":{"code":-32004,"message":"who knows"}"#,
                r#"{"status":"error","data":"Outcome unknown"}"#,
            ),
        ] {
            let call_outcome = outcome(end, content);
            assert_eq!(call_outcome.to_reply("7"), format!(r#"{{"jsonrpc":"2.0",{reply},"id":7}}"#));
            assert_eq!(call_outcome.result_row().to_string(), row);
        }
    }

    #[test]
    fn a_reply_that_no_client_takes_says_so() {
        let call_outcome = outcome(CallEnd::Done { error: false }, &format!("\"{}\"", "x".repeat(1 << 20)));
        assert!(call_outcome.to_reply("1").contains("Response too large (1048"), "{:.100}", call_outcome.to_reply("1"));
    }
}
