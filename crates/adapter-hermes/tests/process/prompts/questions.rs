//! Questions of runs, and the answers of users.

use std::{sync::Barrier, thread};

use countersign_testkit::process::{
    GatewayFixture, GatewayOptions,
    provider::{ProviderReply, ReplyPart, call_part, error_reply, text_reply},
};
use serde_json::{Value, json};

use super::client::{SseStream, chat, pending, post};

const STALE: &str = "Clarification prompt expired or not found. The agent may have already proceeded.";

/// Returns the call that asks these questions.
fn asks(id: &str, questions: &Value) -> ReplyPart {
    call_part(id, "ask", &json!({ "questions": questions }))
}

fn colour() -> Value {
    let options = json!([{ "label": "red" }, { "label": "blue\u{200b}" }]);
    json!({ "id": "colour", "question": "Which colour?", "options": options, "recommended": 1 })
}

fn several() -> Value {
    let options = json!([{ "label": "a" }, { "label": "b, c" }, { "label": "d" }]);
    json!({ "id": "several", "question": "Which of them?", "options": options, "multi": true })
}

fn free() -> Value {
    json!({ "id": "free", "question": "Why?", "options": [] })
}

/// Returns the name of the oldest question, once it is another than `before`.
fn next(stream: &mut SseStream, before: Option<&str>) -> (String, Value) {
    let frame = stream.until(|frame| frame.state().0.is_some_and(|id| Some(id) != before));
    (frame.state().0.unwrap().to_owned(), frame.data["pending"].clone())
}

#[test]
fn a_question_is_shown_and_its_answer_reaches_the_model() {
    let talk = GatewayFixture::for_web();
    let (gateway, _) = talk.start_web();
    let script = [
        ProviderReply::new(vec![asks("c1", &json!([colour(), several(), free()]))]),
        ProviderReply::new(vec![asks("c2", &json!([free()]))]),
        text_reply("done"),
    ];
    let (session, turn) = chat(&talk, &gateway, script);
    let mut stream = SseStream::for_session(&gateway, "clarify", &session);
    let (first, card) = next(&mut stream, None);
    let is = |name: &str| card[name].clone();
    assert_eq!(
        (is("question"), is("kind"), is("session_id")),
        (json!("Which colour?"), json!("clarify"), json!(session))
    );
    assert_eq!((is("choices_offered"), is("recommended")), (json!(["red", "blue\\u{200b}"]), json!("blue\\u{200b}")));
    assert_eq!((is("timeout_seconds"), is("multi")), (json!(3600), json!(false)));
    let left = is("expires_at").as_f64().unwrap() - is("requested_at").as_f64().unwrap();
    assert!((left - 3600.0).abs() < 1.0, "{card}");
    assert_eq!(pending(&gateway, "clarify", &session)["pending"], card);
    assert_eq!(turn.wait_named("clarify").data["clarify_id"], json!(first));
    assert_eq!(pending(&gateway, "approval", &session)["pending"], Value::Null);
    let respond = |body: Value| post(&gateway, "/api/clarify/respond", body);
    let stale = (409, json!({ "ok": false, "stale": true, "error": STALE }));
    for (body, want) in [
        (json!({ "response": "x" }), (400, json!({ "error": "session_id is required" }))),
        (json!({ "session_id": session }), (400, json!({ "error": "response is required" }))),
        (json!({ "session_id": session, "response": " \n" }), (400, json!({ "error": "response is required" }))),
        (
            json!({ "session_id": session, "response": "", "answer": "x" }),
            (400, json!({ "error": "response is required" })),
        ),
        (json!({ "session_id": session, "clarify_id": "000000000000", "response": "x" }), stale.clone()),
        (
            json!({ "session_id": session, "clarify_id": 5, "response": "x" }),
            (400, json!({ "error": "clarify_id must be a text" })),
        ),
        (json!({ "session_id": "another", "clarify_id": first, "response": "x" }), stale.clone()),
        (json!({ "session_id": "another", "response": "x" }), stale.clone()),
    ] {
        assert_eq!(respond(body.clone()), want, "{body}");
    }
    let own = json!({ "session_id": session, "clarify_id": first, "response": " blue\\u{200b} " });
    let accepted = (200, json!({ "ok": true, "response": "blue\\u{200b}" }));
    assert_eq!(respond(own.clone()), accepted);
    let (second, _) = next(&mut stream, Some(&first));
    // The same again gets the first result, and another answer is too late.
    assert_eq!(respond(own), accepted);
    assert_eq!(respond(json!({ "session_id": session, "clarify_id": first, "response": "red" })), stale);
    assert_eq!(pending(&gateway, "clarify", &session)["pending"]["clarify_id"], json!(second));
    let body = json!({ "session_id": session, "clarify_id": "", "response": null, "answer": "b, c, a", "choice": "d" });
    assert_eq!(respond(body), (200, json!({ "ok": true, "response": "b, c, a" })));
    let (third, _) = next(&mut stream, Some(&second));
    assert_eq!(respond(json!({ "session_id": session, "choice": 42 })), (200, json!({ "ok": true, "response": "42" })));
    let (_, last) = next(&mut stream, Some(&third));
    assert_eq!((&last["choices_offered"], &last["question"]), (&json!([]), &json!("Why?")));
    assert_eq!(respond(json!({ "session_id": session, "response": "because" })).0, 200);
    assert_eq!(stream.next().state(), (None, 0));
    turn.wait_end();
    let request = talk.provider.last_request();
    let want = "Which colour?\n  blue\u{200b}\nWhich of them?\n  a, b, c\nWhy?\n  42";
    assert_eq!(
        (request.call_result("c1").as_deref(), request.call_result("c2").as_deref()),
        (Some(want), Some("Why?\n  because"))
    );
}

#[test]
fn a_question_that_nobody_answers_goes_and_one_survives_a_power_cut() {
    let talk = GatewayOptions::for_web().with_config("clarify_timeout: 2\n").create();
    let (gateway, _) = talk.start_web();
    let one = || [ProviderReply::new(vec![asks("c1", &json!([colour()]))]), text_reply("done")];
    let (session, turn) = chat(&talk, &gateway, one());
    let mut stream = SseStream::for_session(&gateway, "clarify", &session);
    let (id, card) = next(&mut stream, None);
    assert_eq!(card["timeout_seconds"], 2);
    assert_eq!(stream.next().state(), (None, 0));
    let late = json!({ "session_id": session, "clarify_id": id, "response": "red" });
    assert_eq!(post(&gateway, "/api/clarify/respond", late).0, 409);
    turn.wait_end();
    assert!(talk.provider.last_request().messages_text().contains("nobody answered in time"));

    let (session, _) = chat(&talk, &gateway, one());
    let (id, _) = next(&mut SseStream::for_session(&gateway, "clarify", &session), None);
    gateway.kill();
    let (gateway, _) = talk.start_web();
    // Its deadline continues, extended by the time in which no answer was possible.
    assert_eq!(pending(&gateway, "clarify", &session)["pending"]["clarify_id"], json!(id));
    let body = json!({ "session_id": session, "clarify_id": id, "response": "red" });
    assert_eq!(post(&gateway, "/api/clarify/respond", body).0, 200);
    assert!(talk.provider.wait_request(3).messages_text().contains("red"));
}

#[test]
fn words_without_a_name_that_are_posted_twice_answer_one_question() {
    let talk = GatewayFixture::for_web();
    let (gateway, _) = talk.start_web();
    let both = ProviderReply::new(vec![asks("c1", &json!([free(), several()]))]);
    let (session, turn) = chat(&talk, &gateway, [both, text_reply("done")]);
    let mut stream = SseStream::for_session(&gateway, "clarify", &session);
    let (first, _) = next(&mut stream, None);
    let together = Barrier::new(2);
    let replies: Vec<(u16, Value)> = thread::scope(|scope| {
        let posts = [(); 2].map(|()| {
            scope.spawn(|| {
                together.wait();
                post(&gateway, "/api/clarify/respond", json!({ "session_id": session, "response": "a" }))
            })
        });
        posts.into_iter().map(|post| post.join().unwrap()).collect()
    });
    assert_eq!((&replies[0].1, &replies[1]), (&json!({ "ok": true, "response": "a" }), &replies[0]));
    let (second, card) = next(&mut stream, Some(&first));
    assert_eq!(card["question"], "Which of them?", "{replies:?}");
    // A caller who has looked at it may give the same answer to it.
    assert_eq!(pending(&gateway, "clarify", &session)["pending"]["clarify_id"], json!(second));
    assert_eq!(post(&gateway, "/api/clarify/respond", json!({ "session_id": session, "response": "a" })).0, 200);
    turn.wait_end();
    assert!(
        talk.provider.last_request().messages_text().contains("Which of them?\\n  a"),
        "{}",
        talk.provider.last_request().messages_text()
    );
}

#[test]
fn a_long_wait_for_a_provider_is_a_question() {
    let talk = GatewayOptions::for_web().with_config("retry_max_wait: 900\nretry_ask_after: 60\n").create();
    let (gateway, _) = talk.start_web();
    let (session, turn) = chat(&talk, &gateway, [error_reply(429, "slow down").with_header("retry-after", "120")]);
    let mut stream = SseStream::for_session(&gateway, "clarify", &session);
    let (id, card) = next(&mut stream, None);
    assert!(card["question"].as_str().unwrap().starts_with("local/small cannot be asked again before "), "{card}");
    let choices = card["choices_offered"].as_array().unwrap();
    assert_eq!((choices.len(), &choices[1]), (2, &json!("Stop")), "{card}");
    assert!(choices[0].as_str().unwrap().starts_with("Wait until "), "{card}");
    let respond =
        |answer: &str| post(&gateway, "/api/clarify/respond", json!({ "session_id": session, "response": answer }));
    assert_eq!(respond("maybe").0, 409);
    assert_eq!(pending(&gateway, "clarify", &session)["pending"]["clarify_id"], json!(id));
    assert_eq!(respond("stop").0, 200);
    assert_eq!(stream.until(|frame| frame.state().0.is_none()).state(), (None, 0));
    let events = turn.wait_end();
    let last = events.last().unwrap();
    assert_eq!(last.name, "apperror", "{events:?}");
    assert!(last.data["message"].as_str().unwrap().contains("slow down"), "{last:?}");
}
