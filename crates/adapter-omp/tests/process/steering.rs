//! Steering and follow-ups.

use countersign_testkit::process::{
    HostFixture, Latch, frame_shape, message_roles, message_text, of_type,
    provider::{ProviderReply, ReplyPart, bash_part, text_part, text_reply},
};
use serde_json::json;

const BUSY: &str = "Agent is already processing. Use steer() or followUp() to queue messages, or wait for completion.";
const WAITS: &str = "touch on; until test -e off; do sleep 0.01; done; echo first";

#[test]
fn a_steer_skips_the_calls_that_have_not_begun() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    place.provider.script_replies([
        ProviderReply::new(vec![bash_part("k1", WAITS), bash_part("k2", "touch never")]),
        text_reply("turned"),
        text_reply("followed"),
    ]);
    let from = host.send_prompt("go");
    host.wait_event(from, "tool_execution_start");
    host.command_data(json!({ "type": "steer", "message": "turn" }));
    host.command_data(json!({ "type": "follow_up", "message": "then" }));
    assert_eq!(host.command_error(json!({ "type": "prompt", "message": "no" })), BUSY);
    assert_eq!(host.session_state()["queuedMessageCount"], 2);
    place.write_file("off", "");
    let frames = host.wait_settled(from);
    let skipped = &of_type(&frames, "tool_execution_end")[1];
    assert_eq!(
        (&skipped["isError"], message_text(&skipped["result"]).as_str()),
        (&json!(true), "Skipped due to queued user message.")
    );
    assert_eq!(host.message_texts()[4..], ["turn", "turned", "then", "followed"]);
    assert_eq!((of_type(&frames, "agent_end").len(), place.read_file("never")), (1, None));
    assert_eq!(host.session_state()["queuedMessageCount"], 0);
    assert!(place.provider.last_request().is_paired());
}

#[test]
fn in_mode_wait_every_call_runs_before_the_steer() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.command_data(json!({ "type": "set_interrupt_mode", "mode": "wait" }));
    place.provider.script_replies([
        ProviderReply::new(vec![bash_part("k1", WAITS), bash_part("k2", "echo second")]),
        text_reply("turned"),
    ]);
    let from = host.send_prompt("go");
    host.wait_event(from, "tool_execution_start");
    host.command_data(json!({ "type": "steer", "message": "turn" }));
    place.write_file("off", "");
    host.wait_settled(from);
    assert_eq!(host.message_texts()[2..], ["first\n", "second\n", "turn", "turned"]);
}

#[test]
fn a_steer_while_idle_waits_for_the_next_prompt() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.command_data(json!({ "type": "steer", "message": "early" }));
    assert_eq!((&host.session_state()["queuedMessageCount"], place.provider.request_count()), (&json!(1), 0));
    let sequence = frame_shape(&host.run_turn("go"));
    assert!(sequence.starts_with("prompt agent_start turn_start +user -user +user -user +assistant"), "{sequence}");
    assert_eq!(host.message_texts(), ["go", "early", "ok"]);
}

#[test]
fn follow_ups_come_one_a_turn_or_all_at_once() {
    for (mode, want) in [
        ("one-at-a-time", vec!["user", "assistant", "user", "assistant", "user", "assistant"]),
        ("all", vec!["user", "assistant", "user", "user", "assistant"]),
    ] {
        let place = HostFixture::new();
        let mut host = place.start(&[]);
        host.command_data(json!({ "type": "set_follow_up_mode", "mode": mode }));
        let latch = Latch::default();
        place.provider.script_replies([ProviderReply::new(vec![text_part("one"), ReplyPart::Until(latch.clone())])]);
        let from = host.send_prompt("go");
        host.wait_event(from, "message_update");
        host.command_data(json!({ "type": "prompt", "message": "f1", "streamingBehavior": "followUp" }));
        host.command_data(json!({ "type": "follow_up", "message": "f2" }));
        latch.open();
        let frames = host.wait_settled(from);
        let end = of_type(&frames, "agent_end").remove(0);
        assert_eq!(message_roles(end["messages"].as_array().unwrap()), want, "{mode}");
    }
}
