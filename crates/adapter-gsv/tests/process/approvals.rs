//! Approvals in a chat: the next message answers, and the run continues under its name.

use countersign_testkit::process::{
    GatewayFixture, Latch,
    gsv::{GsvPeer, write_part},
    provider::{ProviderReply, ReplyPart, text_reply},
};
use serde_json::{Value, json};

use crate::chat::{message_text, send, talk};

/// Starts a run that waits for an answer about these files; returns the event with the prompt.
fn start_gated_run(scene: &GatewayFixture, peer: &mut GsvPeer, files: &[&str]) -> Value {
    let calls = files.iter().enumerate().map(|(number, file)| write_part(&format!("c{number}"), file)).collect();
    scene.provider.script_replies([ProviderReply::new(calls), text_reply("went on")]);
    let event = talk(peer, "s", "please write", "r-1");
    assert_eq!(event["state"], "final", "{event}");
    event
}

/// Returns the token in a text.
fn token(event: &Value) -> String {
    let text = message_text(event);
    let from = text.find('#').unwrap();
    text[from..].split_whitespace().next().unwrap().to_owned()
}

fn file_exists(scene: &GatewayFixture, name: &str) -> bool {
    scene.folder.join("agents/main").join(name).exists()
}

fn result(scene: &GatewayFixture, call: &str) -> String {
    scene.provider.wait_request_when(1, |request| request.call_result(call).is_some()).call_result(call).unwrap()
}

#[test]
fn what_would_run_is_shown_whole_and_the_next_message_answers() {
    for (answer, is_done) in [
        ("yes", true),
        ("Y", true),
        ("allow", true),
        ("/approve", true),
        ("/approve TOKEN session", true),
        ("TOKEN", true),
        ("no", false),
        ("n", false),
        ("/deny TOKEN not today", false),
    ] {
        let scene = GatewayFixture::for_peers();
        let (_gateway, mut peer) = scene.start_peer();
        let card = start_gated_run(&scene, &mut peer, &["a.txt"]);
        let text = message_text(&card);
        assert!(text.contains("a.txt") && text.contains("by the agent") && text.contains("yes"), "{text}");
        let answer = answer.replace("TOKEN", &token(&card));
        let sent = send(&mut peer, "s", &answer, "r-2");
        assert_eq!(sent, json!({ "status": "started", "runId": "r-2" }), "{answer}");
        let last = peer.wait_event("chat", &json!({ "runId": "r-2" }));
        assert_eq!((&last["state"], message_text(&last)), (&json!("final"), "went on"), "{answer}");
        assert_eq!(file_exists(&scene, "a.txt"), is_done, "{answer}");
        if answer.contains("not today") {
            assert!(result(&scene, "c0").contains("not today"), "{}", result(&scene, "c0"));
        }
        scene.verify_log();
    }
}

#[test]
fn another_message_gets_a_notice_and_waits_for_the_answer() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    scene.provider.script_replies([
        ProviderReply::new(vec![write_part("c0", "a.txt")]),
        text_reply("went on"),
        text_reply("and the weather is fine"),
    ]);
    talk(&mut peer, "s", "please write", "r-1");
    let sent = send(&mut peer, "s", "yes please, and how is the weather?", "r-2");
    assert_eq!(sent, json!({ "status": "started", "runId": "r-2", "queued": true }));
    // The original's command line waits for this, and would accept no input for two minutes.
    let event = peer.wait_event("chat", &json!({ "runId": "r-2" }));
    assert!(event["state"] == "final" && message_text(&event).contains("is awaited first"), "{event}");
    send(&mut peer, "s", "yes", "r-3");
    assert_eq!(message_text(&peer.wait_event("chat", &json!({ "runId": "r-3" }))), "went on");
    assert_eq!(message_text(&peer.wait_event("chat", &json!({ "runId": "r-2" }))), "and the weather is fine");
    // It was sent before the answer, though its turn came after it: no message came since.
    let late = peer.expect_ok("chat.send", json!({ "sessionKey": "s", "message": "yes" }));
    assert!(late["response"].as_str().is_some_and(|text| text.starts_with("Too late")), "{late}");
}

#[test]
fn a_message_that_was_queued_before_a_gate_opened_gets_one_notice_and_answers_nothing() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut peer) = scene.start_peer();
    let latch = Latch::default();
    scene.provider.script_replies([
        ProviderReply::new(vec![ReplyPart::Until(latch.clone()), write_part("c0", "a.txt"), write_part("c1", "b.txt")]),
        text_reply("went on"),
        text_reply("that was b1"),
    ]);
    send(&mut peer, "s", "please write", "r-1");
    scene.provider.wait_request(0);
    let mut other = GsvPeer::connect_client(&gateway, "other");
    assert_eq!(send(&mut other, "s", "yes", "b1"), json!({ "status": "started", "runId": "b1", "queued": true }));
    latch.open();
    let texts =
        |peer: &mut GsvPeer, run: &str| message_text(&peer.wait_event("chat", &json!({ "runId": run }))).to_owned();
    let card = texts(&mut peer, "r-1");
    assert!(card.contains("a.txt") && !file_exists(&scene, "a.txt"), "{card}");
    // The original's command line waits for a `final` after each message.
    let notice = other.wait_event("chat", &json!({ "runId": "b1" }));
    assert!(notice["state"] == "final" && message_text(&notice).contains("is awaited first"), "{notice}");
    send(&mut peer, "s", "yes", "r-2");
    assert!(texts(&mut peer, "r-2").contains("b.txt"));
    send(&mut peer, "s", "no", "r-3");
    assert_eq!(texts(&mut peer, "r-3"), "went on");
    assert_eq!(texts(&mut other, "b1"), "that was b1", "the second gate brings no second notice");
    assert!(file_exists(&scene, "a.txt") && !file_exists(&scene, "b.txt"));
}

#[test]
fn a_denial_holds_in_its_session_only_and_the_model_reads_how_long() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    start_gated_run(&scene, &mut peer, &["a.txt"]);
    send(&mut peer, "s", "no", "r-2");
    assert_eq!(message_text(&peer.wait_event("chat", &json!({ "runId": "r-2" }))), "went on");
    let denied = result(&scene, "c0");
    assert!(denied.ends_with("stays denied. That holds in this conversation for 15 minutes."), "{denied}");
    let asks_again = |call: &str| ProviderReply::new(vec![write_part(call, "a.txt")]);
    scene.provider.script_replies([asks_again("c1"), text_reply("still denied")]);
    assert_eq!(message_text(&talk(&mut peer, "s", "again", "r-3")), "still denied");
    let denied = scene.provider.last_request().call_result("c1").unwrap();
    assert!(denied.contains("denied it in this conversation, which holds there until "), "{denied}");
    // Another session asks its own people.
    scene.provider.script_replies([asks_again("c2"), text_reply("written")]);
    assert!(message_text(&talk(&mut peer, "other", "write it", "r-4")).contains("Approval needed"));
    send(&mut peer, "other", "yes", "r-5");
    assert_eq!(message_text(&peer.wait_event("chat", &json!({ "runId": "r-5" }))), "written");
    assert!(file_exists(&scene, "a.txt"));
}

#[test]
fn lines_that_were_sent_before_a_card_was_shown_never_answer_it() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let lines = |peer: &mut GsvPeer, lines: &[(&str, &str)]| -> Vec<Value> {
        let post = |(run, line): &(&str, &str)| {
            peer.send_request("chat.send", json!({ "sessionKey": "s", "message": line, "runId": run }))
        };
        let posted: Vec<String> = lines.iter().map(post).collect();
        posted.iter().map(|id| peer.wait_response(id)["payload"].take()).collect()
    };
    let latches = [Latch::default(), Latch::default()];
    let held =
        |number: usize, call: ReplyPart| ProviderReply::new(vec![ReplyPart::Until(latches[number].clone()), call]);
    scene.provider.script_replies([
        held(0, write_part("c0", "a.txt")),
        held(1, write_part("c1", "b.txt")),
        text_reply("went on"),
    ]);
    let early = lines(&mut peer, &[("r-1", "write them"), ("r-2", "yes"), ("r-3", "yes")]);
    latches[0].open();
    assert!(early[1]["queued"] == true && early[2]["queued"] == true, "{early:?}");
    let first = peer.wait_event("chat", &json!({ "runId": "r-1", "state": "final" }));
    assert!(message_text(&first).contains("a.txt") && !file_exists(&scene, "a.txt"), "{first}");
    let next = lines(&mut peer, &[("r-4", "what is it?"), ("r-5", "yes")]);
    assert_eq!(next[1], json!({ "status": "started", "runId": "r-5" }));
    for late in lines(&mut peer, &[("r-6", "yes"), ("r-7", "/approve")]) {
        assert!(late["response"].as_str().is_some_and(|text| text.starts_with("Too late")), "{late}");
    }
    latches[1].open();
    assert!(
        message_text(&peer.wait_event("chat", &json!({ "runId": "r-4", "state": "final" })))
            .contains("is awaited first")
    );
    let second = peer.wait_event("chat", &json!({ "runId": "r-5", "state": "final" }));
    assert!(message_text(&second).contains("b.txt") && scene.pending_gates().len() == 1, "{second}");
    assert!(!file_exists(&scene, "b.txt"));
    send(&mut peer, "s", "no", "r-8");
    assert_eq!(message_text(&peer.wait_event("chat", &json!({ "runId": "r-8", "state": "final" }))), "went on");
    assert!(file_exists(&scene, "a.txt") && !file_exists(&scene, "b.txt"));
}

#[test]
fn a_preview_ends_with_the_card_that_waits() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let last = |peer: &mut GsvPeer, limit: Value| {
        let preview = peer.expect_ok("session.preview", json!({ "sessionKey": "s", "limit": limit }));
        let messages = preview["messages"].as_array().unwrap().clone();
        (messages.len(), messages.last().unwrap()["content"][0]["text"].clone())
    };
    let first = start_gated_run(&scene, &mut peer, &["a.txt", "b.txt"]);
    for (limit, count) in [(Value::Null, 3), (json!(0), 3), (json!(2), 2), (json!(1), 1), (json!(100), 3)] {
        assert_eq!(last(&mut peer, limit.clone()), (count, message_text(&first).into()), "{limit}");
    }
    send(&mut peer, "s", "yes", "r-2");
    let second = peer.wait_event("chat", &json!({ "runId": "r-2", "state": "final" }));
    assert_eq!(last(&mut peer, json!(1)), (1, message_text(&second).into()));
    // Without a pending gate the history is the conversation alone.
    send(&mut peer, "s", "no", "r-3");
    assert_eq!(message_text(&peer.wait_event("chat", &json!({ "runId": "r-3", "state": "final" }))), "went on");
    assert_eq!(last(&mut peer, json!(1)), (1, json!("went on")));
}

#[test]
fn several_gates_are_shown_one_at_a_time() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let first = start_gated_run(&scene, &mut peer, &["a.txt", "b.txt"]);
    assert!(
        message_text(&first).contains("a.txt") && !message_text(&first).contains("b.txt"),
        "{}",
        message_text(&first)
    );
    assert!(message_text(&first).contains("1 more"), "{}", message_text(&first));
    send(&mut peer, "s", "yes", "r-2");
    let second = peer.wait_event("chat", &json!({ "runId": "r-2", "state": "final" }));
    assert!(message_text(&second).contains("b.txt"), "{}", message_text(&second));
    // A token of the first gate does not answer the second.
    let late = peer.expect_ok("chat.send", json!({ "sessionKey": "s", "message": format!("yes {}", token(&first)) }));
    assert!(late["response"].as_str().is_some_and(|text| text.starts_with("Too late")), "{late}");
    let unknown = peer.expect_ok("chat.send", json!({ "sessionKey": "s", "message": "/approve #abcdef" }));
    assert!(unknown["error"].as_str().is_some_and(|text| text.contains("does not wait")), "{unknown}");
    let unclear = peer.expect_ok("chat.send", json!({ "sessionKey": "s", "message": "/approve everything" }));
    assert!(unclear["error"].as_str().is_some_and(|text| text.starts_with("Not understood")), "{unclear}");
    send(&mut peer, "s", "no", "r-3");
    assert_eq!(message_text(&peer.wait_event("chat", &json!({ "runId": "r-3", "state": "final" }))), "went on");
    assert!(file_exists(&scene, "a.txt") && !file_exists(&scene, "b.txt"));
}

#[test]
fn an_approval_for_the_session_covers_later_calls_until_its_end() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    start_gated_run(&scene, &mut peer, &["a.txt"]);
    send(&mut peer, "s", "/approve session", "r-2");
    assert_eq!(message_text(&peer.wait_event("chat", &json!({ "runId": "r-2" }))), "went on");
    scene.provider.script_replies([ProviderReply::new(vec![write_part("c9", "a.txt")]), text_reply("once more")]);
    assert_eq!(message_text(&talk(&mut peer, "s", "again", "r-3")), "once more");
    peer.expect_ok("config.set", json!({ "path": "compaction.extractMemories", "value": false }));
    peer.expect_ok("session.reset", json!({ "sessionKey": "s" }));
    scene.provider.script_replies([ProviderReply::new(vec![write_part("c10", "a.txt")]), text_reply("once more")]);
    assert!(message_text(&talk(&mut peer, "s", "again", "r-4")).contains("Approval needed"));
}

#[test]
fn commands_work_while_something_waits_and_a_stop_withdraws_it() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    start_gated_run(&scene, &mut peer, &["a.txt"]);
    let status = peer.expect_ok("chat.send", json!({ "sessionKey": "s", "message": "/status" }));
    assert_eq!(status["command"], "status");
    let stopped = peer.expect_ok("chat.send", json!({ "sessionKey": "s", "message": "/stop" }));
    assert_eq!(stopped["response"], "Stopped run r-1, cancelled 1 pending tool(s).");
    assert_eq!(peer.wait_event("chat", &json!({ "runId": "r-1" }))["error"], "Run cancelled by user");
    assert!(scene.pending_gates().is_empty() && !file_exists(&scene, "a.txt"));
}

#[test]
fn a_word_that_comes_twice_allows_one_thing() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    start_gated_run(&scene, &mut peer, &["a.txt", "b.txt"]);
    let yes = json!({ "sessionKey": "s", "message": "yes", "runId": "r-2" });
    let both = [peer.send_request("chat.send", yes.clone()), peer.send_request("chat.send", yes)];
    let first = peer.wait_response(&both[0]);
    assert_eq!(first["payload"], json!({ "status": "started", "runId": "r-2" }), "{first}");
    let second = peer.wait_response(&both[1])["payload"].clone();
    assert!(second == first["payload"] || second["error"].is_string(), "{second}");
    let card = peer.wait_event("chat", &json!({ "runId": "r-2", "state": "final" }));
    assert!(message_text(&card).contains("b.txt"), "{}", message_text(&card));
    assert_eq!(scene.pending_gates().len(), 1, "the second still waits");
    assert!(!file_exists(&scene, "b.txt"));
    // A client that has seen the card answers it, in a word and under a name of its own.
    send(&mut peer, "s", "yes", "r-3");
    assert_eq!(message_text(&peer.wait_event("chat", &json!({ "runId": "r-3", "state": "final" }))), "went on");
    assert!(file_exists(&scene, "a.txt") && file_exists(&scene, "b.txt"));
}

#[test]
fn a_word_for_a_card_that_somebody_else_decided_does_not_answer_the_next() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let first = start_gated_run(&scene, &mut peer, &["a.txt", "b.txt"]);
    let gates = scene.pending_gates();
    let of = |name: &str| gates.iter().find(|gate| gate.to_string().contains(name)).unwrap()["id"].as_str().unwrap();
    let denied = scene.run_as_person(&["gates", "deny", of("a.txt")]);
    assert_eq!(denied.code, Some(0), "{denied:?}");
    let next = peer.wait_event("chat", &json!({ "state": "final" }));
    assert!(message_text(&next).contains("b.txt"), "{next}");
    for word in ["yes", "/approve"] {
        let reply = peer.expect_ok("chat.send", json!({ "sessionKey": "s", "message": word }));
        let response = reply["response"].as_str().unwrap();
        assert!(response.starts_with(&format!("Too late: {} was denied by ", token(&first))), "{response}");
        assert!(response.contains(&format!("`/approve {}`", token(&next))), "{response}");
    }
    assert!(!file_exists(&scene, "b.txt"));
    send(&mut peer, "s", &format!("yes {}", token(&next)), "r-3");
    assert_eq!(message_text(&peer.wait_event("chat", &json!({ "runId": "r-3", "state": "final" }))), "went on");
    assert!(!file_exists(&scene, "a.txt") && file_exists(&scene, "b.txt"));
}

#[test]
fn what_is_decided_elsewhere_goes_on_under_a_name_that_is_announced() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut peer) = scene.start_peer();
    let card = start_gated_run(&scene, &mut peer, &["a.txt"]);
    scene.allow_gate(&scene.wait_gate());
    let event = peer.wait_event("chat", &json!({ "state": "partial" }));
    let run = event["runId"].as_str().unwrap().to_owned();
    assert!(run != "r-1" && event["text"].as_str().unwrap().contains("was allowed by"), "{event}");
    assert_eq!(message_text(&peer.wait_event("chat", &json!({ "runId": run, "state": "final" }))), "went on");
    assert!(file_exists(&scene, "a.txt"));
    // A late answer gets the name of the approver.
    for late in ["yes", &format!("/approve {}", token(&card)), "/deny"] {
        let reply = peer.expect_ok("chat.send", json!({ "sessionKey": "s", "message": late }));
        assert!(
            reply["response"].as_str().is_some_and(|text| text.starts_with("Too late: ") && text.contains(" by ")),
            "{late}: {reply}"
        );
    }
    // After another message a bare word is a message.
    scene.provider.script_replies([text_reply("fine"), text_reply("what do you mean?")]);
    talk(&mut peer, "s", "thanks", "r-5");
    assert_eq!(message_text(&talk(&mut peer, "s", "yes", "r-6")), "what do you mean?");
}
