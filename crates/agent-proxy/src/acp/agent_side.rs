//! Lines of the agent: what it asks its client to allow or to do is decided first, and everything else passes as it is.

use std::{borrow::Cow, time::Instant};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    AcpProxy, AgentRequest, ClientRequest, FORM, HeldPurpose, OWN_PREFIX, PermissionOptions, REQUEST_PERMISSION,
    known_calls::CallEnd,
    notifications::is_agent_notification,
    setup::{hide_value, setup_switches},
    text, to_agent, to_client,
    tool_calls::calls_of,
};
use crate::{
    agent_call::AgentCall,
    command_words::{plain_name, quote_words},
    interceptor::{OpenSettings, ProxyAction, ProxyActions},
    json_line::{
        CANCELLED, DENIED, INVALID_PARAMS, INVALID_REQUEST, Message, MessageKind, RequestId, not_passed, shown_line,
    },
    unknown_members::{add_unknown_call, unknown_members},
};

/// Requests of an agent that do nothing by themselves: they are about a terminal that was allowed, or ask the person something.
const HARMLESS: [&str; 6] = [
    "terminal/output",
    "terminal/wait_for_exit",
    "terminal/kill",
    "terminal/release",
    "elicitation/create",
    "session/elicitation",
];

/// Members of a permission.
const PERMISSION_MEMBERS: [&str; 4] = ["sessionId", "toolCall", "options", "_meta"];
/// Members of the tool call in a permission.
const TOOL_CALL_MEMBERS: [&str; 10] =
    ["toolCallId", "title", "name", "kind", "status", "content", "locations", "rawInput", "rawOutput", "_meta"];

/// Returns the members of a request that its call is made of. None if it has all of them.
fn request_members(method: &str) -> Option<&'static [&'static str]> {
    match method {
        "fs/read_text_file" => Some(&["sessionId", "path", "line", "limit", "_meta"]),
        "fs/write_text_file" => Some(&["sessionId", "path", "content", "_meta"]),
        "terminal/create" => Some(&["sessionId", "command", "args", "env", "cwd", "outputByteLimit", "_meta"]),
        _ => None,
    }
}

/// Head of an update.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UpdateHead<'a> {
    #[serde(borrow, default)]
    session_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    update: Option<UpdateKind<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UpdateKind<'a> {
    #[serde(borrow, default)]
    session_update: Option<Cow<'a, str>>,
}

impl AcpProxy {
    pub(super) fn read_agent(&mut self, line: Vec<u8>, now: Instant, actions: &mut ProxyActions) {
        if line.trim_ascii().is_empty() {
            return;
        }
        let message = match Message::parse(&line) {
            Ok(message) => message,
            Err(malformed) => {
                let (problem, shown) = (&malformed.problem, shown_line(&line));
                let notice = format!("a line of the agent is not passed on: {problem}: {shown}");
                actions.push(ProxyAction::Notice(notice));
                if !malformed.id.is_null() {
                    actions.push(to_agent(FORM.error(&malformed.id, malformed.code, &malformed.problem)));
                }
                return;
            }
        };
        if !self.forcing.is_empty() && !matches!(message.kind, MessageKind::Answer { .. }) {
            let head: Option<UpdateHead<'_>> = serde_json::from_str(message.raw_params()).ok();
            let session = head.and_then(|head| head.session_id).map(Cow::into_owned);
            if self.hold_for_setup(session.as_deref(), line.clone()).is_none() {
                return;
            }
        }
        match &message.kind {
            MessageKind::Request { id, method } => {
                if id.has_prefix(OWN_PREFIX) || self.from_agent.contains(id) {
                    let problem =
                        "id: expected one that no open request has, and that does not begin with \"countersign-\"";
                    return actions.push(to_agent(FORM.error(&id.to_value(), INVALID_REQUEST, problem)));
                }
                let (id, method) = (id.clone(), method.clone());
                if HARMLESS.contains(&method.as_str()) {
                    self.from_agent.insert(id, AgentRequest::Passed);
                    return actions.push(to_client(line));
                }
                self.from_agent.insert(id.clone(), AgentRequest::Held);
                self.read_agent_request(id, method, message.params(), actions);
            }
            MessageKind::Notification { method } => {
                let passes = match method.as_str() {
                    "session/update" => self.read_update(&message, now, actions),
                    "$/cancel_request" => !self.agent_cancels(&message.params(), actions),
                    method if is_agent_notification(method) => true,
                    method => {
                        actions.push(ProxyAction::Notice(not_passed("the agent", method)));
                        false
                    }
                };
                if passes {
                    actions.push(to_client(line));
                }
            }
            MessageKind::Answer { id } => {
                let id = id.clone();
                if self.take_forcing_answer(&id, &message, now, actions) {
                    return;
                }
                match self.from_client.remove(&id) {
                    None => actions.push(ProxyAction::Notice("an answer of the agent to no open request".to_owned())),
                    Some(ClientRequest::Held) => drop(self.from_client.insert(id, ClientRequest::Held)),
                    Some(ClientRequest::Initialize) => self.initialized(&id, &message, &line, actions),
                    Some(ClientRequest::Setup { cwd, session }) => {
                        self.session_opened(&id, cwd, session, (&message, &line), now, actions);
                    }
                    Some(ClientRequest::Change { session, change }) => {
                        if let (Some(state), Some(result)) = (self.sessions.get_mut(&session), message.result()) {
                            state.modes.apply(&change);
                            state.modes.update(&result);
                        }
                        actions.push(to_client(line));
                        self.restore_modes(&session, now, actions);
                    }
                    Some(ClientRequest::Other) => actions.push(to_client(line)),
                }
            }
            MessageKind::LooseError => actions.push(to_client(line)),
        }
    }

    /// Checks the version of the agent: of another one the rules here say nothing.
    fn initialized(&self, id: &RequestId, message: &Message<'_>, line: &[u8], actions: &mut ProxyActions) {
        let version = message.result().map(|result| result.get("protocolVersion").cloned().unwrap_or_default());
        let is_known = version.as_ref().is_none_or(|version| *version == json!(1));
        if is_known || self.options.open == OpenSettings::Accept {
            return actions.push(to_client(line.to_vec()));
        }
        let shown = version.unwrap_or_default();
        let problem = format!("the agent speaks version {shown} of ACP: expected 1. `--accept-open` accepts it");
        actions.push(to_client(FORM.error(&id.to_value(), DENIED, &problem)));
        actions.push(ProxyAction::End(problem));
    }

    fn read_agent_request(&mut self, id: RequestId, method: String, params: Value, actions: &mut ProxyActions) {
        let session = text(&params, "sessionId").unwrap_or(super::setup::SETUP_SESSION).to_owned();
        if method == REQUEST_PERMISSION {
            return self.read_permission(id, &session, &params, actions);
        }
        let calls = match method.as_str() {
            "fs/read_text_file" => self.file_call(&session, "read", &params, &[("line", "line"), ("limit", "limit")]),
            "fs/write_text_file" => match params.get("content") {
                Some(Value::String(_)) => self.file_call(&session, "write", &params, &[("content", "content")]),
                _ => Err("content: expected a text".to_owned()),
            },
            "terminal/create" => self.terminal_call(&session, &params),
            // A request that is not known may do anything.
            other => Ok(self.call(&session, &plain_name(other), params.clone())),
        };
        match calls {
            Ok(call) => {
                let mut calls = vec![call];
                if let Some(known) = request_members(&method) {
                    let mut unknown = unknown_members(&params, known);
                    unknown.extend(setup_switches(&params).map(|switches| ("_meta".to_owned(), switches.into())));
                    add_unknown_call(&mut calls, &method, unknown);
                }
                let purpose = HeldPurpose::AgentRequest { id, method, params };
                self.hold(purpose, &session, calls, actions);
            }
            Err(problem) => {
                self.from_agent.remove(&id);
                actions.push(to_agent(FORM.error(&id.to_value(), INVALID_PARAMS, &problem)));
            }
        }
    }

    fn file_call(
        &self,
        session: &str,
        tool: &str,
        params: &Value,
        members: &[(&str, &str)],
    ) -> Result<AgentCall, String> {
        let path = text(params, "path").filter(|path| path.starts_with('/'));
        let path = path.ok_or_else(|| "path: expected an absolute path".to_owned())?;
        let mut arguments = Map::from_iter([("path".to_owned(), Value::from(path))]);
        for (name, member) in members {
            if let Some(value) = params.get(*member).filter(|value| !value.is_null()) {
                arguments.insert((*name).to_owned(), value.clone());
            }
        }
        Ok(self.call(session, tool, Value::Object(arguments)))
    }

    fn terminal_call(&self, session: &str, params: &Value) -> Result<AgentCall, String> {
        let command = text(params, "command").filter(|command| !command.is_empty());
        let command = command.ok_or_else(|| "command: expected a text".to_owned())?;
        let words = match params.get("args") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(words)) => {
                let words = words.iter().map(Value::as_str).collect::<Option<Vec<_>>>();
                words.ok_or_else(|| "args: expected a list of texts".to_owned())?
            }
            Some(_) => return Err("args: expected a list of texts".to_owned()),
        };
        // Clients give a command without arguments to a shell.
        let line = match words.as_slice() {
            [] => command.to_owned(),
            words => quote_words([command].into_iter().chain(words.iter().copied())),
        };
        let mut arguments = Map::from_iter([("command".to_owned(), Value::from(line))]);
        match params.get("cwd") {
            None | Some(Value::Null) => {}
            Some(Value::String(cwd)) => drop(arguments.insert("cwd".to_owned(), cwd.as_str().into())),
            Some(_) => return Err("cwd: expected a text".to_owned()),
        }
        match params.get("env") {
            None | Some(Value::Null) => {}
            Some(Value::Array(variables)) if variables.is_empty() => {}
            Some(Value::Array(variables)) => {
                let mut shown = variables.clone();
                shown.iter_mut().for_each(|variable| hide_value(variable, false));
                arguments.insert("env".to_owned(), Value::Array(shown));
            }
            Some(_) => return Err("env: expected a list of variables".to_owned()),
        }
        Ok(self.call(session, "bash", Value::Object(arguments)))
    }

    fn read_permission(&mut self, id: RequestId, session: &str, params: &Value, actions: &mut ProxyActions) {
        let tool_call = params.get("toolCall").and_then(Value::as_object);
        let options = params.get("options").and_then(Value::as_array);
        let (Some(tool_call), Some(options)) = (tool_call, options) else {
            self.from_agent.remove(&id);
            let problem = "toolCall: expected an object, and options: expected a list";
            return actions.push(to_agent(FORM.error(&id.to_value(), INVALID_PARAMS, problem)));
        };
        let call_id = tool_call.get("toolCallId").and_then(Value::as_str).map(str::to_owned);
        let described = self.tool_calls.describe(session, call_id.as_deref().unwrap_or_default(), tool_call);
        let mut calls = calls_of(self.place(session), call_id.as_deref(), &described);
        let mut unknown = unknown_members(params, &PERMISSION_MEMBERS);
        unknown.extend(unknown_members(&Value::Object(tool_call.clone()), &TOOL_CALL_MEMBERS));
        add_unknown_call(&mut calls, REQUEST_PERMISSION, unknown);
        if let Some(id) = &call_id {
            self.tool_calls.wait(session, id);
        }
        let purpose =
            HeldPurpose::Permission { id, tool_call: call_id, options: PermissionOptions::from_list(options) };
        self.hold(purpose, session, calls, actions);
    }

    /// Ends the wait for a request that the agent takes back. False if it is not held here.
    fn agent_cancels(&mut self, params: &Value, actions: &mut ProxyActions) -> bool {
        let Some(meant) = params.get("requestId").and_then(RequestId::from_value) else { return false };
        let is_meant = |purpose: &HeldPurpose, _: &str| match purpose {
            HeldPurpose::Permission { id, .. } | HeldPurpose::AgentRequest { id, .. } => *id == meant,
            HeldPurpose::ClientRequest { .. } => false,
        };
        self.close_questions(is_meant, actions);
        let held = self.waits.cancel(is_meant, actions);
        for _ in &held {
            self.from_agent.remove(&meant);
            actions.push(to_agent(FORM.error(&meant.to_value(), CANCELLED, "Request cancelled; the gate stays open")));
        }
        !held.is_empty()
    }

    /// Takes in an update. False if the client must not see it.
    fn read_update(&mut self, message: &Message<'_>, now: Instant, actions: &mut ProxyActions) -> bool {
        let head = match serde_json::from_str::<UpdateHead<'_>>(message.raw_params()) {
            Ok(head) => head,
            // It may be about a mode or a call: a client that reads it otherwise would know what the proxy does not.
            Err(problem) => {
                actions.push(ProxyAction::Notice(format!("a session/update is not passed on: {problem}")));
                return false;
            }
        };
        let (Some(session), Some(kind)) = (head.session_id, head.update.and_then(|update| update.session_update))
        else {
            return true;
        };
        let session = session.into_owned();
        match &*kind {
            "tool_call" | "tool_call_update" => {
                let params = message.params();
                let Some(update) = params.get("update").and_then(Value::as_object) else { return true };
                let Some(id) = update.get("toolCallId").and_then(Value::as_str) else { return true };
                if kind == "tool_call" {
                    self.tool_calls.begin(&session, id);
                }
                self.tool_calls.describe(&session, id, update);
                if let Some(end) = CallEnd::from_status(update.get("status").and_then(Value::as_str)) {
                    let ran = self.call_ended(&session, id, end);
                    actions.extend(ran.into_iter().map(ProxyAction::Report));
                }
                true
            }
            "current_mode_update" => {
                let params = message.params();
                if let (Some(mode), Some(state)) = (
                    params.get("update").and_then(|update| text(update, "currentModeId")),
                    self.sessions.get_mut(&session),
                ) {
                    state.modes.set_mode(mode);
                }
                !self.restore_modes(&session, now, actions)
            }
            "config_option_update" => {
                let params = message.params();
                if let (Some(update), Some(state)) = (params.get("update"), self.sessions.get_mut(&session)) {
                    state.modes.update(update);
                }
                !self.restore_modes(&session, now, actions)
            }
            _ => true,
        }
    }

    fn call_ended(&mut self, session: &str, id: &str, end: CallEnd) -> Vec<AgentCall> {
        let mut calls = std::mem::take(&mut self.tool_calls);
        let ran = calls.end(self.place(session), id, end);
        self.tool_calls = calls;
        ran
    }
}

impl PermissionOptions {
    fn from_list(options: &[Value]) -> Self {
        let of_kind = |kind: &str| {
            let meant = options.iter().filter(|option| text(option, "kind") == Some(kind));
            meant.filter_map(|option| text(option, "optionId")).map(str::to_owned).collect::<Vec<_>>()
        };
        let mut allow = of_kind("allow_once");
        // Of several ways to allow, an approver at a gate has chosen none.
        let allow = if allow.len() == 1 { allow.pop() } else { None };
        Self { allow, reject: of_kind("reject_once").into_iter().next() }
    }
}
