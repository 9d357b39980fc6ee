//! Many peers at once, and peers that connect late or never send a request.

use countersign_testkit::process::{
    GatewayFixture,
    gsv::{GsvPeer, GsvSocketEvent},
    provider::text_reply,
};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::json;

use crate::chat::{message_text, talk};

/// Largest and smallest number of peers.
const MANY: u64 = 10_000;
const AT_LEAST: u64 = 1_000;
/// Descriptors of the test besides one for each peer.
const OTHERS: u64 = 200;

/// Returns as many as this machine allows a process: the test's own process has one socket each, and so has the gateway.
fn many() -> u64 {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let needed = (MANY + OTHERS).min(hard);
    if soft < needed {
        setrlimit(Resource::RLIMIT_NOFILE, needed, hard).unwrap();
    }
    let count = MANY.min(soft.max(needed) - OTHERS);
    assert!(count >= AT_LEAST, "a process may have {hard} descriptors: too few for this test");
    count
}

#[test]
fn one_event_reaches_everybody_who_sits_there_and_nobody_is_in_the_way() {
    let count = many();
    let scene = GatewayFixture::for_peers();
    let gateway = scene.start();
    let mut crowd: Vec<GsvPeer> =
        (0..count).map(|number| GsvPeer::connect_client(&gateway, &format!("idle-{number}"))).collect();
    let mut speaker = GsvPeer::connect_client(&gateway, "speaker");
    scene.provider.script_replies([text_reply("hello everybody")]);
    assert_eq!(message_text(&talk(&mut speaker, "s", "say hello", "r-1")), "hello everybody");
    // None of them has read anything since it connected.
    for peer in &mut crowd {
        let event = peer.wait_event("chat", &json!({ "runId": "r-1" }));
        assert_eq!(
            (&event["state"], &event["sessionKey"], message_text(&event)),
            (&json!("final"), &json!("s"), "hello everybody")
        );
    }
    // A late client gets the events from then on.
    let mut late = GsvPeer::connect_client(&gateway, "late");
    scene.provider.script_replies([text_reply("and again")]);
    talk(&mut speaker, "s", "say it again", "r-2");
    assert_eq!(message_text(&late.wait_event("chat", &json!({}))), "and again");
    drop(crowd);
    assert_eq!(speaker.expect_ok("sessions.list", json!({}))["count"], 1);
}

#[test]
fn a_socket_without_a_connect_is_closed() {
    let scene = GatewayFixture::for_peers();
    let gateway = scene.start();
    let mut silent = GsvPeer::open_connection(&gateway);
    assert_eq!(silent.read_frame(), GsvSocketEvent::Closed(1008, "no connect in time".to_owned()));
}
