//! Messages in sessions, and the events that clients get.

use countersign_testkit::process::{
    GatewayFixture, Latch, eventually,
    gsv::{GsvPeer, connect_params, error_body},
    provider::{ProviderReply, ReplyPart, call_part, error_reply, text_part, text_reply},
};
use serde_json::{Value, json};

/// Returns the text of the message of an event.
pub(crate) fn message_text(event: &Value) -> &str {
    event["message"]["content"][0]["text"].as_str().unwrap_or_default()
}

pub(crate) fn send(peer: &mut GsvPeer, key: &str, message: &str, run: &str) -> Value {
    peer.expect_ok("chat.send", json!({ "sessionKey": key, "message": message, "runId": run }))
}

/// Sends a message and waits for the end of its run.
pub(crate) fn talk(peer: &mut GsvPeer, key: &str, message: &str, run: &str) -> Value {
    let sent = send(peer, key, message, run);
    assert_eq!((&sent["status"], &sent["runId"]), (&json!("started"), &json!(run)), "{sent}");
    peer.wait_event("chat", &json!({ "runId": run }))
}

fn command(peer: &mut GsvPeer, key: &str, message: &str) -> Value {
    peer.expect_ok("chat.send", json!({ "sessionKey": key, "message": message }))
}

#[test]
fn a_message_is_answered_to_every_client_under_the_key_that_each_wrote() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut cli) = scene.start_peer();
    let mut web = GsvPeer::connect_client(&gateway, "web");
    let mut other = GsvPeer::connect_client(&gateway, "other");
    web.expect_ok("session.get", json!({ "sessionKey": "main" }));
    scene.provider.script_replies([text_reply("hello yourself")]);
    let last = talk(&mut cli, "agent:main:cli:dm:main", "hello", "r-1");
    assert_eq!((&last["state"], message_text(&last)), (&json!("final"), "hello yourself"));
    assert_eq!(last["sessionKey"], "agent:main:cli:dm:main");
    assert_eq!(web.wait_event("chat", &json!({ "runId": "r-1" }))["sessionKey"], "main");
    assert_eq!(other.wait_event("chat", &json!({ "runId": "r-1" }))["sessionKey"], "agent:main:main");
    let usage = &last["message"]["usage"];
    assert_eq!(*usage, json!({ "input": 100, "output": 50, "totalTokens": 150 }));
}

#[test]
fn clients_that_subscribe_get_streamed_text() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut client) = scene.start_peer();
    let mut listener = GsvPeer::open_connection(&gateway);
    let mut connect = connect_params("client", "listener");
    connect["deltas"] = true.into();
    listener.expect_ok("connect", connect);
    let latch = Latch::default();
    scene.provider.script_replies([ProviderReply::new(vec![
        text_part("Hel"),
        ReplyPart::Until(latch.clone()),
        text_part("lo"),
    ])]);
    send(&mut client, "s", "hi", "r-1");
    assert_eq!(listener.wait_event("chat", &json!({ "runId": "r-1", "state": "delta" }))["text"], "Hel");
    latch.open();
    assert_eq!(message_text(&listener.wait_event("chat", &json!({ "runId": "r-1", "state": "final" }))), "Hello");
    assert_eq!(
        message_text(&client.wait_event("chat", &json!({ "runId": "r-1" }))),
        "Hello",
        "others hear the end alone"
    );
}

#[test]
fn nodes_and_channels_get_no_events_of_chats() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut client) = scene.start_peer();
    let mut node = GsvPeer::connect_node(&gateway, "n1", &["A"]);
    talk(&mut client, "s", "hello", "r-1");
    let request_id = node.send_request("nope", json!({}));
    node.wait_response(&request_id);
    assert_eq!(node.take_early_frames(), Vec::<Value>::new());
}

#[test]
fn invalid_messages_are_refused() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let missing = error_body(400, "sessionKey and message required");
    for params in [
        json!({}),
        json!({ "sessionKey": "a" }),
        json!({ "message": "a" }),
        json!({ "sessionKey": "", "message": "a" }),
    ] {
        assert_eq!(peer.expect_error("chat.send", params.clone()), missing, "{params}");
    }
    for (params, want) in [
        (json!({ "sessionKey": 5, "message": "a" }), "sessionKey must be a string"),
        (json!({ "sessionKey": "k".repeat(513), "message": "a" }), "sessionKey has 513 bytes, at most 512 are taken"),
        (json!({ "sessionKey": "k", "message": "a", "runId": "r".repeat(257) }), "runId has at most 256 bytes"),
        (json!({ "sessionKey": "k", "message": " \n" }), "sessionKey and message required"),
    ] {
        assert_eq!(peer.expect_error("chat.send", params), error_body(400, want));
    }
}

#[test]
fn runs_have_the_gateways_tools_those_of_nodes_and_a_question_to_their_person() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut peer) = scene.start_peer();
    let _pi = GsvPeer::connect_node(&gateway, "pi", &["Bash", "Read"]);
    talk(&mut peer, "s", "hello", "r-1");
    let body = &scene.provider.wait_request(0).body;
    let mut names: Vec<&str> =
        body["tools"].as_array().unwrap().iter().map(|it| it["function"]["name"].as_str().unwrap()).collect();
    let native = peer.expect_ok("tools.list", json!({}));
    let mut want: Vec<&str> =
        native["tools"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(want.len(), 13, "the eleven of the wire and the node's two");
    // Tools of this gateway that are not on the wire.
    want.extend(["ask", "gsv__SendFile"]);
    names.sort_unstable();
    want.sort_unstable();
    assert_eq!(names, want);
}

#[test]
fn text_next_to_calls_is_sent_during_the_run_with_its_message() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    scene.provider.script_replies([
        ProviderReply::new(vec![text_part("Let me look"), call_part("c1", "gsv__ListFiles", &json!({}))]),
        text_reply("empty"),
    ]);
    send(&mut peer, "s", "what is there?", "r-1");
    let partial = peer.wait_event("chat", &json!({ "runId": "r-1" }));
    assert_eq!((&partial["state"], &partial["text"]), (&json!("partial"), &json!("Let me look")));
    let tool_call = &partial["message"]["content"][1];
    assert_eq!((&tool_call["type"], &tool_call["name"]), (&json!("toolCall"), &json!("gsv__ListFiles")));
    let last = peer.wait_event("chat", &json!({ "runId": "r-1" }));
    assert_eq!((&last["state"], message_text(&last)), (&json!("final"), "empty"));
    let preview = peer.expect_ok("session.preview", json!({ "sessionKey": "s" }));
    let roles: Vec<&str> =
        preview["messages"].as_array().unwrap().iter().map(|it| it["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "toolResult", "assistant"]);
    assert_eq!(preview["messages"][0]["content"], "what is there?");
}

#[test]
fn messages_behind_a_run_wait_in_order_and_a_stop_lets_the_next_one_begin() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let latch = Latch::default();
    scene.provider.script_replies([
        ProviderReply::new(vec![ReplyPart::Until(latch.clone()), text_part("slow")]),
        text_reply("second"),
        text_reply("third"),
    ]);
    send(&mut peer, "q", "one", "q1");
    scene.provider.wait_request(0);
    for run in ["q2", "q3"] {
        let sent = send(&mut peer, "q", "more", run);
        assert_eq!(sent, json!({ "status": "started", "runId": run, "queued": true }));
    }
    let stats = peer.expect_ok("session.stats", json!({ "sessionKey": "q" }));
    assert_eq!(
        (&stats["messageCount"], &stats["isProcessing"], &stats["queueSize"]),
        (&json!(1), &json!(true), &json!(2))
    );
    // Another session does not wait.
    let stopped = command(&mut peer, "q", "/stop");
    assert_eq!(stopped, json!({ "status": "command", "command": "stop", "response": "Stopped run q1." }));
    latch.open();
    let stopped = peer.wait_event("chat", &json!({ "runId": "q1" }));
    assert_eq!((&stopped["state"], &stopped["error"]), (&json!("error"), &json!("Run cancelled by user")));
    assert_eq!(message_text(&peer.wait_event("chat", &json!({ "runId": "q2" }))), "second");
    assert_eq!(message_text(&peer.wait_event("chat", &json!({ "runId": "q3" }))), "third");
    assert_eq!(command(&mut peer, "q", "/STOP")["response"], "No run in progress.");
}

#[test]
fn a_session_is_reset_even_if_its_client_has_disconnected() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut peer) = scene.start_peer();
    let latch = Latch::default();
    scene.provider.script_replies([
        ProviderReply::new(vec![ReplyPart::Until(latch.clone()), text_part("slow")]),
        text_reply("second"),
    ]);
    send(&mut peer, "q", "one", "q1");
    scene.provider.wait_request(0);
    send(&mut peer, "q", "two", "q2");
    let before = peer.expect_ok("session.get", json!({ "sessionKey": "q" }))["sessionId"].clone();
    peer.send_request("session.reset", json!({ "sessionKey": "q" }));
    drop(peer);
    latch.open();
    let mut other = GsvPeer::connect_client(&gateway, "other");
    let now = eventually("reset", || {
        let now = other.expect_ok("session.get", json!({ "sessionKey": "q" }));
        (now["sessionId"] != before).then_some(now)
    });
    assert_eq!(now["messageCount"], 0, "{now}");
    assert_eq!(now["previousSessionIds"], json!([before]), "{now}");
    let stats = other.expect_ok("session.stats", json!({ "sessionKey": "q" }));
    assert_eq!((&stats["isProcessing"], &stats["queueSize"]), (&json!(false), &json!(0)));
}

#[test]
fn no_more_messages_wait_than_there_is_room_for_and_a_reset_drops_them_all() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let latch = Latch::default();
    scene.provider.script_replies([ProviderReply::new(vec![ReplyPart::Until(latch.clone()), text_part("slow")])]);
    send(&mut peer, "q", "one", "q");
    scene.provider.wait_request(0);
    for number in 0..200 {
        send(&mut peer, "q", "more", &format!("q{number}"));
    }
    let refused = peer.expect_error("chat.send", json!({ "sessionKey": "q", "message": "more" }));
    assert_eq!(refused, error_body(503, "Too many messages wait in this session (at most 200)"));
    peer.expect_ok("session.reset", json!({ "sessionKey": "q" }));
    latch.open();
    for number in 0..200 {
        assert_eq!(
            peer.wait_event("chat", &json!({ "runId": format!("q{number}") }))["error"],
            "Run cancelled by user"
        );
    }
}

#[test]
fn each_command_has_its_answers_and_its_errors() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    peer.expect_ok("config.set", json!({ "path": "compaction.extractMemories", "value": false }));
    talk(&mut peer, "c", "hello", "r-1");
    let levels = "Levels: off, minimal, low, medium, high, xhigh";
    let hint = "Use provider/id, or an id of the current provider.";
    for (message, name, response, wrong) in [
        (
            "/status",
            "status",
            "Session: c\nMessages: 2\nTokens: 100 in / 50 out\nModel: local/small-1\nReset: daily",
            "",
        ),
        ("/model", "model", &*format!("Current model: local/small-1\n{hint}"), ""),
        ("/model Local/small-2", "model", "Model set to local/small-2", ""),
        ("/model small-1", "model", "Model set to local/small-1", ""),
        ("/model a b", "model", "", &*format!("Invalid model selector: a b\n{hint}")),
        ("/think", "think", &*format!("Thinking level: off\n{levels}"), ""),
        ("/t 4", "think", "Thinking level set to high", ""),
        ("/thinking max", "think", "Thinking level set to xhigh", ""),
        ("/think zzz", "think", "", &*format!("Invalid level: zzz\n{levels}")),
        ("/compact x", "compact", "", "Invalid count. Usage: /compact [N]"),
        ("/compact 5", "compact", "Compacted session. Kept 2 messages, archived 0.", ""),
        ("/compact 1", "compact", "Compacted session. Kept 1 messages, archived 1.", ""),
        ("/new", "reset", "Session reset. Archived 1 messages.", ""),
        ("/approve", "approve", "", "Nothing waits for an answer."),
        ("/deny because", "deny", "", "Nothing waits for an answer."),
    ] {
        let mut want = json!({ "status": "command", "command": name });
        let (member, text) = if wrong.is_empty() { ("response", response) } else { ("error", wrong) };
        want[member] = text.into();
        assert_eq!(command(&mut peer, "c", message), want, "{message}");
    }
    assert!(command(&mut peer, "c", "/help")["response"].as_str().unwrap().contains("/approve"));
    scene.provider.script_replies([text_reply("one"), text_reply("two")]);
    assert_eq!(message_text(&talk(&mut peer, "c", "/unknown thing", "r-2")), "one");
    assert_eq!(message_text(&talk(&mut peer, "c", "/help\nme out", "r-3")), "two");
}

#[test]
fn a_directive_counts_for_its_message_and_line_breaks_stay() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let alone = command(&mut peer, "d", "/t:high /m:small-2");
    assert_eq!(
        alone,
        json!({
            "status": "directive-only",
            "response": "_Thinking: high | Model: local/small-2_",
            "directives": { "thinkLevel": "high", "model": { "provider": "local", "id": "small-2" } },
        })
    );
    assert_eq!(scene.provider.request_count(), 0);
    let sent = send(&mut peer, "d", "one\ntwo /model:local/small-2 three", "d1");
    assert_eq!(sent["directives"], json!({ "model": { "provider": "local", "id": "small-2" } }));
    peer.wait_event("chat", &json!({ "runId": "d1" }));
    talk(&mut peer, "d", "next", "d2");
    let requests: Vec<(Value, bool)> = (0..2)
        .map(|number| scene.provider.wait_request(number))
        .map(|request| (request.body["model"].clone(), request.messages_text().contains("one\\ntwo three")))
        .collect();
    assert_eq!(requests, [(json!("small-2"), true), (json!("small-1"), true)]);
}

#[test]
fn failures_of_a_provider_end_the_run_with_what_went_wrong() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    scene.provider.script_replies([error_reply(400, "no such luck"), text_reply("")]);
    let failed = talk(&mut peer, "e", "one", "e1");
    let why = failed["error"].as_str().unwrap();
    assert!(failed["state"] == "error" && why.starts_with("LLM error: ") && why.contains("no such luck"), "{failed}");
    // An empty answer is not requested again.
    assert_eq!(talk(&mut peer, "e", "two", "e2")["error"], "LLM returned empty response");
    assert_eq!(scene.provider.request_count(), 2);
    command(&mut peer, "e", "/model local/ghost-9");
    assert_eq!(talk(&mut peer, "e", "three", "e3")["error"], "Model not found: local/ghost-9");
    // A failure is no message, wherever messages are counted or read.
    let preview = peer.expect_ok("session.preview", json!({ "sessionKey": "e" }));
    let roles: Vec<&Value> = preview["messages"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
    let expected_roles = ["user", "user", "user"].map(Value::from);
    assert_eq!((roles, &preview["messageCount"]), (expected_roles.iter().collect(), &json!(3)), "{preview}");
    assert_eq!(peer.expect_ok("session.stats", json!({ "sessionKey": "e" }))["messageCount"], 3);
    assert!(command(&mut peer, "e", "/status")["response"].as_str().unwrap().contains("Messages: 3\n"));
    assert_eq!(command(&mut peer, "e", "/new")["response"], "Session reset. Archived 3 messages.");
}

#[test]
fn a_run_that_is_stopped_before_a_word_came_leaves_no_empty_message() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let latch = Latch::default();
    scene.provider.script_replies([ProviderReply::new(vec![ReplyPart::Until(latch.clone()), text_part("never")])]);
    send(&mut peer, "s", "go", "r-1");
    scene.provider.wait_request(0);
    command(&mut peer, "s", "/stop");
    assert_eq!(peer.wait_event("chat", &json!({ "runId": "r-1" }))["error"], "Run cancelled by user");
    latch.open();
    let preview = peer.expect_ok("session.preview", json!({ "sessionKey": "s" }));
    assert_eq!((&preview["messageCount"], &preview["messages"][1]), (&json!(1), &Value::Null), "{preview}");
}

#[test]
fn a_message_has_the_same_time_wherever_it_is_read() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    scene.provider.script_replies([text_reply("hello")]);
    let last = talk(&mut peer, "book", "hi", "r-1");
    let preview = peer.expect_ok("session.preview", json!({ "sessionKey": "book" }));
    assert_eq!(preview["messages"][1], last["message"]);
}
