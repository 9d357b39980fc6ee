//! A Bot API server without a network: cards that can be looked at, people who tap, and bad days on request.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{sync::Notify, time::Instant};

use super::super::client::{BotResponse, BotTransport};

/// Time limit of something that must come. Virtual time.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Fault of a call.
#[derive(Clone, Debug)]
pub(super) enum ApiFault {
    /// The call is refused.
    Refused(u16, &'static str, Value),
    /// The call comes to nothing, and no answer comes.
    Hangs,
    /// The call is done, and no answer comes.
    Lost,
    /// The call is done, and answered only when that is allowed.
    Held(Arc<Notify>),
}

/// One message in the chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FakeCard {
    pub(super) id: i64,
    pub(super) chat: i64,
    pub(super) text: String,
    /// Texts and data of the buttons it has now.
    pub(super) keys: Vec<(String, String)>,
    /// The message that it answers.
    pub(super) to: Option<i64>,
    /// Topic of the message.
    pub(super) topic: Option<i64>,
    pub(super) edits: usize,
}

impl FakeCard {
    /// Returns the data of the first button whose text holds `word`.
    pub(super) fn button(&self, word: &str) -> String {
        self.keys.iter().find(|(text, _)| text.contains(word)).map(|(_, data)| data.clone()).expect(word)
    }

    pub(super) fn labels(&self) -> Vec<&str> {
        self.keys.iter().map(|(text, _)| text.as_str()).collect()
    }
}

#[derive(Default)]
pub(super) struct FakeChat {
    seq: i64,
    pub(super) cards: BTreeMap<i64, FakeCard>,
    updates: Vec<Value>,
    /// Every answer to a tap, by its id.
    pub(super) answers: BTreeMap<String, Vec<String>>,
    pub(super) log: Vec<(Instant, &'static str, Value)>,
    faults: BTreeMap<&'static str, VecDeque<ApiFault>>,
    /// The number of the call at which a process dies, and whether the call is done before.
    pub(super) dies: Option<(usize, bool)>,
    pub(super) dead: bool,
    /// Requests that real Telegram would not have taken.
    pub(super) bad: Vec<Value>,
    /// Topics that take no messages, with the refusal of each; of the number 0 General.
    pub(super) shut: BTreeMap<i64, &'static str>,
    /// Every tap that ever was, to be delivered again.
    taps: BTreeMap<String, Value>,
}

/// The server.
#[derive(Clone, Default)]
pub(super) struct FakeBotApi {
    room: Arc<Mutex<FakeChat>>,
    changed: Arc<Notify>,
}

impl FakeBotApi {
    pub(super) fn fail(&self, method: &'static str, faults: impl IntoIterator<Item = ApiFault>) {
        self.room.lock().faults.entry(method).or_default().extend(faults);
    }

    pub(super) fn with<T>(&self, what: impl FnOnce(&mut FakeChat) -> T) -> T {
        let value = what(&mut self.room.lock());
        self.changed.notify_waiters();
        value
    }

    /// Waits until there is something to see.
    pub(super) async fn until<T>(&self, case: &str, what: impl Fn(&FakeChat) -> Option<T>) -> T {
        let wait = async {
            loop {
                let changed = self.changed.notified();
                if let Some(found) = what(&self.room.lock()) {
                    return found;
                }
                changed.await;
            }
        };
        match tokio::time::timeout(PATIENCE, wait).await {
            Ok(found) => found,
            Err(_) => panic!("{case} does not come about: {:#?}", self.room.lock().cards),
        }
    }

    /// Returns the newest card that holds `text`.
    pub(super) async fn card(&self, text: &str) -> FakeCard {
        self.until(text, |room| room.cards.values().rev().find(|card| card.text.contains(text)).cloned()).await
    }

    /// Returns the calls of `method`, with the milliseconds since the first call of all.
    pub(super) fn calls(&self, method: &str) -> Vec<u128> {
        let room = self.room.lock();
        let first = room.log[0].0;
        room.log.iter().filter(|(_, name, _)| *name == method).map(|(at, ..)| (*at - first).as_millis()).collect()
    }

    fn update(&self, mut update: Value) -> i64 {
        self.with(|room| {
            room.seq += 1;
            update["update_id"] = json!(room.seq);
            if let Some(query) = update.get_mut("callback_query") {
                let id = format!("q{}", room.seq);
                query["id"] = json!(id);
                room.taps.insert(id, query.clone());
            }
            room.updates.push(update);
            room.seq
        })
    }

    /// Taps as a user; gives the id of the tap.
    pub(super) fn tap(&self, card: &FakeCard, data: &str, user: i64) -> String {
        let message = json!({ "message_id": card.id, "chat": { "id": card.chat }, "date": 0 });
        let from = json!({ "id": user, "username": format!("u{user}") });
        let query = json!({ "from": from, "message": message, "data": data, "chat_instance": "1" });
        format!("q{}", self.update(json!({ "callback_query": query })))
    }

    /// Taps on something that is no card.
    pub(super) fn tap_raw(&self, query: Value) -> String {
        format!("q{}", self.update(json!({ "callback_query": query })))
    }

    /// Delivers a tap once more.
    pub(super) fn again(&self, tap: &str) {
        self.with(|room| {
            room.seq += 1;
            room.updates.push(json!({ "update_id": room.seq, "callback_query": room.taps[tap] }));
        });
    }

    /// Replies to a message as a user.
    pub(super) fn reply(&self, card: &FakeCard, text: &str, user: i64) {
        let to = json!({ "message_id": card.id, "chat": { "id": card.chat } });
        let message = json!({
            "message_id": 1,
            "chat": { "id": card.chat },
            "from": { "id": user, "username": format!("u{user}") },
            "text": text,
            "reply_to_message": to,
        });
        self.update(json!({ "message": message }));
    }

    /// Returns the answer to a tap, once there is one.
    pub(super) async fn answered(&self, tap: &str) -> String {
        self.until(tap, |room| room.answers.get(tap)?.first().cloned()).await
    }

    fn done(&self, method: &str, body: &Value) -> Result<Value, (u16, &'static str)> {
        let id = |name: &str| body[name].as_i64().unwrap_or_default();
        self.with(|room| match method {
            "sendMessage" | "editMessageText" => {
                let text = body["text"].as_str().unwrap_or_default().to_owned();
                let rows = body["reply_markup"]["inline_keyboard"].as_array().cloned().unwrap_or_default();
                let word = |key: &Value, name: &str| key[name].as_str().unwrap_or_default().to_owned();
                let keys: Vec<_> = rows.iter().filter_map(Value::as_array).flatten().collect();
                let keys: Vec<_> = keys.iter().map(|key| (word(key, "text"), word(key, "callback_data"))).collect();
                let units = text.encode_utf16().count();
                if !(1..=4096).contains(&units) || keys.iter().any(|(_, data)| data.is_empty() || data.len() > 64) {
                    room.bad.push(body.clone());
                    return Err((400, "Bad Request: message is too long"));
                }
                if method == "sendMessage" {
                    let topic = body["message_thread_id"].as_i64();
                    if let Some(words) = room.shut.get(&topic.unwrap_or_default()) {
                        return Err((400, *words));
                    }
                    room.seq += 1;
                    let (id, chat) = (room.seq, id("chat_id"));
                    let to = body["reply_parameters"]["message_id"].as_i64();
                    room.cards.insert(id, FakeCard { id, chat, text, keys, to, topic, edits: 0 });
                    return Ok(json!({ "message_id": id, "chat": { "id": chat }, "date": 0 }));
                }
                let card = room.cards.get_mut(&id("message_id")).filter(|card| card.chat == id("chat_id"));
                let card = card.ok_or((400, "Bad Request: message to edit not found"))?;
                if card.text == text && card.keys == keys {
                    return Err((400, "Bad Request: message is not modified"));
                }
                (card.text, card.keys, card.edits) = (text, keys, card.edits + 1);
                Ok(json!({ "message_id": card.id, "chat": { "id": card.chat }, "date": 0 }))
            }
            "answerCallbackQuery" => {
                let text = body["text"].as_str().unwrap_or_default().to_owned();
                if text.chars().count() > 200 {
                    room.bad.push(body.clone());
                }
                room.answers
                    .entry(body["callback_query_id"].as_str().unwrap_or_default().into())
                    .or_default()
                    .push(text);
                Ok(json!(true))
            }
            "getMe" => Ok(json!({ "id": 42, "is_bot": true, "username": "guardian_bot" })),
            "deleteWebhook" => Ok(json!(true)),
            _ => Err((404, "Not Found")),
        })
    }

    async fn updates(&self, body: &Value) -> Value {
        let (offset, wait) = (body["offset"].as_i64().unwrap_or(0), body["timeout"].as_u64().unwrap_or(0));
        let end = Instant::now() + Duration::from_secs(wait);
        loop {
            let changed = self.changed.notified();
            {
                let mut room = self.room.lock();
                room.updates.retain(|update| update["update_id"].as_i64() >= Some(offset));
                if !room.updates.is_empty() || Instant::now() >= end {
                    return Value::from(room.updates.clone());
                }
            }
            let _ = tokio::time::timeout_at(end, changed).await;
        }
    }

    async fn handle(&self, method: &'static str, body: Value) -> BotResponse {
        let (fault, dies) = self.with(|room| {
            room.log.push((Instant::now(), method, body.clone()));
            // Polls come and go by the clock; everything else is counted.
            let dies = if method == "getUpdates" { None } else { room.dies.as_mut() };
            let dies = dies.and_then(|(left, is_done)| {
                *left = left.checked_sub(1)?;
                (*left == 0).then_some(*is_done)
            });
            (room.faults.get_mut(method).and_then(VecDeque::pop_front), dies)
        });
        if self.with(|room| room.dead) {
            std::future::pending::<()>().await;
        }
        if let Some(is_done) = dies {
            if is_done {
                let _ = self.done(method, &body);
            }
            self.with(|room| room.dead = true);
            std::future::pending::<()>().await;
        }
        let answer = |status: u16, body: Value| BotResponse { status, body: body.to_string().into_bytes() };
        let error = |status: u16, words: &str, parameters: Value| {
            let body = json!({ "ok": false, "error_code": status, "description": words, "parameters": parameters });
            answer(status, body)
        };
        let hold = match fault {
            None => None,
            Some(ApiFault::Refused(status, words, parameters)) => return error(status, words, parameters),
            Some(ApiFault::Hangs) => std::future::pending().await,
            Some(ApiFault::Lost) => {
                let _ = self.done(method, &body);
                std::future::pending().await
            }
            Some(ApiFault::Held(until)) => Some(until),
        };
        let result = if method == "getUpdates" { Ok(self.updates(&body).await) } else { self.done(method, &body) };
        if let Some(until) = hold {
            until.notified().await;
        }
        match result {
            Ok(result) => answer(200, json!({ "ok": true, "result": result })),
            Err((status, words)) => error(status, words, Value::Null),
        }
    }
}

impl BotTransport for FakeBotApi {
    fn call(
        &self,
        method: &'static str,
        body: String,
        patience: Duration,
    ) -> BoxFuture<'_, Result<BotResponse, String>> {
        let body = serde_json::from_str(&body).expect("calls are JSON");
        Box::pin(async move {
            let answered = tokio::time::timeout(patience, self.handle(method, body)).await;
            answered.map_err(|_| "no answer".to_owned())
        })
    }

    fn upload_form(
        &self,
        _: &'static str,
        _: String,
        _: Vec<u8>,
        _: Duration,
    ) -> BoxFuture<'_, Result<BotResponse, String>> {
        Box::pin(async { Ok(BotResponse { status: 404, body: Vec::new() }) })
    }

    fn fetch_file(&self, _: String, _: usize, _: Duration) -> BoxFuture<'_, Result<BotResponse, String>> {
        Box::pin(async { Ok(BotResponse { status: 404, body: Vec::new() }) })
    }
}
