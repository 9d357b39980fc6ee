//! Hosts of coding agents whose sessions live in the gateway: one of omp, one of gjc that lends a tool.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use countersign_adapter_omp::{LaunchEnvironment, attach::AttachParams, attach_params, flags};
use countersign_agent_dir::AgentProduct;
use countersign_gateway::control::{FILE, Request};
use serde_json::{Value, json};

use crate::{
    connection::{JsonConnection, OutboundFrames},
    fixture::{HistoryFixture, MessageOutcome},
};

/// State of a host on one connection.
#[derive(Default)]
struct HostConnectionState {
    is_in: bool,
    /// Requests without an answer.
    open: BTreeSet<String>,
    /// Contents of its session, once it requested them.
    messages: Option<Vec<String>>,
}

pub(crate) struct SimulatedHost {
    world: HistoryFixture,
    product: AgentProduct,
    socket: PathBuf,
    line: Option<(JsonConnection, Arc<Mutex<HostConnectionState>>)>,
}

impl SimulatedHost {
    pub(crate) fn new(world: HistoryFixture, product: AgentProduct) -> Self {
        let socket = world.folder("data").join(FILE);
        Self { world, product, socket, line: None }
    }

    const fn is_gjc(&self) -> bool {
        matches!(self.product, AgentProduct::Gjc)
    }

    /// Returns the handover of its process.
    fn handover(&self) -> AttachParams {
        let (agent, variable) =
            if self.is_gjc() { ("gjc", "GJC_CODING_AGENT_DIR") } else { ("agent", "PI_CODING_AGENT_DIR") };
        let arguments = ["--mode", "rpc", "--model", "local/small", "--continue"].map(str::to_owned).to_vec();
        let variables: [(OsString, OsString); 2] =
            [("HOME".into(), self.world.folder("home").into()), (variable.into(), self.world.folder(agent).into())];
        let work = self.world.folder("work");
        let process = LaunchEnvironment { cwd: work.clone(), temporary: work, variables: variables.to_vec() };
        let flags = flags::parse_for(self.product, arguments.clone()).unwrap();
        attach_params(&flags, arguments, process, false).unwrap()
    }

    /// Attaches to its session if it is not attached.
    pub(crate) async fn ensure_connected(&mut self) {
        if self.line.as_ref().is_some_and(|(line, _)| line.is_open()) {
            return;
        }
        self.line = None;
        let book: Arc<Mutex<HostConnectionState>> = Arc::default();
        let (world, shared, name) = (self.world.clone(), Arc::clone(&book), self.product.name());
        let hello = serde_json::to_string(&Request::Attach(Box::new(self.handover()))).unwrap();
        let on_frame = move |frame: Value, out: &OutboundFrames| {
            handle_frame(&world, name, &mut shared.lock().unwrap(), &frame, out)
        };
        let Some(line) = JsonConnection::local(&self.socket, &hello, on_frame).await else { return };
        self.line = Some((line, book));
        if self.is_gjc() {
            let parameters = json!({ "type": "object", "properties": { "thing": { "type": "string" } } });
            let tool = json!({ "name": "strike", "description": "Strikes", "parameters": parameters });
            self.ask(json!({ "type": "set_host_tools", "tools": [tool] }), "tools");
        }
    }

    pub(crate) fn disconnect(&mut self) {
        self.line = None;
    }

    fn ask(&self, mut command: Value, kind: &str) {
        let Some((line, book)) = &self.line else { return };
        let id = self.world.with_ledger(|ledger| ledger.next_name(kind));
        book.lock().unwrap().open.insert(id.clone());
        command["id"] = id.into();
        line.send(command);
    }

    /// Sends a message in its session.
    pub(crate) async fn say(&mut self) {
        self.ensure_connected().await;
        let Some((line, book)) = &self.line else { return };
        let text = self.world.with_ledger(|ledger| {
            let text = ledger.next_name(self.product.name());
            ledger.messages.insert(text.clone(), MessageOutcome::Nothing);
            text
        });
        book.lock().unwrap().open.insert(text.clone());
        let mut prompt = json!({ "id": text, "type": "prompt", "message": format!("{text}.") });
        if self.world.chance(60) {
            prompt["streamingBehavior"] = if self.world.chance(50) { "steer" } else { "followUp" }.into();
        }
        line.send(prompt);
    }

    /// Requests the contents of its session.
    pub(crate) fn request_messages(&self) {
        self.ask(json!({ "type": "get_messages" }), "look");
    }

    /// Returns the messages of users in its session, as this host last saw them.
    pub(crate) fn user_messages(&self) -> Option<Vec<String>> {
        self.line.as_ref().and_then(|(_, book)| book.lock().unwrap().messages.clone())
    }

    /// Reports whether it is attached and has an answer to every request.
    pub(crate) fn is_answered(&self) -> bool {
        self.line.as_ref().is_some_and(|(line, book)| {
            let book = book.lock().unwrap();
            line.is_open() && book.is_in && book.open.is_empty()
        })
    }
}

fn handle_frame(
    world: &HistoryFixture,
    door: &str,
    book: &mut HostConnectionState,
    frame: &Value,
    out: &OutboundFrames,
) {
    if !book.is_in {
        // Until the connection belongs to the adapter, frames come from the gateway itself.
        if let Some(error) = frame["error"].as_str() {
            return book_refusal(world, door, error);
        }
        book.is_in = frame.get("ok").is_some();
        return;
    }
    match frame["type"].as_str() {
        Some("response") => handle_response(world, book, frame),
        Some("extension_ui_request") => answer_dialog(world, frame, out),
        Some("host_tool_call") => strike(world, frame, out),
        _ => {}
    }
}

/// Checks the error of a session that does not open; it is right while its record cannot be written, or the old connection still ends.
fn book_refusal(world: &HistoryFixture, door: &str, error: &str) {
    let is_known = ["written", "already", "process", "record", "ends", "clos", "space", "disk"];
    if !is_known.iter().any(|known| error.contains(known)) {
        world.report_violation(format!("{door}: a session did not open: {error}"));
    }
}

fn handle_response(world: &HistoryFixture, book: &mut HostConnectionState, frame: &Value) {
    let id = frame["id"].as_str().unwrap_or_default();
    if !book.open.remove(id) {
        return world.report_violation(format!("a host has an answer to nothing, or a second one: {frame}"));
    }
    let is_done = frame["success"] == true;
    if frame["command"] == "get_messages" && is_done {
        let messages = frame["data"]["messages"].as_array().cloned().unwrap_or_default();
        let user_texts = messages.iter().filter(|message| message["role"] == "user").map(text);
        book.messages = Some(user_texts.collect());
    }
    world.with_ledger(|ledger| {
        if let Some(outcome) = ledger.messages.get_mut(id) {
            *outcome = if is_done { MessageOutcome::Taken } else { MessageOutcome::Refused };
        }
    });
}

/// Answers a dialog, or leaves it to another approver.
fn answer_dialog(world: &HistoryFixture, frame: &Value, out: &OutboundFrames) {
    let mut answer = json!({ "type": "extension_ui_response", "id": frame["id"] });
    let allows = world.chance(75);
    match frame["method"].as_str() {
        Some("confirm") => answer["confirmed"] = allows.into(),
        Some("select") => {
            let options = frame["options"].as_array().cloned().unwrap_or_default();
            let prefix = if allows { "Allow once" } else { "Deny" };
            match options.iter().find(|option| option.as_str().is_some_and(|option| option.starts_with(prefix))) {
                Some(option) => answer["value"] = option.clone(),
                None => answer["cancelled"] = true.into(),
            }
        }
        _ => return,
    }
    if world.chance(50) {
        // A repeated press counts once.
        if world.chance(20) {
            let _ = out.send(answer.clone());
        }
        let _ = out.send(answer);
    }
}

/// Runs the tool that it lends, and replies later, or never.
fn strike(world: &HistoryFixture, frame: &Value, out: &OutboundFrames) {
    let thing = frame["arguments"]["thing"].as_str().unwrap_or_default();
    world.with_ledger(|ledger| ledger.record_done(thing));
    if world.fails(6) {
        return;
    }
    let result = json!({ "content": [{ "type": "text", "text": format!("did {thing}") }] });
    let result = json!({ "type": "host_tool_result", "id": frame["id"], "result": result });
    let (out, pause) = (out.clone(), world.pause());
    tokio::spawn(async move {
        tokio::time::sleep(pause).await;
        out.send(result).ok()
    });
}

fn text(message: &Value) -> String {
    match &message["content"] {
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        content => content.as_str().unwrap_or_default().to_owned(),
    }
}
