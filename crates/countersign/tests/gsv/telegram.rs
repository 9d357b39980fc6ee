//! Telegram as a chat network: the bot that shows cards is spoken with too.

use std::sync::{
    Arc, Condvar, Mutex,
    atomic::{AtomicI64, Ordering},
};

use serde_json::{Value, json};

use crate::{
    outside::{Asked, Outside},
    peer::Peer,
    provider::{Reply, say},
    scene::{Scene, TOKEN, write},
};

/// What people wrote that was not taken yet.
#[derive(Clone, Default)]
struct Updates(Arc<(Mutex<Vec<Value>>, Condvar)>);

impl Updates {
    fn write(&self, from: i64, chat: &Value, text: &str) {
        let mut updates = self.0.0.lock().unwrap();
        let id = i64::try_from(updates.len()).unwrap() + 1;
        let from = json!({ "id": from, "is_bot": false, "first_name": "Ana" });
        let message = json!({ "message_id": 100 + id, "date": 1, "chat": chat, "from": from, "text": text });
        updates.push(json!({ "update_id": id, "message": message }));
        self.0.1.notify_all();
    }

    /// Those from `offset` on, once there are some.
    fn from(&self, offset: i64) -> Value {
        let is_new = |update: &Value| update["update_id"].as_i64() >= Some(offset);
        let updates = self.0.0.lock().unwrap();
        let wait = std::time::Duration::from_secs(20);
        let none = |updates: &mut Vec<Value>| !updates.iter().any(is_new);
        let (updates, _) = self.0.1.wait_timeout_while(updates, wait, none).unwrap();
        updates.iter().filter(|update| is_new(update)).cloned().collect()
    }
}

struct Stage {
    scene: Scene,
    api: Outside,
    updates: Updates,
}

fn private(id: i64) -> Value {
    json!({ "id": id, "type": "private" })
}

impl Stage {
    fn new() -> Self {
        let updates = Updates::default();
        let (polled, next) = (updates.clone(), AtomicI64::new(1));
        let api = Outside::start(move |asked| {
            let method = asked.path.rsplit('/').next().unwrap_or_default();
            let result = match method {
                "getMe" => json!({ "id": 1, "is_bot": true, "username": "guard_bot" }),
                "getUpdates" => polled.from(asked.body["offset"].as_i64().unwrap_or_default()),
                "sendMessage" => {
                    let id = next.fetch_add(1, Ordering::SeqCst);
                    json!({ "message_id": id, "date": 1, "chat": { "id": asked.body["chat_id"], "type": "private" } })
                }
                _ => json!(true),
            };
            (200, json!({ "ok": true, "result": result }).to_string())
        });
        let scene = Scene::with(&format!(
            "clients: {{ token: {TOKEN} }}\nmessenger: {{ type: telegram, telegram: {{ token: '42:tok', chat_id: -5, allowed_users: [7], api_url: '{}' }} }}\n",
            api.url
        ));
        Self { scene, api, updates }
    }

    /// What was sent to a chat, by its number.
    fn sent(&self, chat: i64, number: usize) -> String {
        let asked = self.api.asked(number, |asked| is_to(asked, chat));
        asked.body["text"].as_str().unwrap().to_owned()
    }
}

fn is_to(asked: &Asked, chat: i64) -> bool {
    asked.path.ends_with("/sendMessage") && asked.body["chat_id"] == json!(chat) && asked.body["reply_markup"].is_null()
}

#[test]
fn whoever_may_decide_may_speak_and_answers_there_what_their_run_asks() {
    let stage = Stage::new();
    stage.scene.provider.script([say("hello Ana"), Reply::new(vec![write("c0", "a.txt")]), say("written")]);
    let gateway = stage.scene.start();
    stage.updates.write(8, &private(8), "let me in");
    stage.updates.write(7, &private(7), "hello");
    assert_eq!(stage.sent(7, 0), "hello Ana");
    let asked = stage.api.asked(0, |asked| is_to(asked, 7));
    assert_eq!(asked.body["reply_parameters"]["message_id"], 102);
    assert!(stage.scene.provider.asked(0).text().contains("[telegram · "));
    stage.updates.write(7, &private(7), "write it");
    let question = stage.sent(7, 1);
    assert!(question.contains("a.txt") && question.contains("Approval needed"), "{question}");
    // The card in the other chat asks the same.
    stage.api.asked(0, |asked| asked.path.ends_with("/sendMessage") && asked.body["chat_id"] == -5);
    stage.updates.write(7, &private(7), "yes");
    assert_eq!(stage.sent(7, 2), "written");
    assert!(stage.scene.place.folder.join("agents/main/a.txt").exists());
    let mut client = Peer::client(&gateway, "tester");
    assert_eq!(client.ok("channels.list", json!({}))["channels"][0]["channel"], "telegram");
    assert_eq!(client.ok("channel.status", json!({ "channel": "telegram" }))["accounts"][0]["connected"], true);
    assert_eq!(stage.api.count(|asked| is_to(asked, 8)), 0);
    stage.scene.place.verify();
}

#[test]
fn others_are_let_in_by_pairing_and_groups_are_heard_when_they_name_the_bot() {
    let stage = Stage::new();
    let gateway = stage.scene.start();
    let mut client = Peer::client(&gateway, "tester");
    client.ok("config.set", json!({ "path": "channels.telegram.dmPolicy", "value": "pairing" }));
    stage.updates.write(8, &private(8), "let me in");
    assert!(stage.sent(8, 0).contains("let you in"));
    // The card shows who knocks.
    let card = stage.api.asked(0, |asked| asked.path.ends_with("/sendMessage") && asked.body["chat_id"] == -5);
    assert!(card.body["text"].as_str().unwrap().contains("Ana (8)"), "{card:?}");
    client.ok("pair.approve", json!({ "channel": "telegram", "senderId": "8" }));
    assert!(stage.sent(8, 1).contains("You were let in"));
    stage.scene.provider.script([say("well, hello"), say("in a group")]);
    stage.updates.write(8, &private(8), "hello");
    assert_eq!(stage.sent(8, 2), "well, hello");
    let group = json!({ "id": -9, "type": "supergroup", "title": "Club" });
    stage.updates.write(8, &group, "nobody is meant");
    stage.updates.write(8, &group, "@guard_bot are you there?");
    assert_eq!(stage.sent(-9, 0), "in a group");
    stage.updates.write(8, &group, "/status@guard_bot");
    assert!(stage.sent(-9, 1).contains("agent:main:telegram:group:-9"));
    assert_eq!(stage.scene.provider.count(), 2);
}

#[test]
fn what_was_written_before_a_kill_is_taken_once() {
    let stage = Stage::new();
    stage.scene.provider.script([say("once")]);
    let gateway = stage.scene.start();
    stage.updates.write(7, &private(7), "hello");
    assert_eq!(stage.sent(7, 0), "once");
    gateway.kill();
    // Nothing was confirmed for good: the same update comes again.
    stage.scene.provider.script([say("twice")]);
    let _gateway = stage.scene.start();
    stage.updates.write(7, &private(7), "and again");
    let asked = stage.api.asked(0, |asked| is_to(asked, 7) && asked.body["text"] == "twice");
    assert_eq!(asked.body["reply_parameters"]["message_id"], 102);
    assert_eq!(stage.scene.provider.count(), 2);
}
