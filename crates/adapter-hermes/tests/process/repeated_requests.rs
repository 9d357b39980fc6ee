//! Repeated requests have one effect, and a message that waits for a compaction is reported as it is.

use countersign_testkit::process::{
    GatewayFixture, Latch,
    browser::BrowserClient,
    eventually,
    hermes::{event_names, message_roles, token_text},
    http::HttpClient,
    provider::{ProviderReply, ReplyPart, error_reply, text_part as saying, text_reply},
};
use serde_json::{Value, json};

/// Creates a session whose next message has to wait for a compaction.
fn long_session(http: &HttpClient) -> String {
    let session = http.create_session();
    // Nearly all of the window; what follows them is too much.
    for (size, last) in [(240_000, "stream_end"), (120_000, "apperror")] {
        let stream = http.start_chat(&session, &"word ".repeat(size / 5));
        assert_eq!(http.stream_chat(&stream).wait_end().last().unwrap().name, last);
    }
    session
}

fn asked_for_a_summary(talk: &GatewayFixture) {
    eventually("a summary is asked for", || (talk.provider.request_count() == 3).then_some(()));
}

/// Creates a session whose last message was too long, during its compaction: returns its id, and the stream of the turn that repeats.
fn overflowed(talk: &GatewayFixture, http: &HttpClient) -> (String, String) {
    let session = http.create_session();
    http.stream_chat(&http.start_chat(&session, &"word ".repeat(48_000))).wait_end();
    let stream = http.start_chat(&session, &"word ".repeat(24_000));
    assert_eq!(http.stream_chat(&stream).wait_end().last().unwrap().name, "apperror");
    asked_for_a_summary(talk);
    let shown = http.get(&format!("/api/session?session_id={session}&messages=0")).json()["session"].clone();
    let again = shown["active_stream_id"].as_str().unwrap().to_owned();
    assert_ne!(again, stream);
    (session, again)
}

fn counted() -> ProviderReply {
    ProviderReply { usage: (60_000, 10, 0), ..text_reply("one") }
}

#[test]
fn a_message_behind_a_compaction_has_a_stream_that_outlives_the_gateway() {
    let talk = GatewayFixture::for_web();
    let (gateway, http) = talk.start_web();
    let latch = Latch::default();
    let held = ProviderReply::new(vec![saying("a sum"), ReplyPart::Until(latch.clone())]);
    talk.provider.script_replies([
        counted(),
        error_reply(400, "no"),
        held,
        text_reply("a summary"),
        text_reply("as you say"),
    ]);
    let session = long_session(&http);
    let stream = http.start_chat(&session, "third");
    assert_eq!(http.stream_chat(&stream).wait_named("compressing").name, "compressing");
    asked_for_a_summary(&talk);
    let loaded = http.get(&format!("/api/session?session_id={session}&messages=0")).json()["session"].clone();
    let waiting = (&loaded["active_stream_id"], &loaded["pending_user_message"], &loaded["is_streaming"]);
    assert_eq!(waiting, (&json!(stream), &json!("third"), &json!(true)));
    let again = http.post("/api/chat/start", &json!({ "session_id": session, "message": "fourth" }));
    assert_eq!((again.status, &again.json()["active_stream_id"]), (409, &json!(stream)));
    let steered = http.post("/api/chat/steer", &json!({ "session_id": session, "text": "and this" })).json();
    assert_eq!((&steered["accepted"], &steered["stream_id"]), (&json!(true), &json!(stream)));

    gateway.kill();
    latch.open();
    let (_gateway, http) = talk.start_web();
    let events = http.stream_chat(&stream).wait_end();
    assert_eq!((token_text(&events).as_str(), event_names(&events).last()), ("as you say", Some(&"stream_end")));
    assert!(event_names(&events).contains(&"compressed"), "{:?}", event_names(&events));
    let session = http.get(&format!("/api/session?session_id={session}")).json()["session"].clone();
    assert_eq!(message_roles(&session).iter().rev().take(3).collect::<Vec<_>>(), [&"assistant", &"user", &"user"]);
    assert_eq!(session["pending_user_message"], Value::Null);
}

#[test]
fn a_message_behind_a_compaction_is_taken_back() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    let held = ProviderReply::new(vec![saying("a sum"), ReplyPart::Hang]);
    talk.provider.script_replies([counted(), error_reply(400, "no"), held]);
    let session = long_session(&http);
    let stream = http.start_chat(&session, "third");
    let turn = http.stream_chat(&stream);
    turn.wait_named("compressing");
    asked_for_a_summary(&talk);
    let cancelled = http.get(&format!("/api/chat/cancel?stream_id={stream}")).json();
    assert_eq!(cancelled["cancelled"], true);
    assert_eq!(turn.wait_end().last().unwrap().name, "cancel");
    let status = http.get(&format!("/api/chat/stream/status?stream_id={stream}")).json();
    assert_eq!(
        (&status["active"], &status["journal"]["terminal_state"]),
        (&json!(false), &json!("interrupted-by-user"))
    );
    assert_eq!(talk.provider.request_count(), 3, "nobody is asked what was taken back");
}

#[test]
fn a_turn_that_fills_the_window_is_summed_up_before_the_next_and_holds_nobody_up() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    let full = ProviderReply { usage: (95_000, 10, 0), ..text_reply("two") };
    talk.provider.script_replies([counted(), full, text_reply("a summary"), text_reply("as you say")]);
    let session = http.create_session();
    for size in [48_000, 24_000] {
        assert_eq!(
            http.stream_chat(&http.start_chat(&session, &"word ".repeat(size))).wait_end().last().unwrap().name,
            "stream_end"
        );
    }
    let details = http.get(&format!("/api/v1/sessions/{session}")).json();
    assert_eq!((&details["state"], talk.provider.request_count()), (&json!("resting"), 2));
    let events = http.stream_chat(&http.start_chat(&session, "third")).wait_end();
    assert_eq!((token_text(&events).as_str(), event_names(&events).last()), ("as you say", Some(&"stream_end")));
    assert!(event_names(&events).contains(&"compressed"), "{:?}", event_names(&events));
}

#[test]
fn stopping_a_waiting_turn_takes_back_its_own_message_only() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    let held = ProviderReply::new(vec![saying("a sum"), ReplyPart::Hang]);
    talk.provider.script_replies([
        counted(),
        error_reply(400, "no"),
        held,
        text_reply("a summary"),
        text_reply("as you say"),
    ]);
    let session = long_session(&http);
    let watched = http.open_stream(&format!("/api/session/stream?session_id={session}"));
    watched.wait_named("initial");
    let stream = http.start_chat(&session, "third");
    asked_for_a_summary(&talk);
    let path = format!("/api/v1/sessions/{session}");
    let queued = http.post(&format!("{path}/messages"), &json!({ "text": "another's", "when_busy": "queue" }));
    assert_eq!(queued.status, 202, "{queued:?}");
    assert_eq!(http.get(&format!("/api/chat/cancel?stream_id={stream}")).json()["cancelled"], true);
    assert_eq!(http.stream_chat(&stream).wait_end().last().unwrap().name, "cancel");
    assert_eq!(watched.wait_named("turn_started").data["stream_id"], json!(stream));
    assert_eq!(watched.wait_named("turn_completed").data["status"], "cancelled");
    eventually("the summary ends", || (http.get(&path).json()["state"] == "resting").then_some(()));
    assert_eq!(http.get(&path).json()["queued"], 1, "it waits for the next turn, as everything that is queued");
    http.stream_chat(&http.start_chat(&session, "fourth")).wait_end();
    let request_text = talk.provider.last_request().messages_text();
    assert!(
        request_text.contains("another's") && request_text.contains("fourth") && !request_text.contains("third"),
        "{request_text}"
    );
}

#[test]
fn a_turn_that_was_too_long_is_stopped_by_name_while_it_is_summed_up() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    let held = ProviderReply::new(vec![saying("a sum"), ReplyPart::Hang]);
    talk.provider.script_replies([counted(), error_reply(400, "prompt is too long"), held]);
    let (session, again) = overflowed(&talk, &http);
    let turn = http.stream_chat(&again);
    turn.wait_named("compressing");
    assert_eq!(http.get(&format!("/api/chat/cancel?stream_id={again}")).json()["cancelled"], true);
    assert_eq!(turn.wait_end().last().unwrap().name, "cancel");
    assert_eq!(http.get(&format!("/api/v1/sessions/{session}")).json()["state"], "resting");
}

#[test]
fn a_turn_that_was_too_long_asks_again_across_a_restart() {
    for is_killed in [false, true] {
        let talk = GatewayFixture::for_web();
        let (mut gateway, http) = talk.start_web();
        let held = ProviderReply::new(vec![saying("a sum"), ReplyPart::Hang]);
        let refused = error_reply(400, "prompt is too long");
        talk.provider.script_replies([counted(), refused, held, text_reply("a summary"), text_reply("as you say")]);
        let (_, again) = overflowed(&talk, &http);
        if is_killed {
            gateway.kill();
        } else {
            gateway.stop();
        }
        let (_gateway, http) = talk.start_web();
        let events = http.stream_chat(&again).wait_end();
        assert_eq!(
            (token_text(&events).as_str(), event_names(&events).last()),
            ("as you say", Some(&"stream_end")),
            "{is_killed}"
        );
    }
}

#[test]
fn stopping_a_summary_reports_that_something_was_stopped() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    let held = ProviderReply::new(vec![saying("a sum"), ReplyPart::Hang]);
    talk.provider.script_replies([counted(), error_reply(400, "prompt is too long"), held]);
    let (session, again) = overflowed(&talk, &http);
    let path = format!("/api/v1/sessions/{session}");
    let details = http.get(&path).json();
    assert!(details["state"] == "working" && details["run"].is_string(), "{details}");
    let turn = http.stream_chat(&again);
    turn.wait_named("compressing");
    let refused = http.post("/api/chat/start", &json!({ "session_id": session, "message": "now" }));
    assert_eq!((refused.status, &refused.json()["active_stream_id"]), (409, &json!(again)));
    let refused = http.post(&format!("{path}/messages"), &json!({ "text": "now" }));
    assert_eq!(refused.status, 409);
    assert!(refused.body.contains("the session has an active run"), "{refused:?}");
    let stop = || http.post(&format!("{path}/stop"), &json!({})).json();
    assert_eq!(stop(), json!({ "run": null, "stopped": true }));
    assert_eq!(turn.wait_end().last().unwrap().name, "cancel");
    assert_eq!(stop(), json!({ "run": null, "stopped": false }));
    assert_eq!(http.get(&path).json()["state"], "resting");
    assert_eq!(talk.provider.request_count(), 3, "nobody is asked what was stopped");
}

#[test]
fn what_a_program_posts_twice_under_one_key_happens_once_across_a_restart() {
    let talk = GatewayFixture::for_web();
    let (gateway, http) = talk.start_web();
    talk.provider.script_replies([text_reply("one"), text_reply("two")]);
    let key = |http: &HttpClient, key: &str| http.clone().with_header("idempotency-key", key);
    let open = json!({ "message": "first" });
    let first = key(&http, "open").post("/api/v1/sessions", &open);
    assert_eq!(first.status, 201, "{first:?}");
    let id = first.json()["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/sessions/{id}");
    let rests = |http: &HttpClient| eventually("rest", || (http.get(&path).json()["state"] == "resting").then_some(()));
    rests(&http);
    let messages = format!("{path}/messages");
    let posted = key(&http, "say").post(&messages, &json!({ "text": "second" }));
    assert_eq!(posted.status, 202, "{posted:?}");
    rests(&http);
    gateway.kill();

    let (_gateway, http) = talk.start_web();
    for _ in 0..2 {
        let again = key(&http, "open").post("/api/v1/sessions", &open);
        assert_eq!((again.status, again.json()), (201, first.json()));
        let again = key(&http, "say").post(&messages, &json!({ "text": "second" }));
        assert_eq!((again.status, again.json()), (202, posted.json()));
    }
    for (name, path, body) in [("open", "/api/v1/sessions", json!({})), ("say", &messages, json!({ "text": "other" }))]
    {
        let other = key(&http, name).post(path, &body);
        assert_eq!(other.status, 422, "{other:?}");
    }
    assert_eq!(http.get(&path).json()["length"], 4, "two messages and their answers");
    assert_eq!(http.get("/api/v1/sessions?door=api").json()["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(talk.provider.request_count(), 2);
}

#[test]
fn a_form_that_is_posted_twice_opens_one_session_and_says_one_thing() {
    let talk = GatewayFixture::for_web();
    let (gateway, http) = talk.start_web();
    talk.provider.script_replies([text_reply("one"), text_reply("two")]);
    let visitor = BrowserClient::default();
    let key_of = |page: &str| {
        let (_, behind) = page.split_once("name=\"key\" value=\"").expect("a form has a key");
        behind.split('"').next().unwrap().to_owned()
    };
    let key = key_of(&visitor.get_page(&gateway, "/console/sessions").text);
    let post = |path: &str, key: &str, message: &str| {
        let reply = visitor.post_form(&gateway, path, &[("message", message), ("key", key)]);
        assert_eq!(reply.status, 303, "{}", reply.text);
        reply.header("location").unwrap().to_owned()
    };
    let path = post("/console/sessions", &key, "first");
    assert_eq!(post("/console/sessions", &key, "first"), path);
    let id = path.rsplit('/').next().unwrap().to_owned();
    let rests = || {
        eventually("rest", || (http.get(&format!("/api/v1/sessions/{id}")).json()["state"] == "resting").then_some(()))
    };
    rests();
    let key = key_of(&visitor.get_page(&gateway, &path).text);
    post(&format!("{path}/say"), &key, "second");
    post(&format!("{path}/say"), &key, "second");
    rests();
    assert_eq!(http.get(&format!("/api/v1/sessions/{id}")).json()["length"], 4);
    assert_ne!(
        post("/console/sessions", &key, "another"),
        path,
        "a form that somebody comes back to says something else"
    );
}

#[test]
fn older_messages_are_requested_by_the_beginning_of_the_page() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    talk.provider.script_replies([text_reply("one"), text_reply("two")]);
    let session = http.create_session();
    for message in ["first", "second"] {
        http.stream_chat(&http.start_chat(&session, message)).wait_end();
    }
    for (query, want, offset) in [
        ("msg_limit=1", json!(["two"]), 3),
        ("msg_limit=2&msg_before=3", json!(["one", "second"]), 1),
        ("msg_limit=2&msg_before=1", json!(["first"]), 0),
        ("msg_before=0", json!([]), 0),
        ("msg_before=99", json!(["first", "one", "second", "two"]), 0),
    ] {
        let loaded = http.get(&format!("/api/session?session_id={session}&{query}")).json()["session"].clone();
        let contents: Vec<_> =
            loaded["messages"].as_array().unwrap().iter().map(|message| message["content"].clone()).collect();
        assert_eq!((json!(contents), &loaded["_messages_offset"]), (want, &json!(offset)), "{query}");
        assert_eq!(
            (&loaded["_messages_truncated"], &loaded["message_count"]),
            (&json!(offset > 0), &json!(4)),
            "{query}"
        );
    }
}

#[test]
fn a_health_check_names_the_checked_parts() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    let health = http.get("/health").json();
    assert_eq!((&health["status"], &health["checks"]), (&json!("ok"), &Value::Null));
    let before = health["accept_loop"]["requests_total"].as_u64().unwrap();
    let health = http.get("/health?deep=1").json();
    assert_eq!(health["accept_loop"]["requests_total"], before + 1);
    assert!(
        health["accept_loop"]["last_request_at"].as_f64().unwrap() >= health["server_started_at"].as_f64().unwrap()
    );
    for check in ["engine", "record", "sessions"] {
        assert_eq!(health["checks"][check]["status"], "ok", "{health}");
    }
    assert_eq!(health["last_run_finished_at"], Value::Null, "no run has ended yet");
    talk.provider.script_replies([text_reply("one")]);
    let session = http.create_session();
    http.stream_chat(&http.start_chat(&session, "first")).wait_end();
    let health = http.get("/health").json();
    assert!(health["last_run_finished_at"].as_f64() >= health["server_started_at"].as_f64(), "{health}");
    assert!(!health.to_string().contains(&session), "anybody may ask: sessions are not named");
}
