//! Questions of our own to the person at the client, while a gate waits. The first answer counts, wherever it is given.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{AcpProxy, EditorApprovals, FORM, REQUEST_PERMISSION, setup::SETUP_SESSION, text, to_client};
use crate::{
    agent_call::{AgentCall, CallAnswer, GateNotice},
    interceptor::{CallToken, ProxyAction, ProxyActions},
    json_line::{Message, RequestId},
};

/// Time in which no person reads a question and answers it.
const TOO_FAST: Duration = Duration::from_millis(300);
/// Option that allows the call once.
const ALLOW: &str = "allow";
/// Option that denies it.
const REJECT: &str = "reject";
/// Most answers that are still expected to questions that are closed.
const MOST_CLOSED: usize = 4096;

/// Question to the client.
#[derive(Debug)]
struct EditorQuestion {
    token: CallToken,
    gate: String,
    requested_at: Instant,
}

/// All questions to the client.
#[derive(Debug, Default)]
pub(super) struct EditorQuestions {
    open: BTreeMap<RequestId, EditorQuestion>,
    closed: BTreeSet<RequestId>,
}

impl EditorQuestions {
    /// Returns the calls that the client is asked about.
    pub(super) fn tokens(&self) -> impl Iterator<Item = CallToken> {
        self.open.values().map(|question| question.token)
    }

    /// Closes the question about a call that is decided: the answer to it does not count any more.
    pub(super) fn close(&mut self, token: CallToken, actions: &mut ProxyActions) {
        let meant = self.open.iter().filter(|(_, question)| question.token == token);
        for id in meant.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            self.open.remove(&id);
            let cancelled = json!({ "requestId": id.to_value() });
            actions.push(to_client(FORM.notification("$/cancel_request", &cancelled)));
            self.closed.insert(id);
            while self.closed.len() > MOST_CLOSED {
                self.closed.pop_first();
            }
        }
    }
}

impl AcpProxy {
    /// Asks the person at the client about a call that waits at a gate.
    pub(super) fn ask_editor(&mut self, token: CallToken, gate: GateNotice, now: Instant, actions: &mut ProxyActions) {
        let Some((_, session, call)) = self.waits.find(token) else { return };
        let is_requested = self.questions.open.values().any(|question| question.token == token);
        if self.options.approvals == EditorApprovals::Gateway || session == SETUP_SESSION || is_requested {
            return;
        }
        let (session, call) = (session.to_owned(), call.clone());
        let id = self.own_id();
        let tool_call =
            call.id.clone().unwrap_or_else(|| id.to_value().as_str().unwrap_or(REQUEST_PERMISSION).to_owned());
        let params = json!({
            "sessionId": session,
            "toolCall": {
                "toolCallId": tool_call,
                "title": title_of(&call),
                "kind": kind_of(&call.tool),
                "status": "pending",
                "rawInput": call.arguments,
                "content": [{
                    "type": "content",
                    "content": { "type": "text", "text": format!("Gate {} of Countersign: {}", gate.gate, gate.title) },
                }],
            },
            "options": [
                { "optionId": ALLOW, "name": "Allow once", "kind": "allow_once" },
                { "optionId": REJECT, "name": "Reject", "kind": "reject_once" },
            ],
        });
        actions.push(to_client(FORM.request(&id, REQUEST_PERMISSION, &params)));
        self.questions.open.insert(id, EditorQuestion { token, gate: gate.gate, requested_at: now });
    }

    /// Takes in an answer of the client to one of our questions. False if it is to none.
    pub(super) fn take_editor_answer(
        &mut self,
        id: &RequestId,
        message: &Message<'_>,
        now: Instant,
        actions: &mut ProxyActions,
    ) -> bool {
        let Some(question) = self.questions.open.remove(id) else { return self.questions.closed.remove(id) };
        let outcome = message.result().and_then(|result| result.get("outcome").cloned()).unwrap_or_default();
        let allow = match (text(&outcome, "outcome"), text(&outcome, "optionId")) {
            (Some("selected"), Some(ALLOW)) => true,
            (Some("selected"), Some(REJECT)) => false,
            // Neither a closed dialog nor a failure is the answer of a person.
            _ => return true,
        };
        if now.duration_since(question.requested_at) < TOO_FAST {
            let notice = format!(
                "{} answered gate {} faster than a person can: the gate waits for another answer",
                self.surface, question.gate
            );
            actions.push(ProxyAction::Notice(notice));
            return true;
        }
        if self.waits.is_open(question.token) {
            let answer = CallAnswer { gate: question.gate, allow, surface: self.surface.clone() };
            actions.push(ProxyAction::Answer { token: question.token, answer });
        }
        true
    }
}

/// Returns a line about a call, for the editor: its own input, whatever title the agent gave it.
fn title_of(call: &AgentCall) -> String {
    let subject = ["command", "path"].iter().find_map(|name| call.arguments.get(*name).and_then(Value::as_str));
    match subject {
        Some(subject) => format!("{}: {subject}", call.tool),
        None => call.tool.clone(),
    }
}

fn kind_of(tool: &str) -> &'static str {
    match tool {
        "bash" => "execute",
        "read" => "read",
        "write" | "edit" => "edit",
        _ => "other",
    }
}
