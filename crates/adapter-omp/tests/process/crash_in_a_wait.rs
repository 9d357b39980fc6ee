//! kill -9 and other ends while a run waits for its next attempt at the model.

use std::{
    fs,
    time::{Duration, Instant},
};

use countersign_testkit::process::{
    AttachFixture, HostFixture, RpcHost, eventually, frame_shape, lines_with, message_roles, message_text as text,
    of_type as only,
    provider::{ProviderReply, ReplyPart, error_reply, text_reply},
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// No attempt is silent, and a wait needs no approval.
const NOTICE_CONFIG: &str =
    "retry: { baseDelayMs: 100, provider: { maxRetries: 0 } }\ncountersign: { retry_ask_after: 0 }\n";
/// The same, and each wait of a minute opens a question.
const ASKING_CONFIG: &str =
    "retry: { baseDelayMs: 100, provider: { maxRetries: 0 } }\ncountersign: { retry_ask_after: 60 }\n";
/// Frames for a host that resumes a run in a wait, up to the end.
const TAKEN_UP: &str = "ready agent_start agent_end auto_retry_start extension_ui_request";

/// Returns a provider that asks for so many seconds.
fn limited(seconds: &str) -> ProviderReply {
    error_reply(429, "slow down").with_header("retry-after", seconds)
}

/// Returns a session of one turn, in whose second one the provider gives these replies.
fn begun(place: &HostFixture, replies: Vec<ProviderReply>) -> (RpcHost, usize) {
    let mut host = place.start(&[]);
    host.run_turn("one");
    lines_with(&host.session_file(), "\"ok\"");
    place.provider.script_replies(replies);
    let from = host.send_prompt("two");
    host.wait_event(from, "auto_retry_start");
    (host, from)
}

/// Waits for the end of a wait of a second.
fn second() {
    let begun = Instant::now();
    eventually("a second", || (begun.elapsed() > Duration::from_millis(1100)).then_some(()));
}

fn notice(host: &RpcHost, from: usize) -> String {
    let notification = host.wait_frame(from, "when the wait ends", |frame| frame["method"] == "notify");
    notification["message"].as_str().unwrap().to_owned()
}

/// Checks the frames for a host that resumes a run in a wait of 100 seconds; the failure before was the first.
fn check_taken_up(host: &mut RpcHost) {
    host.wait_dialog(0);
    let frames = host.frames_since(0);
    assert_eq!(frame_shape(&frames), TAKEN_UP);
    let added = only(&frames, "agent_end").remove(0)["messages"].take();
    assert_eq!(message_roles(added.as_array().unwrap()), ["user", "assistant"]);
    assert_eq!(text(&added[0]), "two");
    let start = only(&frames, "auto_retry_start").remove(0);
    assert_eq!((&start["attempt"], &start["maxAttempts"]), (&json!(1), &json!(3)));
    assert_eq!(start["errorMessage"], added[1]["errorMessage"]);
    assert!((1..=100_000).contains(&start["delayMs"].as_u64().unwrap()), "{start}");
    assert_eq!(host.session_state()["isStreaming"], true);
}

/// Sends a prompt to another model at once, and checks the result.
fn go_on_with_another_model(host: &mut RpcHost, place: &HostFixture) {
    place.provider.script_replies([text_reply("fine")]);
    let from = host.frame_position();
    host.command_data(json!({ "type": "set_model", "provider": "fake", "modelId": "fake-2" }));
    let frames = host.wait_settled(from);
    assert_eq!(only(&frames, "auto_retry_end"), [json!({ "type": "auto_retry_end", "success": true, "attempt": 1 })]);
    assert_eq!(host.message_texts(), ["one", "ok", "two", "fine"]);
    assert_eq!(place.provider.request_count(), 3);
    assert_eq!(host.session_state()["isStreaming"], false);
}

#[test]
fn a_reported_wait_survives_every_way_to_end() {
    type EndHost = fn(RpcHost);
    for (case, end) in [
        ("kill", (|host| host.kill()) as EndHost),
        ("eof", |host| host.close_cleanly()),
        ("term", |mut host| {
            host.send_signal(Signal::SIGTERM);
            assert_eq!(host.wait_end().code, Some(0));
        }),
    ] {
        let place = HostFixture::with_config(NOTICE_CONFIG);
        let (host, from) = begun(&place, vec![limited("100")]);
        let notice_text = notice(&host, from);
        end(host);
        // And once more: the process that took it up ends as well.
        let mut again = place.resume_host();
        check_taken_up(&mut again);
        assert_eq!(notice(&again, 0), notice_text, "{case}");
        end(again);
        let mut again = place.resume_host();
        check_taken_up(&mut again);
        again.command_error(json!({ "type": "prompt", "message": "no" }));
        go_on_with_another_model(&mut again, &place);
    }
}

#[test]
fn a_death_behind_each_step_of_a_wait_sends_nothing_twice() {
    let place = HostFixture::with_config(NOTICE_CONFIG);
    let (host, _) = begun(
        &place,
        vec![limited("4"), limited("1"), ProviderReply::new(vec![ReplyPart::Hang]), text_reply("not asked for")],
    );
    host.kill();
    // The wait is taken up, or has ended meanwhile: the second attempt is made once, and begins another wait.
    let again = place.resume_host();
    again.wait_frame(0, "the second wait", |frame| frame["type"] == "auto_retry_start" && frame["attempt"] == 2);
    again.kill();
    let again = place.resume_host();
    place.provider.wait_request(3);
    again.kill();
    // That one may have been answered: it stands until the host says more.
    let mut again = place.resume_host();
    assert_eq!((again.session_state()["isStreaming"].clone(), place.provider.request_count()), (json!(false), 4));
    place.provider.script_replies([text_reply("fine")]);
    again.run_turn("three");
    assert_eq!(again.message_texts(), ["one", "ok", "two", "three", "fine"]);
    assert_eq!(place.provider.request_count(), 5);
}

#[test]
fn a_wait_that_is_over_when_its_session_is_opened_is_not_waited_for_again() {
    let place = HostFixture::with_config(NOTICE_CONFIG);
    let (host, _) = begun(&place, vec![limited("1"), text_reply("fine")]);
    host.kill();
    second();
    let mut again = place.resume_host();
    let frames = again.wait_settled(0);
    let fine = "+assistant text_start text_delta text_end -assistant turn_end agent_end";
    assert_eq!(frame_shape(&frames), format!("ready agent_start turn_start {fine}"));
    assert_eq!(
        (again.message_texts(), place.provider.request_count()),
        (["one", "ok", "two", "fine"].map(str::to_owned).to_vec(), 3)
    );
}

#[test]
fn the_answer_about_a_wait_is_sent_with_its_end() {
    let place = HostFixture::with_config(ASKING_CONFIG);
    let (mut host, from) = begun(&place, vec![limited("100")]);
    let dialog = host.wait_dialog(from);
    assert!(dialog["options"][0].as_str().unwrap().starts_with("Wait until "), "{dialog}");
    host.answer_dialog(&dialog, json!({ "value": dialog["options"][0] }));
    assert_eq!(host.session_state()["isStreaming"], true);
    host.kill();
    let mut again = place.resume_host();
    check_taken_up(&mut again);
    let notice_text = notice(&again, 0);
    assert!(notice_text.starts_with("The model did not answer; the next attempt is at 20"), "{notice_text}");
    go_on_with_another_model(&mut again, &place);
}

#[test]
fn a_wait_that_is_taken_up_can_be_stopped() {
    for (config, command, error) in [
        (NOTICE_CONFIG, Some("abort_retry"), "Retry cancelled"),
        (NOTICE_CONFIG, Some("abort"), "Retry cancelled"),
        (ASKING_CONFIG, Some("abort"), "Retry cancelled"),
        (ASKING_CONFIG, None, "429 rate limit: slow down"),
    ] {
        let place = HostFixture::with_config(config);
        let (host, from) = begun(&place, vec![limited("100")]);
        host.wait_dialog(from);
        host.kill();
        let mut again = place.resume_host();
        check_taken_up(&mut again);
        let from = again.frame_position();
        match command {
            Some(command) => drop(again.command_data(json!({ "type": command }))),
            None => {
                let dialog = again.wait_dialog(0);
                again.answer_dialog(&dialog, json!({ "value": "Stop" }));
            }
        }
        let frames = again.wait_settled(from);
        let end = only(&frames, "auto_retry_end").remove(0);
        assert_eq!((&end["success"], &end["attempt"]), (&json!(false), &json!(1)), "{command:?}");
        assert!(end["finalError"].as_str().unwrap().starts_with(error), "{end}");
        assert_eq!(only(&frames, "agent_end"), Vec::<Value>::new(), "{command:?}");
        again.run_turn("three");
        assert_eq!(
            (again.message_texts().last().unwrap().as_str(), place.provider.request_count()),
            ("ok", 3),
            "{command:?}"
        );
    }
}

#[test]
fn a_wait_in_a_gateway_outlives_it_and_waits_for_its_host() {
    let fixture = AttachFixture::with_config("");
    fs::write(fixture.host.agent.join("config.yml"), NOTICE_CONFIG).unwrap();
    let gateway = fixture.start_gateway();
    let mut host = fixture.start_host(&[]);
    fixture.host.provider.script_replies([limited("1"), text_reply("fine")]);
    let from = host.send_prompt("two");
    host.wait_event(from, "auto_retry_start");
    gateway.kill();
    host.wait_end();
    second();
    // However often that happens: without its host the model gets no request, and the run stands.
    for _ in 0..2 {
        fixture.start_gateway().kill();
    }
    assert_eq!(fixture.host.provider.request_count(), 1);
    let _gateway = fixture.start_gateway();
    let mut host = fixture.start_host(&["--continue"]);
    eventually("the end of the run", || (host.message_texts().last().unwrap() == "fine").then_some(()));
    assert_eq!(
        (host.message_texts(), fixture.host.provider.request_count()),
        (["two", "fine"].map(str::to_owned).to_vec(), 2)
    );
}
