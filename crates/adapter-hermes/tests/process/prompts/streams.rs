//! Streams of a session and of the list of all, slow readers, and more streams than there is room for.

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayServer, RULES,
    agent_gate::AgentClient,
    eventually,
    provider::{ProviderReply, bash_part, text_reply},
};
use serde_json::{Value, json};

use super::{
    AGENT,
    client::{SseStream, ask, get, pending, respond},
    raise,
};

#[test]
fn the_stream_of_a_session_has_turns_approvals_and_tools() {
    let talk = GatewayFixture::for_web();
    let (gateway, http) = talk.start_web();
    let session = http.create_session();
    let mut stream = SseStream::for_session(&gateway, "session", &session);
    assert_eq!(stream.next_named("initial"), json!({ "session_id": session }));
    talk.provider.script_replies([
        ProviderReply::new(vec![bash_part("c1", "echo hello # the\u{202e}re\ndate")]),
        text_reply("it said hello"),
    ]);
    let turn = http.start_chat(&session, "begin");
    let started = stream.next_named("turn_started");
    assert_eq!((&started["stream_id"], &started["session_id"]), (&json!(turn), &json!(session)));
    let required = stream.next_named("approval_required");
    let id = required["approval_id"].as_str().unwrap();
    assert_eq!(
        (&required["pending_count"], &required["choices"]),
        (&json!(1), &json!(["once", "session", "always", "deny"]))
    );
    // A client puts it into one line: there too it shows each line, its program and its folder.
    let shown = required["description"].as_str().unwrap();
    // What nobody sees is escaped once: a second time would show the escape of a backslash.
    assert!(shown.ends_with(": echo hello # the\\u{202e}re\\u{a}date") && shown.contains(" (bash in /"), "{required}");
    assert_eq!(required["route"], json!(format!("/session/{session}")));
    // A late reader gets the turn and its pending gates.
    let mut late = SseStream::for_session(&gateway, "session", &session);
    assert_eq!(late.next().event, "initial");
    let running = late.next_named("server_turn_started");
    assert_eq!((&running["stream_id"], &running["recovered"]), (&json!(turn), &json!(true)));
    assert_eq!(late.next_named("approval_required"), required);
    assert_eq!(respond(&gateway, &session, "once", Some(id)).1["ok"], true);
    for status in ["running", "completed"] {
        let activity = stream.next_named("activity_summary");
        assert_eq!(activity["tool"], json!({ "name": "bash", "status": status }));
    }
    let over = stream.next_named("turn_completed");
    assert!(over["status"] == "completed" && over["summary"].as_str().unwrap().contains("it said hello"), "{over}");
    let updated = stream.next_named("session-updated");
    let known = get(&gateway, &format!("/api/session?session_id={session}"))["session"]["message_count"].clone();
    assert_eq!(updated, json!({ "session_id": session, "message_count": known }));
    // A reader that knows fewer messages gets the difference.
    let path = format!("/api/session/stream?session_id={session}&known_count=1");
    assert_eq!(SseStream::open(&gateway, &path).unwrap().next_named("session-updated")["message_count"], known);
    assert_eq!(SseStream::open(&gateway, "/api/session/stream").err().unwrap().0, 400);
}

#[test]
fn the_stream_of_the_list_reports_changes_with_their_cause() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let mut list = SseStream::open(&gateway, "/api/sessions/events").unwrap();
    let id = raise(&gateway, &mut agent, 1, "door-a");
    let mut version = 0;
    let mut next = |want: &str| {
        let change = list.next_named("sessions_changed");
        assert_eq!((&change["type"], &change["session_id"]), (&json!("sessions_changed"), &json!(AGENT)));
        assert_eq!(change["reason"], want);
        assert!(change["version"].as_u64().unwrap() > version, "{change}");
        version = change["version"].as_u64().unwrap();
    };
    next("attention_pending");
    let other = raise(&gateway, &mut agent, 2, "door-b");
    next("attention_pending");
    respond(&gateway, AGENT, "once", Some(&id));
    next("attention_resolved");
    respond(&gateway, AGENT, "once", Some(&other));
    next("attention_cleared");
    let (status, reply) = ask(&gateway, "GET", "/api/sessions/gateway/stream?probe=1", None);
    assert_eq!((status, &reply["enabled"]), (404, &json!(false)));
    for kind in ["approval", "clarify"] {
        let (status, _) = SseStream::open(&gateway, &format!("/api/{kind}/stream")).err().unwrap();
        assert_eq!(status, 400, "{kind}");
        assert_eq!(get(&gateway, &format!("/api/{kind}/pending"))["pending"], Value::Null);
    }
}

#[test]
fn who_reads_late_gets_the_newest_state_and_holds_up_nobody() {
    let place = GatewayFixture::with_config_and_rules("rate_limit: { max_requests_per_minute: 1000 }", RULES);
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    // A reader that does not read soon fills its socket.
    let mut deaf = SseStream::for_session(&gateway, "approval", AGENT);
    let mut quick = SseStream::for_session(&gateway, "approval", AGENT);
    let long = "x".repeat(60_000);
    for round in 0..60 {
        agent.request_tool(round, "turn", json!({ "thing": format!("door-{round}"), "way": long }));
        let frame = quick.until(|frame| frame.state().1 == 1);
        assert_eq!(respond(&gateway, AGENT, "once", frame.state().0).1["ok"], true);
        quick.until(|frame| frame.state().1 == 0);
        agent.wait_reply(&json!(round));
    }
    agent.request_tool(999, "turn", json!({ "thing": "last" }));
    let last = quick.until(|frame| frame.state().1 == 1);
    let mut count = 0;
    while deaf.next().data != last.data {
        count += 1;
    }
    assert!(count < 121, "every state that there ever was came");
}

#[test]
fn streams_leave_room_for_answers() {
    let place = GatewayFixture::with_config_and_rules("rate_limit: { max_connections: 128 }", RULES);
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    let gate = place.wait_gate();
    let path = format!("/api/approval/stream?session_id={AGENT}");
    let mut streams: Vec<SseStream> = (0..64).map(|_| SseStream::open(&gateway, &path).unwrap()).collect();
    let (status, head) = SseStream::open(&gateway, &path).err().unwrap();
    assert_eq!((status, head.contains("retry-after: 5")), (503, true), "{head}");
    // Silent connections do not take the place of active ones, nor of streams.
    let silent: Vec<_> = (0..200).map(|_| std::net::TcpStream::connect(&gateway.address).unwrap()).collect();
    assert_eq!(pending(&gateway, "approval", AGENT)["pending_count"], 1);
    assert_eq!(respond(&gateway, AGENT, "once", Some(&gate)).1["ok"], true);
    for stream in &mut streams {
        stream.until(|frame| frame.state() == (None, 0));
    }
    drop((silent, streams));
    eventually("room for a stream", || SseStream::open(&gateway, &path).ok());
}

#[test]
fn a_gateway_that_ends_ends_its_streams() {
    let place = GatewayFixture::new();
    let mut gateway = GatewayServer::start(&place);
    let mut streams =
        Vec::from(["approval", "clarify", "session"].map(|kind| SseStream::for_session(&gateway, kind, AGENT)));
    streams.push(SseStream::open(&gateway, "/api/sessions/events").unwrap());
    let end = gateway.stop();
    assert_eq!(end.code, Some(0));
    for stream in &mut streams {
        while stream.read().is_some() {}
    }
}
