//! Attachments of users, up to a limit, and files that agents send.

use std::fs;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_testkit::process::{
    GatewayFixture, GatewayOptions, eventually,
    gsv::{GsvPeer, error_body},
    provider::{ProviderReply, call_part, text_reply},
    server::FakeServer,
};
use serde_json::{Value, json};

use crate::{
    channels::{message, send_inbound},
    chat::talk,
    webhook,
};

/// Size beyond the limit, in bytes.
const TOO_LARGE: usize = 26 << 20;
/// First bytes of every file in these tests: no text.
const BEGIN: &[u8] = b"\x89PNG\xff\0";

/// Starts a gateway whose agents may do everything.
fn open() -> GatewayFixture {
    GatewayOptions::for_peers().with_rules("defaults: [ { pattern: '*', action: allow } ]\n").create()
}

fn put(scene: &GatewayFixture, name: &str, bytes: &[u8]) {
    let path = scene.folder.join("agents/main").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Has the agent send a file; returns the result of its call.
fn send(scene: &GatewayFixture, client: &mut GsvPeer, run: &str, arguments: &Value) -> Value {
    scene
        .provider
        .script_replies([ProviderReply::new(vec![call_part(run, "gsv__SendFile", arguments)]), text_reply("done")]);
    let before = scene.provider.request_count();
    talk(client, "s", "send it", run);
    let text = scene.provider.wait_request(before + 1).call_result(run).unwrap();
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

/// Counts the files in the store that wait with their messages.
fn waiting(scene: &GatewayFixture) -> usize {
    fs::read_dir(scene.data_dir().join("objects/letters")).map_or(0, Iterator::count)
}

/// Returns media that are too large, and the error for them.
fn too_large() -> (Value, Value) {
    let data = "eHh4".repeat(TOO_LARGE.div_ceil(3));
    let media = json!([{ "type": "image", "mimeType": "image/png", "data": data }]);
    (media, error_body(400, "message.media[0] has 27262977 bytes, at most 26214400 are taken"))
}

#[test]
fn media_that_are_too_large_are_refused_with_their_size_as_a_frame() {
    let scene = GatewayFixture::for_peers();
    let (gateway, _client) = scene.start_peer();
    let mut wx = GsvPeer::connect_channel(&gateway, "wx", "a1");
    let (media, refused) = too_large();
    let mut inbound = message("ana", "m1", "look");
    inbound["message"]["media"] = media;
    assert_eq!(wx.expect_error("channel.inbound", inbound), refused);
    // None of it is stored, and its sender may continue.
    assert!(!scene.data_dir().join("objects/media").exists());
    assert_eq!(send_inbound(&mut wx, message("ana", "m1", "a word"))["status"], "started");
    assert_eq!(scene.provider.wait_request(0).messages().len(), 2);
}

#[test]
fn media_that_are_too_large_are_refused_with_their_size_as_a_post() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut client) = scene.start_peer();
    webhook::set_up(&mut client, None);
    let (media, refused) = too_large();
    let mut inbound = webhook::hello("look");
    inbound["message"]["media"] = media;
    let posted = webhook::post(&gateway.address, "/channels/webhook", "m1", 0, &inbound, |it| it);
    assert_eq!((posted.status, posted.json()), (400, refused));
    assert!(!scene.data_dir().join("objects/media").exists());
    assert_eq!(scene.provider.request_count(), 0);
}

#[test]
fn a_file_that_an_agent_sends_is_owed_to_its_chat_as_it_was_through_a_kill() {
    let scene = open();
    let (gateway, mut client) = scene.start_peer();
    let mut wx = GsvPeer::connect_channel(&gateway, "wx", "a1");
    send_inbound(&mut wx, message("ana", "m1", "hello"));
    wx.wait_event("channel.outbound", &json!({}));
    drop(wx);
    put(&scene, "charts/week.png", BEGIN);
    let result = send(&scene, &mut client, "c1", &json!({ "path": "/charts/week.png", "text": "this week" }));
    let peer = json!({ "kind": "dm", "id": "ana" });
    assert_eq!(result, json!({ "ok": true, "channel": "wx", "accountId": "a1", "peer": peer }));
    put(&scene, "charts/week.png", b"another one");
    gateway.kill();
    let gateway = scene.start();
    let mut wx = GsvPeer::connect_channel(&gateway, "wx", "a1");
    let url = format!("data:image/png;name=week.png;base64,{}", STANDARD.encode(BEGIN));
    // An earlier message may come again: its connection closed before the confirmation.
    let outbound = wx.wait_event("channel.outbound", &json!({ "sessionKey": "s" }));
    assert_eq!(outbound["peer"], peer);
    assert_eq!(outbound["message"], json!({ "text": "this week", "mediaUrl": url }));
    // The connection confirms the message: it is stored no longer than that.
    wx.expect_ok("channel.inbound", message("ana", "m2", "thanks"));
    wx.wait_event("channel.outbound", &json!({}));
    eventually("the end of the letter", || (waiting(&scene) == 0).then_some(()));
    scene.verify_log();
}

#[test]
fn a_file_goes_to_a_chat_without_words_and_as_a_signed_post() {
    let scene = open();
    let (_gateway, mut client) = scene.start_peer();
    let other = FakeServer::start(|_| (204, String::new()));
    webhook::set_up(&mut client, Some(&other.url));
    client.expect_ok("channel.start", json!({ "channel": "webhook" }));
    put(&scene, "a.csv", b"1,2\n");
    let place = json!({ "path": "a.csv", "channel": "webhook", "to": "ana" });
    assert_eq!(send(&scene, &mut client, "c1", &place)["ok"], true);
    let posted = other.wait_request(0, |_| true);
    assert_eq!(posted.body["message"], json!({ "text": "", "mediaUrl": "data:text/csv;name=a.csv;base64,MSwyCg==" }));
}

#[test]
fn a_file_that_cannot_be_sent_is_reported_to_the_agent_and_not_kept() {
    let scene = open();
    let (_gateway, mut client) = scene.start_peer();
    put(&scene, "a.csv", b"1,2\n");
    put(&scene, "empty", b"");
    put(&scene, "huge", &vec![0; TOO_LARGE]);
    std::os::unix::fs::symlink("/etc/hostname", scene.folder.join("agents/main/leak")).unwrap();
    for (number, (arguments, want)) in [
        (json!({ "path": "nope" }), "File not found: nope"),
        (json!({ "path": "empty" }), "empty is empty"),
        (json!({ "path": "huge" }), "huge has 27262976 bytes, at most 26214400 are taken"),
        (json!({ "path": "leak" }), "Path traversal not allowed"),
        (json!({ "path": "../../config.yaml" }), "Path traversal not allowed"),
        (json!({ "path": "a.csv", "channel": "wx" }), "channel and to go together"),
        (json!({ "path": "a.csv" }), "nobody has spoken with main"),
        (json!({ "path": "a.csv", "channel": "wx", "to": "ana" }), "Unknown channel: wx"),
    ]
    .into_iter()
    .enumerate()
    {
        let result = send(&scene, &mut client, &format!("c{number}"), &arguments);
        assert!(result.as_str().is_some_and(|text| text.contains(want)), "{arguments}: {result}");
    }
    assert_eq!(waiting(&scene), 0);
}

#[test]
fn a_rule_about_words_lets_no_file_go() {
    let scene = GatewayOptions::for_peers().with_rules(
        "defaults:\n  - { pattern: 'gsv__Message(*', action: allow }\n  - { pattern: 'gsv__SendFile(*, secret*', action: deny }\n",
    ).create();
    let (gateway, mut client) = scene.start_peer();
    let mut wx = GsvPeer::connect_channel(&gateway, "wx", "a1");
    send_inbound(&mut wx, message("ana", "m1", "hello"));
    wx.wait_event("channel.outbound", &json!({}));
    put(&scene, "secret.txt", b"s");
    put(&scene, "a.txt", b"a");
    let denied = send(&scene, &mut client, "c1", &json!({ "path": "secret.txt" }));
    assert!(denied.as_str().is_some_and(|text| text.starts_with("Denied by policy")), "{denied}");
    let call = call_part("c2", "gsv__SendFile", &json!({ "path": "a.txt", "text": "here" }));
    scene.provider.script_replies([ProviderReply::new(vec![call]), text_reply("done")]);
    talk(&mut client, "s", "send it", "r-2");
    let gate = scene.wait_gate();
    scene.allow_gate(&gate);
    let url = wx.wait_event("channel.outbound", &json!({ "sessionKey": "s" }))["message"]["mediaUrl"].take();
    assert_eq!(url, "data:text/plain;name=a.txt;base64,YQ==");
}
