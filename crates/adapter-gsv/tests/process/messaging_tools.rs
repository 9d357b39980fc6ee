//! Tools with which an agent sends messages to chats and other sessions.

use countersign_testkit::process::{
    GatewayFixture,
    gsv::{GsvPeer, write_part},
    provider::{ProviderReply, call_part, text_reply},
};
use serde_json::{Value, json};

use crate::{
    channels::{message, outbound_text, send_inbound},
    chat::talk,
};

/// Starts a gateway whose agents may do everything.
fn open() -> GatewayFixture {
    let scene = GatewayFixture::for_peers();
    scene.write_file("permissions.yaml", "defaults: [ { pattern: '*', action: allow } ]\n");
    scene
}

fn result(scene: &GatewayFixture, request: usize, id: &str) -> Value {
    let text = scene
        .provider
        .wait_request_when(request, |candidate| candidate.call_result(id).is_some())
        .call_result(id)
        .unwrap();
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

#[test]
fn a_message_goes_to_the_last_sender_or_to_a_named_chat() {
    let scene = open();
    let (gateway, mut client) = scene.start_peer();
    let message_to = |id: &str, arguments: Value| ProviderReply::new(vec![call_part(id, "gsv__Message", &arguments)]);
    scene.provider.script_replies([message_to("c0", json!({ "text": "too early" })), text_reply("nobody there")]);
    talk(&mut client, "s", "say something", "r-1");
    let early = result(&scene, 1, "c0");
    assert!(early.as_str().unwrap().contains("nobody has spoken with main"), "{early}");
    let mut wx = GsvPeer::connect_channel(&gateway, "wx", "a1");
    scene.provider.script_replies([text_reply("hi Ana")]);
    send_inbound(&mut wx, message("ana", "m1", "hello"));
    assert_eq!(outbound_text(&mut wx), "hi Ana");
    let elsewhere =
        json!({ "text": "to you all", "channel": "wx", "to": "g1", "peerKind": "group", "replyToId": "m9" });
    scene.provider.script_replies([
        message_to("c1", json!({ "text": "by the way" })),
        message_to("c2", elsewhere),
        message_to("c3", json!({ "text": "x", "channel": "zz", "to": "y" })),
        text_reply("done"),
    ]);
    talk(&mut client, "s", "tell them", "r-2");
    assert_eq!(outbound_text(&mut wx), "by the way");
    let group = wx.wait_event("channel.outbound", &json!({}));
    assert_eq!(group["peer"], json!({ "kind": "group", "id": "g1" }));
    assert_eq!(group["message"], json!({ "text": "to you all", "replyToId": "m9" }));
    let sent = json!({ "ok": true, "channel": "wx", "accountId": "a1", "peer": { "kind": "dm", "id": "ana" } });
    assert_eq!(result(&scene, 4, "c1"), sent);
    assert!(result(&scene, 6, "c3").as_str().unwrap().contains("Unknown channel: zz"));
}

#[test]
fn a_message_to_a_session_returns_its_reply_and_answers_no_gate() {
    let scene = open();
    scene.write_file(
        "permissions.yaml",
        "defaults:\n  - { pattern: 'gsv__WriteFile(*', action: ask }\n  - { pattern: '*', action: allow }\n",
    );
    let (_gateway, mut client) = scene.start_peer();
    let send = |id: &str, key: &str, words: &str, wait: u64| {
        let arguments = json!({ "sessionKey": key, "message": words, "waitSeconds": wait });
        ProviderReply::new(vec![call_part(id, "gsv__SessionSend", &arguments)])
    };
    let list = ProviderReply::new(vec![call_part("c1", "gsv__SessionsList", &json!({ "messageLimit": 1 }))]);
    scene.provider.script_replies([
        send("c0", "other", "what do you know?", 60),
        text_reply("everything"),
        list,
        text_reply("done"),
    ]);
    talk(&mut client, "s", "ask the other one", "r-1");
    let reply = result(&scene, 2, "c0");
    assert_eq!((&reply["status"], &reply["reply"]), (&json!("ok"), &json!("everything")), "{reply}");
    assert!(scene.provider.wait_request(1).messages_text().contains("[s] what do you know?"));
    let listed = result(&scene, 3, "c1");
    assert_eq!(listed["count"], 2, "{listed}");
    assert_eq!(listed["sessions"][0]["messages"].as_array().map(Vec::len), Some(1));
    // A gate waits in the other session: another agent cannot answer it.
    scene.provider.script_replies([
        ProviderReply::new(vec![write_part("c2", "a.txt")]),
        send("c3", "other", "yes", 0),
        send("c4", "s", "me", 5),
        text_reply("done"),
    ]);
    talk(&mut client, "other", "write", "r-2");
    talk(&mut client, "s", "say yes for me", "r-3");
    assert_eq!(result(&scene, 6, "c3")["status"], "accepted");
    assert!(result(&scene, 7, "c4").as_str().unwrap().contains("this is your own session"));
    assert_eq!(scene.pending_gates().len(), 1);
    assert!(!scene.folder.join("agents/main/a.txt").exists());
}
