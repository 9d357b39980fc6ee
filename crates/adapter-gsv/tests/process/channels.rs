//! Chat networks that connect by themselves: inbound messages, access, and outbound messages.

use countersign_testkit::process::{
    GatewayFixture, GatewayServer, Latch,
    gsv::{self, GsvPeer, GsvSocketEvent, error_body, mark_part, write_part},
    provider::{ProviderReply, ReplyPart, call_part, error_reply, text_part, text_reply},
};
use serde_json::{Value, json};

/// Returns a message of a sender, with its id.
pub(crate) fn message(from: &str, id: &str, words: &str) -> Value {
    json!({
        "channel": "wx", "accountId": "a1",
        "peer": { "kind": "dm", "id": from }, "sender": { "id": from, "name": "Ana" },
        "message": { "id": id, "text": words },
    })
}

/// Returns the same in a group.
fn in_group(from: &str, id: &str, words: &str) -> Value {
    let mut message = message(from, id, words);
    message["peer"] = json!({ "kind": "group", "id": "g1" });
    message
}

pub(crate) fn send_inbound(wx: &mut GsvPeer, message: Value) -> Value {
    wx.expect_ok("channel.inbound", message)
}

/// Returns the text of the next message to a chat.
pub(crate) fn outbound_text(wx: &mut GsvPeer) -> String {
    let outbound = wx.wait_event("channel.outbound", &json!({}));
    outbound["message"]["text"].as_str().unwrap().to_owned()
}

fn set(client: &mut GsvPeer, path: &str, value: Value) {
    client.expect_ok("config.set", json!({ "path": path, "value": value }));
}

/// Starts a gateway, a client, and an account of a network.
fn network(scene: &GatewayFixture) -> (GatewayServer, GsvPeer, GsvPeer) {
    let (gateway, client) = scene.start_peer();
    let wx = GsvPeer::connect_channel(&gateway, "wx", "a1");
    (gateway, client, wx)
}

#[test]
fn a_message_is_answered_in_its_chat_and_clients_get_its_events() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut client, mut wx) = network(&scene);
    let looks = ProviderReply::new(vec![
        text_part("\n\nlet me look"),
        call_part("c0", "gsv__ListFiles", &json!({ "path": "." })),
    ]);
    scene.provider.script_replies([looks, text_reply("here you are")]);
    let taken = send_inbound(&mut wx, message("p1", "m1", "what is there?"));
    let run = taken["runId"].as_str().unwrap().to_owned();
    assert_eq!(taken, json!({ "status": "started", "sessionKey": "agent:main:main", "runId": run }));
    let typing = |wx: &mut GsvPeer| {
        wx.wait_event("channel.typing", &json!({ "sessionKey": "agent:main:main" }))["typing"].clone()
    };
    assert_eq!(typing(&mut wx), true);
    for words in ["let me look", "here you are"] {
        let want = json!({
            "channel": "wx", "accountId": "a1", "peer": { "kind": "dm", "id": "p1" },
            "sessionKey": "agent:main:main", "message": { "text": words, "replyToId": "m1" },
        });
        assert_eq!(wx.wait_event("channel.outbound", &json!({})), want);
    }
    assert_eq!(typing(&mut wx), false);
    assert_eq!(client.wait_event("chat", &json!({ "runId": run, "state": "final" }))["sessionKey"], "agent:main:main");
    let request_text = scene.provider.wait_request(0).messages_text();
    assert!(request_text.contains("[wx · ") && request_text.contains(" UTC] what is there?"), "{request_text}");
    let listed = client.expect_ok("channels.list", json!({}));
    assert_eq!((&listed["count"], &listed["channels"][0]["channel"]), (&json!(1), &json!("wx")));
    assert!(listed["channels"][0]["lastMessageAt"].as_u64() >= listed["channels"][0]["connectedAt"].as_u64());
    scene.verify_log();
}

#[test]
fn commands_and_directives_are_answered_in_the_chat_with_marks() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, _client, mut wx) = network(&scene);
    let taken = send_inbound(&mut wx, message("p1", "m1", "/status"));
    assert_eq!((&taken["status"], &taken["command"]), (&json!("command"), &json!("status")));
    let shown = outbound_text(&mut wx);
    assert!(shown.starts_with("**Session Status**"), "{shown}");
    assert_eq!(taken["response"], shown);
    let taken = send_inbound(&mut wx, message("p1", "m2", "/think:high"));
    assert_eq!(taken["status"], "directive-only");
    assert_eq!(outbound_text(&mut wx), "_Thinking: high_");
    let again = send_inbound(&mut wx, message("p1", "m1", "/status"));
    assert_eq!((&again["status"], &again["command"]), (&json!("command"), &json!("status")));
    let again = send_inbound(&mut wx, message("p1", "m2", "/think:high"));
    assert_eq!((&again["status"], &again["response"]), (&json!("directive-only"), &json!("_Thinking: high_")));
    scene.provider.script_replies([text_reply("hi")]);
    send_inbound(&mut wx, message("p1", "m3", "hello"));
    assert_eq!(outbound_text(&mut wx), "hi", "what came twice is answered once");
}

#[test]
fn groups_have_sessions_of_their_own_and_bindings_name_agents() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut client, mut wx) = network(&scene);
    let binding = json!([{ "agentId": "club", "match": { "channel": "wx", "peer": { "kind": "group", "id": "g1" } } }]);
    set(&mut client, "agents.bindings", binding);
    set(&mut client, "userTimezone", json!("Europe/Berlin"));
    let taken = send_inbound(&mut wx, in_group("p1", "m1", "hello"));
    assert_eq!(taken["sessionKey"], "agent:club:wx:group:g1");
    wx.wait_event("channel.outbound", &json!({ "peer": { "kind": "group", "id": "g1" } }));
    let request_text = scene.provider.wait_request(0).messages_text();
    assert!(request_text.contains("· Ana] hello") && request_text.contains(" CE"), "{request_text}");
}

#[test]
fn a_sender_that_is_not_listed_is_blocked() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut client, mut wx) = network(&scene);
    set(&mut client, "channels.wx.dmPolicy", json!("allowlist"));
    set(&mut client, "channels.wx.allowFrom", json!(["+49 170 1234567"]));
    let blocked = send_inbound(&mut wx, message("491709999999@s.whatsapp.net", "m1", "hello"));
    assert_eq!(blocked, json!({ "status": "blocked", "reason": "Sender is not on the allowlist" }));
    assert_eq!(send_inbound(&mut wx, message("491701234567:12@s.whatsapp.net", "m2", "hello"))["status"], "started");
    assert_eq!(client.expect_ok("pair.list", json!({})), json!({ "pairs": {} }));
}

#[test]
fn a_pairing_is_approved_on_any_surface_and_the_sender_may_write_then() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut client, mut wx) = network(&scene);
    set(&mut client, "channels.wx.dmPolicy", json!("pairing"));
    for id in ["m1", "m2"] {
        let taken = send_inbound(&mut wx, message("bob", id, &"hi ".repeat(100)));
        assert_eq!(taken, json!({ "status": "pending_pairing", "senderId": "bob" }));
    }
    assert!(outbound_text(&mut wx).contains("let you in"));
    let row = client.expect_ok("pair.list", json!({}))["pairs"]["wx:bob"].take();
    assert_eq!((&row["senderId"], &row["senderName"], &row["channel"]), (&json!("bob"), &json!("Ana"), &json!("wx")));
    assert_eq!(row["firstMessage"].as_str().unwrap().len(), 200);
    let gates = scene.pending_gates();
    assert_eq!((gates.len(), &gates[0]["kind"], &gates[0]["door"]), (1, &json!("pairing"), &json!("gsv")), "{gates:?}");
    drop((wx, client));
    gateway.kill();
    let gateway = scene.start();
    let mut client = GsvPeer::connect_client(&gateway, "again");
    let mut wx = GsvPeer::connect_channel(&gateway, "wx", "a1");
    scene.allow_gate(gates[0]["id"].as_str().unwrap());
    let mut welcome = outbound_text(&mut wx);
    if welcome.contains("let you in") {
        // The first one was not confirmed before the kill: it may come again.
        welcome = outbound_text(&mut wx);
    }
    assert!(welcome.contains("You were let in"), "{welcome}");
    let allowed = client.expect_ok("config.get", json!({ "path": "channels.wx.allowFrom" }));
    assert_eq!(allowed["value"], json!(["bob"]));
    assert_eq!(client.expect_ok("pair.list", json!({})), json!({ "pairs": {} }));
    assert_eq!(send_inbound(&mut wx, message("bob", "m3", "hello"))["status"], "started");
    scene.verify_log();
}

#[test]
fn a_pairing_request_has_the_name_of_the_sender_or_of_the_chat() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut client, mut wx) = network(&scene);
    set(&mut client, "channels.wx.dmPolicy", json!("pairing"));
    let dm = |name: Value| json!({ "kind": "dm", "id": "7", "name": name, "handle": "@bob" });
    let group = json!({ "kind": "group", "id": "g1", "name": "Club" });
    for (number, (peer, sender, want)) in [
        (dm(json!("Bob")), Value::Null, json!("Bob")),
        (dm(json!("Bob")), json!({ "id": "p1" }), json!("Bob")),
        (dm(json!("Bob")), json!({ "id": "p2", "name": "Ana" }), json!("Ana")),
        (dm(Value::Null), Value::Null, json!("@bob")),
        // The name of a group is no name of a person.
        (group.clone(), json!({ "id": "p3", "handle": "@ana" }), json!("@ana")),
        (group.clone(), json!({ "id": "p4" }), Value::Null),
        (group, Value::Null, json!("Club")),
    ]
    .into_iter()
    .enumerate()
    {
        let mut peer = peer;
        peer["id"] = json!(format!("{}-{number}x", peer["id"].as_str().unwrap()));
        let message = json!({ "id": format!("m{number}"), "text": "hi" });
        let mut inbound = json!({ "channel": "wx", "accountId": "a1", "peer": peer, "message": message });
        if !sender.is_null() {
            inbound["sender"] = sender;
        }
        let knocked = send_inbound(&mut wx, inbound);
        let pairs = client.expect_ok("pair.list", json!({}))["pairs"].take();
        let row = pairs.as_object().unwrap().values().find(|row| row["senderId"] == knocked["senderId"]).unwrap();
        assert_eq!(row["senderName"], want, "case {number}: {row}");
    }
}

#[test]
fn pairing_is_answered_over_the_wire_and_a_rejected_sender_may_request_again() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut client, mut wx) = network(&scene);
    set(&mut client, "channels.wx.dmPolicy", json!("pairing"));
    let bob = json!({ "channel": "wx", "senderId": "+49 170 1234567" });
    send_inbound(&mut wx, message("491701234567", "m1", "hello"));
    assert_eq!(client.expect_ok("pair.reject", bob.clone()), json!({ "rejected": true, "senderId": "+491701234567" }));
    let nobody = error_body(404, "No pending pairing for wx:+491701234567");
    assert_eq!(client.expect_error("pair.approve", bob.clone()), nobody);
    send_inbound(&mut wx, message("491701234567", "m2", "hello?"));
    let approved = client.expect_ok("pair.approve", bob.clone());
    assert_eq!(approved, json!({ "approved": true, "senderId": "+491701234567", "senderName": "Ana" }));
    assert_eq!(send_inbound(&mut wx, message("491701234567", "m3", "hello!"))["status"], "started");
    assert_eq!(client.expect_error("pair.reject", bob), nobody);
    for params in [json!({}), json!({ "channel": "wx" })] {
        assert_eq!(client.expect_error("pair.approve", params), error_body(400, "channel and senderId required"));
    }
}

#[test]
fn a_network_that_spells_itself_with_capitals_is_no_other_one() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut client, _) = network(&scene);
    let mut loud = GsvPeer::connect_channel(&gateway, "WX", "a2");
    set(&mut client, "channels.wx.dmPolicy", json!("pairing"));
    let shout = |id: &str| {
        let mut inbound = message("bob", id, "hello");
        inbound["channel"] = json!("WX");
        inbound["accountId"] = json!("a2");
        inbound
    };
    assert_eq!(send_inbound(&mut loud, shout("m1"))["status"], "pending_pairing");
    client.expect_ok("pair.approve", json!({ "channel": "WX", "senderId": "bob" }));
    let allowed = client.expect_ok("config.get", json!({ "path": "channels.wx.allowFrom" }));
    assert_eq!(allowed["value"], json!(["bob"]));
    assert_eq!(send_inbound(&mut loud, shout("m2"))["status"], "started");
}

#[test]
fn only_the_sender_who_began_a_run_answers_its_gates_in_the_chat() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, _client, mut wx) = network(&scene);
    scene.provider.script_replies([
        ProviderReply::new(vec![write_part("c0", "a.txt"), write_part("c1", "b.txt")]),
        text_reply("both done"),
    ]);
    send_inbound(&mut wx, in_group("ana", "m1", "write two files"));
    let first = outbound_text(&mut wx);
    assert!(first.contains("a.txt") && first.contains("by the agent") && first.contains("1 more"), "{first}");
    let foreign = send_inbound(&mut wx, in_group("bob", "m2", "/approve"));
    assert_eq!(foreign["response"], "That is for somebody else to answer.");
    assert_eq!(outbound_text(&mut wx), "That is for somebody else to answer.");
    let queued = send_inbound(&mut wx, in_group("bob", "m3", "yes"));
    assert_eq!(queued["status"], "started");
    assert!(outbound_text(&mut wx).contains("Somebody else's answer is awaited"));
    let answered = send_inbound(&mut wx, in_group("ana", "m4", "yes"));
    assert_eq!(answered["status"], "started");
    let second = outbound_text(&mut wx);
    assert!(second.contains("b.txt"), "{second}");
    // The same answer again is the first one's, and does not answer the current gate.
    assert_eq!(send_inbound(&mut wx, in_group("ana", "m4", "yes")), answered);
    assert_eq!(scene.pending_gates().len(), 1);
    send_inbound(&mut wx, in_group("ana", "m5", "no"));
    assert_eq!(outbound_text(&mut wx), "both done");
    let is_there = |name: &str| scene.folder.join("agents/main").join(name).exists();
    assert_eq!((is_there("a.txt"), is_there("b.txt")), (true, false));
    scene.verify_log();
}

#[test]
fn a_message_that_was_queued_before_a_gate_opened_gets_one_notice_after_the_card() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut client, mut wx) = network(&scene);
    let held =
        |latch: &Latch, file: &str| ProviderReply::new(vec![ReplyPart::Until(latch.clone()), write_part("c0", file)]);
    let latches = [Latch::default(), Latch::default()];
    scene.provider.script_replies([
        held(&latches[0], "a.txt"),
        text_reply("denied"),
        text_reply("to m2"),
        held(&latches[1], "b.txt"),
        text_reply("denied too"),
        text_reply("to m5"),
    ]);
    send_inbound(&mut wx, message("ana", "m1", "write"));
    scene.provider.wait_request(0);
    send_inbound(&mut wx, message("ana", "m2", "yes"));
    latches[0].open();
    assert!(outbound_text(&mut wx).contains("Approval needed"));
    let notice = wx.wait_event("channel.outbound", &json!({}));
    assert!(notice["message"]["text"].as_str().unwrap().contains("is awaited first"), "{notice}");
    assert_eq!(notice["message"]["replyToId"], "m2");
    send_inbound(&mut wx, message("ana", "m3", "no"));
    assert_eq!(outbound_text(&mut wx), "denied");
    assert_eq!(outbound_text(&mut wx), "to m2");
    // The gate of a client's run is not for the chat.
    client.expect_ok("chat.send", json!({ "sessionKey": "main", "message": "write", "runId": "r-1" }));
    scene.provider.wait_request(3);
    send_inbound(&mut wx, message("ana", "m5", "hello"));
    latches[1].open();
    assert!(outbound_text(&mut wx).contains("Somebody else's answer is awaited"));
    client.wait_event("chat", &json!({ "runId": "r-1", "state": "final" }));
    client.expect_ok("chat.send", json!({ "sessionKey": "main", "message": "no" }));
    assert_eq!(outbound_text(&mut wx), "to m5");
    assert!(!scene.folder.join("agents/main/a.txt").exists());
}

#[test]
fn what_one_person_denies_is_asked_about_in_the_chat_of_another() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut client, mut wx) = network(&scene);
    set(&mut client, "session.dmScope", json!("per-peer"));
    let asks = |call: &str| ProviderReply::new(vec![write_part(call, "a.txt")]);
    scene.provider.script_replies([asks("c0"), text_reply("denied"), asks("c1"), text_reply("written")]);
    send_inbound(&mut wx, message("ann", "m1", "write"));
    assert!(outbound_text(&mut wx).contains("Approval needed"));
    send_inbound(&mut wx, message("ann", "m2", "no"));
    assert_eq!(outbound_text(&mut wx), "denied");
    send_inbound(&mut wx, message("bob", "m3", "write"));
    let card = outbound_text(&mut wx);
    assert!(card.contains("Approval needed"), "{card}");
    send_inbound(&mut wx, message("bob", "m4", "yes"));
    assert_eq!(outbound_text(&mut wx), "written");
}

#[test]
fn a_decision_on_another_surface_is_shown_in_the_chat() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, _client, mut wx) = network(&scene);
    scene.provider.script_replies([ProviderReply::new(vec![write_part("c0", "a.txt")]), text_reply("done")]);
    send_inbound(&mut wx, message("ana", "m1", "write"));
    outbound_text(&mut wx);
    let gate = scene.wait_gate();
    scene.allow_gate(&gate);
    let both = [outbound_text(&mut wx), outbound_text(&mut wx)];
    assert!(both.iter().any(|text| text.contains("was allowed by local:")), "{both:?}");
    assert!(both.contains(&"done".to_owned()), "{both:?}");
}

#[test]
fn what_is_owed_to_a_chat_comes_once_its_account_is_back_and_after_a_kill() {
    let scene = GatewayFixture::for_peers();
    let (gateway, client, mut wx) = network(&scene);
    let latch = Latch::default();
    scene.provider.script_replies([ProviderReply::new(vec![ReplyPart::Until(latch.clone()), text_part("late news")])]);
    send_inbound(&mut wx, message("ana", "m1", "news?"));
    scene.provider.wait_request(0);
    drop(wx);
    let mut client = client;
    latch.open();
    client.wait_event("chat", &json!({ "state": "final" }));
    drop(client);
    gateway.kill();
    let gateway = scene.start();
    let mut wx = GsvPeer::connect_channel(&gateway, "wx", "a1");
    assert_eq!(outbound_text(&mut wx), "late news");
    // A confirmed message does not come again.
    scene.provider.script_replies([text_reply("more")]);
    send_inbound(&mut wx, message("ana", "m2", "more?"));
    assert_eq!(outbound_text(&mut wx), "more");
    scene.verify_log();
}

#[test]
fn a_message_that_comes_again_after_a_kill_is_the_same_message() {
    let scene = GatewayFixture::for_peers();
    let (gateway, client, mut wx) = network(&scene);
    scene.provider.script_replies([text_reply("hi")]);
    let taken = send_inbound(&mut wx, message("ana", "m1", "hello"));
    assert_eq!(outbound_text(&mut wx), "hi");
    drop((client, wx));
    gateway.kill();
    let gateway = scene.start();
    let mut wx = GsvPeer::connect_channel(&gateway, "wx", "a1");
    assert_eq!(send_inbound(&mut wx, message("ana", "m1", "hello")), taken);
    scene.provider.script_replies([text_reply("well")]);
    send_inbound(&mut wx, message("ana", "m2", "and you?"));
    let mut words = outbound_text(&mut wx);
    if words == "hi" {
        words = outbound_text(&mut wx);
    }
    assert_eq!((words.as_str(), scene.provider.request_count()), ("well", 2));
}

#[test]
fn a_gate_is_not_shown_again_after_a_kill_and_can_be_answered() {
    let scene = GatewayFixture::for_peers();
    let (gateway, client, mut wx) = network(&scene);
    scene.create_marks();
    scene.provider.script_replies([ProviderReply::new(vec![mark_part("c0")]), text_reply("done")]);
    send_inbound(&mut wx, message("ana", "m1", "mark it"));
    let question = outbound_text(&mut wx);
    drop((client, wx));
    gateway.kill();
    let gateway = scene.start();
    let mut wx = GsvPeer::connect_channel(&gateway, "wx", "a1");
    // Possibly the question was not confirmed before the kill: an answer with its token counts all the same.
    let token = question[question.find('#').unwrap()..].split_whitespace().next().unwrap();
    send_inbound(&mut wx, message("ana", "m2", &format!("/approve {token}")));
    let mut words = outbound_text(&mut wx);
    if words == question {
        words = outbound_text(&mut wx);
    }
    assert_eq!(words, "done");
    assert_eq!(scene.read_marks(), "marks: once\n");
    scene.verify_log();
}

#[test]
fn images_are_kept_and_shown_until_the_session_is_reset() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut client, mut wx) = network(&scene);
    // A model that sees pictures.
    set(&mut client, "model.id", json!("small-2"));
    let with = |id: &str, media: Value| {
        let mut message = message("ana", id, "what is this?");
        message["message"]["media"] = json!([media]);
        message
    };
    let picture = json!({ "type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo=" });
    send_inbound(&mut wx, with("m1", picture));
    outbound_text(&mut wx);
    let request_text = scene.provider.wait_request(0).messages_text();
    assert!(request_text.contains("data:image/png;base64,iVBORw0KGgo="), "{request_text}");
    let preview = client.expect_ok("session.preview", json!({ "sessionKey": "main" }));
    let part = &preview["messages"][0]["content"][1];
    let name = part["r2Key"].as_str().unwrap();
    assert!(name.starts_with("media/agent:main:main/") && part.get("data").is_none(), "{part}");
    assert!(scene.data_dir().join("objects").join(name).exists());
    let document =
        json!({ "type": "document", "mimeType": "application/pdf", "filename": "a.pdf", "data": "JVBERg==" });
    send_inbound(&mut wx, with("m2", document));
    outbound_text(&mut wx);
    assert!(scene.provider.wait_request(1).messages_text().contains("[Document a.pdf (application/pdf) at media/"));
    for (data, want) in [("%%%", "message.media[0].data is no base64"), ("", "message.media[0].data is empty")] {
        let picture = json!({ "type": "image", "mimeType": "image/png", "data": data });
        assert_eq!(wx.expect_error("channel.inbound", with("m3", picture)), error_body(400, want));
    }
    let large = json!({ "type": "video", "mimeType": "video/mp4", "data": "A".repeat((26 << 20) / 3 * 4) });
    let refused = wx.expect_error("channel.inbound", with("m4", large));
    assert!(refused["message"].as_str().unwrap().contains("at most 26214400 are taken"), "{refused}");
    let reset = client.expect_ok("session.reset", json!({ "sessionKey": "main" }));
    assert_eq!(reset["mediaDeleted"], 2, "{reset}");
    assert!(!scene.data_dir().join("objects").join(name).exists());
    // With a message that renews its session the picture comes into the new one, and with a directive to the model.
    send_inbound(&mut wx, message("ana", "m5", "before"));
    outbound_text(&mut wx);
    client.expect_ok(
        "session.patch",
        json!({ "sessionKey": "main", "resetPolicy": { "mode": "idle", "idleMinutes": 0 } }),
    );
    for (id, words) in [("m6", "what is this?"), ("m7", "/think:low")] {
        let mut message = with(id, json!({ "type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo=" }));
        message["message"]["text"] = json!(words);
        assert_eq!(send_inbound(&mut wx, message)["status"], "started");
        outbound_text(&mut wx);
        assert!(scene.provider.last_request().messages_text().contains("data:image/png;base64,iVBORw0KGgo="), "{id}");
    }
}

#[test]
fn an_account_speaks_for_itself_only_and_what_is_missing_is_named() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, mut client, mut wx) = network(&scene);
    let missing = error_body(400, "channel, accountId, peer, and message required");
    for name in ["channel", "accountId", "peer", "message"] {
        let mut message = message("ana", "m1", "hello");
        message.as_object_mut().unwrap().remove(name);
        assert_eq!(wx.expect_error("channel.inbound", message), missing, "{name}");
    }
    for (name, value) in [("channel", "tg"), ("accountId", "other")] {
        let mut message = message("ana", "m1", "hello");
        message[name] = value.into();
        let want = error_body(403, "Channel not authorized for this account");
        assert_eq!(wx.expect_error("channel.inbound", message), want, "{name}");
    }
    let empty = message("ana", "m1", " ");
    assert_eq!(wx.expect_error("channel.inbound", empty), error_body(400, "message.text or message.media required"));
    let refused = client.expect_error("channel.inbound", message("ana", "m1", "hello"));
    assert_eq!(refused, error_body(403, "Method channel.inbound not allowed for mode"));
}

#[test]
fn accounts_are_looked_after_and_what_is_left_out_says_so() {
    let scene = GatewayFixture::for_peers();
    let (gateway, mut client, mut wx) = network(&scene);
    let status = client.expect_ok("channel.status", json!({ "channel": "wx" }));
    let want = json!([{ "accountId": "a1", "connected": true, "authenticated": true }]);
    assert_eq!(status, json!({ "channel": "wx", "accounts": want }));
    let done = json!({ "ok": true, "channel": "wx", "accountId": "a1" });
    assert_eq!(client.expect_ok("channel.start", json!({ "channel": "wx" })), done);
    assert_eq!(client.expect_ok("channel.stop", json!({ "channel": "wx" })), done);
    assert_eq!(wx.read_frame(), GsvSocketEvent::Closed(1000, "Stopped".to_owned()));
    assert_eq!(client.expect_ok("channels.list", json!({}))["count"], 1);
    let away = client.expect_error("channel.start", json!({ "channel": "wx" }));
    assert_eq!(away, error_body(400, "wx connects by itself, and is not connected now"));
    drop(wx);
    let mut wx = GsvPeer::connect_channel(&gateway, "wx", "a1");
    let named = json!({ "channel": "wx", "accountId": "a1" });
    assert_eq!(client.expect_ok("channel.logout", named), done);
    assert_eq!(wx.read_frame(), GsvSocketEvent::Closed(1000, "Logged out".to_owned()));
    assert_eq!(client.expect_ok("channels.list", json!({})), json!({ "channels": [], "count": 0 }));
    for method in ["channel.start", "channel.stop", "channel.status", "channel.login", "channel.logout"] {
        assert_eq!(client.expect_error(method, json!({})), error_body(400, "channel required"), "{method}");
        assert_eq!(
            client.expect_error(method, json!({ "channel": "zz" })),
            error_body(404, "Unknown channel: zz"),
            "{method}"
        );
    }
    for channel in ["whatsapp", "discord"] {
        for method in ["channel.start", "channel.login"] {
            let refused = client.expect_error(method, json!({ "channel": channel }));
            let words = refused["message"].as_str().unwrap();
            assert!(refused["code"] == 400 && words.contains("is left out of this gateway"), "{refused}");
        }
    }
    let mut line = GsvPeer::open_connection(&gateway);
    let mut params = gsv::connect_params("channel", "a1");
    params["client"]["channel"] = "telegram".into();
    let refused = line.expect_error("connect", params);
    assert_eq!(refused, error_body(103, "Invalid client: telegram is a channel of the gateway's own"));
}

#[test]
fn what_comes_with_an_answer_to_a_question_reaches_the_model() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, _client, mut wx) = network(&scene);
    for (id, words, media, want) in [
        (
            "v",
            "",
            json!({ "type": "audio", "mimeType": "audio/ogg", "data": "T2dnUw==", "transcription": "the red one" }),
            "Transcript: the red one",
        ),
        (
            "p",
            "this one",
            json!({ "type": "image", "mimeType": "image/png", "filename": "one.png", "data": "iVBORw0KGgo=" }),
            "this one\\n[Image one.png (image/png) at media/",
        ),
    ] {
        let question = json!([{ "id": "which", "question": "Which one?", "options": [] }]);
        let asks = ProviderReply::new(vec![call_part("c0", "ask", &json!({ "questions": question }))]);
        scene.provider.script_replies([asks, text_reply("thanks")]);
        send_inbound(&mut wx, message("ana", &format!("{id}1"), "choose"));
        assert!(outbound_text(&mut wx).contains("Which one?"));
        let mut answer = message("ana", &format!("{id}2"), words);
        answer["message"]["media"] = json!([{ "type": "image", "mimeType": "image/png", "data": "!!!" }]);
        let refused = wx.expect_error("channel.inbound", answer.clone());
        assert_eq!(
            refused,
            error_body(400, "message.media[0].data is no base64"),
            "it answers nothing and may come again"
        );
        answer["message"]["media"] = json!([media]);
        assert_eq!(send_inbound(&mut wx, answer)["status"], "started");
        assert_eq!(outbound_text(&mut wx), "thanks");
        let request_text = scene.provider.last_request().messages_text();
        assert!(request_text.contains(want), "{request_text}");
    }
}

#[test]
fn a_long_wait_for_a_provider_opens_a_question_in_the_chat() {
    let scene = GatewayFixture::for_peers();
    let (_gateway, _client, mut wx) = network(&scene);
    scene
        .provider
        .script_replies([error_reply(429, "slow down").with_header("retry-after", "600"), text_reply("here I am")]);
    send_inbound(&mut wx, message("ana", "m1", "hello"));
    let card = outbound_text(&mut wx);
    let (question, choices) = card.split_once("\n- ").unwrap();
    assert!(question.contains("local/small-1 cannot be asked again before "), "{card}");
    assert!(
        choices.starts_with("Wait until ")
            && choices.ends_with("\n- Use local/small-2\n- Stop\nAnswer with one of these.")
    );
    send_inbound(&mut wx, message("ana", "m2", "what?"));
    assert!(outbound_text(&mut wx).contains("only its choices answer it"));
    assert_eq!(send_inbound(&mut wx, message("ana", "m3", "use"))["status"], "started");
    assert_eq!(outbound_text(&mut wx), "here I am");
    assert_eq!(scene.provider.last_request().body["model"], "small-2");
}
