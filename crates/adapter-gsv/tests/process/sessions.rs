//! Sessions: settings, renewals and archives.

use std::{fs::File, io::BufRead as _};

use countersign_testkit::process::{
    GatewayFixture, Latch,
    gsv::{GsvPeer, error_body},
    provider::{ProviderReply, ReplyPart, text_part, text_reply},
};
use flate2::read::GzDecoder;
use serde_json::{Value, json};

use crate::chat::{message_text, send, talk};

fn of(key: &str) -> Value {
    json!({ "sessionKey": key })
}

fn session(peer: &mut GsvPeer, key: &str) -> Value {
    peer.expect_ok("session.get", of(key))
}

/// Returns the messages in an archive.
fn archive(place: &GatewayFixture, name: &str) -> Vec<Value> {
    let file = File::open(place.data_dir().join("objects").join(name)).unwrap();
    let lines = std::io::BufReader::new(GzDecoder::new(file)).lines();
    lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
}

#[test]
fn every_method_about_a_session_wants_its_key() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    for method in ["get", "stats", "reset", "patch", "compact", "history", "preview"] {
        let method = format!("session.{method}");
        for params in [json!({}), of("")] {
            assert_eq!(peer.expect_error(&method, params), error_body(400, "sessionKey required"), "{method}");
        }
        let long = of(&"k".repeat(600));
        assert_eq!(peer.expect_error(&method, long)["code"], 400, "{method}");
    }
}

#[test]
fn an_unused_session_is_described_by_its_defaults_and_not_listed() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let details = session(&mut peer, "never");
    assert_eq!(
        (&details["sessionKey"], &details["messageCount"], &details["tokens"], &details["resetPolicy"]),
        (
            &json!("never"),
            &json!(0),
            &json!({ "input": 0, "output": 0, "total": 0 }),
            &json!({ "mode": "daily", "atHour": 4 })
        )
    );
    assert_eq!(peer.expect_ok("session.preview", of("never"))["messages"], json!([]));
    assert_eq!(peer.expect_ok("sessions.list", json!({})), json!({ "sessions": [], "count": 0 }));
}

#[test]
fn a_patch_is_merged_by_member_and_reaches_the_model() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let mut patch = |patch: Value| {
        let mut params = of("book");
        params.as_object_mut().unwrap().extend(patch.as_object().unwrap().clone());
        assert_eq!(peer.expect_ok("session.patch", params), json!({ "ok": true }));
        session(&mut peer, "book")
    };
    patch(json!({ "settings": { "model": { "id": "small-2" }, "maxTokens": 500 }, "label": "My book" }));
    let details = patch(json!({ "settings": { "systemPrompt": "Be a pirate." }, "resetPolicy": { "idleMinutes": 9 } }));
    assert_eq!(details["label"], "My book");
    assert_eq!(
        details["settings"],
        json!({ "model": { "provider": "local", "id": "small-2" }, "systemPrompt": "Be a pirate.", "maxTokens": 500 })
    );
    assert_eq!(details["resetPolicy"], json!({ "mode": "daily", "atHour": 4 }));
    let details = patch(json!({ "resetPolicy": { "mode": "idle" } }));
    assert_eq!(details["resetPolicy"], json!({ "mode": "idle", "idleMinutes": 9 }));
    talk(&mut peer, "book", "ahoy", "r-1");
    let request = scene.provider.wait_request(0);
    assert_eq!(request.body["model"], "small-2");
    assert!(request.messages_text().contains("Be a pirate."));
    assert!(request.body["max_tokens"] == 500 || request.body["max_completion_tokens"] == 500, "{}", request.body);
    let unset = json!({ "sessionKey": "book", "label": null, "settings": { "model": null, "maxTokens": null } });
    peer.expect_ok("session.patch", unset);
    let details = session(&mut peer, "book");
    assert_eq!((&details["label"], &details["settings"]), (&Value::Null, &json!({ "systemPrompt": "Be a pirate." })));
    let wrong = json!({ "sessionKey": "book", "resetPolicy": { "atHour": 24 } });
    assert_eq!(peer.expect_error("session.patch", wrong), error_body(400, "resetPolicy.atHour must be from 0 to 23"));
}

#[test]
fn the_last_active_session_is_listed_first_under_its_label() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    for (run, key) in [("1", "one"), ("2", "two"), ("3", "agent:Main:Discord:Group:Room 9!"), ("4", "one")] {
        talk(&mut peer, key, "hi", run);
    }
    peer.expect_ok("session.patch", json!({ "sessionKey": "two", "label": "Second" }));
    let listed = peer.expect_ok("sessions.list", json!({}));
    let keys: Vec<&str> =
        listed["sessions"].as_array().unwrap().iter().map(|row| row["sessionKey"].as_str().unwrap()).collect();
    assert_eq!(keys, ["one", "agent:main:discord:group:room_9_", "two"]);
    assert_eq!((&listed["count"], &listed["sessions"][2]["label"]), (&json!(3), &json!("Second")));
    let page = peer.expect_ok("sessions.list", json!({ "offset": 1, "limit": 1 }));
    assert_eq!((page["sessions"].as_array().unwrap().len(), &page["count"]), (1, &json!(3)));
    assert_eq!(page["sessions"][0]["sessionKey"], "agent:main:discord:group:room_9_");
}

#[test]
fn a_reset_archives_the_conversation_and_keeps_the_key() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    peer.expect_ok("config.set", json!({ "path": "compaction.extractMemories", "value": false }));
    for number in 0..3 {
        talk(&mut peer, "book", &format!("page {number} ü"), &format!("r{number}"));
    }
    let old = session(&mut peer, "book")["sessionId"].as_str().unwrap().to_owned();
    let compacted = peer.expect_ok("session.compact", json!({ "sessionKey": "book", "keepMessages": 2 }));
    assert_eq!((&compacted["trimmedMessages"], &compacted["keptMessages"]), (&json!(4), &json!(2)));
    let part = compacted["archivedTo"].as_str().unwrap();
    assert!(part.starts_with(&format!("agents/main/sessions/{old}-part")) && part.ends_with(".jsonl.gz"), "{part}");
    let head = archive(&scene, part);
    assert_eq!((head.len(), &head[0]["content"]), (4, &json!("page 0 ü")));
    let nothing = peer.expect_ok("session.compact", of("book"));
    assert_eq!(nothing, json!({ "ok": true, "trimmedMessages": 0, "keptMessages": 2 }));
    let wrong = json!({ "sessionKey": "book", "keepMessages": 0 });
    assert_eq!(peer.expect_error("session.compact", wrong), error_body(400, "keepMessages must be a positive number"));

    let reset = peer.expect_ok("session.reset", of("book"));
    let new = reset["newSessionId"].as_str().unwrap().to_owned();
    assert_eq!(
        reset,
        json!({
            "ok": true, "sessionKey": "book", "oldSessionId": old, "newSessionId": new, "archivedMessages": 2,
            "archivedTo": format!("agents/main/sessions/{old}.jsonl.gz"),
            "tokensCleared": { "input": 300, "output": 150, "total": 450 }, "mediaDeleted": 0,
        })
    );
    let tail = archive(&scene, &format!("agents/main/sessions/{old}.jsonl.gz"));
    assert_eq!((tail.len(), &tail[0]["content"]), (2, &json!("page 2 ü")));
    let details = session(&mut peer, "book");
    assert_eq!((&details["sessionId"], &details["messageCount"]), (&json!(new), &json!(0)));
    assert_eq!(details["tokens"], json!({ "input": 0, "output": 0, "total": 0 }));
    let history = peer.expect_ok("session.history", of("book"));
    assert_eq!(history, json!({ "sessionKey": "book", "currentSessionId": new, "previousSessionIds": [old] }));
    let empty = peer.expect_ok("session.reset", of("book"));
    assert_eq!((&empty["archivedMessages"], &empty["archivedTo"]), (&json!(0), &Value::Null));
    talk(&mut peer, "book", "fresh", "r9");
    assert!(
        !scene.provider.last_request().messages_text().contains("page 2"),
        "{}",
        scene.provider.last_request().messages_text()
    );
}

#[test]
fn a_reset_ends_what_works_and_what_waits() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    peer.expect_ok("config.set", json!({ "path": "compaction.extractMemories", "value": false }));
    let latch = Latch::default();
    scene.provider.script_replies([
        ProviderReply::new(vec![ReplyPart::Until(latch.clone()), text_part("from the grave")]),
        text_reply("fresh"),
    ]);
    send(&mut peer, "z", "one", "z1");
    send(&mut peer, "z", "two", "z2");
    scene.provider.wait_request(0);
    let reset = peer.expect_ok("session.reset", of("z"));
    assert!(reset["archivedMessages"].as_u64().is_some_and(|count| count > 0), "{reset}");
    latch.open();
    for run in ["z1", "z2"] {
        assert_eq!(peer.wait_event("chat", &json!({ "runId": run }))["error"], "Run cancelled by user", "{run}");
    }
    assert_eq!(message_text(&talk(&mut peer, "z", "hello", "z3")), "fresh");
    assert_eq!(session(&mut peer, "z")["messageCount"], 2);
}

#[test]
fn a_session_that_is_due_is_reset_by_the_next_message() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    peer.expect_ok(
        "session.patch",
        json!({ "sessionKey": "nap", "resetPolicy": { "mode": "idle", "idleMinutes": 90 } }),
    );
    talk(&mut peer, "nap", "before", "n1");
    talk(&mut peer, "nap", "still here", "n2");
    let before = session(&mut peer, "nap");
    assert_eq!(before["messageCount"], 4);
    peer.expect_ok("session.patch", json!({ "sessionKey": "nap", "resetPolicy": { "idleMinutes": 0 } }));
    talk(&mut peer, "nap", "after the nap", "n3");
    let details = session(&mut peer, "nap");
    assert_eq!((&details["messageCount"], &details["previousSessionIds"]), (&json!(2), &json!([before["sessionId"]])));
    let old = before["sessionId"].as_str().unwrap();
    assert_eq!(archive(&scene, &format!("agents/main/sessions/{old}.jsonl.gz")).len(), 4);
    peer.expect_ok("session.patch", json!({ "sessionKey": "nap", "resetPolicy": { "mode": "manual" } }));
    talk(&mut peer, "nap", "calm", "n4");
    assert_eq!(session(&mut peer, "nap")["messageCount"], 4);
}
