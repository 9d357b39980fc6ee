//! Limits of one message.

use countersign_testkit::process::{
    HostFixture, Latch, of_type,
    provider::{ProviderReply, ReplyPart, text_part},
};
use serde_json::json;

const TEXT: usize = 16 << 20;

#[test]
fn a_text_beyond_the_limit_is_refused_with_both_numbers_and_stops_nothing() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let latch = Latch::default();
    place.provider.script_replies([ProviderReply::new(vec![ReplyPart::Until(latch.clone()), text_part("one")])]);
    let from = host.send_prompt("go");
    place.provider.wait_request(0);
    let long = "x".repeat(TEXT + 1);
    for command in ["prompt", "steer", "follow_up", "abort_and_prompt"] {
        let refused = host.command_error(json!({ "type": command, "message": long }));
        assert_eq!(refused, "Message too long: 16777217 bytes of text (limit 16777216)", "{command}");
    }
    assert_eq!(host.session_state()["queuedMessageCount"], 0);
    latch.open();
    let frames = host.wait_settled(from);
    assert_eq!(of_type(&frames, "message_end").last().unwrap()["message"]["stopReason"], "stop");
    assert_eq!(place.provider.request_count(), 1);
    host.close_cleanly();
}
