//! kill -9 while something runs, and the same session again.

use countersign_testkit::process::{
    HostFixture, RpcHost, check_chain, lines_with, message_text as text_of,
    provider::{ProviderReply, ReplyPart, bash_part, error_reply, text_part, text_reply},
    wait_dead,
};
use serde_json::json;

/// Returns a host whose session has a file.
fn begun(place: &HostFixture) -> RpcHost {
    let mut host = place.start(&[]);
    host.run_turn("one");
    lines_with(&host.session_file(), "\"ok\"");
    host
}

/// Continues after a crash; the request to the provider must be acceptable, and the file whole.
fn go_on(host: &mut RpcHost, place: &HostFixture) {
    host.run_turn("go on");
    assert!(place.provider.last_request().is_paired());
    check_chain(&lines_with(&host.session_file(), "go on"));
}

/// Checks that the host is told that its run does not go on by itself.
fn check_notified(host: &RpcHost) {
    let notification = host.wait_frame(0, "a notice", |frame| frame["method"] == "notify");
    assert!(notification["message"].as_str().unwrap().contains("the run stands"), "{notification}");
}

fn sleeping() -> String {
    "echo ran >> count; sh -c 'echo $$ > pid; exec sleep 300'".to_owned()
}

#[test]
fn while_the_model_streams_the_prompt_is_kept_and_nothing_goes_on_by_itself() {
    let place = HostFixture::new();
    let mut host = begun(&place);
    place.provider.script_replies([ProviderReply::new(vec![text_part("half"), ReplyPart::Hang])]);
    let from = host.send_prompt("two");
    host.wait_event(from, "message_update");
    host.kill();
    let mut again = place.resume_host();
    assert_eq!(again.message_texts(), ["one", "ok", "two"]);
    assert_eq!(again.session_state()["isStreaming"], false);
    go_on(&mut again, &place);
    assert_eq!(place.provider.request_count(), 3);
    again.close_cleanly();
}

#[test]
fn while_a_command_runs_it_dies_and_its_outcome_is_unknown() {
    let place = HostFixture::new();
    let mut host = begun(&place);
    place
        .provider
        .script_replies([ProviderReply::new(vec![bash_part("k1", &sleeping()), bash_part("k2", "touch never")])]);
    host.send_prompt("two");
    let pid = place.wait_for("pid");
    host.kill();
    wait_dead(&pid);
    let mut again = place.resume_host();
    check_notified(&again);
    go_on(&mut again, &place);
    let request = place.provider.last_request();
    assert!(request.call_result("k1").unwrap().contains("Outcome unknown"), "{request:?}");
    assert!(request.call_result("k2").unwrap().contains("Not run"), "{request:?}");
    assert_eq!((place.read_file("count").unwrap().as_str(), place.read_file("never")), ("ran\n", None));
}

#[test]
fn while_a_command_that_left_its_group_runs_it_dies_too() {
    let place = HostFixture::new();
    let mut host = begun(&place);
    place
        .provider
        .script_replies([ProviderReply::new(vec![bash_part("k1", "setsid sh -c 'echo $$ > pid; exec sleep 300'")])]);
    host.send_prompt("two");
    let pid = place.wait_for("pid");
    host.kill();
    wait_dead(&pid);
}

#[test]
fn a_crash_during_a_users_command_is_reported() {
    let place = HostFixture::new();
    let mut host = begun(&place);
    host.send_command(json!({ "type": "bash", "command": sleeping() }));
    let pid = place.wait_for("pid");
    host.kill();
    wait_dead(&pid);
    let mut again = place.resume_host();
    let message = again.session_messages().last().unwrap().clone();
    assert_eq!((&message["role"], &message["cancelled"]), (&json!("bashExecution"), &json!(true)));
    assert_eq!(again.command_data(json!({ "type": "bash", "command": "echo alive" }))["output"], "alive\n");
    go_on(&mut again, &place);
    assert_eq!(place.read_file("count").unwrap(), "ran\n");
}

#[test]
fn between_a_result_and_the_next_request_the_result_is_kept() {
    let place = HostFixture::new();
    let mut host = begun(&place);
    place.provider.script_replies([
        ProviderReply::new(vec![bash_part("k1", "echo ran | tee -a count")]),
        ProviderReply::new(vec![ReplyPart::Hang]),
    ]);
    host.send_prompt("two");
    place.provider.wait_request(2);
    host.kill();
    go_on(&mut place.resume_host(), &place);
    assert_eq!(place.provider.last_request().call_result("k1").unwrap(), "ran\n");
    assert_eq!(place.read_file("count").unwrap(), "ran\n");
}

#[test]
fn right_after_its_acknowledgement_everything_is_kept() {
    let place = HostFixture::new();
    let mut host = begun(&place);
    for round in 0..4 {
        place.provider.script_replies([ProviderReply::new(vec![ReplyPart::Hang])]);
        host.send_prompt(&format!("prompt {round}"));
        host.kill();
        host = place.resume_host();
        assert_eq!(host.message_texts().last().unwrap(), &format!("prompt {round}"));
    }
    for (command, key, want) in [
        (json!({ "type": "steer", "message": "s" }), "queuedMessageCount", json!(1)),
        (json!({ "type": "follow_up", "message": "f" }), "queuedMessageCount", json!(2)),
        (json!({ "type": "set_session_name", "name": "n" }), "sessionName", json!("n")),
        (json!({ "type": "set_thinking_level", "level": "low" }), "thinkingLevel", json!("low")),
    ] {
        host.command_data(command.clone());
        host.kill();
        host = place.resume_host();
        assert_eq!(host.session_state()[key], want, "{command}");
    }
    // The newest name counts, whichever stands in the file.
    for round in 0..8 {
        host.command_data(json!({ "type": "set_session_name", "name": format!("name {round}") }));
        host.kill();
        host = place.resume_host();
        assert_eq!(host.session_state()["sessionName"], format!("name {round}"));
    }
    host.command_data(json!({ "type": "bash", "command": "echo kept" }));
    host.kill();
    assert_eq!(place.resume_host().session_messages().last().unwrap()["output"], "kept\n");
}

#[test]
fn during_a_compaction_the_conversation_is_as_it_was() {
    let place = HostFixture::with_config("compaction: { keepRecentTokens: 30 }\n");
    let mut host = begun(&place);
    for turn in 0..3 {
        host.run_turn(&format!("message {turn} ").repeat(20));
    }
    let before = host.session_messages();
    lines_with(&host.session_file(), "message 2");
    place.provider.script_replies([ProviderReply::new(vec![text_part("half a summary"), ReplyPart::Hang])]);
    host.send_command(json!({ "type": "compact" }));
    place.provider.wait_request(4);
    host.kill();
    let mut again = place.resume_host();
    assert_eq!((&again.session_state()["isCompacting"], again.session_messages()), (&json!(false), before));
    again.command_data(json!({ "type": "compact" }));
    go_on(&mut again, &place);
}

#[test]
fn while_another_attempt_is_waited_for_prompt_and_wait_are_kept() {
    let place = HostFixture::with_config("retry: { baseDelayMs: 600000, provider: { maxRetries: 0 } }\n");
    let mut host = begun(&place);
    place.provider.script_replies([error_reply(503, "overloaded")]);
    let from = host.send_prompt("two");
    host.wait_event(from, "auto_retry_start");
    host.kill();
    let mut again = place.resume_host();
    again.wait_event(0, "auto_retry_start");
    let from = again.frame_position();
    again.command_data(json!({ "type": "abort_retry" }));
    again.wait_settled(from);
    go_on(&mut again, &place);
    assert!(again.message_texts().contains(&"two".to_owned()));
    assert_eq!(place.provider.request_count(), 3);
}

#[test]
fn at_any_moment_no_call_runs_twice_and_the_file_holds_the_conversation() {
    let place = HostFixture::new();
    let mut host = begun(&place);
    for round in 0..10_u64 {
        let calls = ["a", "b"]
            .map(|name| bash_part(&format!("{name}{round}"), &format!("echo {name}{round} >> log; sleep 0.02")));
        place.provider.script_replies([
            ProviderReply::new(calls.into()),
            ProviderReply::new(vec![bash_part(&format!("c{round}"), &format!("echo c{round} >> log"))]),
        ]);
        let before = host.frame_position();
        host.send_prompt(&format!("round {round}"));
        // The more rounds, the later the moment.
        let frames = usize::try_from(round * 2).unwrap();
        host.wait_frame(before, "so many frames", {
            let seen = std::cell::Cell::new(0);
            move |_| seen.replace(seen.get() + 1) >= frames
        });
        host.kill();
        host = place.resume_host();
        place.provider.script_replies([text_reply("back")]);
        host.run_turn(&format!("after {round}"));
        let request = place.provider.last_request();
        assert!(request.is_paired(), "{round}");
        assert!(request.messages_text().contains(&format!("round {round}")));
    }
    let log = place.read_file("log").unwrap_or_default();
    let mut ran: Vec<&str> = log.lines().collect();
    ran.sort_unstable();
    ran.dedup();
    assert_eq!(ran.len(), log.lines().count(), "{log}");
    let lines = lines_with(&host.session_file(), "after 9");
    check_chain(&lines);
    let messages = host.session_messages();
    let in_file: Vec<String> =
        lines.iter().filter(|line| line["type"] == "message").map(|line| text_of(&line["message"])).collect();
    assert_eq!(in_file[..messages.len()], messages.iter().map(text_of).collect::<Vec<_>>());
}
