//! An agent on a device of its own: it asks for things under keys, and asks again for what it was not told the end of.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};

use crate::{
    lines::Line,
    outside::{Became, World},
};

/// What the agent shows.
pub(crate) const TOKEN: &str = "tok-of-the-agent-of-histories";

/// What one connection is about.
#[derive(Default)]
struct Book {
    is_in: bool,
    /// What was asked on it and has no reply, by its id.
    open: BTreeMap<String, String>,
    /// Every id that had a reply on it.
    replied: BTreeSet<String>,
}

pub(crate) struct Agent {
    world: World,
    address: SocketAddr,
    line: Option<(Line, Arc<Mutex<Book>>)>,
}

impl Agent {
    pub(crate) const fn new(world: World, address: SocketAddr) -> Self {
        Self { world, address, line: None }
    }

    /// Connects where it is not connected.
    pub(crate) async fn come(&mut self) {
        if self.line.as_ref().is_some_and(|(line, _)| line.is_open()) {
            return;
        }
        let book: Arc<Mutex<Book>> = Arc::default();
        let (world, shared) = (self.world.clone(), Arc::clone(&book));
        let heard = move |frame: Value, _: &_| hear(&world, &mut shared.lock().unwrap(), &frame);
        let Some(line) = Line::websocket(self.address, "/", heard).await else { return };
        line.send(json!({ "jsonrpc": "2.0", "method": "auth", "params": { "token": TOKEN }, "id": "auth" }));
        // What was over while it was away comes behind this, under its own ids.
        if self.world.chance(50) {
            let id = self.world.with(|ledger| ledger.thing("rows"));
            line.send(json!({ "jsonrpc": "2.0", "method": "get_pending_results", "params": {}, "id": id }));
        }
        self.line = Some((line, book));
    }

    /// Is gone without a word.
    pub(crate) fn leave(&mut self) {
        self.line = None;
    }

    /// Asks for something new, or once more for something of before.
    pub(crate) async fn ask(&mut self) {
        let again = self.world.with(|ledger| ledger.asked.keys().cloned().collect::<Vec<_>>());
        let thing = match again.len() {
            count if count > 0 && self.world.chance(25) => {
                again[usize::try_from(self.world.below(count as u64)).unwrap()].clone()
            }
            _ => {
                let kind = if self.world.chance(40) { "free" } else { "gated" };
                self.world.with(|ledger| {
                    let thing = ledger.thing(kind);
                    ledger.asked.insert(thing.clone(), None);
                    thing
                })
            }
        };
        self.ask_for(&thing).await;
    }

    /// Asks once more for everything of which it was not told the end. Whether there is nothing.
    pub(crate) async fn insist(&mut self) -> bool {
        self.come().await;
        let Some((_, book)) = &self.line else { return false };
        let open: BTreeSet<String> = book.lock().unwrap().open.values().cloned().collect();
        let untold = self.world.with(|ledger| {
            let untold = ledger.asked.iter().filter(|(_, told)| told.is_none()).map(|(thing, _)| thing.clone());
            untold.collect::<Vec<_>>()
        });
        for thing in untold.iter().filter(|thing| !open.contains(*thing)) {
            self.ask_for(thing).await;
        }
        untold.is_empty() && open.is_empty()
    }

    async fn ask_for(&mut self, thing: &str) {
        self.come().await;
        let Some((line, book)) = &self.line else { return };
        let id = self.world.with(|ledger| ledger.thing("ask"));
        book.lock().unwrap().open.insert(id.clone(), thing.to_owned());
        let params = json!({ "tool": "turn", "args": { "thing": thing }, "idempotency_key": thing });
        line.send(json!({ "jsonrpc": "2.0", "method": "tool_request", "params": params, "id": id }));
    }
}

fn hear(world: &World, book: &mut Book, frame: &Value) {
    let Some(id) = frame["id"].as_str() else {
        return world.wrong(format!("an agent was told {frame}"));
    };
    if id == "auth" {
        book.is_in = frame["result"]["status"] == "authenticated";
        return;
    }
    if !book.replied.insert(id.to_owned()) {
        world.wrong(format!("the request {id} of an agent was answered twice: {frame}"));
    }
    // What was asked on an earlier connection is asked for again under its key: what counts is that reply.
    let Some(thing) = book.open.remove(id) else { return };
    let (message, code) = (frame["error"]["message"].as_str().unwrap_or_default(), frame["error"]["code"].as_i64());
    let became = match (frame["result"]["status"].as_str(), code) {
        (Some("executed"), _) => Became::Executed,
        (_, Some(-32004)) if message.starts_with("Outcome unknown") => Became::Unknown,
        // Denied, timed out, or refused for what was denied before.
        (_, Some(-32003..=-32001)) => Became::NotDone,
        // The service would not.
        (_, Some(-32004)) if message.contains("503") => Became::NotDone,
        // It ends, or could not write it down, and says so. It is asked for again.
        (None, Some(_)) => return,
        _ => return world.wrong(format!("an agent was told {frame}")),
    };
    world.with(|ledger| {
        let before = ledger.asked.insert(thing.clone(), Some(became)).flatten();
        if before.is_some_and(|before| before != became) {
            ledger.wrong(format!("{thing} was told as {before:?}, then as {became:?}: {frame}"));
        }
    });
}
