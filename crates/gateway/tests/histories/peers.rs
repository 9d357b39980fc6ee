//! The gsv door: a client that chats and has a node do things, and the node that does them.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};

use crate::{
    lines::{Line, Out},
    outside::{Told, World},
};

/// What peers show.
pub(crate) const TOKEN: &str = "tok-of-the-peers-of-histories";
/// The session in which the client chats.
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

/// What a request was about.
enum Asked {
    Message(String),
    Call(String),
    Else,
}

/// What has no answer yet, by the id of its request.
type Open = Arc<Mutex<BTreeMap<String, Asked>>>;

pub(crate) struct Client {
    world: World,
    address: SocketAddr,
    line: Option<(Line, Open)>,
}

impl Client {
    pub(crate) const fn new(world: World, address: SocketAddr) -> Self {
        Self { world, address, line: None }
    }

    async fn come(&mut self) {
        if self.line.as_ref().is_some_and(|(line, _)| line.is_open()) {
            return;
        }
        let open = Open::default();
        open.lock().unwrap().insert("hello".to_owned(), Asked::Else);
        let (world, shared) = (self.world.clone(), Arc::clone(&open));
        let heard = move |frame: Value, _: &Out| hear(&world, &mut shared.lock().unwrap(), &frame);
        let Some(line) = Line::websocket(self.address, "/ws", heard).await else { return };
        line.send(hello("client", "histories"));
        self.line = Some((line, open));
    }

    pub(crate) fn leave(&mut self) {
        self.line = None;
    }

    async fn ask(&mut self, method: &str, params: Value, about: Asked) {
        self.come().await;
        let Some((line, open)) = &self.line else { return };
        let id = self.world.with(|ledger| ledger.thing("q"));
        open.lock().unwrap().insert(id.clone(), about);
        line.send(json!({ "type": "req", "id": id, "method": method, "params": params }));
    }

    /// Says something in its session.
    pub(crate) async fn say(&mut self) {
        let text = self.world.with(|ledger| {
            let text = ledger.thing("client");
            ledger.said.insert(text.clone(), Told::Nothing);
            text
        });
        let params = json!({ "sessionKey": SESSION, "message": format!("{text}."), "runId": format!("run-{text}") });
        self.ask("chat.send", params, Asked::Message(text)).await;
    }

    /// Answers what its session is asked.
    pub(crate) async fn answer(&mut self, word: &str) {
        let run = self.world.with(|ledger| ledger.thing("answer"));
        let params = json!({ "sessionKey": SESSION, "message": word, "runId": run });
        self.ask("chat.send", params, Asked::Else).await;
    }

    /// Has the node do something.
    pub(crate) async fn call(&mut self) {
        let thing = self.world.with(|ledger| ledger.thing("node"));
        let params = json!({ "tool": "box__strike", "args": { "thing": thing } });
        self.ask("tool.invoke", params, Asked::Call(thing)).await;
    }

    /// Whether everything that was asked on this line has its answer.
    pub(crate) fn is_answered(&self) -> bool {
        self.line.as_ref().is_none_or(|(line, open)| !line.is_open() || open.lock().unwrap().is_empty())
    }
}

fn hear(world: &World, open: &mut BTreeMap<String, Asked>, frame: &Value) {
    if frame["type"] != "res" {
        return;
    }
    let Some(asked) = frame["id"].as_str().and_then(|id| open.remove(id)) else {
        return world.wrong(format!("a client has an answer to nothing, or a second one: {frame}"));
    };
    let (is_ok, code) = (frame["ok"] == true, frame["error"]["code"].as_i64().unwrap_or_default());
    match asked {
        Asked::Message(text) => {
            let told = match code {
                _ if is_ok => Told::Taken,
                400..500 => Told::Refused,
                _ => Told::Nothing,
            };
            world.with(|ledger| ledger.said.insert(text, told));
        }
        Asked::Call(thing) if is_ok && world.with(|ledger| ledger.done.get(&thing) != Some(&1)) => {
            world.wrong(format!("{thing} was told as done: {frame}"));
        }
        Asked::Call(_) | Asked::Else => {}
    }
}

/// A node with one tool, which counts.
pub(crate) struct Node {
    world: World,
    address: SocketAddr,
    line: Option<Line>,
}

impl Node {
    pub(crate) const fn new(world: World, address: SocketAddr) -> Self {
        Self { world, address, line: None }
    }

    /// Connects where it is not connected.
    pub(crate) async fn come(&mut self) {
        if self.line.as_ref().is_some_and(Line::is_open) {
            return;
        }
        let world = self.world.clone();
        let heard = move |frame: Value, out: &Out| strike(&world, &frame, out);
        let Some(line) = Line::websocket(self.address, "/ws", heard).await else { return };
        line.send(hello("node", "box"));
        self.line = Some(line);
    }

    pub(crate) fn leave(&mut self) {
        self.line = None;
    }
}

/// Does what it is told, and says so in its time; or never.
fn strike(world: &World, frame: &Value, out: &Out) {
    if frame["ok"] == false && frame["error"]["code"].as_i64().is_some_and(|code| code < 500) {
        world.wrong(format!("a node is told {frame}"));
    }
    if frame["event"] != "tool.invoke" {
        return;
    }
    let call = &frame["payload"];
    let thing = call["args"]["thing"].as_str().unwrap_or_default();
    world.with(|ledger| ledger.did(thing));
    if world.fails(8) {
        return;
    }
    let (id, pause) = (world.with(|ledger| ledger.thing("result")), world.pause());
    let params = json!({ "callId": call["callId"], "result": format!("did {thing}") });
    let result = json!({ "type": "req", "id": id, "method": "tool.result", "params": params });
    let out = out.clone();
    tokio::spawn(async move {
        tokio::time::sleep(pause).await;
        out.send(result).ok()
    });
}
