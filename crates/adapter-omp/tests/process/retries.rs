//! Providers that fail, and what is tried again.

use countersign_testkit::process::{
    HostFixture, frame_shape, lines_with, message_text as text_of, of_type,
    provider::{ProviderReply, ReplyPart, bash_part, error_reply, text_part, text_reply},
};
use serde_json::json;

/// Without silent attempts: the others are reported to the host.
const QUICK: &str = "retry: { baseDelayMs: 20, provider: { maxRetries: 0 } }\n";
const SLOW: &str = "retry: { baseDelayMs: 600000, provider: { maxRetries: 0 } }\n";
const FAILED: &str = "+assistant -assistant turn_end agent_end";
const AGAIN: &str = "auto_retry_start agent_start turn_start";

#[test]
fn a_failure_is_retried_and_the_success_is_sent_before_the_turn_ends() {
    let place = HostFixture::with_config(QUICK);
    let mut host = place.start(&[]);
    place.provider.script_replies([error_reply(503, "overloaded"), text_reply("fine")]);
    let frames = host.run_turn("go");
    let fine = "+assistant text_start text_delta text_end -assistant auto_retry_end turn_end agent_end";
    assert_eq!(frame_shape(&frames), format!("prompt agent_start turn_start +user -user {FAILED} {AGAIN} {fine}"));
    let start = of_type(&frames, "auto_retry_start").remove(0);
    assert_eq!((&start["attempt"], &start["maxAttempts"], &start["delayMs"]), (&json!(1), &json!(3), &json!(20)));
    assert_eq!(
        of_type(&frames, "auto_retry_end"),
        [json!({ "type": "auto_retry_end", "success": true, "attempt": 1 })]
    );
    assert_eq!(host.message_texts(), ["go", "fine"]);
    let file = host.session_file();
    let lines = lines_with(&file, "fine");
    assert_eq!(lines.iter().filter(|line| line["message"]["role"] == "assistant").count(), 2);
}

#[test]
fn a_failure_before_the_answer_is_tried_again_in_silence() {
    for (case, reply) in [
        ("429", error_reply(429, "slow down").with_header("retry-after", "1")),
        ("500", error_reply(500, "internal error")),
        ("503", error_reply(503, "overloaded")),
    ] {
        let place = HostFixture::new();
        let mut host = place.start(&[]);
        // Retry settings of hosts do not reach the client of the provider.
        host.command_data(json!({ "type": "set_auto_retry", "enabled": false }));
        place.provider.script_replies([reply, text_reply("Recovered")]);
        let frames = host.run_turn("go");
        let assistant_frames = "+assistant text_start text_delta text_end -assistant turn_end agent_end";
        assert_eq!(
            frame_shape(&frames),
            format!("prompt agent_start turn_start +user -user {assistant_frames}"),
            "{case}"
        );
        assert_eq!(
            (host.message_texts(), place.provider.request_count()),
            (vec!["go".to_owned(), "Recovered".to_owned()], 2),
            "{case}"
        );
        host.close_cleanly();
    }
}

#[test]
fn an_abort_ends_a_silent_wait() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    place.provider.script_replies([error_reply(429, "slow down").with_header("retry-after", "15")]);
    let from = host.send_prompt("go");
    place.provider.wait_request(0);
    host.command_data(json!({ "type": "abort_retry" }));
    assert_eq!(host.session_state()["isStreaming"], true, "it is no wait that the host was told of");
    host.command_data(json!({ "type": "abort" }));
    let frames = host.wait_settled(from);
    assert_eq!(of_type(&frames, "auto_retry_start").len(), 0);
    assert_eq!(of_type(&frames, "turn_end")[0]["message"]["stopReason"], "aborted");
    host.run_turn("again");
    assert_eq!(host.message_texts().last().unwrap(), "ok");
}

#[test]
fn the_end_of_a_long_wait_is_shown_with_its_zone() {
    let quota = r#"{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached","resets_in_seconds":7200}}"#;
    for (config, is_waited) in [("retry: { maxDelayMs: 0 }\n", true), ("retry: { maxDelayMs: 60000 }\n", false)] {
        let place = HostFixture::with_config(config);
        let mut host = place.start(&[]);
        place.provider.script_replies([ProviderReply { body: Some(quota.to_owned()), ..error_reply(429, "") }]);
        let from = host.send_prompt("go");
        let failed = host.wait_event(from, "turn_end")["message"]["errorMessage"].as_str().unwrap().to_owned();
        assert!(failed.contains("(try again after 20") && failed.contains(" UTC"), "{failed}");
        assert_eq!(failed.contains("the longest wait that is set is 60 s"), !is_waited, "{failed}");
        if is_waited {
            let start = host.wait_event(from, "auto_retry_start");
            assert_eq!((&start["delayMs"], start["errorMessage"].as_str()), (&json!(7_200_000), Some(&*failed)));
        } else {
            assert_eq!(of_type(&host.wait_settled(from), "auto_retry_start").len(), 0);
        }
    }
}

#[test]
fn three_attempts_later_it_gives_up_and_the_session_goes_on() {
    let place = HostFixture::with_config(QUICK);
    let mut host = place.start(&[]);
    place.provider.script_replies((0..4).map(|_| error_reply(500, "internal error")));
    let frames = host.run_turn("go");
    let delays: Vec<_> = of_type(&frames, "auto_retry_start").iter().map(|start| start["delayMs"].clone()).collect();
    assert_eq!(delays, [20, 40, 80]);
    assert!(frame_shape(&frames).ends_with(&format!("{AGAIN} {FAILED} auto_retry_end")), "{}", frame_shape(&frames));
    let end = of_type(&frames, "auto_retry_end").remove(0);
    assert_eq!((&end["success"], &end["attempt"]), (&json!(false), &json!(3)));
    assert!(end["finalError"].as_str().unwrap().contains("internal error"));
    host.run_turn("again");
    assert_eq!(host.message_texts().last().unwrap(), "ok");
}

#[test]
fn what_cannot_get_better_is_not_tried_again() {
    for (status, message) in [(400, "bad request"), (401, "invalid key"), (402, "no credit"), (404, "no such model")] {
        let place = HostFixture::with_config(QUICK);
        let mut host = place.start(&[]);
        place.provider.script_replies([error_reply(status, message)]);
        let frames = host.run_turn("go");
        assert_eq!((of_type(&frames, "auto_retry_start").len(), place.provider.request_count()), (0, 1), "{status}");
        let failed = of_type(&frames, "turn_end").remove(0)["message"].clone();
        assert_eq!(failed["stopReason"], "error");
        assert!(failed["errorMessage"].as_str().unwrap().contains(message));
    }
}

#[test]
fn a_hint_of_the_server_raises_the_delay() {
    for (reply, want) in [
        (error_reply(429, "rate limit").with_header("retry-after", "1200"), 1_200_000),
        (error_reply(429, "rate limit").with_header("retry-after-ms", "900000"), 900_000),
        (error_reply(429, "Please retry after 700000ms"), 700_000),
    ] {
        let place = HostFixture::with_config(SLOW);
        let mut host = place.start(&[]);
        place.provider.script_replies([reply]);
        let from = host.send_prompt("go");
        assert_eq!(host.wait_event(from, "auto_retry_start")["delayMs"], want);
    }
}

#[test]
fn abort_retry_ends_the_wait_without_another_agent_end() {
    let place = HostFixture::with_config(SLOW);
    let mut host = place.start(&[]);
    place.provider.script_replies([error_reply(503, "overloaded")]);
    let from = host.send_prompt("go");
    host.wait_event(from, "auto_retry_start");
    assert_eq!(host.session_state()["isStreaming"], true);
    let from = host.frame_position();
    host.command_data(json!({ "type": "abort_retry" }));
    let frames = host.wait_settled(from);
    assert_eq!(frame_shape(&frames), "abort_retry auto_retry_end");
    assert_eq!(of_type(&frames, "auto_retry_end")[0]["finalError"], "Retry cancelled");
    assert_eq!(host.session_state()["isStreaming"], false);
    host.run_turn("again");
    assert_eq!(host.message_texts(), ["go", "again", "ok"]);
}

#[test]
fn an_abort_ends_the_wait_too() {
    let place = HostFixture::with_config(SLOW);
    let mut host = place.start(&[]);
    place.provider.script_replies([error_reply(503, "overloaded")]);
    let from = host.send_prompt("go");
    host.wait_event(from, "auto_retry_start");
    let notice = host.wait_frame(from, "the end of the wait", |frame| frame["method"] == "notify");
    let message = notice["message"].as_str().unwrap();
    assert!(message.starts_with("The model did not answer; the next attempt is at 20"), "{message}");
    let from = host.frame_position();
    host.command_data(json!({ "type": "abort" }));
    assert_eq!(frame_shape(&host.wait_settled(from)), "auto_retry_end abort");
}

#[test]
fn nothing_is_tried_again_where_that_is_off() {
    let place = HostFixture::with_config(QUICK);
    let mut host = place.start(&[]);
    host.command_data(json!({ "type": "set_auto_retry", "enabled": false }));
    place.provider.script_replies([error_reply(503, "overloaded")]);
    assert_eq!(frame_shape(&host.run_turn("go")), format!("prompt agent_start turn_start +user -user {FAILED}"));
}

#[test]
fn a_stream_that_breaks_off_is_tried_again_and_its_calls_are_not_run() {
    for end in
        [ReplyPart::Cut, ReplyPart::Fault("Overloaded".into()), ReplyPart::Raw("data: {\"id\":\"c1\",\"obj".into())]
    {
        for model in ["fake/fake-1", "claude/claude-1"] {
            let place = HostFixture::with_config(QUICK);
            let mut host = place.start(&["--model", model]);
            let end = match &end {
                ReplyPart::Fault(message) => ReplyPart::Fault(message.clone()),
                ReplyPart::Raw(raw) => ReplyPart::Raw(raw.clone()),
                _ => ReplyPart::Cut,
            };
            let tail = matches!(end, ReplyPart::Raw(_)).then_some(ReplyPart::Cut);
            let parts = [text_part("half"), bash_part("k", "touch never"), end].into_iter().chain(tail).collect();
            place.provider.script_replies([ProviderReply::new(parts), text_reply("whole")]);
            let frames = host.run_turn("go");
            assert_eq!(of_type(&frames, "auto_retry_end")[0]["success"], true, "{model}");
            assert_eq!(text_of(host.session_messages().last().unwrap()), "whole", "{model}");
            assert_eq!(place.read_file("never"), None, "{model}");
            assert!(place.provider.last_request().is_paired(), "{model}");
        }
    }
}
