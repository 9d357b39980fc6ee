//! Telegram as a chat network: the bot that shows cards is spoken with too.

use std::sync::{
    Arc, Condvar, Mutex,
    atomic::{AtomicI64, Ordering},
};

use countersign_testkit::process::{
    GatewayFixture, GatewayOptions,
    gsv::{GsvPeer, TOKEN, write_part},
    provider::{ProviderReply, call_part, text_reply},
    server::{FakeServer, ServerRequest},
};
use serde_json::{Value, json};

/// Updates that were not taken yet.
#[derive(Clone, Default)]
struct UpdateFeed(Arc<(Mutex<Vec<Value>>, Condvar)>);

impl UpdateFeed {
    fn write(&self, from: i64, chat: &Value, text: &str) {
        self.bring(from, chat, &json!({ "text": text }));
    }

    /// Brings a message with these members.
    fn bring(&self, from: i64, chat: &Value, more: &Value) {
        let mut updates = self.0.0.lock().unwrap();
        let id = i64::try_from(updates.len()).unwrap() + 1;
        let from = json!({ "id": from, "is_bot": false, "first_name": "Ana" });
        let mut message = json!({ "message_id": 100 + id, "date": 1, "chat": chat, "from": from });
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        updates.push(json!({ "update_id": id, "message": message }));
        self.0.1.notify_all();
    }

    /// Returns those from `offset` on, once there are some.
    fn from(&self, offset: i64) -> Value {
        let is_new = |update: &Value| update["update_id"].as_i64() >= Some(offset);
        let updates = self.0.0.lock().unwrap();
        let wait = std::time::Duration::from_secs(20);
        let none = |updates: &mut Vec<Value>| !updates.iter().any(is_new);
        let (updates, _) = self.0.1.wait_timeout_while(updates, wait, none).unwrap();
        updates.iter().filter(|update| is_new(update)).cloned().collect()
    }
}

struct ChatFixture {
    scene: GatewayFixture,
    api: FakeServer,
    updates: UpdateFeed,
}

/// A forum whose General is closed.
const FORUM: i64 = -100_500;

fn private(id: i64) -> Value {
    json!({ "id": id, "type": "private" })
}

impl ChatFixture {
    fn new() -> Self {
        let updates = UpdateFeed::default();
        let (polled, next) = (updates.clone(), AtomicI64::new(1));
        let api = FakeServer::start(move |request| {
            if let Some(file) = request.path.strip_prefix("/file/bot42:tok/") {
                return match file {
                    "photos/p.jpg" => (200, "a picture".to_owned()),
                    "films/f.mp4" => (200, "x".repeat(26 << 20)),
                    _ => (404, String::new()),
                };
            }
            let method = request.path.rsplit('/').next().unwrap_or_default();
            let result = match method {
                "getMe" => json!({ "id": 1, "is_bot": true, "username": "guard_bot" }),
                "getUpdates" => polled.from(request.body["offset"].as_i64().unwrap_or_default()),
                "getFile" => match request.body["file_id"].as_str() {
                    Some("large") => json!({ "file_id": "large", "file_size": 30_000_000 }),
                    // Its size is not known before it comes.
                    Some("f") => json!({ "file_id": "f", "file_path": "films/f.mp4" }),
                    Some("p") => json!({ "file_id": "p", "file_size": 9, "file_path": "photos/p.jpg" }),
                    _ => {
                        return (
                            400,
                            json!({ "ok": false, "error_code": 400, "description": "wrong file_id" }).to_string(),
                        );
                    }
                },
                "sendPhoto" if request.text.contains("no picture") => {
                    let refused = json!({ "ok": false, "error_code": 400, "description": "PHOTO_INVALID_DIMENSIONS" });
                    return (400, refused.to_string());
                }
                "sendMessage" if request.body["chat_id"] == FORUM && request.body["message_thread_id"].is_null() => {
                    let closed = json!({ "ok": false, "error_code": 400, "description": "Bad Request: TOPIC_CLOSED" });
                    return (400, closed.to_string());
                }
                "sendMessage" => {
                    let id = next.fetch_add(1, Ordering::SeqCst);
                    json!({ "message_id": id, "date": 1, "chat": { "id": request.body["chat_id"], "type": "private" } })
                }
                _ => json!(true),
            };
            (200, json!({ "ok": true, "result": result }).to_string())
        });
        let scene = GatewayOptions::for_models().with_config(&format!(
            "clients: {{ token: {TOKEN} }}\nmessenger: {{ type: telegram, telegram: {{ token: '42:tok', chat_id: -5, allowed_users: [7], api_url: '{}' }} }}\n",
            api.url
        )).create();
        Self { scene, api, updates }
    }

    /// Returns a message that was sent to a chat, by its number.
    fn sent(&self, chat: i64, number: usize) -> String {
        let request = self.api.wait_request(number, |request| is_to(request, chat));
        request.body["text"].as_str().unwrap().to_owned()
    }
}

fn is_to(request: &ServerRequest, chat: i64) -> bool {
    request.path.ends_with("/sendMessage")
        && request.body["chat_id"] == json!(chat)
        && request.body["reply_markup"].is_null()
}

#[test]
fn approvers_may_write_and_answer_the_gates_of_their_runs_in_the_chat() {
    let stage = ChatFixture::new();
    stage.scene.provider.script_replies([
        text_reply("hello Ana"),
        ProviderReply::new(vec![write_part("c0", "a.txt")]),
        text_reply("written"),
    ]);
    let gateway = stage.scene.start();
    stage.updates.write(8, &private(8), "let me in");
    stage.updates.write(7, &private(7), "hello");
    assert_eq!(stage.sent(7, 0), "hello Ana");
    let request = stage.api.wait_request(0, |request| is_to(request, 7));
    assert_eq!(request.body["reply_parameters"]["message_id"], 102);
    assert!(stage.scene.provider.wait_request(0).messages_text().contains("[telegram · "));
    stage.updates.write(7, &private(7), "write it");
    let question = stage.sent(7, 1);
    assert!(question.contains("a.txt") && question.contains("Approval needed"), "{question}");
    // The card in the other chat asks the same.
    stage.api.wait_request(0, |request| request.path.ends_with("/sendMessage") && request.body["chat_id"] == -5);
    stage.updates.write(7, &private(7), "yes");
    assert_eq!(stage.sent(7, 2), "written");
    assert!(stage.scene.folder.join("agents/main/a.txt").exists());
    let mut client = GsvPeer::connect_client(&gateway, "tester");
    assert_eq!(client.expect_ok("channels.list", json!({}))["channels"][0]["channel"], "telegram");
    assert_eq!(client.expect_ok("channel.status", json!({ "channel": "telegram" }))["accounts"][0]["connected"], true);
    assert_eq!(stage.api.request_count(|request| is_to(request, 8)), 0);
    stage.scene.verify_log();
}

#[test]
fn unknown_senders_need_pairing_and_groups_must_name_the_bot() {
    let stage = ChatFixture::new();
    let gateway = stage.scene.start();
    let mut client = GsvPeer::connect_client(&gateway, "tester");
    client.expect_ok("config.set", json!({ "path": "channels.telegram.dmPolicy", "value": "pairing" }));
    stage.updates.write(8, &private(8), "let me in");
    assert!(stage.sent(8, 0).contains("let you in"));
    // The card shows who knocks.
    let card =
        stage.api.wait_request(0, |request| request.path.ends_with("/sendMessage") && request.body["chat_id"] == -5);
    assert!(card.body["text"].as_str().unwrap().contains("Ana (8)"), "{card:?}");
    client.expect_ok("pair.approve", json!({ "channel": "telegram", "senderId": "8" }));
    assert!(stage.sent(8, 1).contains("You were let in"));
    stage.scene.provider.script_replies([text_reply("well, hello"), text_reply("in a group")]);
    stage.updates.write(8, &private(8), "hello");
    assert_eq!(stage.sent(8, 2), "well, hello");
    let group = json!({ "id": -9, "type": "supergroup", "title": "Club" });
    stage.updates.write(8, &group, "nobody is meant");
    stage.updates.write(8, &group, "@guard_bot are you there?");
    assert_eq!(stage.sent(-9, 0), "in a group");
    stage.updates.write(8, &group, "/status@guard_bot");
    assert!(stage.sent(-9, 1).contains("agent:main:telegram:group:-9"));
    assert_eq!(stage.scene.provider.request_count(), 2);
}

#[test]
fn what_was_written_before_a_kill_is_taken_once() {
    let stage = ChatFixture::new();
    stage.scene.provider.script_replies([text_reply("once")]);
    let gateway = stage.scene.start();
    stage.updates.write(7, &private(7), "hello");
    assert_eq!(stage.sent(7, 0), "once");
    gateway.kill();
    // Nothing was confirmed: the same update comes again.
    stage.scene.provider.script_replies([text_reply("twice")]);
    let _gateway = stage.scene.start();
    stage.updates.write(7, &private(7), "and again");
    let request = stage.api.wait_request(0, |request| is_to(request, 7) && request.body["text"] == "twice");
    assert_eq!(request.body["reply_parameters"]["message_id"], 102);
    assert_eq!(stage.scene.provider.request_count(), 2);
}

#[test]
fn images_and_files_come_with_or_without_text_and_rejected_ones_are_reported() {
    let stage = ChatFixture::new();
    stage.scene.provider.script_replies([text_reply("nice"), text_reply("thanks")]);
    let _gateway = stage.scene.start();
    let size = |id: &str| json!({ "file_id": id, "width": 9, "height": 9 });
    let picture = json!({ "caption": "look", "photo": [size("s"), size("p")] });
    stage.updates.bring(7, &private(7), &picture);
    assert_eq!(stage.sent(7, 0), "nice");
    let stored = std::fs::read_dir(stage.scene.data_dir().join("objects/media/agent:main:main")).unwrap();
    let stored: Vec<_> = stored.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
    assert_eq!(stored, [b"a picture".to_vec()]);
    let file = json!({ "document": { "file_id": "p", "file_name": "a.csv", "mime_type": "text/csv" } });
    stage.updates.bring(7, &private(7), &file);
    assert_eq!(stage.sent(7, 1), "thanks");
    assert!(stage.scene.provider.wait_request(1).messages_text().contains("[Document a.csv (text/csv) at media/"));
    for (number, what, want) in [
        (2, json!({ "voice": { "file_id": "large" } }), "This recording was not taken: it has more than 20 MB"),
        (
            3,
            json!({ "video": { "file_id": "v", "file_size": 30_000_000 } }),
            "This video was not taken: it has more than 20 MB",
        ),
        (4, json!({ "document": { "file_id": "gone" } }), "This file was not taken: it could not be fetched"),
        (5, json!({ "sticker": { "file_id": "x" } }), "A sticker is nothing that can be taken here."),
        (6, json!({ "video": { "file_id": "f" } }), "This video was not taken: it has more than 20 MB"),
    ] {
        stage.updates.bring(7, &private(7), &what);
        let answer = stage.sent(7, number);
        assert!(answer.starts_with(want), "{answer}");
    }
    // Nothing is fetched for a user who may not speak, and no message goes to them.
    stage.updates.bring(8, &private(8), &picture);
    stage.updates.bring(8, &private(8), &json!({ "sticker": {} }));
    stage.scene.provider.script_replies([text_reply("last")]);
    stage.updates.write(7, &private(7), "and?");
    assert_eq!(stage.sent(7, 7), "last");
    let fetched = stage.api.request_count(|request| request.path.starts_with("/file/"));
    assert_eq!((fetched, stage.api.request_count(|request| is_to(request, 8))), (3, 0));
    stage.scene.verify_log();
}

#[test]
fn a_picture_that_an_agent_sends_is_one_and_else_a_file_and_long_words_stand_before_it() {
    let stage = ChatFixture::new();
    stage.scene.write_file("permissions.yaml", "defaults: [ { pattern: '*', action: allow } ]\n");
    let folder = stage.scene.folder.join("agents/main");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("week.png"), "a picture").unwrap();
    std::fs::write(folder.join("odd.png"), "no picture").unwrap();
    let long = "word ".repeat(300);
    let send = |id: &str, arguments: &Value| call_part(id, "gsv__SendFile", arguments);
    let sent = [
        send("c0", &json!({ "path": "week.png", "text": "this week" })),
        send("c1", &json!({ "path": "odd.png", "text": long })),
    ];
    stage.scene.provider.script_replies([ProviderReply::new(sent.into()), text_reply("there you are")]);
    let _gateway = stage.scene.start();
    stage.updates.write(7, &private(7), "how was the week?");
    let picture = stage.api.wait_request(0, |request| request.path.ends_with("/sendPhoto"));
    assert!(picture.header("content-type").starts_with("multipart/form-data; boundary="));
    for part in [
        "name=\"chat_id\"\r\n\r\n7\r\n",
        "name=\"caption\"\r\n\r\nthis week\r\n",
        "name=\"photo\"; filename=\"week.png\"\r\nContent-Type: image/png\r\n\r\na picture\r\n",
    ] {
        assert!(picture.text.contains(part), "{part}: {}", picture.text);
    }
    let file = stage.api.wait_request(0, |request| request.path.ends_with("/sendDocument"));
    assert!(file.text.contains("name=\"document\"; filename=\"odd.png\"") && !file.text.contains("caption"));
    assert_eq!((stage.sent(7, 0), stage.sent(7, 1)), (long.trim().to_owned(), "there you are".to_owned()));
}

#[test]
fn each_topic_of_a_forum_is_a_chat_of_its_own_and_is_answered_there() {
    let stage = ChatFixture::new();
    let rules =
        "defaults: [ { pattern: '*', action: allow } ]\nrules: [ { pattern: 'gsv__WriteFile*', action: ask } ]\n";
    stage.scene.write_file("permissions.yaml", rules);
    let folder = stage.scene.folder.join("agents/main");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("week.csv"), "1,2").unwrap();
    stage.scene.provider.script_replies([
        ProviderReply::new(vec![call_part("c0", "gsv__SendFile", &json!({ "path": "week.csv", "text": "see" }))]),
        text_reply("sent to nine"),
        text_reply("hello twelve"),
        ProviderReply::new(vec![write_part("c1", "a.txt")]),
        text_reply("written"),
        text_reply("hello eight"),
    ]);
    let gateway = stage.scene.start();
    let forum = json!({ "id": FORUM, "type": "supergroup", "title": "Forum", "is_forum": true });
    let say = |from: i64, topic: i64, text: &str| {
        let message = json!({ "text": text, "message_thread_id": topic, "is_topic_message": true });
        stage.updates.bring(from, &forum, &message);
    };
    // What is refused for the closed General comes to nothing here.
    let is_taken = |request: &ServerRequest| is_to(request, FORUM) && !request.body["message_thread_id"].is_null();
    let sent = |number: usize| {
        let body = stage.api.wait_request(number, is_taken).body;
        (body["message_thread_id"].as_i64().unwrap(), body["text"].as_str().unwrap().to_owned())
    };
    say(7, 9, "@guard_bot the week, please");
    let file = stage.api.wait_request(0, |request| request.path.ends_with("/sendDocument"));
    assert!(file.text.contains("name=\"message_thread_id\"\r\n\r\n9\r\n"), "{}", file.text);
    assert_eq!(sent(0), (9, "sent to nine".to_owned()));
    let typing = stage.api.wait_request(0, |request| request.path.ends_with("/sendChatAction"));
    assert_eq!(typing.body["message_thread_id"], 9);
    say(7, 12, "@guard_bot hello");
    assert_eq!(sent(1), (12, "hello twelve".to_owned()));
    assert!(!stage.scene.provider.last_request().messages_text().contains("the week"), "another conversation");
    say(7, 12, "/status@guard_bot");
    let (topic, status) = sent(2);
    assert!(topic == 12 && status.contains("agent:main:telegram:group:-100500_topic_12"), "{topic} {status}");
    say(7, 9, "@guard_bot write it");
    let (topic, prompt) = sent(3);
    assert!(topic == 9 && prompt.contains("a.txt") && prompt.contains("name the bot"), "{topic} {prompt}");
    say(7, 9, "@guard_bot yes");
    assert_eq!(sent(4), (9, "written".to_owned()));
    assert!(folder.join("a.txt").exists());
    let mut client = GsvPeer::connect_client(&gateway, "tester");
    // A list that names the chat names its topics.
    client.expect_ok("config.set", json!({ "path": "channels.telegram.dmPolicy", "value": "allowlist" }));
    client.expect_ok("config.set", json!({ "path": "channels.telegram.allowFrom", "value": ["-100500"] }));
    say(8, 12, "@guard_bot and me?");
    assert_eq!(sent(5), (12, "hello eight".to_owned()));
    let closed = stage.api.request_count(|request| is_to(request, FORUM) && !is_taken(request));
    assert_eq!(closed, 0, "nothing goes to General");
    stage.scene.verify_log();
}

#[test]
fn an_answer_that_names_the_bot_counts_and_a_closed_chat_does_not_disconnect_the_account() {
    let stage = ChatFixture::new();
    let gateway = stage.scene.start();
    let group = json!({ "id": -9, "type": "supergroup", "title": "Club" });
    for (number, answer) in
        ["@guard_bot yes", "yes, @guard_bot", "@guard_bot /approve", "@Guard_Bot: y"].iter().enumerate()
    {
        let file = format!("{number}.txt");
        stage.scene.provider.script_replies([ProviderReply::new(vec![write_part("c0", &file)]), text_reply("written")]);
        stage.updates.write(7, &group, "@guard_bot write it");
        assert!(stage.sent(-9, 2 * number).contains(&file));
        stage.updates.write(7, &group, answer);
        assert_eq!(stage.sent(-9, 2 * number + 1), "written", "{answer}");
        assert!(stage.scene.folder.join("agents/main").join(&file).exists(), "{answer}");
    }
    let request = stage.scene.provider.wait_request(0).messages_text();
    assert!(request.contains("@guard_bot write it"), "the model reads the whole text: {request}");
    // The General of this forum takes no messages.
    stage.scene.provider.script_replies([text_reply("nobody reads this")]);
    stage.updates.write(7, &json!({ "id": FORUM, "type": "supergroup", "is_forum": true }), "@guard_bot hello");
    stage.api.wait_request(0, |request| is_to(request, FORUM));
    stage.scene.provider.script_replies([text_reply("well")]);
    stage.updates.write(7, &private(7), "how are you?");
    assert_eq!(stage.sent(7, 0), "well");
    let mut client = GsvPeer::connect_client(&gateway, "tester");
    assert_eq!(client.expect_ok("channel.status", json!({ "channel": "telegram" }))["accounts"][0]["connected"], true);
}
