//! A run that one process began and the next one resumes: the frames for a host that was not connected from the start.

use std::{fs, path::PathBuf};

use countersign_testkit::process::{
    FramePosition, HostFixture, RpcHost, frame_shape, lines_with, message_roles, message_text, of_type,
    provider::{ProviderReply, ReplyPart, bash_part, call_part, text_part, text_reply},
};
use serde_json::{Value, json};

/// Returns a session of one turn, and what the model says next.
fn begun(place: &HostFixture, replies: Vec<ProviderReply>) -> RpcHost {
    let mut host = place.start(&[]);
    host.run_turn("one");
    lines_with(&host.session_file(), "\"ok\"");
    place.provider.script_replies(replies);
    host
}

/// Leaves a session in which a run waits for a dialog and its process was killed.
fn left(place: &HostFixture, replies: Vec<ProviderReply>) {
    let mut host = begun(place, replies);
    let from = host.send_prompt("two");
    host.wait_dialog(from);
    host.kill();
}

/// Leaves the same of one call, with the file of the session once the call stands in it: the file follows the record, and one without the
/// call has no place for its gate.
fn left_in_its_file(place: &HostFixture) -> PathBuf {
    let mut host = begun(place, vec![ProviderReply::new(vec![bash_part("k1", "touch ran")]), text_reply("after it")]);
    let from = host.send_prompt("two");
    host.wait_dialog(from);
    let path = host.session_file();
    lines_with(&path, "k1");
    host.kill();
    path
}

/// Returns the frames that a client gathers until the end of a run, answering every dialog.
fn until_the_end(host: &mut RpcHost, from: FramePosition, answer: &Value) -> Vec<Value> {
    let mut answered = from;
    loop {
        let next = host.wait_frame(answered, "a dialog or the end of the run", |frame| {
            ["extension_ui_request", "agent_end"].iter().any(|kind| frame["type"] == *kind)
        });
        let at = answered + host.frames_since(answered).iter().position(|frame| *frame == next).unwrap();
        if next["type"] == "agent_end" {
            return host.frames_since(from).into_iter().take(at + 1 - from).collect();
        }
        host.answer_dialog(&next, answer.clone());
        answered = at + 1;
    }
}

/// Checks what holds for the frames of every run, and gives the messages that it says it added.
fn check_order(frames: &[Value]) -> Vec<Value> {
    let (mut in_run, mut in_turn, mut running, mut results) = (false, false, Vec::new(), Vec::new());
    for frame in frames {
        let kind = frame["type"].as_str().unwrap();
        match kind {
            "agent_start" => assert!(!std::mem::replace(&mut in_run, true), "{kind} twice"),
            "turn_start" => assert!(in_run && !std::mem::replace(&mut in_turn, true), "{kind} out of place"),
            "tool_execution_start" => {
                assert!(in_turn && !running.contains(&frame["toolCallId"]), "{frame} out of place");
                running.push(frame["toolCallId"].clone());
            }
            "tool_execution_end" => {
                let at = running.iter().position(|call| *call == frame["toolCallId"]);
                running.remove(at.unwrap_or_else(|| panic!("{frame} without a start")));
                results.push(frame["toolCallId"].clone());
            }
            "message_start" | "message_end" | "message_update" => assert!(in_turn, "{frame} out of a turn"),
            "turn_end" => {
                assert!(std::mem::replace(&mut in_turn, false) && running.is_empty(), "{frame} out of place");
                let result_ids: Vec<Value> =
                    frame["toolResults"].as_array().unwrap().iter().map(|it| it["toolCallId"].clone()).collect();
                assert!(result_ids.ends_with(&results), "{result_ids:?} do not end with {results:?}");
                let calls = frame["message"]["content"].as_array().unwrap();
                let mut call_ids: Vec<&Value> =
                    calls.iter().filter(|block| block["type"] == "toolCall").map(|block| &block["id"]).collect();
                call_ids.sort_unstable_by_key(|id| id.to_string());
                let mut sorted_results: Vec<&Value> = result_ids.iter().collect();
                sorted_results.sort_unstable_by_key(|id| id.to_string());
                assert_eq!(sorted_results, call_ids, "the results of the turn are not those of its calls");
                results.clear();
            }
            "agent_end" => {
                assert!(in_run && !in_turn, "{kind} out of place");
                return frame["messages"].as_array().unwrap().clone();
            }
            _ => {}
        }
    }
    panic!("there was no end of the run in {}", frame_shape(frames));
}

#[test]
fn a_run_that_waited_is_sent_from_its_beginning_to_its_end() {
    let place = HostFixture::with_ask_rule();
    left(&place, vec![ProviderReply::new(vec![bash_part("k1", "touch ran")]), text_reply("after it")]);
    let mut again = place.resume_host();
    assert_eq!(again.session_state()["isStreaming"], true);
    let frames = until_the_end(&mut again, 0, &json!({ "value": "Allow once" }));
    assert_eq!(
        frame_shape(&frames),
        "ready agent_start turn_start extension_ui_request get_state +k1 -k1 +toolResult -toolResult turn_end turn_start \
         +assistant text_start text_delta text_end -assistant turn_end agent_end"
    );
    let added = check_order(&frames);
    assert_eq!(message_roles(&added), ["user", "assistant", "toolResult", "assistant"]);
    assert_eq!((message_text(&added[0]), message_text(&added[3])), ("two".to_owned(), "after it".to_owned()));
    assert_eq!(added, again.session_messages()[2..]);
    again.wait_settled(0);
    assert_eq!(
        (again.session_state()["isStreaming"].clone(), place.read_file("ran")),
        (json!(false), Some(String::new()))
    );
}

#[test]
fn a_turn_of_which_one_call_was_done_ends_with_all_its_results() {
    let place = HostFixture::with_ask_rule();
    let calls = vec![bash_part("k1", "echo ran >> count"), bash_part("k2", "touch a"), bash_part("k3", "touch b")];
    let mut host = begun(&place, vec![ProviderReply::new(calls), text_reply("after it")]);
    let from = host.send_prompt("two");
    let first = host.wait_dialog(from);
    host.answer_dialog(&first, json!({ "value": "Allow once" }));
    host.wait_event(from, "tool_execution_end");
    host.kill();
    let mut again = place.resume_host();
    let frames = until_the_end(&mut again, 0, &json!({ "value": "Allow once" }));
    let added = check_order(&frames);
    assert_eq!(message_roles(&added), ["user", "assistant", "toolResult", "toolResult", "toolResult", "assistant"]);
    let starts = of_type(&frames, "tool_execution_start");
    assert_eq!([&starts[0]["toolCallId"], &starts[1]["toolCallId"]], ["k2", "k3"]);
    assert_eq!((starts.len(), place.read_file("count").unwrap().as_str()), (2, "ran\n"));
    assert!(place.provider.last_request().is_paired());
}

#[test]
fn the_end_of_a_run_has_the_messages_of_its_earlier_turns() {
    let place = HostFixture::with_ask_rule();
    place.write_rules(
        "rules:\n  - { pattern: \"bash(true)\", action: allow }\n  - { pattern: \"bash(*)\", action: ask }\n",
    );
    let first = ProviderReply::new(vec![bash_part("k1", "true")]);
    left(&place, vec![first, ProviderReply::new(vec![bash_part("k2", "touch ran")]), text_reply("after it")]);
    // And once more: the process that took it up dies as well.
    let again = place.resume_host();
    again.wait_dialog(0);
    again.kill();
    let mut again = place.resume_host();
    let added = check_order(&until_the_end(&mut again, 0, &json!({ "value": "Allow once" })));
    assert_eq!(message_roles(&added), ["user", "assistant", "toolResult", "assistant", "toolResult", "assistant"]);
    assert_eq!(added, again.session_messages()[2..]);
}

#[test]
fn a_pending_question_is_a_running_call() {
    let place = HostFixture::with_ask_rule();
    let questions = json!({ "questions": [{ "id": "a", "question": "Which?", "options": [{ "label": "A" }] }] });
    left(&place, vec![ProviderReply::new(vec![call_part("k1", "ask", &questions)]), text_reply("after it")]);
    let mut again = place.resume_host();
    let frames = until_the_end(&mut again, 0, &json!({ "value": "A" }));
    check_order(&frames);
    assert!(frame_shape(&frames).starts_with("ready agent_start turn_start +k1 extension_ui_request -k1 +toolResult"));
}

#[test]
fn a_run_that_resumes_by_itself_is_sent_whole() {
    let place = HostFixture::with_ask_rule();
    let questions = json!({ "questions": [{ "id": "a", "question": "Which?", "options": [{ "label": "A" }] }] });
    let replies = vec![
        ProviderReply::new(vec![call_part("k1", "ask", &questions)]),
        ProviderReply::new(vec![ReplyPart::Hang]),
        text_reply("after it"),
    ];
    let mut host = begun(&place, replies);
    let from = host.send_prompt("two");
    let dialog = host.wait_dialog(from);
    host.answer_dialog(&dialog, json!({ "value": "A" }));
    // The model got the request after the answer, and its process dies.
    place.provider.wait_request(2);
    host.kill();
    let again = place.resume_host();
    again.wait_event(0, "agent_end");
    let frames = again.frames_since(0);
    assert_eq!(
        frame_shape(&frames).split(" agent_end").next().unwrap(),
        "ready agent_start turn_start +assistant text_start text_delta text_end -assistant turn_end"
    );
    let added = check_order(&frames);
    assert_eq!(message_roles(&added), ["user", "assistant", "toolResult", "assistant"]);
    assert_eq!(message_text(&added[3]), "after it");
}

#[test]
fn a_run_that_is_denied_or_stopped_after_a_restart_ends_with_all_that_it_added() {
    for is_stopped in [false, true] {
        let place = HostFixture::with_ask_rule();
        left(&place, vec![ProviderReply::new(vec![bash_part("k1", "touch ran")]), text_reply("after it")]);
        let mut again = place.resume_host();
        again.wait_dialog(0);
        let frames = if is_stopped {
            again.command_data(json!({ "type": "abort" }));
            again.frames_since(0)
        } else {
            until_the_end(&mut again, 0, &json!({ "value": "Deny" }))
        };
        let added = check_order(&frames);
        assert_eq!(message_roles(&added), ["user", "assistant", "toolResult", "assistant"], "stopped: {is_stopped}");
        // A call that was stopped has a message of its own about it.
        assert_eq!(added[3]["stopReason"], if is_stopped { "aborted" } else { "stop" });
        assert_eq!(place.read_file("ran"), None);
    }
}

#[test]
fn a_run_is_sent_as_it_is_after_its_prompt_was_edited() {
    let place = HostFixture::with_ask_rule();
    let path = left_in_its_file(&place);
    let edited = fs::read_to_string(&path).unwrap().replace("\"two\"", "\"twain\"").replace("\"one\"", "\"once\"");
    fs::write(&path, edited).unwrap();
    let mut again = place.resume_host();
    let added = check_order(&until_the_end(&mut again, 0, &json!({ "value": "Allow once" })));
    assert_eq!(message_roles(&added), ["user", "assistant", "toolResult", "assistant"]);
    assert_eq!(message_text(&added[0]), "twain");
}

#[test]
fn a_session_sends_its_run_after_the_answer_to_the_switch() {
    let place = HostFixture::with_ask_rule();
    let path = left_in_its_file(&place);
    let mut other = place.start(&[]);
    let from = other.frame_position();
    other.command_data(json!({ "type": "switch_session", "sessionPath": path }));
    let frames = until_the_end(&mut other, from, &json!({ "value": "Allow once" }));
    assert!(frame_shape(&frames).starts_with("switch_session agent_start turn_start extension_ui_request +k1 -k1"));
    assert_eq!(message_roles(&check_order(&frames)), ["user", "assistant", "toolResult", "assistant"]);
}

#[test]
fn a_host_is_notified_of_a_message_without_an_answer() {
    for more in [None, Some(json!({ "type": "set_thinking_level", "level": "off" }))] {
        let place = HostFixture::new();
        let mut host = place.start(&[]);
        host.run_turn("one");
        place.provider.script_replies([ProviderReply::new(vec![text_part("half"), ReplyPart::Hang])]);
        host.send_prompt("two");
        place.provider.wait_request(1);
        if let Some(command) = more {
            host.command_data(command);
        }
        lines_with(&host.session_file(), "two");
        host.kill();
        let mut again = place.resume_host();
        let notice = again.wait_frame(0, "a notice", |frame| frame["method"] == "notify");
        assert!(notice["message"].as_str().unwrap().starts_with("The last message has no answer"), "{notice}");
        assert_eq!(again.session_state()["isStreaming"], false);
        again.run_turn("three");
        assert_eq!(again.message_texts().last().unwrap(), "ok");
        again.close_cleanly();
    }
}
