//! Peers of the gsv adapter: a client that chats and calls a node, and the node.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};

use crate::{
    connection::{JsonConnection, OutboundFrames},
    fixture::{HistoryFixture, MessageOutcome},
};

/// Token of the peers.
pub(crate) const TOKEN: &str = "tok-of-the-peers-of-histories";
/// Session in which the client chats.
pub(crate) const SESSION: &str = "histories";

pub(crate) fn hello(mode: &str, id: &str) -> Value {
    let mut params = json!({
        "minProtocol": 1, "maxProtocol": 1, "auth": { "token": TOKEN },
        "client": { "id": id, "version": "0.0.1", "platform": "linux", "mode": mode },
    });
    if mode == "node" {
        let schema = json!({ "type": "object", "properties": { "thing": { "type": "string" } } });
        params["tools"] = json!([{ "name": "strike", "description": "Strikes", "inputSchema": schema }]);
        let can = ["filesystem.list", "filesystem.read", "filesystem.write", "shell.exec"];
        let each = json!({ "strike": ["filesystem.write"] });
        params["nodeRuntime"] = json!({
            "hostRole": "execution", "hostCapabilities": can, "toolCapabilities": each, "hostOs": "linux", "hostEnv": [],
        });
    }
    json!({ "type": "req", "id": "hello", "method": "connect", "params": params })
}

/// Purpose of a request.
enum PendingRequest {
    Message(String),
    Call(String),
    Else,
}

/// Requests without an answer, by id.
type PendingRequests = Arc<Mutex<BTreeMap<String, PendingRequest>>>;

pub(crate) struct SimulatedClient {
    world: HistoryFixture,
    address: SocketAddr,
    line: Option<(JsonConnection, PendingRequests)>,
}

impl SimulatedClient {
    pub(crate) const fn new(world: HistoryFixture, address: SocketAddr) -> Self {
        Self { world, address, line: None }
    }

    async fn ensure_connected(&mut self) {
        if self.line.as_ref().is_some_and(|(line, _)| line.is_open()) {
            return;
        }
        let open = PendingRequests::default();
        open.lock().unwrap().insert("hello".to_owned(), PendingRequest::Else);
        let (world, shared) = (self.world.clone(), Arc::clone(&open));
        let on_frame =
            move |frame: Value, _: &OutboundFrames| handle_frame(&world, &mut shared.lock().unwrap(), &frame);
        let Some(line) = JsonConnection::websocket(self.address, "/ws", on_frame).await else { return };
        line.send(hello("client", "histories"));
        self.line = Some((line, open));
    }

    pub(crate) fn disconnect(&mut self) {
        self.line = None;
    }

    async fn ask(&mut self, method: &str, params: Value, about: PendingRequest) {
        self.ensure_connected().await;
        let Some((line, open)) = &self.line else { return };
        let id = self.world.with_ledger(|ledger| ledger.next_name("q"));
        open.lock().unwrap().insert(id.clone(), about);
        line.send(json!({ "type": "req", "id": id, "method": method, "params": params }));
    }

    /// Sends a message in its session.
    pub(crate) async fn say(&mut self) {
        let text = self.world.with_ledger(|ledger| {
            let text = ledger.next_name("client");
            ledger.messages.insert(text.clone(), MessageOutcome::Nothing);
            text
        });
        let params = json!({ "sessionKey": SESSION, "message": format!("{text}."), "runId": format!("run-{text}") });
        self.ask("chat.send", params, PendingRequest::Message(text)).await;
    }

    /// Answers the gate of its session.
    pub(crate) async fn answer(&mut self, word: &str) {
        let run = self.world.with_ledger(|ledger| ledger.next_name("answer"));
        let params = json!({ "sessionKey": SESSION, "message": word, "runId": run });
        self.ask("chat.send", params, PendingRequest::Else).await;
    }

    /// Calls the node.
    pub(crate) async fn call(&mut self) {
        let thing = self.world.with_ledger(|ledger| ledger.next_name("node"));
        let params = json!({ "tool": "box__strike", "args": { "thing": thing } });
        self.ask("tool.invoke", params, PendingRequest::Call(thing)).await;
    }

    /// Reports whether every request on this connection has its answer.
    pub(crate) fn is_answered(&self) -> bool {
        self.line.as_ref().is_none_or(|(line, open)| !line.is_open() || open.lock().unwrap().is_empty())
    }
}

fn handle_frame(world: &HistoryFixture, open: &mut BTreeMap<String, PendingRequest>, frame: &Value) {
    if frame["type"] != "res" {
        return;
    }
    let Some(request) = frame["id"].as_str().and_then(|id| open.remove(id)) else {
        return world.report_violation(format!("a client has an answer to nothing, or a second one: {frame}"));
    };
    let (is_ok, code) = (frame["ok"] == true, frame["error"]["code"].as_i64().unwrap_or_default());
    match request {
        PendingRequest::Message(text) => {
            let outcome = match code {
                _ if is_ok => MessageOutcome::Taken,
                400..500 => MessageOutcome::Refused,
                _ => MessageOutcome::Nothing,
            };
            world.with_ledger(|ledger| ledger.messages.insert(text, outcome));
        }
        PendingRequest::Call(thing) if is_ok && world.with_ledger(|ledger| ledger.done.get(&thing) != Some(&1)) => {
            world.report_violation(format!("{thing} was told as done: {frame}"));
        }
        PendingRequest::Call(_) | PendingRequest::Else => {}
    }
}

/// Node with one tool, which counts.
pub(crate) struct SimulatedNode {
    world: HistoryFixture,
    address: SocketAddr,
    line: Option<JsonConnection>,
}

impl SimulatedNode {
    pub(crate) const fn new(world: HistoryFixture, address: SocketAddr) -> Self {
        Self { world, address, line: None }
    }

    /// Connects if it is not connected.
    pub(crate) async fn ensure_connected(&mut self) {
        if self.line.as_ref().is_some_and(JsonConnection::is_open) {
            return;
        }
        let world = self.world.clone();
        let on_frame = move |frame: Value, out: &OutboundFrames| strike(&world, &frame, out);
        let Some(line) = JsonConnection::websocket(self.address, "/ws", on_frame).await else { return };
        line.send(hello("node", "box"));
        self.line = Some(line);
    }

    pub(crate) fn disconnect(&mut self) {
        self.line = None;
    }
}

/// Runs its tool, and replies later, or never.
fn strike(world: &HistoryFixture, frame: &Value, out: &OutboundFrames) {
    if frame["ok"] == false && frame["error"]["code"].as_i64().is_some_and(|code| code < 500) {
        world.report_violation(format!("a node is told {frame}"));
    }
    if frame["event"] != "tool.invoke" {
        return;
    }
    let call = &frame["payload"];
    let thing = call["args"]["thing"].as_str().unwrap_or_default();
    world.with_ledger(|ledger| ledger.record_done(thing));
    if world.fails(8) {
        return;
    }
    let (id, pause) = (world.with_ledger(|ledger| ledger.next_name("result")), world.pause());
    let params = json!({ "callId": call["callId"], "result": format!("did {thing}") });
    let result = json!({ "type": "req", "id": id, "method": "tool.result", "params": params });
    let out = out.clone();
    tokio::spawn(async move {
        tokio::time::sleep(pause).await;
        out.send(result).ok()
    });
}
