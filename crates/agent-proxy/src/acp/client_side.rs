//! Lines of the client: what would loosen the agent is held, and everything else passes as it is.

use std::time::Instant;

use serde_json::{Value, json};

use super::{
    AcpProxy, AgentRequest, ClientRequest, FORM, HeldPurpose, OWN_PREFIX,
    modes::{ChangeEffect, ModeChange, OptionValue},
    notifications::is_client_notification,
    setup::setup_calls,
    text, to_agent, to_client,
};
use crate::{
    interceptor::{ProxyAction, ProxyActions},
    json_line::{CANCELLED, DENIED, INVALID_PARAMS, INVALID_REQUEST, Message, MessageKind, RequestId, not_passed},
};

/// Longest name of a client.
const LONGEST_NAME: usize = 60;

impl AcpProxy {
    pub(super) fn read_client(&mut self, line: Vec<u8>, now: Instant, actions: &mut ProxyActions) {
        if line.trim_ascii().is_empty() {
            return;
        }
        let message = match Message::parse(&line) {
            Ok(message) => message,
            Err(malformed) => {
                return actions.push(to_client(FORM.error(&malformed.id, malformed.code, &malformed.problem)));
            }
        };
        match &message.kind {
            MessageKind::Request { id, method } => {
                if id.has_prefix(OWN_PREFIX) || self.from_client.contains(id) {
                    let problem =
                        "id: expected one that no open request has, and that does not begin with \"countersign-\"";
                    return actions.push(to_client(FORM.error(&id.to_value(), INVALID_REQUEST, problem)));
                }
                let (id, method) = (id.clone(), method.clone());
                if let Some(request) = self.read_client_request(&id, &method, &message, actions) {
                    self.from_client.insert(id, request);
                    actions.push(to_agent(line));
                }
            }
            MessageKind::Notification { method } => {
                let method = method.clone();
                if !is_client_notification(&method) {
                    return actions.push(ProxyAction::Notice(not_passed("the client", &method)));
                }
                if method == "$/cancel_request" && self.cancel_held(&message.params(), actions) {
                    return;
                }
                let cancelled = (method == "session/cancel").then(|| message.params());
                actions.push(to_agent(line));
                if let Some(session) = cancelled.as_ref().and_then(|params| text(params, "sessionId")) {
                    self.cancel_session(session, actions);
                }
            }
            MessageKind::Answer { id } => {
                let id = id.clone();
                if self.take_editor_answer(&id, &message, now, actions) {
                    return;
                }
                // An answer to what is decided here must not overtake the decision.
                match self.from_agent.remove(&id) {
                    Some(AgentRequest::Passed) => actions.push(to_agent(line)),
                    Some(AgentRequest::Held) => drop(self.from_agent.insert(id, AgentRequest::Held)),
                    None => actions.push(ProxyAction::Notice("an answer of the client to no open request".to_owned())),
                }
            }
            MessageKind::LooseError => actions.push(to_agent(line)),
        }
    }

    /// Handles a request. Returns what it is if it passes as it came.
    fn read_client_request(
        &mut self,
        id: &RequestId,
        method: &str,
        message: &Message<'_>,
        actions: &mut ProxyActions,
    ) -> Option<ClientRequest> {
        match method {
            "initialize" => {
                let params = message.params();
                let client = params.get("clientInfo").unwrap_or(&Value::Null);
                if let Some(name) = text(client, "title").or_else(|| text(client, "name")) {
                    let plain = name.chars().filter(|letter| !letter.is_control()).take(LONGEST_NAME);
                    self.surface = format!("editor {}", plain.collect::<String>());
                }
                Some(ClientRequest::Initialize)
            }
            "session/new" | "session/load" | "session/resume" | "session/fork" => {
                let params = message.params();
                let session = text(&params, "sessionId").map(str::to_owned);
                let cwd = text(&params, "cwd").filter(|cwd| cwd.starts_with('/')).map(str::to_owned);
                let cwd = cwd.unwrap_or_else(|| self.cwd_of(session.as_deref().unwrap_or_default()).to_owned());
                let calls = match setup_calls(method, &params, &cwd) {
                    Ok(calls) => calls,
                    Err(problem) => {
                        actions.push(to_client(FORM.error(&id.to_value(), INVALID_PARAMS, &problem)));
                        return None;
                    }
                };
                // A fork answers with a new session.
                let known = session.clone().filter(|_| method != "session/fork");
                let request = ClientRequest::Setup { cwd, session: known };
                if calls.is_empty() {
                    return Some(request);
                }
                self.from_client.insert(id.clone(), ClientRequest::Held);
                let held_in = calls.first().map(|call| call.session.clone()).unwrap_or_default();
                let purpose = HeldPurpose::ClientRequest { id: id.clone(), method: method.to_owned(), params, request };
                self.hold(purpose, &held_in, calls, actions);
                None
            }
            "session/set_mode" | "session/set_config_option" => {
                let params = message.params();
                let session = text(&params, "sessionId").unwrap_or_default().to_owned();
                let Some(change) = mode_change(method, &params) else {
                    let problem = "expected a text as modeId, or a text as configId and a text or a boolean as value";
                    actions.push(to_client(FORM.error(&id.to_value(), INVALID_PARAMS, problem)));
                    return None;
                };
                let request = ClientRequest::Change { session: session.clone(), change: change.clone() };
                let effect = match self.sessions.get(&session) {
                    Some(state) => state.modes.effect(&change),
                    None => super::SessionModes::default().effect(&change),
                };
                match effect {
                    ChangeEffect::Harmless => return Some(request),
                    ChangeEffect::MayNotAsk => {}
                    ChangeEffect::Unannounced(problem) => {
                        actions.push(to_client(FORM.error(&id.to_value(), INVALID_PARAMS, &problem)));
                        return None;
                    }
                }
                let arguments = match &change {
                    ModeChange::Mode(mode) => json!({ "mode": mode }),
                    ModeChange::Option { id, value } => json!({ "mode": value.to_string(), "option": id }),
                };
                let call = self.call(&session, "set_mode", arguments);
                self.from_client.insert(id.clone(), ClientRequest::Held);
                let purpose = HeldPurpose::ClientRequest { id: id.clone(), method: method.to_owned(), params, request };
                self.hold(purpose, &session, vec![call], actions);
                None
            }
            "session/prompt" => {
                let params = message.params();
                let state = text(&params, "sessionId").and_then(|session| self.sessions.get(session));
                if let Some(problem) = state.and_then(|state| state.refused.as_ref()) {
                    actions.push(to_client(FORM.error(&id.to_value(), DENIED, problem)));
                    return None;
                }
                Some(ClientRequest::Other)
            }
            _ => Some(ClientRequest::Other),
        }
    }

    /// Answers what the agent asks in a session that the client has cancelled. Gates stay open.
    fn cancel_session(&mut self, session: &str, actions: &mut ProxyActions) {
        let is_of_agent =
            |purpose: &HeldPurpose, of: &str| of == session && !matches!(purpose, HeldPurpose::ClientRequest { .. });
        self.close_questions(|purpose, of| is_of_agent(purpose, of), actions);
        for purpose in self.waits.cancel(is_of_agent, actions) {
            match purpose {
                HeldPurpose::Permission { id, .. } => {
                    self.from_agent.remove(&id);
                    let cancelled = json!({ "outcome": { "outcome": "cancelled" } });
                    actions.push(to_agent(FORM.result(&id, &cancelled)));
                }
                HeldPurpose::AgentRequest { id, .. } => {
                    self.from_agent.remove(&id);
                    let problem = "The client cancelled the turn; the gate stays open";
                    actions.push(to_agent(FORM.error(&id.to_value(), CANCELLED, problem)));
                }
                HeldPurpose::ClientRequest { .. } => {}
            }
        }
    }

    /// Ends the wait for a request of the client that it takes back. False if it is not held here.
    fn cancel_held(&mut self, params: &Value, actions: &mut ProxyActions) -> bool {
        let Some(meant) = params.get("requestId").and_then(RequestId::from_value) else { return false };
        let is_meant =
            |purpose: &HeldPurpose, _: &str| matches!(purpose, HeldPurpose::ClientRequest { id, .. } if *id == meant);
        self.close_questions(is_meant, actions);
        let held = self.waits.cancel(is_meant, actions);
        for _ in &held {
            self.from_client.remove(&meant);
            actions.push(to_client(FORM.error(&meant.to_value(), CANCELLED, "Request cancelled; the gate stays open")));
        }
        !held.is_empty()
    }

    /// Closes the questions about the calls of messages whose waits end without a decision.
    pub(super) fn close_questions(
        &mut self,
        is_meant: impl Fn(&HeldPurpose, &str) -> bool,
        actions: &mut ProxyActions,
    ) {
        let meant: Vec<_> = self
            .questions
            .tokens()
            .filter(|token| self.waits.find(*token).is_some_and(|(purpose, session, _)| is_meant(purpose, session)))
            .collect();
        meant.into_iter().for_each(|token| self.questions.close(token, actions));
    }
}

fn mode_change(method: &str, params: &Value) -> Option<ModeChange> {
    if method == "session/set_mode" {
        return Some(ModeChange::Mode(text(params, "modeId")?.to_owned()));
    }
    let value = OptionValue::from_json(params.get("value")?)?;
    Some(ModeChange::Option { id: text(params, "configId")?.to_owned(), value })
}
