//! Heartbeats: their times and their reports.

use std::time::{SystemTime, UNIX_EPOCH};

use countersign_testkit::process::{
    GatewayFixture, Latch, eventually,
    gsv::GsvPeer,
    provider::{ProviderReply, ReplyPart, error_reply, text_part, text_reply},
    server::FakeServer,
};
use serde_json::{Value, json};

use crate::{
    chat::{message_text, send},
    webhook,
};

fn state(peer: &mut GsvPeer) -> Value {
    peer.expect_ok("heartbeat.status", json!({}))["agents"]["main"].take()
}

/// Returns the state once heartbeats are planned.
fn planned(peer: &mut GsvPeer) -> Value {
    eventually("a plan", || Some(state(peer)).filter(|state| state["nextHeartbeatAt"].is_u64()))
}

fn trigger(peer: &mut GsvPeer) -> Value {
    peer.expect_ok("heartbeat.trigger", json!({}))
}

#[test]
fn the_first_client_starts_the_heartbeats_and_a_kill_does_not_move_them() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut peer) = scene.start_peer();
    let first = planned(&mut peer);
    assert_eq!((&first["agentId"], &first["lastHeartbeatAt"]), (&json!("main"), &Value::Null));
    gateway.kill();
    let gateway = scene.start();
    let mut peer = GsvPeer::connect_client(&gateway, "again");
    assert_eq!(planned(&mut peer)["nextHeartbeatAt"], first["nextHeartbeatAt"]);
    let started = peer.expect_ok("heartbeat.start", json!({}));
    assert_eq!(started["message"], "Heartbeat scheduler started");
    let next = &started["agents"]["main"]["nextHeartbeatAt"];
    assert!(next.as_u64() > first["nextHeartbeatAt"].as_u64(), "{started}");
}

#[test]
fn a_heartbeat_reads_the_list_each_time_and_users_get_only_news() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let list = scene.folder.join("agents/main/HEARTBEAT.md");
    std::fs::create_dir_all(list.parent().unwrap()).unwrap();
    for (tasks, reply) in [("look at the oven", "The oven is on!"), ("look at the door", "HEARTBEAT_OK")] {
        std::fs::write(&list, tasks).unwrap();
        scene.provider.script_replies([text_reply(reply)]);
        let key = "agent:main:heartbeat:system:internal";
        let want = json!({ "ok": true, "message": format!("Heartbeat triggered for agent main (session: {key})") });
        assert_eq!(trigger(&mut peer), want);
        let last = peer.wait_event("chat", &json!({ "sessionKey": key, "state": "final" }));
        assert_eq!(message_text(&last), reply);
        let request = scene.provider.last_request();
        let message = request.messages().last().unwrap()["content"].to_string();
        assert!(message.contains(tasks) && message.contains("HEARTBEAT_OK"), "{message}");
        eventually("its end", || state(&mut peer)["lastHeartbeatAt"].as_u64());
    }
}

#[test]
fn invalid_heartbeats_are_refused_with_a_reason() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let unknown = peer.expect_ok("heartbeat.trigger", json!({ "agentId": "nobody" }));
    let want = json!({ "ok": false, "message": "Heartbeat failed for agent nobody: there is no such agent" });
    assert_eq!(unknown, want);
    scene.provider.script_replies([error_reply(400, "no")]);
    assert_eq!(trigger(&mut peer)["ok"], true);
    eventually("its end", || state(&mut peer)["lastHeartbeatAt"].as_u64());
    assert_eq!(state(&mut peer)["lastHeartbeatSentAt"], Value::Null);
}

#[test]
fn a_heartbeat_of_a_removed_agent_is_refused() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut peer) = scene.start_peer();
    for _ in 0..20 {
        set(&mut peer, "agents.list", json!([{ "id": "main" }, { "id": "x" }]));
        let mut other = GsvPeer::connect_client(&gateway, "other");
        let request_id = other.send_request("heartbeat.trigger", json!({ "agentId": "x" }));
        set(&mut peer, "agents.list", json!([{ "id": "main" }]));
        let message = other.wait_response(&request_id)["payload"]["message"].take();
        assert!(message.as_str().is_some_and(|text| text.starts_with("Heartbeat ")), "{message}");
    }
}

fn set(peer: &mut GsvPeer, path: &str, value: impl Into<Value>) {
    peer.expect_ok("config.set", json!({ "path": path, "value": value.into() }));
}

/// Waits until heartbeats were due twice.
fn passes(peer: &mut GsvPeer) {
    for _ in 0..2 {
        let before = planned(peer)["nextHeartbeatAt"].clone();
        eventually("the next", || (planned(peer)["nextHeartbeatAt"] != before).then_some(()));
    }
}

#[test]
fn there_is_no_heartbeat_without_a_list_at_night_or_while_somebody_talks() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let list = scene.folder.join("agents/main/HEARTBEAT.md");
    std::fs::create_dir_all(list.parent().unwrap()).unwrap();
    set(&mut peer, "agents.defaultHeartbeat.every", "1s");
    passes(&mut peer);
    std::fs::write(&list, "# Tasks\n\n<!-- nothing yet -->\n- [ ]\n---\n").unwrap();
    passes(&mut peer);
    assert_eq!((scene.provider.request_count(), &state(&mut peer)["lastHeartbeatAt"]), (0, &Value::Null));
    // Only hours that are far from now.
    let minute = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 60 % 1440;
    let clock = |minute: u64| format!("{:02}:{:02}", minute / 60 % 24, minute % 60);
    let hours = |start: u64, end: u64| json!({ "start": clock(minute + start), "end": clock(minute + end) });
    set(&mut peer, "agents.defaultHeartbeat.activeHours", hours(600, 660));
    std::fs::write(&list, "look at the oven").unwrap();
    passes(&mut peer);
    assert_eq!(scene.provider.request_count(), 0);
    let latch = Latch::default();
    let held = ProviderReply::new(vec![ReplyPart::Until(latch.clone()), text_part("talked")]);
    scene.provider.script_replies([held].into_iter().chain((0..100).map(|_| text_reply("HEARTBEAT_OK"))));
    send(&mut peer, "main", "hello", "r-1");
    scene.provider.wait_request(0);
    set(&mut peer, "agents.defaultHeartbeat.activeHours", hours(1440 - 60, 60));
    passes(&mut peer);
    assert_eq!(scene.provider.request_count(), 1);
    latch.open();
    assert!(scene.provider.wait_request(1).messages_text().contains("look at the oven"));
}

#[test]
fn an_alert_reaches_the_chat_however_short_and_the_same_one_does_so_once() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut peer) = scene.start_peer();
    let other = FakeServer::start(|_| (204, String::new()));
    webhook::set_up(&mut peer, Some(&other.url));
    let list = scene.folder.join("agents/main/HEARTBEAT.md");
    std::fs::create_dir_all(list.parent().unwrap()).unwrap();
    std::fs::write(&list, "look at the oven").unwrap();
    scene.provider.script_replies([text_reply("hello")]);
    webhook::post(&gateway.address, "/channels/webhook", "m1", 0, &webhook::hello("hi"), |it| it);
    let posted_text = |number: usize| other.wait_request(number, |_| true).body["message"]["text"].clone();
    assert_eq!(posted_text(0), "hello");
    let mut number = 0;
    for (reply, want) in [
        (text_reply("HEARTBEAT_OK"), None),
        (text_reply("Fire!"), Some("Fire!")),
        (text_reply("**HEARTBEAT_OK** - all quiet."), None),
        (text_reply("Fire!"), None),
        (text_reply("HEARTBEAT_OK, but the oven is on"), Some("but the oven is on")),
        (error_reply(400, "no"), Some("The heartbeat failed: LLM error: ")),
        (error_reply(400, "no"), None),
        (text_reply("No fire. HEARTBEAT_OK"), Some("No fire")),
    ] {
        scene.provider.script_replies([reply]);
        let before = state(&mut peer)["lastHeartbeatAt"].clone();
        assert_eq!(trigger(&mut peer)["ok"], true);
        eventually("its end", || (state(&mut peer)["lastHeartbeatAt"] != before).then_some(()));
        if let Some(want) = want {
            number += 1;
            let text = posted_text(number);
            assert!(text.as_str().unwrap().starts_with(want), "{text}");
        }
    }
    let last = state(&mut peer);
    assert_eq!((&last["lastHeartbeatText"], other.request_count(|_| true)), (&posted_text(number), number + 1));
}

#[test]
fn the_runs_of_a_heartbeat_that_comes_back_are_not_those_of_before() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let list = scene.folder.join("agents/night/HEARTBEAT.md");
    std::fs::create_dir_all(list.parent().unwrap()).unwrap();
    std::fs::write(&list, "look at the door").unwrap();
    let mut runs = Vec::new();
    for _ in 0..2 {
        set(&mut peer, "agents.list", json!([{ "id": "night" }]));
        scene.provider.script_replies([text_reply("The door is open.")]);
        let response = peer.expect_ok("heartbeat.trigger", json!({ "agentId": "night" }));
        assert_eq!(response["ok"], true, "{response}");
        let key = "agent:night:heartbeat:system:internal";
        let last = peer.wait_event("chat", &json!({ "sessionKey": key, "state": "final" }));
        runs.push(last["runId"].as_str().unwrap().to_owned());
        let night = |peer: &mut GsvPeer| peer.expect_ok("heartbeat.status", json!({}))["agents"]["night"].take();
        eventually("its end", || night(&mut peer)["lastHeartbeatAt"].as_u64());
        set(&mut peer, "agents.list", json!([]));
        eventually("nobody", || night(&mut peer).is_null().then_some(()));
    }
    assert!(runs.iter().all(|run| run.starts_with("heartbeat:night-")), "{runs:?}");
    assert_ne!(runs[0], runs[1]);
}
