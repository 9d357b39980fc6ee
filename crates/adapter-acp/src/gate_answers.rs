//! The reply of an editor as the answer to a gate.
//!
//! Only a chosen option or a filled form is the answer of a person. Everything else leaves the gate open for other surfaces.

use countersign_acp_protocol::{ElicitationAnswer, PermissionAnswer};
use countersign_core::{
    gate::{ApprovalScope, GateReply},
    message::estimate_tokens,
};
use countersign_view::gate_request::RequestKind;
use serde_json::Value;

use crate::gate_requests::{
    ALLOW_ALWAYS, ALLOW_ONCE, ALLOW_SESSION, CHOICE, GateRequestFrame, PendingGate, REJECT_ONCE,
};

/// Longest text of an answer, in tokens.
const LONGEST_ANSWER: u64 = 64 * 1024;

/// Meaning of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReplyMeaning {
    /// A person's answer.
    Answer(GateReply),
    /// No answer, and the reason for people.
    Nothing(String),
}

impl ReplyMeaning {
    fn nothing(why: impl Into<String>) -> Self {
        Self::Nothing(why.into())
    }
}

/// Reads the reply to `request`, which was made for `gate`.
pub(crate) fn read_reply(
    gate: &PendingGate,
    request: &GateRequestFrame,
    result: Result<Value, String>,
) -> ReplyMeaning {
    let result = match result {
        Ok(result) => result,
        Err(error) => return ReplyMeaning::nothing(format!("the editor reports an error: {error}")),
    };
    match request {
        GateRequestFrame::Permission(_) => match PermissionAnswer::read(&result) {
            Ok(PermissionAnswer::Selected(option)) => chosen_option(gate, &option),
            Ok(PermissionAnswer::Cancelled) => ReplyMeaning::nothing("the editor gave no answer"),
            Err(fault) => ReplyMeaning::nothing(fault.to_string()),
        },
        GateRequestFrame::Form(_) => match ElicitationAnswer::read(&result) {
            Ok(ElicitationAnswer::Accepted(texts))
                if texts.iter().map(|text| estimate_tokens(text.len())).sum::<u64>() > LONGEST_ANSWER =>
            {
                ReplyMeaning::nothing("the answer is too long")
            }
            Ok(ElicitationAnswer::Accepted(texts)) => ReplyMeaning::Answer(GateReply::Say(texts)),
            // Clients without a person dismiss forms by themselves.
            Ok(ElicitationAnswer::Dismissed) => ReplyMeaning::nothing("the editor gave no answer"),
            Err(fault) => ReplyMeaning::nothing(fault.to_string()),
        },
        GateRequestFrame::Nothing => ReplyMeaning::nothing("nothing was asked"),
    }
}

/// Returns the meaning of an option. One that the gate does not offer is none.
fn chosen_option(gate: &PendingGate, option: &str) -> ReplyMeaning {
    let unknown = || ReplyMeaning::nothing(format!("the editor chose {option:?}, which was not offered"));
    if let RequestKind::Question(question) = gate.summary.request.kind() {
        if option == REJECT_ONCE {
            return ReplyMeaning::Answer(GateReply::Decline);
        }
        let at = option.strip_prefix(CHOICE).and_then(|at| at.parse::<usize>().ok());
        let label = at.and_then(|at| question.choices.get(at)).map(|choice| choice.label.clone());
        return label.map_or_else(unknown, |label| ReplyMeaning::Answer(GateReply::Say(vec![label])));
    }
    let scope = match option {
        REJECT_ONCE => return ReplyMeaning::Answer(GateReply::Deny { reason: None }),
        ALLOW_ONCE => ApprovalScope::Once,
        ALLOW_SESSION => ApprovalScope::Session,
        ALLOW_ALWAYS => ApprovalScope::Always,
        _ => return unknown(),
    };
    if gate.gate().scopes().contains(&scope) { ReplyMeaning::Answer(GateReply::Allow(scope)) } else { unknown() }
}
