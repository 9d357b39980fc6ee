//! State after a power cut: sessions, their queues, and their gates.

use countersign_testkit::process::{
    GatewayFixture, GatewayServer, Latch,
    gsv::{GsvPeer, mark_part},
    provider::{ProviderReply, ReplyPart, text_part, text_reply},
};
use serde_json::json;

use crate::chat::{message_text, send, talk};

#[test]
fn what_waits_in_a_session_is_answered_after_a_kill_under_the_names_that_it_had() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut peer) = scene.start_peer();
    let latch = Latch::default();
    let held = || ProviderReply::new(vec![ReplyPart::Until(latch.clone()), text_part("first")]);
    scene.provider.script_replies([held(), held(), text_reply("second"), text_reply("third")]);
    for (run, message) in [("r-1", "one"), ("r-2", "two"), ("r-3", "three")] {
        send(&mut peer, "main", message, run);
    }
    scene.provider.wait_request(0);
    gateway.kill();
    let gateway = scene.start();
    let mut peer = GsvPeer::connect_client(&gateway, "again");
    let stats = peer.expect_ok("session.stats", json!({ "sessionKey": "main" }));
    assert_eq!((&stats["isProcessing"], &stats["queueSize"]), (&json!(true), &json!(2)));
    latch.open();
    for (run, want) in [("r-1", "first"), ("r-2", "second"), ("r-3", "third")] {
        let last = peer.wait_event("chat", &json!({ "runId": run, "state": "final" }));
        assert_eq!((message_text(&last), &last["sessionKey"]), (want, &json!("main")), "{run}");
    }
    scene.verify_log();
}

#[test]
fn a_gate_that_waits_is_answered_after_a_kill_and_runs_once() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut peer) = scene.start_peer();
    scene.create_marks();
    scene.provider.script_replies([ProviderReply::new(vec![mark_part("c0")]), text_reply("done")]);
    talk(&mut peer, "main", "please", "r-1");
    gateway.kill();
    let gateway = GatewayServer::start(&scene);
    let mut peer = GsvPeer::connect_client(&gateway, "again");
    assert_eq!(send(&mut peer, "main", "yes", "r-2"), json!({ "status": "started", "runId": "r-2" }));
    assert_eq!(message_text(&peer.wait_event("chat", &json!({ "runId": "r-2", "state": "final" }))), "done");
    assert_eq!(scene.read_marks(), "marks: once\n");
    scene.verify_log();
}

#[test]
fn a_session_is_as_it_was_after_a_kill() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut peer) = scene.start_peer();
    talk(&mut peer, "book", "hello", "r-1");
    peer.expect_ok("session.reset", json!({ "sessionKey": "book" }));
    talk(&mut peer, "book", "hello again", "r-2");
    let patch = json!({ "sessionKey": "book", "label": "My book", "settings": { "thinkingLevel": "high" } });
    peer.expect_ok("session.patch", patch);
    let look = |peer: &mut GsvPeer| {
        let methods = ["session.get", "session.history", "session.preview"];
        let of = methods.map(|method| peer.expect_ok(method, json!({ "sessionKey": "book" })));
        (of, peer.expect_ok("sessions.list", json!({})))
    };
    let before = look(&mut peer);
    gateway.kill();
    let gateway = scene.start();
    assert_eq!(look(&mut GsvPeer::connect_client(&gateway, "again")), before);
}
