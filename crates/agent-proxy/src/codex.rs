//! Rules of the app-server of Codex: approvals become calls, and threads are kept in settings with which Codex asks.
//!
//! Its lines are JSON-RPC without the member `jsonrpc`. Source: docs/protocol/proxies.md.

mod approvals;
mod messages;
mod notifications;
mod run_checks;
#[cfg(test)]
mod tests;
mod thread_settings;
mod version;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Instant,
};

use serde_json::Value;

use crate::{
    agent_call::{CallDecision, GateNotice},
    call_waits::CallWaits,
    interceptor::{CallToken, Interceptor, OpenSettings, ProxyAction, ProxyActions},
    json_line::{INTERNAL_ERROR, INVALID_REQUEST, LineForm, RequestId},
    line_reader::LARGEST_LINE,
    open_requests::OpenRequests,
};
use approvals::ApprovalKind;
use run_checks::KnownItem;
use thread_settings::AllowedLoosening;

pub use version::{CodexVersion, PROVEN_VERSION};

/// Form of the lines.
const FORM: LineForm = LineForm::Bare;

/// Beginning of the ids of requests that the proxy sends itself.
const OWN_PREFIX: &str = "countersign-";

/// Options of a proxy of Codex.
#[derive(Clone, Debug)]
pub struct CodexOptions {
    /// Treatment of threads that act without asking.
    pub open: OpenSettings,
    /// Folder of calls before there is a thread, absolute.
    pub cwd: String,
}

/// Request of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientRequest {
    /// Opens a thread, which may act without asking as far as that was allowed.
    Opens {
        allowed: AllowedLoosening,
    },
    /// Held until it is decided.
    Held,
    /// The proxy sent it, so that the client gets no answer.
    Own,
    Other,
}

/// Request of Codex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerRequest {
    /// The client answers it.
    Passed,
    /// It is held.
    Held,
}

/// Message that is held until its calls are decided.
#[derive(Clone, Debug, PartialEq)]
enum HeldPurpose {
    Approval { id: RequestId, kind: ApprovalKind, item: Option<String> },
    ClientRequest { id: RequestId, method: String, params: Value },
}

/// Thread of Codex.
#[derive(Clone, Debug, Default)]
struct CodexThread {
    cwd: Option<String>,
    /// Reason why nothing may happen in it.
    refused: Option<String>,
    allowed: AllowedLoosening,
    /// Turn that runs.
    turn: Option<String>,
}

/// Thread and item.
type ItemKey = (String, String);

/// Proxy of the app-server of Codex.
#[derive(Debug)]
pub struct CodexProxy {
    options: CodexOptions,
    from_client: OpenRequests<ClientRequest>,
    from_server: OpenRequests<ServerRequest>,
    waits: CallWaits<HeldPurpose>,
    threads: BTreeMap<String, CodexThread>,
    items: BTreeMap<ItemKey, KnownItem>,
    /// In the order in which they came.
    item_order: VecDeque<ItemKey>,
    /// Number of requests that the proxy has sent itself.
    own_requests: u64,
}

impl CodexProxy {
    /// Creates a proxy.
    pub fn new(options: CodexOptions) -> Self {
        Self {
            options,
            from_client: OpenRequests::default(),
            from_server: OpenRequests::default(),
            waits: CallWaits::default(),
            threads: BTreeMap::new(),
            items: BTreeMap::new(),
            item_order: VecDeque::new(),
            own_requests: 0,
        }
    }
}

impl Interceptor for CodexProxy {
    fn client_line(&mut self, line: Vec<u8>, _: Instant, actions: &mut ProxyActions) {
        self.read_client(line, actions);
    }

    fn agent_line(&mut self, line: Vec<u8>, _: Instant, actions: &mut ProxyActions) {
        self.read_server(line, actions);
    }

    fn long_client_line(&mut self, actions: &mut ProxyActions) {
        let problem = format!("the line is too long: expected at most {LARGEST_LINE} bytes");
        actions.push(ProxyAction::ToClient(FORM.error(&Value::Null, INVALID_REQUEST, &problem)));
    }

    /// Approvers answer at the gateway: a client of Codex has no question that is not one of Codex.
    fn gate_opened(&mut self, _: CallToken, gate: GateNotice, _: Instant, actions: &mut ProxyActions) {
        actions.push(ProxyAction::Notice(format!("gate {} waits: {}", gate.gate, gate.title)));
    }

    fn decided(&mut self, token: CallToken, decision: CallDecision, _: Instant, actions: &mut ProxyActions) {
        if let Some(decided) = self.waits.decide(token, decision, actions) {
            self.finish(decided, actions);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn time_passed(&mut self, _: Instant, _: &mut ProxyActions) {}

    fn agent_ended(&mut self, reason: &str, actions: &mut ProxyActions) {
        for id in self.from_client.take_ids().into_iter().filter(|id| !id.has_prefix(OWN_PREFIX)) {
            actions.push(ProxyAction::ToClient(FORM.error(&id.to_value(), INTERNAL_ERROR, reason)));
        }
    }
}
