//! Console and conversations: queued messages, stopping, runs that programs began, live lists.

use countersign_testkit::process::{
    GatewayFixture, GatewayServer, RULES,
    browser::BrowserClient,
    eventually,
    http::HttpClient,
    provider::{ProviderReply, ReplyPart, text_part as saying},
};
use serde_json::json;

/// Starts a chat with a run that does not end; returns it with the path of its page.
fn working(talk: &GatewayFixture, http: &HttpClient) -> (String, String) {
    talk.provider.script_replies([ProviderReply::new(vec![saying("some words"), ReplyPart::Hang])]);
    let opened = http.post("/api/v1/sessions", &json!({ "message": "begin" }));
    assert_eq!(opened.status, 201, "{opened:?}");
    let session = opened.json()["id"].as_str().unwrap().to_owned();
    talk.provider.wait_request(0);
    (format!("/console/sessions/{session}"), session)
}

#[test]
fn queued_messages_are_shown_and_withdrawn_by_hand_or_by_stop() {
    let talk = GatewayFixture::for_web();
    let (gateway, http) = talk.start_web();
    let visitor = BrowserClient::default();
    let (page, _) = working(&talk, &http);
    for (way, message) in [("unsay", "to the <left>"), ("stop", "to the right")] {
        let posted = visitor.post_form(&gateway, &format!("{page}/say"), &[("message", message), ("key", way)]);
        assert_eq!(posted.status, 303, "{}", posted.text);
        let shown = visitor.get_page(&gateway, &page).text;
        assert!(shown.contains("Queued messages") && shown.contains("Withdraw"), "{shown}");
        let back = visitor.post_form(&gateway, &format!("{page}/{way}"), &[]);
        assert_eq!(back.status, 303, "{}", back.text);
        let at = back.header("location").unwrap();
        assert!(at.contains("?back="), "{at}");
        let shown = visitor.get_page(&gateway, at.split('#').next().unwrap()).text;
        let message = message.replace('<', "&lt;").replace('>', "&gt;");
        assert!(shown.contains(&format!("required>\n{message}</textarea>")), "{shown}");
        assert!(!shown.contains("Queued messages"), "{shown}");
    }
    eventually("the end of the run", || (!visitor.get_page(&gateway, &page).text.contains(">working<")).then_some(()));
    talk.provider.script_replies([ProviderReply::new(vec![saying("here")])]);
    let posted = visitor.post_form(&gateway, &format!("{page}/say"), &[("message", "still there?"), ("key", "k")]);
    assert_eq!(posted.status, 303);
    let request_text = talk.provider.wait_request(1).messages_text();
    assert!(request_text.contains("still there?") && !request_text.contains("to the right"), "{request_text}");
}

#[test]
fn a_run_that_a_program_began_is_stopped_by_a_person() {
    let talk = GatewayFixture::for_web();
    let (gateway, http) = talk.start_web();
    let visitor = BrowserClient::default();
    let (page, session) = working(&talk, &http);
    let shown = visitor.get_page(&gateway, &page).text;
    assert!(shown.contains("via api") && shown.contains(">Steer<") && shown.contains(">Stop<"), "{shown}");
    assert!(!shown.contains("The host of this session"), "{shown}");
    assert_eq!(visitor.post_form(&gateway, &format!("{page}/stop"), &[]).status, 303);
    let at = format!("/api/v1/sessions/{session}");
    eventually("the end of the run", || (http.get(&at).json()["state"] == "resting").then_some(()));
}

#[test]
fn a_message_that_cannot_be_sent_opens_no_session() {
    let place = GatewayFixture::with_config_and_rules("", RULES);
    let gateway = GatewayServer::start(&place);
    let http = HttpClient::new(&gateway.address);
    let before = http.get("/api/v1/sessions").json()["sessions"].clone();
    let refused = http.post("/api/v1/sessions", &json!({ "message": "hello" }));
    assert_eq!(refused.status, 422, "{refused:?}");
    assert!(refused.json()["detail"].as_str().unwrap().contains("No model is configured"), "{refused:?}");
    let page = BrowserClient::default().post_form(&gateway, "/console/sessions", &[("message", "hello")]);
    assert_eq!(page.status, 400, "{}", page.text);
    assert_eq!(http.get("/api/v1/sessions").json()["sessions"], before);
}

#[test]
fn lists_follow_what_happens() {
    let place = GatewayFixture::with_config_and_rules("model: { provider: demo, id: scripted-1 }", RULES);
    let gateway = GatewayServer::start(&place);
    let (visitor, http) = (BrowserClient::default(), HttpClient::new(&gateway.address));
    for path in ["/console/sessions", "/console/record"] {
        let page = visitor.get_page(&gateway, path).text;
        assert!(page.contains("data-follows"), "{page}");
        let (_, rest) = page.split_once("data-after=\"").unwrap();
        let live = format!("/console/live?after={}", rest.split('"').next().unwrap());
        let (frames, window) = visitor.read_until(&gateway, &format!("{live}&all=1"), "event: hello");
        assert!(!frames.contains("stirred"), "{frames}");
        assert_eq!(visitor.post_form(&gateway, "/console/sessions", &[("message", path)]).status, 303);
        let (frames, _) = visitor.read_until(&gateway, &format!("{live}&all=1"), "event: stirred");
        assert!(!frames.contains("reload"), "{frames}");
        drop(window);
        // Late events of the first round would be new in the second.
        let rests = || {
            let listed = http.get("/api/v1/sessions").json();
            listed["sessions"].as_array()?.iter().all(|session| session["state"] == "resting").then_some(())
        };
        eventually("the end of the run", rests);
    }
}
