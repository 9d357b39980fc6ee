//! A Bot API on loopback, and a person who taps `Allow` on every card at once.

use std::{
    net::SocketAddr,
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::bench::web::{self, Asked};

/// The one chat, and who taps in it.
pub(crate) const CHAT: i64 = 4711;
pub(crate) const PERSON: i64 = 4711;

/// How long a poll waits for something to tell.
const POLL: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Room {
    cards: i64,
    /// Taps that were not fetched yet.
    waiting: Vec<Value>,
    taps: i64,
    /// When each tap was handed over.
    delivered: Vec<Instant>,
    /// When the last card came.
    shown: Option<Instant>,
}

/// The server. It ends with the process.
#[derive(Clone)]
pub(crate) struct Telephone {
    pub(crate) address: SocketAddr,
    room: Arc<(Mutex<Room>, Condvar)>,
}

impl Telephone {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let room = Arc::new((Mutex::new(Room::default()), Condvar::new()));
        let served = Arc::clone(&room);
        let address = web::serve(move |asked| answer(&served, &asked))?;
        Ok(Self { address, room })
    }

    /// When the last card came.
    pub(crate) fn shown(&self) -> Option<Instant> {
        self.room.0.lock().ok()?.shown
    }

    /// When the last tap was handed over.
    pub(crate) fn delivered(&self) -> Option<Instant> {
        self.room.0.lock().ok()?.delivered.last().copied()
    }
}

fn answer(room: &(Mutex<Room>, Condvar), asked: &Asked) -> String {
    let body: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
    let method = asked.path.rsplit('/').next().unwrap_or_default();
    let result = match method {
        "getMe" => json!({ "id": 1, "is_bot": true, "first_name": "bench", "username": "bench_bot" }),
        "getUpdates" => return updates(room),
        "sendMessage" => sent(room, &body),
        "editMessageText" => message(&body, body["message_id"].as_i64().unwrap_or_default()),
        _ => json!(true),
    };
    json!({ "ok": true, "result": result }).to_string()
}

fn message(body: &Value, id: i64) -> Value {
    json!({ "message_id": id, "date": 1, "chat": { "id": CHAT }, "text": body["text"] })
}

/// A card came: its first button, which allows, is tapped.
fn sent((room, changed): &(Mutex<Room>, Condvar), body: &Value) -> Value {
    let Ok(mut room) = room.lock() else { return Value::Null };
    room.cards += 1;
    let now = Instant::now();
    let message = message(body, room.cards);
    let first = &body["reply_markup"]["inline_keyboard"][0][0];
    if first["text"].as_str().is_some_and(|text| text.contains("Allow")) {
        room.taps += 1;
        room.shown = Some(now);
        let tap = json!({
            "update_id": room.taps,
            "callback_query": {
                "id": room.taps.to_string(),
                "from": { "id": PERSON, "is_bot": false, "first_name": "Ana", "username": "ana" },
                "message": message,
                "chat_instance": "bench",
                "data": first["callback_data"],
            },
        });
        room.waiting.push(tap);
        changed.notify_all();
    }
    message
}

fn updates((room, changed): &(Mutex<Room>, Condvar)) -> String {
    let nothing = || json!({ "ok": true, "result": [] }).to_string();
    let Ok(waiting) = room.lock() else { return nothing() };
    let Ok((mut room, _)) = changed.wait_timeout_while(waiting, POLL, |room| room.waiting.is_empty()) else {
        return nothing();
    };
    let told = json!({ "ok": true, "result": std::mem::take(&mut room.waiting) }).to_string();
    // What is left is the writing, which belongs to what is measured.
    room.delivered.push(Instant::now());
    told
}
