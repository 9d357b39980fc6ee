//! Behaviour at the edges: after a crash, in another session of the process, in files of others.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_testkit::process::{
    HostFixture, Latch, RpcHost, lines_when, lines_with, of_type,
    provider::{self, ProviderReply, ReplyPart, bash_part, text_part, text_reply},
};
use serde_json::json;

#[test]
fn an_image_next_to_a_file_of_another_program_is_restored() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let data = STANDARD.encode([7_u8; 3000]);
    let image = json!({ "type": "image", "data": data, "mimeType": "image/png" });
    let from = host.frame_position();
    host.command_data(json!({ "type": "prompt", "message": "look", "images": [image] }));
    host.wait_settled(from);
    lines_with(&host.session_file(), "blob:sha256:");
    let text = std::fs::read_to_string(host.session_file()).unwrap();
    let own = host.session_state()["sessionId"].as_str().unwrap().to_owned();
    let other = place.write_file("other.jsonl", text.replace(&own, "0011223344556677"));
    let mut host = place.start(&["--session", other.to_str().unwrap()]);
    assert_eq!(host.session_messages()[0]["content"][1]["data"], data.as_str());
    host.run_turn("again");
    assert!(place.provider.last_request().messages_text().contains(&data));
}

#[test]
fn an_image_is_still_there_in_a_fork() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let data = STANDARD.encode([7_u8; 3000]);
    let image = json!({ "type": "image", "data": data, "mimeType": "image/png" });
    let from = host.frame_position();
    host.command_data(json!({ "type": "prompt", "message": "look", "images": [image] }));
    host.wait_settled(from);
    let file = host.session_file();
    lines_with(&file, "blob:sha256:");
    host.close_cleanly();
    let mut fork = place.start(&["--fork", file.to_str().unwrap()]);
    fork.run_turn("again");
    assert!(place.provider.last_request().messages_text().contains(&data));
}

#[test]
fn what_was_acknowledged_before_the_first_answer_is_found_again() {
    for flags in [vec!["--continue"], vec!["--resume"], vec!["--session"]] {
        let place = HostFixture::new();
        let mut host = place.start(&[]);
        let (id, file) = (host.session_state()["sessionId"].as_str().unwrap().to_owned(), host.session_file());
        place.provider.script_replies([ProviderReply::new(vec![text_part("half"), ReplyPart::Hang])]);
        let from = host.send_prompt("the very first");
        host.wait_event(from, "message_update");
        host.kill();
        let named = match flags[0] {
            "--resume" => vec![id.as_str()],
            "--session" => vec![file.to_str().unwrap()],
            _ => vec![],
        };
        let mut again = RpcHost::start(&place, &[&flags[..], &named[..]].concat());
        assert_eq!(again.session_state()["sessionId"], id.as_str(), "{flags:?}");
        assert_eq!(again.message_texts(), ["the very first"], "{flags:?}");
    }
}

#[test]
fn an_answer_is_in_the_session_once_the_end_of_its_run_was_sent() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let from = host.send_prompt("one");
    host.wait_event(from, "agent_end");
    host.kill();
    assert_eq!(place.resume_host().message_texts(), ["one", "ok"]);
}

#[test]
fn a_gate_before_the_first_file_is_pending_again() {
    let place = HostFixture::with_ask_rule();
    let mut host = place.start(&[]);
    let latch = Latch::default();
    latch.open();
    place.provider.script_replies([ProviderReply::new(vec![ReplyPart::Until(latch), bash_part("k", "true")])]);
    let from = host.send_prompt("one");
    let dialog = host.wait_dialog(from);
    host.kill();
    assert_eq!(place.resume_host().wait_dialog(0)["title"], dialog["title"]);
}

#[test]
fn a_name_that_was_acknowledged_is_in_the_file_after_a_crash() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    let file = host.session_file();
    lines_with(&file, "\"ok\"");
    host.command_data(json!({ "type": "set_session_name", "name": "named" }));
    host.kill();
    let mut again = place.resume_host();
    assert_eq!(again.session_state()["sessionName"], "named");
    lines_when(&file, "the name", |lines| lines[0]["title"] == "named");
}

#[test]
fn a_name_that_somebody_else_wrote_is_taken() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    host.command_data(json!({ "type": "set_session_name", "name": "ours" }));
    let file = host.session_file();
    lines_when(&file, "the name", |lines| lines[0]["title"] == "ours");
    host.close_cleanly();
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replacen("\"title\":\"ours\"", "\"title\":\"theirs\"", 1)).unwrap();
    assert_eq!(place.resume_host().session_state()["sessionName"], "theirs");
}

#[test]
fn an_answer_for_always_holds_in_a_new_session_of_the_same_process() {
    let place = HostFixture::with_ask_rule();
    let mut host = place.start(&[]);
    for session in ["first", "second"] {
        place
            .provider
            .script_replies([ProviderReply::new(vec![bash_part("k", "echo ran >> count")]), text_reply("done")]);
        let from = host.send_prompt("go");
        if session == "first" {
            let dialog = host.wait_dialog(from);
            host.answer_dialog(&dialog, json!({ "value": "Always allow exactly this" }));
        }
        let next = host.wait_frame(from, "the end or a dialog", |frame| {
            frame["type"] == "agent_settled" || session == "second" && frame["type"] == "extension_ui_request"
        });
        assert_eq!(next["type"], "agent_settled", "{session}");
        host.command_data(json!({ "type": "new_session" }));
    }
}

#[test]
fn a_level_of_the_command_line_is_stronger_than_that_of_the_session_and_a_model_leaves_it() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    host.command_data(json!({ "type": "set_thinking_level", "level": "low" }));
    lines_with(&host.session_file(), "\"low\"");
    host.close_cleanly();
    assert_eq!(place.start(&["--continue"]).session_state()["thinkingLevel"], "low");
    assert_eq!(
        RpcHost::start(&place, &["--continue", "--thinking", "medium"]).session_state()["thinkingLevel"],
        "medium"
    );
}

#[test]
fn switching_to_the_session_that_is_open_is_no_failure() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    host.run_turn("one");
    let file = host.session_file();
    lines_with(&file, "\"ok\"");
    let data = host.command_data(json!({ "type": "switch_session", "sessionPath": file }));
    assert_eq!((data, host.message_texts().len()), (json!({ "cancelled": false }), 2));
}

#[test]
fn work_behind_a_run_counts_as_streaming() {
    let place = HostFixture::with_config("compaction: { keepRecentTokens: 30, thresholdTokens: 1000 }\n");
    let mut host = place.start(&[]);
    for turn in 0..3 {
        host.run_turn(&format!("message {turn} ").repeat(20));
    }
    place
        .provider
        .script_replies([text_reply("big").with_input_tokens(2000), ProviderReply::new(vec![ReplyPart::Hang])]);
    let from = host.send_prompt(&"more ".repeat(50));
    host.wait_event(from, "auto_compaction_start");
    let state = host.session_state();
    assert_eq!((&state["isCompacting"], &state["isStreaming"]), (&json!(true), &json!(true)));
}

#[test]
fn questions_that_are_none_are_an_error() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    place.provider.script_replies([ProviderReply::new(vec![provider::call_part(
        "k",
        "ask",
        &json!({ "questions": [] }),
    )])]);
    assert_eq!(of_type(&host.run_turn("go"), "tool_execution_end")[0]["isError"], true);
}

#[test]
fn a_burst_of_thinking_and_text_costs_at_most_fifteen_times_them() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let words: Vec<String> = (0..5000).map(|at| format!("word {at} ")).collect();
    let size = 2 * words.concat().len();
    place.provider.script_replies([ProviderReply::new(vec![ReplyPart::Think(words.clone()), ReplyPart::Text(words)])]);
    let before = host.output_bytes();
    host.run_turn("go");
    let each = (host.output_bytes() - before) / size;
    assert!(each < 15, "{each} times");
}
