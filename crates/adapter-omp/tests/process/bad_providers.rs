//! Providers that do not do what they should.

use countersign_testkit::process::{
    HostFixture, RpcHost, of_type,
    provider::{ProviderReply, ReplyPart, text_part, text_reply},
};
use serde_json::json;

const ONCE: &str = "retry: { baseDelayMs: 20, maxRetries: 1, provider: { maxRetries: 0 } }\n";

/// Prompts, and gives the error that the run ended with.
fn error_of(host: &mut RpcHost) -> String {
    let frames = host.run_turn("go");
    let message = of_type(&frames, "turn_end").pop().unwrap()["message"].clone();
    assert_eq!(message["stopReason"], "error", "{message}");
    message["errorMessage"].as_str().unwrap().to_owned()
}

#[test]
fn each_names_the_problem_and_leaves_the_session_usable() {
    let page =
        |status| ProviderReply { status, body: Some("<html><body>Bad Gateway</body></html>".into()), ..text_reply("") };
    let raw = |raw: &str| ProviderReply::new(vec![ReplyPart::Raw(raw.into()), ReplyPart::Cut]);
    let nameless = "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{}\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n";
    let place = HostFixture::with_config(ONCE);
    let mut host = place.start(&[]);
    type MakeReply<'a> = Box<dyn Fn() -> ProviderReply + 'a>;
    let cases: [(&str, MakeReply<'_>, &str); 6] = [
        ("an error page", Box::new(|| page(502)), "Bad Gateway"),
        ("a page in place of a stream", Box::new(|| page(200)), "text/html"),
        ("half an event", Box::new(|| raw("data: {\"id\":\"c\",\"obj")), "malformed"),
        ("no end", Box::new(|| ProviderReply::new(vec![text_part("half"), ReplyPart::Cut])), "ended before its end"),
        ("no JSON", Box::new(|| raw("data: {nope}\n\n")), "malformed"),
        ("a call without a name", Box::new(|| raw(nameless)), "without a name"),
    ];
    for (case, reply, want) in &cases {
        place.provider.script_replies([reply(), reply()]);
        let error = error_of(&mut host);
        assert!(error.contains(want), "{case}: {error}");
    }
    host.run_turn("better?");
    assert_eq!(host.message_texts().last().unwrap(), "ok");
    host.close_cleanly();
}

#[test]
fn one_that_is_not_there_is_an_error() {
    let place = HostFixture::with_config(ONCE);
    let models = std::fs::read_to_string(place.agent.join("models.yml")).unwrap();
    std::fs::write(place.agent.join("models.yml"), models.replace(&place.provider.url, "http://127.0.0.1:1")).unwrap();
    assert!(error_of(&mut place.start(&[])).contains("onnect"));
}

#[test]
fn one_that_hangs_can_be_left() {
    for parts in [vec![ReplyPart::Hang], vec![ReplyPart::Raw("data: {\"cho".into()), ReplyPart::Hang]] {
        let place = HostFixture::new();
        let mut host = place.start(&[]);
        place.provider.script_replies([ProviderReply::new(parts)]);
        host.send_prompt("go");
        place.provider.wait_request(0);
        host.command_data(json!({ "type": "abort" }));
        place.provider.wait_request_when(0, |request| request.is_gone);
        host.run_turn("better?");
        assert_eq!(host.message_texts().last().unwrap(), "ok");
    }
}

#[test]
fn one_that_only_keeps_the_connection_alive_is_reported_before_it_is_left() {
    let limit = "providers: { streamIdleTimeoutSeconds: 1 }\n";
    let place = HostFixture::with_config(&format!("{ONCE}{limit}").replace("maxRetries: 1", "maxRetries: 0"));
    let mut host = place.start(&[]);
    let reply = ProviderReply::new(vec![ReplyPart::Raw(": PROCESSING\n\n".into()), ReplyPart::Hang]);
    place.provider.script_replies([reply]);
    let from = host.send_prompt("go");
    let notice = host.wait_frame(from, "the notice", |frame| frame["method"] == "notify");
    assert_eq!(
        (&notice["notifyType"], &notice["message"]),
        (
            &json!("info"),
            &json!(
                "The model provider keeps the connection alive but has sent nothing of an answer for 0 s. The request fails after 1 s."
            )
        )
    );
    let message = of_type(&host.wait_settled(from), "turn_end").pop().unwrap()["message"].clone();
    assert_eq!(message["stopReason"], "error", "{message}");
    let error = "timeout: the provider keeps the connection alive but has sent no part of an answer for 1 s";
    assert!(message["errorMessage"].as_str().unwrap().contains(error), "{message}");
    host.run_turn("better?");
    assert_eq!(host.message_texts().last().unwrap(), "ok");
    host.close_cleanly();
}

#[test]
fn a_redirect_is_not_followed() {
    let place = HostFixture::with_config(ONCE);
    let mut host = place.start(&[]);
    let url = format!("{}/v1/chat/completions", place.provider.url);
    let redirect = ProviderReply { status: 307, body: Some("{}".into()), ..text_reply("") };
    place.provider.script_replies([redirect.with_header("location", &url)]);
    error_of(&mut host);
    assert_eq!(place.provider.request_count(), 1);
}
