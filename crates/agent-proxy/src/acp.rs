//! Rules of the Agent Client Protocol (v1): permissions, files and terminals become calls, and agents are kept in a mode in which they ask.
//!
//! Sources: docs/protocol/proxies.md, <https://agentclientprotocol.com>.

mod agent_side;
mod agents;
mod call_files;
mod client_side;
mod decisions;
mod editor_questions;
mod known_calls;
mod mode_forcing;
mod modes;
mod notifications;
mod setup;
#[cfg(test)]
mod tests;
mod tool_calls;

use std::{collections::BTreeMap, time::Instant};

use serde_json::{Value, json};

use crate::{
    agent_call::{AgentCall, CallDecision, GateNotice},
    call_waits::CallWaits,
    interceptor::{CallToken, Interceptor, OpenSettings, ProxyAction, ProxyActions},
    json_line::{INTERNAL_ERROR, INVALID_REQUEST, LineForm, RequestId},
    line_reader::LARGEST_LINE,
    open_requests::OpenRequests,
};

pub use agents::{GuardedAgent, InnerGuard};
use editor_questions::EditorQuestions;
use known_calls::ToolCalls;
use mode_forcing::ModeForcing;
use modes::{ModeChange, SessionModes};
use tool_calls::{CallPlace, TitleMeaning};

/// Form of the lines.
const FORM: LineForm = LineForm::Marked;
/// Beginning of our own ids, which no other side may use.
const OWN_PREFIX: &str = "countersign-";
/// Method of a permission.
const REQUEST_PERMISSION: &str = "session/request_permission";

/// Places at which a person answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EditorApprovals {
    /// The client too.
    #[default]
    Editor,
    /// The gateway's only.
    Gateway,
}

/// Options of a proxy of ACP.
#[derive(Clone, Debug)]
pub struct AcpOptions {
    /// Places at which a person answers.
    pub approvals: EditorApprovals,
    /// Treatment of an agent that acts without asking.
    pub open: OpenSettings,
    /// The agent.
    pub agent: GuardedAgent,
    /// Folder of calls before there is a session, absolute.
    pub cwd: String,
}

/// Request of the client.
#[derive(Clone, Debug, PartialEq)]
enum ClientRequest {
    Initialize,
    /// Opens a session, or a known one again.
    Setup {
        cwd: String,
        session: Option<String>,
    },
    Change {
        session: String,
        change: ModeChange,
    },
    /// Held until it is decided.
    Held,
    Other,
}

/// Request of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AgentRequest {
    /// The client answers it.
    Passed,
    /// It is answered here, or held.
    Held,
}

/// Message that is held until its calls are decided.
#[derive(Clone, Debug, PartialEq)]
enum HeldPurpose {
    Permission { id: RequestId, tool_call: Option<String>, options: PermissionOptions },
    AgentRequest { id: RequestId, method: String, params: Value },
    ClientRequest { id: RequestId, method: String, params: Value, request: ClientRequest },
}

/// Options of a permission that can be answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PermissionOptions {
    /// The one option that allows once.
    allow: Option<String>,
    reject: Option<String>,
}

/// Session of the agent.
#[derive(Clone, Debug, Default)]
struct AcpSession {
    cwd: String,
    modes: SessionModes,
    /// Reason why nothing may happen in it.
    refused: Option<String>,
}

/// Proxy of an agent of ACP.
#[derive(Debug)]
pub struct AcpProxy {
    options: AcpOptions,
    /// Name of the client, at which a person answers.
    surface: String,
    from_client: OpenRequests<ClientRequest>,
    from_agent: OpenRequests<AgentRequest>,
    waits: CallWaits<HeldPurpose>,
    sessions: BTreeMap<String, AcpSession>,
    tool_calls: ToolCalls,
    questions: EditorQuestions,
    forcing: Vec<ModeForcing>,
    next_own: u64,
}

impl AcpProxy {
    /// Creates a proxy.
    pub fn new(options: AcpOptions) -> Self {
        Self {
            options,
            surface: "editor".to_owned(),
            from_client: OpenRequests::default(),
            from_agent: OpenRequests::default(),
            waits: CallWaits::default(),
            sessions: BTreeMap::new(),
            tool_calls: ToolCalls::default(),
            questions: EditorQuestions::default(),
            forcing: Vec::new(),
            next_own: 0,
        }
    }

    fn own_id(&mut self) -> RequestId {
        self.next_own += 1;
        RequestId::own(&format!("{OWN_PREFIX}{}", self.next_own))
    }

    fn cwd_of<'a>(&'a self, session: &str) -> &'a str {
        self.sessions.get(session).map_or(&self.options.cwd, |session| &session.cwd)
    }

    fn place<'a>(&'a self, session: &'a str) -> CallPlace<'a> {
        let titles = match self.options.agent {
            GuardedAgent::Gemini => TitleMeaning::Command,
            _ => TitleMeaning::Words,
        };
        CallPlace { session, cwd: self.cwd_of(session), titles }
    }

    fn call(&self, session: &str, tool: &str, arguments: Value) -> AgentCall {
        AgentCall {
            session: session.to_owned(),
            id: None,
            tool: tool.to_owned(),
            arguments: arguments.as_object().cloned().unwrap_or_default(),
            cwd: self.cwd_of(session).to_owned(),
        }
    }

    /// Holds a message until its calls are decided.
    fn hold(&mut self, purpose: HeldPurpose, session: &str, calls: Vec<AgentCall>, actions: &mut ProxyActions) {
        if let Some(decided) = self.waits.hold(purpose, session, calls, actions) {
            self.finish(decided, actions);
        }
    }

    /// Tells the person at the client something, in a session.
    fn tell_client(session: &str, text: &str, actions: &mut ProxyActions) {
        let update = json!({
            "sessionId": session,
            "update": { "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": text } },
        });
        actions.push(ProxyAction::ToClient(FORM.notification("session/update", &update)));
        actions.push(ProxyAction::Notice(text.to_owned()));
    }
}

fn to_client(line: Vec<u8>) -> ProxyAction {
    ProxyAction::ToClient(line)
}

fn to_agent(line: Vec<u8>) -> ProxyAction {
    ProxyAction::ToAgent(line)
}

fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name).and_then(Value::as_str)
}

impl Interceptor for AcpProxy {
    fn client_line(&mut self, line: Vec<u8>, now: Instant, actions: &mut ProxyActions) {
        self.read_client(line, now, actions);
    }

    fn agent_line(&mut self, line: Vec<u8>, now: Instant, actions: &mut ProxyActions) {
        self.read_agent(line, now, actions);
    }

    fn long_client_line(&mut self, actions: &mut ProxyActions) {
        let problem = format!("the line is too long: expected at most {LARGEST_LINE} bytes");
        actions.push(to_client(FORM.error(&Value::Null, INVALID_REQUEST, &problem)));
    }

    fn gate_opened(&mut self, token: CallToken, gate: GateNotice, now: Instant, actions: &mut ProxyActions) {
        self.ask_editor(token, gate, now, actions);
    }

    fn decided(&mut self, token: CallToken, decision: CallDecision, _: Instant, actions: &mut ProxyActions) {
        self.questions.close(token, actions);
        if let Some(decided) = self.waits.decide(token, decision, actions) {
            self.finish(decided, actions);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.forcing.iter().map(ModeForcing::deadline).min()
    }

    fn time_passed(&mut self, now: Instant, actions: &mut ProxyActions) {
        self.end_late_forcing(now, actions);
    }

    fn agent_ended(&mut self, reason: &str, actions: &mut ProxyActions) {
        for id in self.from_client.take_ids() {
            actions.push(to_client(FORM.error(&id.to_value(), INTERNAL_ERROR, reason)));
        }
    }
}
