//! How the end of a request is told: as the reply to it, and as a row of pending results.

use std::sync::Arc;

use countersign_core::{
    call::End,
    id::{CallId, GateId},
};
use countersign_protocol::agent_gate::{self as wire, Fault, LARGEST_FRAME, code};
use serde_json::{Value, json};

/// What became of a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) call: CallId,
    /// The gate that decided it, where somebody looked for it: only the reply to what is unknown names it.
    pub(super) gate: Option<GateId>,
    pub(super) end: End,
    /// What the service gave as JSON text, or why it was not done.
    pub(super) content: Arc<str>,
}

impl Outcome {
    /// The reply under the client's own id, which is JSON text.
    pub(super) fn reply(&self, id: &str) -> String {
        let reply = match self.fault() {
            // Contents can be removed from the record; what was done stays done.
            None if self.content.is_empty() => wire::result(id, &wire::executed("null")),
            None => wire::result(id, &wire::executed(&self.content)),
            Some(fault) => wire::fault(id, &fault),
        };
        if reply.len() <= LARGEST_FRAME {
            return reply;
        }
        let fault = Fault::new(code::FAILED, format!("Response too large ({} bytes)", reply.len()));
        wire::fault(id, &fault)
    }

    fn fault(&self) -> Option<Fault> {
        let told = |code, message: &str| {
            let data = (message != &*self.content).then(|| json!({ "reason": &*self.content }));
            Some(Fault { code, message: message.to_owned(), data })
        };
        match self.end {
            End::Done { error: false } => None,
            End::Done { error: true } | End::Failed => Some(Fault::new(code::FAILED, &*self.content)),
            End::Denied => told(code::DENIED, "Denied by policy"),
            End::Refused => told(code::REFUSED, "Denied by user"),
            End::Expired => told(code::EXPIRED, "Approval timed out"),
            End::Limited => told(code::LIMITED, "Too many pending approvals"),
            End::Skipped | End::Cancelled => told(code::FAILED, "Not run"),
            End::Unknown => {
                let data = self.gate.map(|gate| json!({ "gate_id": gate.to_string() }));
                Some(Fault { code: code::FAILED, message: self.content.to_string(), data })
            }
        }
    }

    /// The result as a row of pending results has it.
    pub(super) fn row(&self) -> Value {
        match self.end {
            End::Done { error: false } => {
                json!({ "status": "executed", "data": serde_json::from_str::<Value>(&self.content).unwrap_or_default() })
            }
            End::Refused => json!({ "status": "denied", "data": "Denied by user" }),
            End::Expired => json!({ "status": "denied", "data": "Approval timed out" }),
            End::Denied => json!({ "status": "denied", "data": "Denied by policy" }),
            End::Unknown => json!({ "status": "error", "data": "Outcome unknown" }),
            End::Done { error: true } | End::Failed | End::Limited | End::Skipped | End::Cancelled => {
                json!({ "status": "error", "data": &*self.content })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::id::CallId;

    use super::{End, Outcome};

    fn outcome(end: End, content: &str) -> Outcome {
        let call = CallId::parse("00000000000000000000000000000001").unwrap();
        Outcome { call, gate: None, end, content: content.into() }
    }

    #[test]
    fn every_end_has_its_reply_and_its_row() {
        for (end, content, reply, row) in [
            (
                End::Done { error: false },
                "[1]",
                r#""result":{"status":"executed","data":[1]}"#,
                r#"{"status":"executed","data":[1]}"#,
            ),
            (
                End::Done { error: true },
                "gone",
                r#""error":{"code":-32004,"message":"gone"}"#,
                r#"{"status":"error","data":"gone"}"#,
            ),
            (
                End::Failed,
                "Unknown tool: x",
                r#""error":{"code":-32004,"message":"Unknown tool: x"}"#,
                r#"{"status":"error","data":"Unknown tool: x"}"#,
            ),
            (
                End::Denied,
                "rule",
                r#""error":{"code":-32003,"message":"Denied by policy","data":{"reason":"rule"}}"#,
                r#"{"status":"denied","data":"Denied by policy"}"#,
            ),
            (
                End::Refused,
                "no",
                r#""error":{"code":-32001,"message":"Denied by user","data":{"reason":"no"}}"#,
                r#"{"status":"denied","data":"Denied by user"}"#,
            ),
            (
                End::Expired,
                "late",
                r#""error":{"code":-32002,"message":"Approval timed out","data":{"reason":"late"}}"#,
                r#"{"status":"denied","data":"Approval timed out"}"#,
            ),
            (
                End::Limited,
                "Too many pending approvals",
                r#""error":{"code":-32006,"message":"Too many pending approvals"}"#,
                r#"{"status":"error","data":"Too many pending approvals"}"#,
            ),
            (
                End::Unknown,
                "who knows",
                r#""error":{"code":-32004,"message":"who knows"}"#,
                r#"{"status":"error","data":"Outcome unknown"}"#,
            ),
        ] {
            let told = outcome(end, content);
            assert_eq!(told.reply("7"), format!(r#"{{"jsonrpc":"2.0",{reply},"id":7}}"#));
            assert_eq!(told.row().to_string(), row);
        }
    }

    #[test]
    fn a_reply_that_no_client_takes_says_so() {
        let told = outcome(End::Done { error: false }, &format!("\"{}\"", "x".repeat(1 << 20)));
        assert!(told.reply("1").contains("Response too large (1048"), "{:.100}", told.reply("1"));
    }
}
