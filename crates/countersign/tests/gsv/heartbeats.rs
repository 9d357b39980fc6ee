//! Heartbeats: when an agent looks after its list, and what is told of it.

use serde_json::{Value, json};

use crate::{
    chat::said,
    gateway::soon,
    peer::Peer,
    provider::{refuse, say},
    scene::Scene,
};

fn state(peer: &mut Peer) -> Value {
    peer.ok("heartbeat.status", json!({}))["agents"]["main"].take()
}

/// The state once heartbeats are planned.
fn planned(peer: &mut Peer) -> Value {
    soon("a plan", || Some(state(peer)).filter(|state| state["nextHeartbeatAt"].is_u64()))
}

fn trigger(peer: &mut Peer) -> Value {
    peer.ok("heartbeat.trigger", json!({}))
}

#[test]
fn whoever_connects_first_starts_the_heartbeats_and_a_kill_does_not_move_them() {
    let scene = Scene::new();
    let (gateway, mut peer) = scene.client();
    let first = planned(&mut peer);
    assert_eq!((&first["agentId"], &first["lastHeartbeatAt"]), (&json!("main"), &Value::Null));
    gateway.kill();
    let gateway = scene.start();
    let mut peer = Peer::client(&gateway, "again");
    assert_eq!(planned(&mut peer)["nextHeartbeatAt"], first["nextHeartbeatAt"]);
    let started = peer.ok("heartbeat.start", json!({}));
    assert_eq!(started["message"], "Heartbeat scheduler started");
    let next = &started["agents"]["main"]["nextHeartbeatAt"];
    assert!(next.as_u64() > first["nextHeartbeatAt"].as_u64(), "{started}");
}

#[test]
fn a_heartbeat_reads_the_list_anew_each_time_and_people_are_told_what_is_news() {
    let scene = Scene::new();
    let (_gateway, mut peer) = scene.client();
    let list = scene.place.folder.join("agents/main/HEARTBEAT.md");
    std::fs::create_dir_all(list.parent().unwrap()).unwrap();
    for (tasks, reply) in [("look at the oven", "The oven is on!"), ("look at the door", "HEARTBEAT_OK")] {
        std::fs::write(&list, tasks).unwrap();
        scene.provider.script([say(reply)]);
        let key = "agent:main:heartbeat:system:internal";
        let want = json!({ "ok": true, "message": format!("Heartbeat triggered for agent main (session: {key})") });
        assert_eq!(trigger(&mut peer), want);
        let last = peer.event("chat", &json!({ "sessionKey": key, "state": "final" }));
        assert_eq!(said(&last), reply);
        let asked = scene.provider.last();
        let message = asked.messages().last().unwrap()["content"].to_string();
        assert!(message.contains(tasks) && message.contains("HEARTBEAT_OK"), "{message}");
        soon("its end", || state(&mut peer)["lastHeartbeatAt"].as_u64());
    }
}

#[test]
fn what_a_heartbeat_cannot_do_is_said() {
    let scene = Scene::new();
    let (_gateway, mut peer) = scene.client();
    let unknown = peer.ok("heartbeat.trigger", json!({ "agentId": "nobody" }));
    let want = json!({ "ok": false, "message": "Heartbeat failed for agent nobody: there is no such agent" });
    assert_eq!(unknown, want);
    scene.provider.script([refuse(400, "no")]);
    assert_eq!(trigger(&mut peer)["ok"], true);
    soon("its end", || state(&mut peer)["lastHeartbeatAt"].as_u64());
    assert_eq!(state(&mut peer)["lastHeartbeatSentAt"], Value::Null);
}
