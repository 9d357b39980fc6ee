//! Agent on a device of its own: it makes requests under keys, and repeats those without an outcome.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};

use crate::{
    connection::JsonConnection,
    fixture::{HistoryFixture, ToolRequestOutcome},
};

/// Token of the agent.
pub(crate) const TOKEN: &str = "tok-of-the-agent-of-histories";

/// State of one connection.
#[derive(Default)]
struct AgentConnectionState {
    is_in: bool,
    /// Requests on it without a reply, by id.
    open: BTreeMap<String, String>,
    /// Every id that had a reply on it.
    replied: BTreeSet<String>,
}

pub(crate) struct SimulatedAgent {
    world: HistoryFixture,
    address: SocketAddr,
    line: Option<(JsonConnection, Arc<Mutex<AgentConnectionState>>)>,
}

impl SimulatedAgent {
    pub(crate) const fn new(world: HistoryFixture, address: SocketAddr) -> Self {
        Self { world, address, line: None }
    }

    /// Connects if it is not connected.
    pub(crate) async fn ensure_connected(&mut self) {
        if self.line.as_ref().is_some_and(|(line, _)| line.is_open()) {
            return;
        }
        let book: Arc<Mutex<AgentConnectionState>> = Arc::default();
        let (world, shared) = (self.world.clone(), Arc::clone(&book));
        let on_frame = move |frame: Value, _: &_| handle_frame(&world, &mut shared.lock().unwrap(), &frame);
        let Some(line) = JsonConnection::websocket(self.address, "/", on_frame).await else { return };
        line.send(json!({ "jsonrpc": "2.0", "method": "auth", "params": { "token": TOKEN }, "id": "auth" }));
        // Results from while it was away follow, under their own ids.
        if self.world.chance(50) {
            let id = self.world.with_ledger(|ledger| ledger.next_name("rows"));
            line.send(json!({ "jsonrpc": "2.0", "method": "get_pending_results", "params": {}, "id": id }));
        }
        self.line = Some((line, book));
    }

    /// Disconnects without a close frame.
    pub(crate) fn disconnect(&mut self) {
        self.line = None;
    }

    /// Makes a new request, or repeats an earlier one.
    pub(crate) async fn ask(&mut self) {
        let again = self.world.with_ledger(|ledger| ledger.requests.keys().cloned().collect::<Vec<_>>());
        let thing = match again.len() {
            count if count > 0 && self.world.chance(25) => {
                again[usize::try_from(self.world.below(count as u64)).unwrap()].clone()
            }
            _ => {
                let kind = if self.world.chance(40) { "free" } else { "gated" };
                self.world.with_ledger(|ledger| {
                    let thing = ledger.next_name(kind);
                    ledger.requests.insert(thing.clone(), None);
                    thing
                })
            }
        };
        self.ask_for(&thing).await;
    }

    /// Repeats every request without an outcome. Reports whether there is none.
    pub(crate) async fn retry_unanswered(&mut self) -> bool {
        self.ensure_connected().await;
        let Some((_, book)) = &self.line else { return false };
        let open: BTreeSet<String> = book.lock().unwrap().open.values().cloned().collect();
        let untold = self.world.with_ledger(|ledger| {
            let untold =
                ledger.requests.iter().filter(|(_, outcome)| outcome.is_none()).map(|(thing, _)| thing.clone());
            untold.collect::<Vec<_>>()
        });
        for thing in untold.iter().filter(|thing| !open.contains(*thing)) {
            self.ask_for(thing).await;
        }
        untold.is_empty() && open.is_empty()
    }

    async fn ask_for(&mut self, thing: &str) {
        self.ensure_connected().await;
        let Some((line, book)) = &self.line else { return };
        let id = self.world.with_ledger(|ledger| ledger.next_name("ask"));
        book.lock().unwrap().open.insert(id.clone(), thing.to_owned());
        let params = json!({ "tool": "turn", "args": { "thing": thing }, "idempotency_key": thing });
        line.send(json!({ "jsonrpc": "2.0", "method": "tool_request", "params": params, "id": id }));
    }
}

fn handle_frame(world: &HistoryFixture, book: &mut AgentConnectionState, frame: &Value) {
    let Some(id) = frame["id"].as_str() else {
        return world.report_violation(format!("an agent was told {frame}"));
    };
    if id == "auth" {
        book.is_in = frame["result"]["status"] == "authenticated";
        return;
    }
    if !book.replied.insert(id.to_owned()) {
        world.report_violation(format!("the request {id} of an agent was answered twice: {frame}"));
    }
    // A request of an earlier connection is repeated under its key: the reply to that counts.
    let Some(thing) = book.open.remove(id) else { return };
    let (message, code) = (frame["error"]["message"].as_str().unwrap_or_default(), frame["error"]["code"].as_i64());
    let became = match (frame["result"]["status"].as_str(), code) {
        (Some("executed"), _) => ToolRequestOutcome::Executed,
        (_, Some(-32004)) if message.starts_with("Outcome unknown") => ToolRequestOutcome::Unknown,
        // Denied, timed out, or refused because of an earlier denial.
        (_, Some(-32003..=-32001)) => ToolRequestOutcome::NotDone,
        // The service refused.
        (_, Some(-32004)) if message.contains("503") => ToolRequestOutcome::NotDone,
        // The gateway closes, or could not record it, and replies so. The request is repeated.
        (None, Some(_)) => return,
        _ => return world.report_violation(format!("an agent was told {frame}")),
    };
    world.with_ledger(|ledger| {
        let before = ledger.requests.insert(thing.clone(), Some(became)).flatten();
        if before.is_some_and(|before| before != became) {
            ledger.report_violation(format!("{thing} was told as {before:?}, then as {became:?}: {frame}"));
        }
    });
}
