//! Lines of both sides, and what follows from a decision.

use serde_json::{Map, Value, json};

use super::{
    ClientRequest, CodexProxy, FORM, HeldPurpose, OWN_PREFIX, ServerRequest,
    approvals::{ThreadPlace, read_approval, text, thread_of},
    notifications::{is_client_notification, is_codex_notification},
    thread_settings::{
        AllowedLoosening, changes_program, opens_thread, pin_settings, problem_of_thread, shown_request,
    },
};
use crate::{
    agent_call::AgentCall,
    call_waits::DecidedMessage,
    command_words::plain_name,
    interceptor::{OpenSettings, ProxyAction, ProxyActions},
    json_line::{DENIED, INVALID_REQUEST, Message, MessageKind, RequestId, not_passed, shown_line},
};

/// Session of calls that come before there is a thread.
const SETUP_SESSION: &str = "setup";
/// Tool of a request of the client that loosens the settings of a thread.
const THREAD_SETTINGS: &str = "thread_settings";
/// Requests of Codex that the client answers: questions to the person, tools of the client, and its account.
const PASSED: [&str; 6] = [
    "item/tool/requestUserInput",
    "mcpServer/elicitation/request",
    "item/tool/call",
    "account/chatgptAuthTokens/refresh",
    "attestation/generate",
    "currentTime/read",
];

impl CodexProxy {
    pub(super) fn read_client(&mut self, line: Vec<u8>, actions: &mut ProxyActions) {
        if line.trim_ascii().is_empty() {
            return;
        }
        let message = match Message::parse(&line) {
            Ok(message) => message,
            Err(malformed) => {
                let error = FORM.error(&malformed.id, malformed.code, &malformed.problem);
                return actions.push(ProxyAction::ToClient(error));
            }
        };
        match &message.kind {
            MessageKind::Request { id, .. } if self.from_client.contains(id) || id.has_prefix(OWN_PREFIX) => {
                let problem =
                    "id: expected one that no open request has, and that does not begin with \"countersign-\"";
                actions.push(ProxyAction::ToClient(FORM.error(&id.to_value(), INVALID_REQUEST, problem)));
            }
            MessageKind::Request { id, method } => {
                let (id, method) = (id.clone(), method.clone());
                let params = message.params();
                self.read_client_request(id, &method, params, line, actions);
            }
            MessageKind::Answer { id } => {
                let id = id.clone();
                match self.from_server.remove(&id) {
                    Some(ServerRequest::Passed) => actions.push(ProxyAction::ToAgent(line)),
                    Some(ServerRequest::Held) => drop(self.from_server.insert(id, ServerRequest::Held)),
                    None => actions.push(ProxyAction::Notice("an answer of the client to no open request".to_owned())),
                }
            }
            MessageKind::Notification { method } if !is_client_notification(method) => {
                actions.push(ProxyAction::Notice(not_passed("the client", method)));
            }
            MessageKind::Notification { .. } | MessageKind::LooseError => actions.push(ProxyAction::ToAgent(line)),
        }
    }

    fn read_client_request(
        &mut self,
        id: RequestId,
        method: &str,
        params: Value,
        line: Vec<u8>,
        actions: &mut ProxyActions,
    ) {
        let thread = thread_of(&params).map(str::to_owned);
        let refused = thread.as_ref().and_then(|thread| self.threads.get(thread)?.refused.as_ref());
        if let (Some(problem), false) = (refused, opens_thread(method) || method == "turn/interrupt") {
            return actions.push(ProxyAction::ToClient(FORM.error(&id.to_value(), DENIED, problem)));
        }
        let session = thread.unwrap_or_else(|| SETUP_SESSION.to_owned());
        if changes_program(method) {
            let shown = params.as_object().cloned().unwrap_or_default();
            let call = self.client_call(&session, &plain_name(method), shown);
            return self.hold_client(id, method, params, &session, call, actions);
        }
        let pinned = pin_settings(method, params);
        if !pinned.loosening.is_empty() {
            let call = self.client_call(&session, THREAD_SETTINGS, shown_request(method, &pinned.loosening));
            return self.hold_client(id, method, pinned.params, &session, call, actions);
        }
        let request = match opens_thread(method) {
            true => ClientRequest::Opens { allowed: AllowedLoosening::default() },
            false => ClientRequest::Other,
        };
        self.from_client.insert(id.clone(), request);
        // Only what is pinned is written again.
        let line = if pinned.is_changed { FORM.request(&id, method, &pinned.params) } else { line };
        actions.push(ProxyAction::ToAgent(line));
    }

    pub(super) fn client_call(&self, session: &str, tool: &str, arguments: Map<String, Value>) -> AgentCall {
        let cwd = self.cwd_of(session).to_owned();
        AgentCall { session: session.to_owned(), id: None, tool: tool.to_owned(), arguments, cwd }
    }

    fn hold_client(
        &mut self,
        id: RequestId,
        method: &str,
        params: Value,
        session: &str,
        call: AgentCall,
        actions: &mut ProxyActions,
    ) {
        self.from_client.insert(id.clone(), ClientRequest::Held);
        let purpose = HeldPurpose::ClientRequest { id, method: method.to_owned(), params };
        self.hold(purpose, session, vec![call], actions);
    }

    pub(super) fn cwd_of(&self, thread: &str) -> &str {
        self.threads.get(thread).and_then(|thread| thread.cwd.as_deref()).unwrap_or(&self.options.cwd)
    }

    fn hold(&mut self, purpose: HeldPurpose, session: &str, calls: Vec<AgentCall>, actions: &mut ProxyActions) {
        if let Some(decided) = self.waits.hold(purpose, session, calls, actions) {
            self.finish(decided, actions);
        }
    }

    pub(super) fn read_server(&mut self, line: Vec<u8>, actions: &mut ProxyActions) {
        if line.trim_ascii().is_empty() {
            return;
        }
        let message = match Message::parse(&line) {
            Ok(message) => message,
            Err(malformed) => {
                let notice = format!("a line of Codex is not passed on: {}: {}", malformed.problem, shown_line(&line));
                actions.push(ProxyAction::Notice(notice));
                if !malformed.id.is_null() {
                    let error = FORM.error(&malformed.id, malformed.code, &malformed.problem);
                    actions.push(ProxyAction::ToAgent(error));
                }
                return;
            }
        };
        match &message.kind {
            MessageKind::Request { id, .. } if self.from_server.contains(id) => {
                let problem = "id: expected one that no open request has";
                actions.push(ProxyAction::ToAgent(FORM.error(&id.to_value(), INVALID_REQUEST, problem)));
            }
            MessageKind::Request { id, method } => {
                let (id, method) = (id.clone(), method.clone());
                let params = message.params();
                self.read_server_request(id, &method, &params, line, actions);
            }
            MessageKind::Notification { method } => {
                let passes = match method.as_str() {
                    "item/started" | "item/completed" => {
                        self.read_item(method == "item/completed", &message.params(), actions);
                        true
                    }
                    "turn/started" | "turn/completed" => {
                        self.read_turn(method == "turn/started", &message.params());
                        true
                    }
                    "item/fileChange/patchUpdated" => {
                        self.read_changes(&message.params());
                        true
                    }
                    "serverRequest/resolved" => !self.is_resolved(&message.params(), actions),
                    "thread/settings/updated" => {
                        self.read_settings(&message.params(), actions);
                        true
                    }
                    method if is_codex_notification(method) => true,
                    method => {
                        actions.push(ProxyAction::Notice(not_passed("Codex", method)));
                        false
                    }
                };
                if passes {
                    actions.push(ProxyAction::ToClient(line));
                }
            }
            MessageKind::Answer { id } => {
                let id = id.clone();
                match self.from_client.remove(&id) {
                    None => actions.push(ProxyAction::Notice("an answer of Codex to no open request".to_owned())),
                    Some(ClientRequest::Held) => drop(self.from_client.insert(id, ClientRequest::Held)),
                    Some(ClientRequest::Opens { allowed }) => {
                        let result = message.result();
                        self.thread_opened(&id, allowed, result, line, actions);
                    }
                    Some(ClientRequest::Own) => {}
                    Some(ClientRequest::Other) => actions.push(ProxyAction::ToClient(line)),
                }
            }
            MessageKind::LooseError => actions.push(ProxyAction::ToClient(line)),
        }
    }

    fn read_server_request(
        &mut self,
        id: RequestId,
        method: &str,
        params: &Value,
        line: Vec<u8>,
        actions: &mut ProxyActions,
    ) {
        let thread = thread_of(params).unwrap_or(SETUP_SESSION).to_owned();
        let place = ThreadPlace { thread: &thread, cwd: self.cwd_of(&thread) };
        let changes = |item: &str| self.items.get(&(thread.clone(), item.to_owned()))?.changes.clone();
        match read_approval(method, params, place, changes) {
            Some(Ok(approval)) => {
                self.from_server.insert(id.clone(), ServerRequest::Held);
                if let Some(item) = &approval.item {
                    self.item_waits(&thread, item, &approval.calls);
                }
                let purpose = HeldPurpose::Approval { id, kind: approval.kind, item: approval.item };
                self.hold(purpose, &thread, approval.calls, actions);
            }
            Some(Err(problem)) => {
                actions.push(ProxyAction::Notice(format!("an approval is refused: {problem}")));
                actions.push(ProxyAction::ToAgent(FORM.error(&id.to_value(), DENIED, &problem)));
            }
            None if PASSED.contains(&method) => {
                self.from_server.insert(id, ServerRequest::Passed);
                actions.push(ProxyAction::ToClient(line));
            }
            None => {
                let problem = format!("the request {method} is not known to the proxy, so it is refused");
                actions.push(ProxyAction::Notice(problem.clone()));
                actions.push(ProxyAction::ToAgent(FORM.error(&id.to_value(), DENIED, &problem)));
            }
        }
    }

    /// Checks with which settings a thread has opened: the configuration of Codex may have loosened them.
    fn thread_opened(
        &mut self,
        id: &RequestId,
        allowed: AllowedLoosening,
        result: Option<Value>,
        line: Vec<u8>,
        actions: &mut ProxyActions,
    ) {
        let Some(result) = result else { return actions.push(ProxyAction::ToClient(line)) };
        let thread = result.get("thread").and_then(|thread| text(thread, "id")).unwrap_or(SETUP_SESSION).to_owned();
        let problem = problem_of_thread(&result, allowed);
        let known = self.threads.entry(thread).or_default();
        known.cwd = text(&result, "cwd").filter(|cwd| cwd.starts_with('/')).map(str::to_owned);
        known.allowed = allowed;
        known.refused = None;
        match problem {
            None => actions.push(ProxyAction::ToClient(line)),
            Some(problem) if self.options.open == OpenSettings::Accept => {
                actions.push(ProxyAction::Notice(format!(
                    "Codex acts without asking in a thread: {problem}; accepted because of --accept-open"
                )));
                actions.push(ProxyAction::ToClient(line));
            }
            Some(problem) => {
                let problem = format!(
                    "the thread is refused, because Codex acts without asking in it: {problem}. Change config.toml of \
                     Codex; `--accept-open` accepts it"
                );
                known.refused = Some(problem.clone());
                actions.push(ProxyAction::ToClient(FORM.error(&id.to_value(), DENIED, &problem)));
            }
        }
    }

    /// Stops a thread whose settings were loosened in another way.
    fn read_settings(&mut self, params: &Value, actions: &mut ProxyActions) {
        let Some(thread) = thread_of(params).map(str::to_owned) else { return };
        let settings = params.get("threadSettings").or_else(|| params.get("settings")).unwrap_or(params);
        let mut found = settings.clone();
        if let (Some(policy), Value::Object(found)) = (settings.get("sandboxPolicy"), &mut found) {
            found.insert("sandbox".to_owned(), policy.clone());
        }
        let known = self.threads.entry(thread.clone()).or_default();
        let Some(problem) = problem_of_thread(&found, known.allowed) else { return };
        if self.options.open == OpenSettings::Accept {
            actions.push(ProxyAction::Notice(format!(
                "Codex acts without asking in thread {thread}: {problem}; accepted because of --accept-open"
            )));
            return;
        }
        known.refused = Some(format!("the thread is stopped, because Codex acts without asking in it: {problem}"));
        actions.push(ProxyAction::Notice(format!("thread {thread} is stopped: {problem}")));
        if let Some(turn) = known.turn.take() {
            self.interrupt_turn(&thread, &turn, actions);
        }
        let arguments = Map::from_iter([("problem".to_owned(), Value::from(problem))]);
        actions.push(ProxyAction::Report(self.client_call(&thread, THREAD_SETTINGS, arguments)));
    }

    fn interrupt_turn(&mut self, thread: &str, turn: &str, actions: &mut ProxyActions) {
        self.own_requests += 1;
        let id = RequestId::own(&format!("{OWN_PREFIX}{}", self.own_requests));
        self.from_client.insert(id.clone(), ClientRequest::Own);
        let params = json!({ "threadId": thread, "turnId": turn });
        actions.push(ProxyAction::ToAgent(FORM.request(&id, "turn/interrupt", &params)));
    }

    /// Keeps the turn that runs in a thread, so that it can be interrupted.
    fn read_turn(&mut self, is_started: bool, params: &Value) {
        let Some(known) = thread_of(params).and_then(|thread| self.threads.get_mut(thread)) else { return };
        let turn = params.get("turn").and_then(|turn| text(turn, "id"));
        known.turn = turn.filter(|_| is_started).map(str::to_owned);
    }

    /// Ends the wait for a request that Codex has settled by itself. False if it is not held here.
    fn is_resolved(&mut self, params: &Value, actions: &mut ProxyActions) -> bool {
        let Some(meant) = params.get("requestId").and_then(RequestId::from_value) else { return false };
        let is_meant =
            |purpose: &HeldPurpose, _: &str| matches!(purpose, HeldPurpose::Approval { id, .. } if *id == meant);
        let held = self.waits.cancel(is_meant, actions);
        if !held.is_empty() {
            self.from_server.remove(&meant);
        }
        !held.is_empty()
    }

    pub(super) fn finish(&mut self, decided: DecidedMessage<HeldPurpose>, actions: &mut ProxyActions) {
        let DecidedMessage { purpose, session, calls, outcome } = decided;
        match purpose {
            HeldPurpose::Approval { id, kind, item } => {
                self.from_server.remove(&id);
                if let Err(reason) = &outcome {
                    actions.push(ProxyAction::Notice(format!("denied: {reason}")));
                }
                if let Some(item) = item {
                    self.item_decided(&session, &item, calls, outcome.is_ok());
                }
                actions.push(ProxyAction::ToAgent(FORM.result(&id, &kind.answer(outcome.is_ok()))));
            }
            HeldPurpose::ClientRequest { id, method, params } => {
                self.from_client.remove(&id);
                match outcome {
                    Ok(()) => {
                        let settings = calls.first().filter(|call| call.tool == THREAD_SETTINGS);
                        let allowed = settings.map_or_else(AllowedLoosening::default, |call| {
                            AllowedLoosening::of_request(&call.arguments)
                        });
                        let request = match opens_thread(&method) {
                            true => ClientRequest::Opens { allowed },
                            false => ClientRequest::Other,
                        };
                        if let Some(known) = self.threads.get_mut(&session) {
                            known.allowed.add(allowed);
                        }
                        self.from_client.insert(id.clone(), request);
                        actions.push(ProxyAction::ToAgent(FORM.request(&id, &method, &params)));
                    }
                    Err(reason) => {
                        actions.push(ProxyAction::ToClient(FORM.error(&id.to_value(), DENIED, &reason)));
                    }
                }
            }
        }
    }
}
