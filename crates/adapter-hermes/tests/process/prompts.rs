//! Pending gates, as clients of hermes see and answer them.

mod client;
mod questions;
mod streams;

use std::{sync::Barrier, thread};

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayServer, RULES,
    agent_gate::AgentClient,
    eventually,
    http::HttpClient,
    provider::{ProviderReply, bash_part, text_reply},
};
use serde_json::{Value, json};

use self::client::{SseStream, ask, chat, get, pending, post, respond};

/// Session of the agent of most tests.
const AGENT: &str = "agent:default";

/// Has the agent make a request, and returns the name of its gate once it is pending.
fn raise(gateway: &GatewayServer, agent: &mut AgentClient, id: u32, thing: &str) -> String {
    let before = pending(gateway, "approval", AGENT)["pending_count"].as_u64().unwrap();
    agent.request_tool(id, "turn", json!({ "thing": thing, "way": "open" }));
    let mut stream = SseStream::for_session(gateway, "approval", AGENT);
    stream.until(|frame| frame.state().1 == before + 1);
    let rows = ask(gateway, "GET", "/api/sessions", None).1;
    assert!(rows.to_string().contains(AGENT), "{rows}");
    names(gateway).pop().unwrap()
}

/// Returns the names of the pending gates in the agent's session, oldest first, by answering nothing.
fn names(gateway: &GatewayServer) -> Vec<String> {
    let mut stream = SseStream::for_session(gateway, "session", AGENT);
    let count = pending(gateway, "approval", AGENT)["pending_count"].as_u64().unwrap();
    (0..count).map(|_| stream.next_named("approval_required")["approval_id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_stream_shows_the_oldest_and_how_many_wait() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let mut streams = [(); 2].map(|()| SseStream::for_session(&gateway, "approval", AGENT));
    let nothing = json!({ "pending": null, "pending_count": 0 });
    for stream in &mut streams {
        let first = stream.next();
        assert_eq!((first.event.as_str(), &first.data), ("initial", &nothing));
    }
    let mut shows = |head: Option<&str>, count: u64| {
        for stream in &mut streams {
            let frame = stream.next();
            assert_eq!((frame.event.as_str(), frame.state()), ("approval", (head, count)));
        }
        // A late stream gets the same first, and so does a poll.
        let first = SseStream::for_session(&gateway, "approval", AGENT).next();
        assert_eq!((first.event.as_str(), first.state()), ("initial", (head, count)));
        assert_eq!(pending(&gateway, "approval", AGENT), first.data);
    };
    let a = raise(&gateway, &mut agent, 1, "door-a");
    shows(Some(&a), 1);
    let b = raise(&gateway, &mut agent, 2, "door-b");
    shows(Some(&a), 2);
    let c = raise(&gateway, &mut agent, 3, "door-c");
    shows(Some(&a), 3);
    for (id, head, count) in [(&a, Some(b.as_str()), 2), (&b, Some(&c), 1), (&c, None, 0)] {
        assert_eq!(respond(&gateway, AGENT, "once", Some(id)), (200, json!({ "ok": true, "choice": "once" })));
        shows(head, count);
    }
    for id in 1..=3 {
        assert_eq!(agent.wait_reply(&json!(id))["result"]["status"], "executed");
    }
}

#[test]
fn a_card_says_exactly_what_would_run_and_what_can_be_chosen() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    agent.request_tool(1, "turn", json!({ "thing": "door\u{202e}", "way": "open" }));
    let gate = place.wait_gate();
    let card = &pending(&gateway, "approval", AGENT)["pending"];
    let is = |name: &str| card[name].clone();
    assert_eq!(is("approval_id"), json!(gate));
    // Each argument is shown once.
    assert_eq!(is("command"), json!("turn\nthing: door\\u{202e}\nway: open"));
    assert_eq!(is("args"), json!({ "thing": "door\u{202e}", "way": "open" }));
    assert_eq!(is("pattern_key"), json!("exactly this call"));
    assert_eq!(is("pattern_keys"), json!([is("pattern_key")]));
    assert_eq!(is("choices"), json!(["once", "session", "always", "deny"]));
    assert_eq!((is("allow_permanent"), is("tool"), is("session_id")), (json!(true), json!("turn"), json!(AGENT)));
    assert!(is("description").as_str().unwrap().contains("\"*\" (permissions.yaml:4)"), "{card}");
    let left = is("expires_at").as_f64().unwrap() - is("requested_at").as_f64().unwrap();
    assert!((left - 900.0).abs() < 1.0, "{card}");
}

#[test]
fn an_answer_counts_for_what_it_names_and_for_nothing_else() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let ok = |choice: &str| (200, json!({ "ok": true, "choice": choice }));
    let cleared = |choice: &str| (200, json!({ "ok": true, "choice": choice, "stale_cleared": true }));
    let kept = |choice: &str| (200, json!({ "ok": false, "choice": choice }));
    let error = |text: &str| (400, json!({ "error": text }));
    // No gate is pending.
    assert_eq!(respond(&gateway, AGENT, "once", None), ok("once"));
    assert_eq!(respond(&gateway, AGENT, "once", Some("no-such-id")), cleared("once"));
    let a = raise(&gateway, &mut agent, 1, "door-a");
    let b = raise(&gateway, &mut agent, 2, "door-b");
    let c = raise(&gateway, &mut agent, 3, "door-c");
    let d = raise(&gateway, &mut agent, 4, "door-d");
    let answer = |body: Value| post(&gateway, "/api/approval/respond", body);
    for body in [json!({ "choice": "once" }), json!({ "session_id": " ", "approval_id": a })] {
        assert_eq!(answer(body), error("session_id is required"));
    }
    for (choice, shown) in [(json!("allow"), "allow"), (json!(""), ""), (json!(5), "5")] {
        let refused = answer(json!({ "session_id": AGENT, "choice": choice, "approval_id": a }));
        assert_eq!(refused, error(&format!("Invalid choice: {shown}")));
    }
    // Names without a gate in this session.
    let typed = || error("approval_id must be a text");
    for (named, want) in [
        (json!("no-such-id"), kept("once")),
        (json!("gate_00000000000000000000000000000000"), kept("once")),
        (json!(7), typed()),
        (json!({}), typed()),
    ] {
        let reply = answer(json!({ "session_id": AGENT, "choice": "once", "approval_id": named }));
        assert_eq!(reply, want, "{named}");
    }
    assert_eq!(respond(&gateway, "agent:kitchen", "once", Some(&a)), cleared("once"));
    assert_eq!(names(&gateway), [&a, &b, &c, &d].map(Clone::clone));
    // By name anywhere in the queue, with blanks around it; then the oldest; none means deny.
    assert_eq!(respond(&gateway, AGENT, "once", Some(&format!(" {b} "))), ok("once"));
    assert_eq!(respond(&gateway, AGENT, "once", Some("")), ok("once"));
    assert_eq!(names(&gateway), [&c, &d].map(Clone::clone));
    assert_eq!(answer(json!({ "session_id": AGENT, "approval_id": c })), ok("deny"));
    // The same again gets the first result, another choice does not.
    assert_eq!(respond(&gateway, AGENT, "deny", Some(&c)), ok("deny"));
    assert_eq!(respond(&gateway, AGENT, "once", Some(&c)), cleared("once"));
    assert_eq!(respond(&gateway, AGENT, "once", Some(&b)), ok("once"));
    assert_eq!(names(&gateway), [d]);
    for (id, ran) in [(1, true), (2, true), (3, false)] {
        assert_eq!(agent.wait_reply(&json!(id))["result"]["status"] == "executed", ran, "{id}");
    }
    let (status, _) = ask(&gateway, "POST", "/api/approval/respond", None);
    assert_eq!(status, 400);
    drop(gateway);
    place.verify_log();
}

#[test]
fn of_two_answers_at_once_one_has_an_effect() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    for round in 0..5 {
        let id = raise(&gateway, &mut agent, round, &format!("door-{round}"));
        let together = Barrier::new(4);
        let replies: Vec<(u16, Value)> = thread::scope(|scope| {
            let answers = ["once", "deny", "once", "deny"].map(|choice| {
                let (gateway, id, together) = (&gateway, &id, &together);
                scope.spawn(move || {
                    together.wait();
                    respond(gateway, AGENT, choice, Some(id))
                })
            });
            answers.into_iter().map(|answer| answer.join().unwrap()).collect()
        });
        let counted = |choice: &str| {
            let counted =
                replies.iter().filter(|(_, reply)| reply["choice"] == choice && reply["stale_cleared"].is_null());
            counted.count()
        };
        assert!(replies.iter().all(|(status, reply)| *status == 200 && reply["ok"] == true), "{replies:?}");
        let (once, deny) = (counted("once"), counted("deny"));
        assert!((once, deny) == (2, 0) || (once, deny) == (0, 2), "{replies:?}");
        let is_done = agent.wait_reply(&json!(round))["result"]["status"] == "executed";
        assert_eq!(is_done, once == 2, "{replies:?}");
        assert_eq!(place.service.request_count(&format!("/turn/door-{round}")), usize::from(is_done));
        if !is_done {
            // After repeated denials of an agent only one gate would open.
            let (_, held) = respond(&gateway, AGENT, "once", None);
            assert_eq!(held["ok"], true);
        }
    }
}

#[test]
fn a_choice_for_longer_covers_what_was_shown_and_nothing_else() {
    for choice in ["session", "always"] {
        let place = GatewayFixture::new();
        let gateway = GatewayServer::start(&place);
        let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
        let id = raise(&gateway, &mut agent, 1, "door");
        assert_eq!(respond(&gateway, AGENT, choice, Some(&id)).1, json!({ "ok": true, "choice": choice }));
        assert_eq!(agent.call_tool(2, "turn", json!({ "thing": "door", "way": "open" }))["status"], "executed");
        raise(&gateway, &mut agent, 3, "door2");
        let grants = place.run_as_person(&["grants", "list", "--json"]).json();
        assert_eq!((&grants[0]["scope"], &grants[0]["by"]), (&json!(choice), &json!("web:open")), "{grants}");
        // The approver is not authenticated, and the list says so.
        assert_eq!(
            (&grants[0]["covers"], &grants[0]["door"]),
            (&json!("turn(door, open)"), &json!("open")),
            "{grants}"
        );
    }
}

#[test]
fn where_a_rule_names_people_an_answer_is_one_of_several() {
    let rules = "rules:\n  - { pattern: 'turn(door*)', action: ask, approvals: 2 }\n";
    let place =
        GatewayFixture::with_config_and_rules("people: [ { id: ana, local: [1] }, { id: ben, local: [2] } ]", rules);
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let id = raise(&gateway, &mut agent, 1, "door");
    let card = pending(&gateway, "approval", AGENT)["pending"].take();
    assert_eq!((&card["choices"], &card["allow_permanent"]), (&json!(["once", "deny"]), &json!(false)));
    let voted = (200, json!({ "ok": true, "choice": "always", "have": 1, "need": 2 }));
    for _ in 0..2 {
        assert_eq!(respond(&gateway, AGENT, "always", Some(&id)), voted);
    }
    // No session of an agent can be covered.
    let (_, reply) = post(&gateway, "/api/session/yolo", json!({ "session_id": AGENT }));
    assert_eq!(reply, json!({ "ok": true, "yolo_enabled": true }));
    let now = pending(&gateway, "approval", AGENT);
    assert_eq!((&now["pending"]["approval_id"], &now["pending"]["have"]), (&json!(id), &json!(1)), "{now}");
    assert_eq!(respond(&gateway, AGENT, "deny", Some(&id)).1["ok"], true);
    assert_eq!(agent.wait_reply(&json!(1))["error"]["code"], -32001);
}

#[test]
fn nobody_in_time_takes_the_card_down() {
    let place = GatewayFixture::with_config_and_rules("approval_timeout: 1", RULES);
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let mut stream = SseStream::for_session(&gateway, "approval", AGENT);
    agent.request_tool(1, "turn", json!({ "thing": "door" }));
    let gate = stream.until(|frame| frame.state().1 == 1);
    let id = gate.state().0.unwrap();
    assert_eq!(stream.next().state(), (None, 0));
    assert_eq!(respond(&gateway, AGENT, "once", Some(id)).1["stale_cleared"], true);
    assert_eq!(agent.wait_reply(&json!(1))["error"]["code"], -32002);
    assert_eq!(place.service.request_count("/turn/door"), 0);
}

#[test]
fn what_waits_keeps_its_names_through_a_power_cut() {
    let talk = GatewayFixture::for_web();
    let (gateway, _) = talk.start_web();
    let (session, _) =
        chat(&talk, &gateway, [ProviderReply::new(vec![bash_part("c1", "echo ran >> out")]), text_reply("done")]);
    let approval = eventually("the approval", || {
        let waiting = pending(&gateway, "approval", &session);
        (waiting["pending_count"] == 1).then_some(waiting)
    });
    gateway.kill();
    let (gateway, _) = talk.start_web();
    assert_eq!(pending(&gateway, "approval", &session), approval);
    let mut stream = SseStream::for_session(&gateway, "approval", &session);
    assert_eq!(stream.next().data, approval);
    let id = approval["pending"]["approval_id"].as_str().unwrap();
    assert_eq!(respond(&gateway, &session, "once", Some(id)).1["ok"], true);
    assert_eq!(stream.next().state(), (None, 0));
    talk.provider.wait_request(1);
    // The next process knows the outcome of an answer as well.
    gateway.kill();
    let (gateway, _) = talk.start_web();
    assert_eq!(respond(&gateway, &session, "once", Some(id)).1, json!({ "ok": true, "choice": "once" }));
    assert_eq!(respond(&gateway, &session, "deny", Some(id)).1["stale_cleared"], true);
    let out = std::fs::read_to_string(talk.data_dir().join("agents/main/out")).unwrap();
    assert_eq!(out, "ran\n");
}

#[test]
fn the_floor_offers_one_approval_only_and_the_model_reads_a_denial() {
    let talk = GatewayFixture::for_web();
    let (gateway, _) = talk.start_web();
    let destroys = "rm -rf / --one-file-system --nope";
    let (session, turn) =
        chat(&talk, &gateway, [ProviderReply::new(vec![bash_part("c1", destroys)]), text_reply("done")]);
    let mut stream = SseStream::for_session(&gateway, "approval", &session);
    let mut first = stream.next();
    if first.state().1 == 0 {
        first = stream.next();
    }
    let card = first.data["pending"].take();
    assert_eq!((&card["choices"], &card["allow_permanent"]), (&json!(["once", "deny"]), &json!(false)), "{card}");
    assert_eq!((&card["command"], &card["risk_level"]), (&json!(destroys), &json!("high")));
    // On the stream of its turn it is bare.
    let mut bare = turn.wait_named("approval").data;
    assert_eq!(bare["pending_count"].take(), 1);
    bare.as_object_mut().unwrap().remove("pending_count");
    assert_eq!(bare, card);
    let reply = post(&gateway, "/api/session/yolo", json!({ "session_id": session })).1;
    assert_eq!(reply["yolo_enabled"], true);
    assert_eq!(pending(&gateway, "approval", &session)["pending"], card, "nobody is let through at the floor");
    assert_eq!(respond(&gateway, &session, "deny", None).1["ok"], true);
    let output = talk.provider.wait_request(1).call_result("c1").unwrap();
    assert_eq!(
        output,
        "Denied by web:open. A person refused this. Do not retry it: the same action in other words stays denied. That holds in this \
        conversation for 15 minutes."
    );
    turn.wait_end();
}

#[test]
fn a_session_that_is_let_through_waits_for_nobody_but_rules_still_deny() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    let is_on = || get(&gateway, &format!("/api/session/yolo?session_id={AGENT}"))["yolo_enabled"].clone();
    let turn = |body: Value| post(&gateway, "/api/session/yolo", body);
    for (method, body) in [("GET", None), ("POST", Some(json!({})))] {
        let reply = ask(&gateway, method, "/api/session/yolo", body.as_ref());
        assert_eq!(reply, (400, json!({ "error": "session_id is required" })));
    }
    assert_eq!(is_on(), false);
    for enabled in [json!(null), json!("yes"), json!(1), json!([true])] {
        let reply = turn(json!({ "session_id": AGENT, "enabled": enabled }));
        assert_eq!(reply, (400, json!({ "error": "enabled must be true or false" })));
    }
    let a = raise(&gateway, &mut agent, 1, "door-a");
    raise(&gateway, &mut agent, 2, "door-b");
    for (field, value, error) in [
        ("yolo", json!("yes"), "yolo must be true or false"),
        ("approval_id", json!(5), "approval_id must be a text"),
        ("approval_id", json!([a]), "approval_id must be a text"),
        ("session_id", json!(5), "session_id must be a text"),
    ] {
        let mut body = json!({ "session_id": AGENT, "choice": "once", "approval_id": a });
        body[field] = value;
        assert_eq!(post(&gateway, "/api/approval/respond", body), (400, json!({ "error": error })));
    }
    let mut stream = SseStream::for_session(&gateway, "approval", AGENT);
    assert_eq!(turn(json!({ "session_id": AGENT })), (200, json!({ "ok": true, "yolo_enabled": true })));
    assert_eq!(is_on(), true);
    stream.until(|frame| frame.state() == (None, 0));
    for id in [1, 2] {
        assert_eq!(agent.wait_reply(&json!(id))["result"]["status"], "executed");
    }
    assert_eq!(agent.call_tool(3, "turn", json!({ "thing": "door-c" }))["status"], "executed");
    assert_eq!(agent.call_tool(4, "turn", json!({ "thing": "lock" }))["code"], -32003);
    // Once each: nothing was granted, and no other session is covered.
    assert_eq!(place.run_as_person(&["grants", "list", "--json"]).json(), json!([]));
    assert_eq!(turn(json!({ "session_id": AGENT, "enabled": false })).1["yolo_enabled"], false);
    raise(&gateway, &mut agent, 5, "door-d");
    let own = json!({ "session_id": AGENT, "choice": "once", "approval_id": a, "yolo": true });
    // An answer to an old gate covers the session all the same: the user wants that.
    let (_, reply) = post(&gateway, "/api/approval/respond", own);
    assert_eq!(reply, json!({ "ok": true, "choice": "once", "stale_cleared": true, "yolo_enabled": true }));
    assert_eq!(agent.wait_reply(&json!(5))["result"]["status"], "executed");
    assert_eq!(turn(json!({ "session_id": AGENT, "enabled": false })).1["yolo_enabled"], false);
    // An answer after a denial, or to an unknown gate, covers nothing.
    let denied = raise(&gateway, &mut agent, 6, "door-e");
    assert_eq!(respond(&gateway, AGENT, "deny", Some(&denied)).1["ok"], true);
    for named in [denied.as_str(), "nonsense"] {
        let late = json!({ "session_id": AGENT, "choice": "once", "approval_id": named, "yolo": true });
        let (_, reply) = post(&gateway, "/api/approval/respond", late);
        assert_eq!((&reply["stale_cleared"], &reply["yolo_enabled"]), (&json!(true), &json!(false)), "{named}");
    }
    for (body, status) in [
        (json!({ "session_id": "nobody" }), 404),
        (json!({ "session_id": AGENT, "enabled": "yes" }), 400),
        (json!({ "session_id": AGENT, "enabled": 1 }), 400),
        (json!({ "session_id": AGENT, "enabled": null }), 400),
    ] {
        assert_eq!(turn(body.clone()).0, status, "{body}");
    }
    assert_eq!(is_on(), false);
    // It is lost with the process.
    gateway.kill();
    let gateway = GatewayServer::start(&place);
    let state = get(&gateway, &format!("/api/session/yolo?session_id={AGENT}"));
    assert_eq!(state, json!({ "yolo_enabled": false }));
}

#[test]
fn an_answer_without_a_name_that_is_posted_twice_answers_one() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let mut agent = AgentClient::connect_authenticated(&gateway, AGENT_TOKEN);
    // Without a pending gate there is nothing to repeat.
    assert_eq!(respond(&gateway, AGENT, "once", None).0, 200);
    let first = raise(&gateway, &mut agent, 1, "door-a");
    let second = raise(&gateway, &mut agent, 2, "door-b");
    let together = Barrier::new(2);
    let replies: Vec<(u16, Value)> = thread::scope(|scope| {
        let posts = [(); 2].map(|()| {
            scope.spawn(|| {
                together.wait();
                respond(&gateway, AGENT, "once", None)
            })
        });
        posts.into_iter().map(|post| post.join().unwrap()).collect()
    });
    assert_eq!(replies[0], replies[1]);
    assert_eq!(names(&gateway), [second], "{first} alone was answered");
    // Another answer is no repetition, and neither is the same of a caller who has looked at the current gates.
    assert_eq!(respond(&gateway, AGENT, "deny", None).0, 200);
    let third = raise(&gateway, &mut agent, 3, "door-c");
    assert_eq!(names(&gateway), [third]);
    assert_eq!(respond(&gateway, AGENT, "once", None).0, 200);
    assert!(names(&gateway).is_empty());
    drop(gateway);
    place.verify_log();
}

#[test]
fn a_foreign_origin_is_refused_in_the_form_of_the_adapter() {
    let place = GatewayFixture::new();
    let gateway = GatewayServer::start(&place);
    let http = HttpClient::new(&gateway.address).with_header("origin", "http://evil.example");
    let refused = http.post("/api/approval/respond", &json!({ "session_id": AGENT, "choice": "once" }));
    assert_eq!(refused.status, 403);
    assert_eq!(refused.json(), json!({ "error": "Cross-origin mismatch - check reverse proxy headers" }));
}
