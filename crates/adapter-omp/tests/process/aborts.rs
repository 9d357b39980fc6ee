//! Aborts by the host.

use countersign_testkit::process::{
    HostFixture, frame_shape, message_text as text_of, of_type,
    provider::{ProviderReply, ReplyPart, bash_part, call_part, text_part, text_reply},
    wait_dead,
};
use serde_json::json;

const STARTED: &str = "prompt agent_start turn_start +user -user +assistant";

#[test]
fn an_abort_while_text_streams_keeps_the_text_and_is_answered_last() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    place.provider.script_replies([ProviderReply::new(vec![text_part("so far"), ReplyPart::Hang])]);
    let from = host.send_prompt("go");
    host.wait_frame(from, "the text", |frame| frame["assistantMessageEvent"]["type"] == "text_delta");
    host.command_data(json!({ "type": "abort" }));
    let frames = host.wait_settled(from);
    assert_eq!(frame_shape(&frames), format!("{STARTED} text_start text_delta -assistant turn_end agent_end abort"));
    let message = host.session_messages()[1].clone();
    assert_eq!((&message["stopReason"], &message["errorMessage"]), (&json!("aborted"), &json!("Request was aborted")));
    assert_eq!(text_of(&message), "so far");
    place.provider.wait_request_when(0, |request| request.is_gone);
    assert_eq!(host.session_state()["isStreaming"], false);
}

#[test]
fn an_abort_gives_each_call_of_the_message_a_result() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let runs = "sh -c 'echo $$ > pid; exec sleep 300'";
    place.provider.script_replies([ProviderReply::new(vec![
        bash_part("k1", runs),
        bash_part("k2", "touch never"),
        call_part("k3", "ls", &json!({})),
    ])]);
    let from = host.send_prompt("go");
    let pid = place.wait_for("pid");
    host.command_data(json!({ "type": "abort" }));
    wait_dead(&pid);
    let frames = host.wait_settled(from);
    let ends = of_type(&frames, "tool_execution_end");
    assert_eq!(ends.len(), 3);
    assert!(ends.iter().filter(|end| end["toolCallId"] != "k3").all(|end| end["isError"] == true), "{ends:?}");
    let aborted = "turn_end turn_start +assistant -assistant turn_end agent_end abort";
    assert!(frame_shape(&frames).ends_with(aborted), "{}", frame_shape(&frames));
    let message = of_type(&frames, "turn_end").pop().unwrap()["message"].take();
    assert_eq!((&message["stopReason"], &message["content"]), (&json!("aborted"), &json!([])));
    assert_eq!(of_type(&frames, "agent_end")[0]["messages"].as_array().unwrap().last(), Some(&message));
    assert_eq!((place.provider.request_count(), place.read_file("never")), (1, None));
    host.run_turn("next");
    assert!(place.provider.last_request().is_paired());
}

#[test]
fn a_call_that_streamed_only_in_part_is_never_run() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let half = ReplyPart::Raw("data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"k\",\"type\":\"function\",\"function\":{\"name\":\"bash\",\"arguments\":\"{\\\"command\\\": \\\"touch never\"}}]}}]}\n\n".into());
    place.provider.script_replies([ProviderReply::new(vec![half, ReplyPart::Hang])]);
    let from = host.send_prompt("go");
    host.wait_frame(from, "the call", |frame| frame["assistantMessageEvent"]["type"] == "toolcall_delta");
    host.command_data(json!({ "type": "abort" }));
    host.run_turn("next");
    assert!(place.provider.last_request().is_paired());
    assert_eq!(place.read_file("never"), None);
}

#[test]
fn abort_and_prompt_is_answered_between_the_two_runs() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    place.provider.script_replies([ProviderReply::new(vec![text_part("old"), ReplyPart::Hang]), text_reply("new")]);
    let from = host.send_prompt("go");
    host.wait_event(from, "message_update");
    host.command_data(json!({ "type": "abort_and_prompt", "message": "instead" }));
    let frames = host.wait_settled(from);
    let sequence = frame_shape(&frames);
    assert!(sequence.contains("turn_end agent_end abort_and_prompt agent_start turn_start +user"), "{sequence}");
    assert_eq!(host.message_texts(), ["go", "old", "instead", "new"]);
    host.command_data(json!({ "type": "abort_and_prompt", "message": "from idle" }));
    host.wait_frame(0, "the run", |frame| {
        frame["type"] == "agent_end" && text_of(&frame["messages"][0]) == "from idle"
    });
}

#[test]
fn of_two_that_take_a_runs_place_the_second_takes_that_of_the_first() {
    for is_running in [false, true] {
        let place = HostFixture::new();
        let mut host = place.start(&[]);
        if is_running {
            place.provider.script_replies([ProviderReply::new(vec![text_part("old"), ReplyPart::Hang])]);
            let from = host.send_prompt("go");
            host.wait_event(from, "message_update");
        }
        let from = host.frame_position();
        let lines = ["one", "two"].map(|text| json!({ "type": "abort_and_prompt", "id": text, "message": text }));
        host.write_input(lines.map(|line| format!("{line}\n")).concat());
        for id in ["one", "two"] {
            let answer = host.wait_frame(from, id, |frame| frame["type"] == "response" && frame["id"] == id);
            assert_eq!(answer["success"], true, "{answer}");
        }
        host.wait_frame(from, "the run", |frame| {
            frame["type"] == "agent_end" && text_of(&frame["messages"][0]) == "two"
        });
        assert_eq!(host.message_texts().last().unwrap(), "ok");
        assert!(host.message_texts().contains(&"one".to_owned()));
    }
}

#[test]
fn a_prompt_behind_an_abort_finds_no_run() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    place.provider.script_replies([ProviderReply::new(vec![text_part("old"), ReplyPart::Hang])]);
    let from = host.send_prompt("go");
    host.wait_event(from, "message_update");
    let from = host.frame_position();
    host.write_input("{\"type\":\"abort\",\"id\":\"a\"}\n{\"type\":\"prompt\",\"id\":\"b\",\"message\":\"next\"}\n");
    for id in ["a", "b"] {
        let answer = host.wait_frame(from, id, |frame| frame["type"] == "response" && frame["id"] == id);
        assert_eq!(answer["success"], true, "{answer}");
    }
    host.wait_settled(from);
    assert_eq!(host.message_texts(), ["go", "old", "next", "ok"]);
}

/// Tests that an abort stops all earlier requests: a run that remained would never end.
#[test]
fn an_abort_leaves_no_earlier_request_unfinished() {
    for batch in [
        "abort prompt abort",
        "switch_session prompt abort",
        "abort_and_prompt abort",
        "abort_and_prompt abort_and_prompt abort",
        "abort compact abort",
        "compact compact abort",
        "bash compact abort abort_bash",
        "bash prompt abort abort_bash",
        "new_session prompt abort",
        "abort new_session compact abort",
    ] {
        for is_running in [false, true] {
            let place = HostFixture::with_config("compaction: { keepRecentTokens: 30 }\n");
            let mut host = place.start(&[]);
            for number in 0..4 {
                host.run_turn(&format!("{number} {}", "more ".repeat(50)));
            }
            let file = host.session_file();
            place.provider.script_replies((0..9).map(|_| ProviderReply::new(vec![text_part("on"), ReplyPart::Hang])));
            if is_running {
                let from = host.send_prompt("go");
                host.wait_event(from, "message_update");
            }
            let from = host.frame_position();
            let commands: Vec<&str> = batch.split(' ').collect();
            let lines = commands.iter().enumerate().map(|(id, name)| {
                let command = json!({
                    "type": name, "id": id.to_string(), "message": "next", "sessionPath": file, "command": "sleep 600",
                });
                format!("{command}\n")
            });
            host.write_input(lines.collect::<String>());
            for (id, name) in commands.iter().enumerate() {
                let id = id.to_string();
                let answer = host.wait_frame(from, name, |frame| frame["type"] == "response" && frame["id"] == *id);
                // After a command of the user a prompt may still find the run.
                let may_be_either = *name == "prompt" && is_running && batch.starts_with("bash");
                assert!(answer["success"] == (*name != "compact") || may_be_either, "{batch}: {answer}");
            }
            let state = host.session_state();
            assert_eq!((&state["isStreaming"], &state["isCompacting"]), (&json!(false), &json!(false)), "{batch}");
            let answers = host.frames_since(from).iter().filter(|frame| frame["type"] == "response").count();
            assert_eq!(answers, commands.len() + 1, "{batch}");
        }
    }
}

#[test]
fn an_abort_waits_for_no_command_of_the_person() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    let bash = host.send_command(json!({ "type": "bash", "command": "sleep 600" }));
    let new = host.send_command(json!({ "type": "new_session" }));
    let prompt = host.send_command(json!({ "type": "prompt", "message": "next" }));
    host.command_data(json!({ "type": "abort" }));
    host.command_data(json!({ "type": "abort_bash" }));
    for due in [bash, new] {
        assert_eq!(host.wait_answer(&due)["success"], true);
    }
    assert_eq!(host.wait_answer(&prompt)["error"], "Request was aborted");
    assert_eq!((host.message_texts().len(), place.provider.request_count()), (0, 0));
}

#[test]
fn an_abort_waits_for_no_command_that_comes_behind_what_it_stops() {
    for batch in [
        "abort_and_prompt bash new_session abort",
        "new_session prompt bash new_session abort",
        "abort prompt bash new_session abort abort",
        "compact prompt bash switch_session abort",
    ] {
        let place = HostFixture::with_config("compaction: { keepRecentTokens: 30 }\n");
        let mut host = place.start(&[]);
        for number in 0..4 {
            host.run_turn(&format!("{number} {}", "more ".repeat(50)));
        }
        let file = host.session_file();
        place.provider.script_replies((0..9).map(|_| ProviderReply::new(vec![text_part("on"), ReplyPart::Hang])));
        let from = host.frame_position();
        let commands: Vec<&str> = batch.split(' ').collect();
        let lines = commands.iter().enumerate().map(|(id, name)| {
            let command = json!({
                "type": name, "id": id.to_string(), "message": "next", "sessionPath": file, "command": "sleep 600",
            });
            format!("{command}\n")
        });
        host.write_input(lines.collect::<String>());
        // The aborts first: the command still works then.
        let (aborts, others): (Vec<_>, Vec<_>) =
            commands.iter().enumerate().partition(|(id, name)| *id > 0 && **name == "abort");
        for (answered, is_last) in [(aborts, false), (others, true)] {
            if is_last {
                host.command_data(json!({ "type": "abort_bash" }));
            }
            for (id, name) in answered {
                let id = id.to_string();
                let answer = host.wait_frame(from, name, |frame| frame["type"] == "response" && frame["id"] == *id);
                assert!(answer["success"] == true || *name == "compact", "{batch}: {answer}");
            }
        }
        let state = host.session_state();
        assert_eq!((&state["isStreaming"], &state["isCompacting"]), (&json!(false), &json!(false)), "{batch}");
    }
}

#[test]
fn no_line_is_too_full_for_an_abort() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    place.provider.script_replies((0..300).map(|_| ProviderReply::new(vec![text_part("on"), ReplyPart::Hang])));
    let from = host.frame_position();
    let line =
        |id: usize| format!("{}\n", json!({ "type": "abort_and_prompt", "id": id.to_string(), "message": "next" }));
    host.write_input((0..260).map(line).collect::<String>() + "{\"type\":\"abort\",\"id\":\"last\"}\n");
    let answer = host.wait_frame(from, "the abort", |frame| frame["type"] == "response" && frame["id"] == "last");
    assert_eq!(answer["success"], true, "{answer}");
    assert_eq!(host.session_state()["isStreaming"], false);
}

#[test]
fn an_abort_keeps_what_is_queued() {
    let place = HostFixture::new();
    let mut host = place.start(&[]);
    place.provider.script_replies([ProviderReply::new(vec![text_part("old"), ReplyPart::Hang])]);
    let from = host.send_prompt("go");
    host.wait_event(from, "message_update");
    host.command_data(json!({ "type": "follow_up", "message": "later" }));
    host.command_data(json!({ "type": "abort" }));
    assert_eq!(host.session_state()["queuedMessageCount"], 1);
    host.run_turn("next");
    assert_eq!(host.message_texts().last().unwrap(), "ok");
    assert!(host.message_texts().contains(&"later".to_owned()));
}
