//! Compaction, by hand and by itself.

use countersign_testkit::process::{
    HostFixture, RpcHost, check_chain, frame_shape, lines_with, message_text as text_of, of_type,
    provider::{ProviderReply, ReplyPart, bash_part, error_reply, text_part, text_reply},
};
use serde_json::json;

const KEEP: &str = "compaction: { keepRecentTokens: 30 }\n";
const TIGHT: &str = "compaction: { keepRecentTokens: 30, thresholdTokens: 1000 }\n";

fn talk(host: &mut RpcHost, turns: usize) {
    for turn in 0..turns {
        host.run_turn(&format!("message {turn} ").repeat(20));
    }
}

#[test]
fn a_compaction_by_hand_replaces_what_is_old() {
    let place = HostFixture::with_config(KEEP);
    let mut host = place.start(&[]);
    assert_eq!(
        host.command_error(json!({ "type": "compact" })),
        "Failed to parse command: Nothing to compact (session too small)"
    );
    talk(&mut host, 4);
    place.provider.script_replies([text_reply("the summary")]);
    let from = host.frame_position();
    let result = host.command_data(json!({ "type": "compact", "customInstructions": "look at the ports" }));
    assert_eq!(frame_shape(&host.frames_since(from)), "compact");
    assert!(place.provider.wait_request(4).messages_text().contains("look at the ports"));
    assert!(result["summary"].as_str().unwrap().contains("the summary"));
    let summary = host.session_messages().remove(0);
    let members: Vec<&str> = summary.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(summary["role"], "compactionSummary");
    assert_eq!(members, ["role", "summary", "shortSummary", "tokensBefore", "timestamp"]);
    let file = host.session_file();
    let lines = lines_with(&file, "\"compaction\"");
    check_chain(&lines);
    let entry = lines.iter().find(|line| line["type"] == "compaction").unwrap();
    for key in ["summary", "firstKeptEntryId", "tokensBefore"] {
        assert_eq!(entry[key], result[key], "{key}");
    }
    assert_eq!(host.command_error(json!({ "type": "compact" })), "Failed to parse command: Already compacted");
    host.run_turn("on");
    let request_text = place.provider.last_request().messages_text();
    assert!(request_text.contains("the summary") && !request_text.contains("message 0"));
    host.close_cleanly();
    assert_eq!(place.resume_host().session_messages()[0]["role"], "compactionSummary");
}

#[test]
fn what_an_earlier_compaction_keeps_is_in_the_result_of_the_next_one_and_in_the_file() {
    let place = HostFixture::with_config(KEEP);
    let mut host = place.start(&[]);
    talk(&mut host, 4);
    assert_eq!(host.command_data(json!({ "type": "compact" })).get("preserveData"), None);
    let file = host.session_file();
    lines_with(&file, "\"compaction\"");
    host.close_cleanly();
    let kept = json!({ "notes": { "of": ["an extension"] } });
    let mut given = kept.clone();
    given["openaiRemoteCompaction"] = json!({ "replacementHistory": [] });
    given["anthropicCompaction"] = json!({ "provider": "claude", "content": "in short" });
    given["snapcompact"] = json!({ "frames": [] });
    let entry = format!("\"type\":\"compaction\",\"preserveData\":{given},");
    let edited = std::fs::read_to_string(&file).unwrap().replace("\"type\":\"compaction\",", &entry);
    std::fs::write(&file, edited).unwrap();
    let mut host = place.resume_host();
    talk(&mut host, 4);
    assert_eq!(host.command_data(json!({ "type": "compact" }))["preserveData"], kept);
    let of_next = format!("\"preserveData\":{kept}");
    lines_with(&file, &of_next);
    host.close_cleanly();
}

#[test]
fn a_compaction_that_fails_leaves_the_conversation() {
    let place = HostFixture::with_config(KEEP);
    let mut host = place.start(&[]);
    talk(&mut host, 4);
    let before = host.session_messages();
    place.provider.script_replies([error_reply(400, "bad request")]);
    assert!(host.command_error(json!({ "type": "compact" })).contains("bad request"));
    assert_eq!(host.session_messages(), before);
}

#[test]
fn a_compaction_is_seen_answered_around_and_aborted() {
    let place = HostFixture::with_config(KEEP);
    let mut host = place.start(&[]);
    talk(&mut host, 4);
    place.provider.script_replies([ProviderReply::new(vec![ReplyPart::Hang])]);
    let due = host.send_command(json!({ "type": "compact" }));
    place.provider.wait_request(4);
    assert_eq!(host.session_state()["isCompacting"], true);
    host.command_data(json!({ "type": "abort" }));
    assert_eq!(host.wait_answer(&due)["error"], "Failed to parse command: Compaction cancelled");
    place.provider.wait_request_when(4, |request| request.is_gone);
    assert_eq!(host.session_state()["isCompacting"], false);
    host.run_turn("on");
    assert_eq!(host.message_texts().last().unwrap(), "ok");
}

#[test]
fn a_compaction_that_is_aborted_before_it_begins_never_begins() {
    for is_running in [false, true] {
        let place = HostFixture::with_config(KEEP);
        let mut host = place.start(&[]);
        talk(&mut host, 4);
        if is_running {
            place.provider.script_replies([ProviderReply::new(vec![text_part("cut short"), ReplyPart::Hang])]);
            let from = host.send_prompt("long");
            host.wait_event(from, "message_update");
        }
        let from = host.frame_position();
        host.write_input("{\"type\":\"compact\",\"id\":\"first\"}\n{\"type\":\"abort\",\"id\":\"then\"}\n");
        let answer = |id: &str| host.wait_frame(from, id, |frame| frame["type"] == "response" && frame["id"] == id);
        assert_eq!(answer("first")["error"], "Failed to parse command: Compaction cancelled");
        assert_eq!(answer("then")["success"], true);
        assert_eq!(host.session_state()["isCompacting"], false);
        assert!(host.session_messages().iter().all(|message| message["role"] != "compactionSummary"));
        host.run_turn("on");
        host.command_data(json!({ "type": "compact" }));
    }
}

#[test]
fn a_compaction_stops_the_run_and_sends_no_more_of_its_events() {
    let place = HostFixture::with_config(KEEP);
    let mut host = place.start(&[]);
    talk(&mut host, 4);
    place.provider.script_replies([ProviderReply::new(vec![text_part("cut short"), ReplyPart::Hang])]);
    let from = host.send_prompt("long");
    host.wait_event(from, "message_update");
    host.command_data(json!({ "type": "compact" }));
    assert_eq!(of_type(&host.frames_since(from), "agent_end").len(), 0);
    host.run_turn("on");
    assert!(place.provider.last_request().is_paired());
}

#[test]
fn past_the_threshold_the_session_compacts_itself_and_goes_on() {
    let place = HostFixture::with_config(TIGHT);
    let mut host = place.start(&[]);
    talk(&mut host, 3);
    place.provider.script_replies([text_reply("big").with_input_tokens(2000)]);
    let frames = host.run_turn(&"more ".repeat(50));
    let sequence = frame_shape(&frames);
    let text = "+assistant text_start text_delta text_end -assistant turn_end agent_end";
    let rest = format!("auto_compaction_start auto_compaction_end agent_start turn_start +developer -developer {text}");
    assert_eq!(sequence, format!("prompt agent_start turn_start +user -user {text} {rest}"));
    let start = of_type(&frames, "auto_compaction_start").remove(0);
    assert_eq!((&start["reason"], &start["action"]), (&json!("threshold"), &json!("context-full")));
    let end = of_type(&frames, "auto_compaction_end").remove(0);
    assert_eq!((&end["aborted"], &end["willRetry"]), (&json!(false), &json!(false)));
    assert!(end["result"]["summary"].is_string());
    let developer = &of_type(&frames, "agent_end")[1]["messages"][0];
    assert_eq!(text_of(developer), "Continue if you have next steps.");
}

#[test]
fn a_context_too_long_for_the_provider_is_compacted_and_sent_again() {
    for refusal in ["prompt is too long: 300000 tokens", "This model's maximum context length is 128000 tokens."] {
        let place = HostFixture::with_config(KEEP);
        let mut host = place.start(&[]);
        talk(&mut host, 3);
        place.provider.script_replies([error_reply(400, refusal)]);
        let frames = host.run_turn(&"more ".repeat(50));
        assert_eq!(of_type(&frames, "auto_retry_start").len(), 0);
        assert_eq!(of_type(&frames, "auto_compaction_start")[0]["reason"], "overflow");
        assert_eq!(of_type(&frames, "auto_compaction_end")[0]["willRetry"], true);
        let sequence = frame_shape(&frames);
        let again = "agent_end auto_compaction_start auto_compaction_end agent_start turn_start +assistant";
        assert!(sequence.contains(again), "{sequence}");
        assert_eq!(host.message_texts().last().unwrap(), "ok");
    }
}

#[test]
fn a_run_that_got_on_behind_a_summary_may_grow_too_long_again() {
    let place = HostFixture::with_config(KEEP);
    let mut host = place.start(&[]);
    talk(&mut host, 3);
    let long = || error_reply(400, "prompt is too long: 300000 tokens");
    let count = ProviderReply::new(vec![bash_part("k", "seq 1 60")]);
    place.provider.script_replies([long(), text_reply("one"), count, long(), text_reply("two"), text_reply("done")]);
    let frames = host.run_turn(&"more ".repeat(50));
    assert_eq!(of_type(&frames, "auto_compaction_start").len(), 2);
    assert_eq!(host.message_texts().last().unwrap(), "done");
    assert!(place.provider.last_request().is_paired());
}

#[test]
fn a_message_with_an_image_is_in_the_summary() {
    let place = HostFixture::with_config(KEEP);
    let mut host = place.start(&[]);
    let from = host.frame_position();
    // As base64 it is longer than the window.
    let image = json!({ "type": "image", "data": "A".repeat(600_000), "mimeType": "image/png" });
    host.command_data(json!({ "type": "prompt", "message": "the port is 8123", "images": [image] }));
    host.wait_settled(from);
    talk(&mut host, 3);
    let count = place.provider.request_count();
    host.command_data(json!({ "type": "compact" }));
    let request_text = place.provider.wait_request(count).messages_text();
    assert!(request_text.contains("the port is 8123") && request_text.contains("(and an image)"), "{request_text}");
    assert_eq!(place.provider.request_count(), count + 1);
}

#[test]
fn a_turn_whose_beginning_is_too_long_is_summed_up_in_parts() {
    let place = HostFixture::with_config(KEEP);
    let mut host = place.start(&[]);
    let count = |at: usize| ProviderReply::new(vec![bash_part(&format!("k{at}"), "seq 1 60")]);
    place.provider.script_replies([count(1), count(2), count(3), text_reply("counted")]);
    host.run_turn(&"go ".repeat(20_000));
    let request_count = place.provider.request_count();
    let long = || error_reply(400, "prompt is too long: 300000 tokens");
    place.provider.script_replies([long(), text_reply("The first half"), text_reply("The second half")]);
    let result = host.command_data(json!({ "type": "compact", "customInstructions": "look at the ports" }));
    for at in 0..3 {
        assert!(place.provider.wait_request(request_count + at).messages_text().contains("look at the ports"), "{at}");
    }
    let summary = result["summary"].as_str().unwrap();
    assert!(summary.starts_with("**Turn Context"), "{summary}");
    assert!(summary.contains("The first half") && summary.contains("The second half"), "{summary}");
    assert_eq!(result["shortSummary"], "The first half");
}

#[test]
fn an_overflow_that_compaction_does_not_cure_ends() {
    let place = HostFixture::with_config(KEEP);
    let mut host = place.start(&[]);
    talk(&mut host, 3);
    host.command_data(json!({ "type": "set_auto_compaction", "enabled": false }));
    place.provider.script_replies([error_reply(400, "prompt is too long")]);
    let frames = host.run_turn("more");
    assert_eq!(of_type(&frames, "auto_compaction_start").len(), 0);
    assert_eq!(of_type(&frames, "turn_end")[0]["message"]["stopReason"], "error");
}

#[test]
fn an_abort_ends_an_automatic_compaction() {
    let place = HostFixture::with_config(TIGHT);
    let mut host = place.start(&[]);
    talk(&mut host, 3);
    place
        .provider
        .script_replies([text_reply("big").with_input_tokens(2000), ProviderReply::new(vec![ReplyPart::Hang])]);
    let from = host.send_prompt(&"more ".repeat(50));
    host.wait_event(from, "auto_compaction_start");
    assert_eq!(host.session_state()["isCompacting"], true);
    host.command_data(json!({ "type": "abort" }));
    assert_eq!(host.wait_event(from, "auto_compaction_end")["aborted"], true);
    host.wait_settled(from);
    let state = host.session_state();
    assert_eq!((&state["isCompacting"], &state["isStreaming"]), (&json!(false), &json!(false)));
}

#[test]
fn calls_and_results_stay_together_across_a_compaction() {
    let place = HostFixture::with_config(KEEP);
    let mut host = place.start(&[]);
    for _ in 0..3 {
        place.provider.script_replies([ProviderReply::new(vec![bash_part("k", "seq 1 60")]), text_reply("counted")]);
        host.run_turn("count");
    }
    host.command_data(json!({ "type": "compact" }));
    host.run_turn("on");
    assert!(place.provider.last_request().is_paired());
}
