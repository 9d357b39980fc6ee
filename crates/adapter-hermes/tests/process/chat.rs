//! Sessions and turns as hermes' clients use them. Source: docs/protocol/hermes.md.

use countersign_testkit::process::{
    AGENT_TOKEN, GatewayFixture, GatewayOptions, GatewayServer, Latch, eventually,
    hermes::{event_names, event_numbers, message_roles, token_text},
    http::HttpClient,
    provider::{self, ProviderReply, ReplyPart, bash_part, error_reply, text_part as saying, text_reply},
};
use serde_json::{Value, json};

/// Returns an answer with reasoning and two words.
fn spoken() -> ProviderReply {
    ProviderReply::new(vec![
        ReplyPart::Think(vec!["hm".into()]),
        ReplyPart::Text(vec!["hello ".into(), "there".into()]),
    ])
}

#[test]
fn a_turn_is_a_stream_that_can_be_read_again_from_anywhere() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    talk.provider.script_replies([spoken()]);
    let session = http.create_session();
    let stream = http.start_chat(&session, "how are you");
    let events = http.stream_chat(&stream).wait_end();
    assert_eq!(token_text(&events), "hello there");
    assert_eq!(event_numbers(&events, &stream), (1..=events.len() as u64).collect::<Vec<_>>());
    assert_eq!(event_names(&events).last(), Some(&"stream_end"));
    let done = &events[events.len() - 2];
    assert_eq!((done.name.as_str(), message_roles(&done.data["session"])), ("done", vec!["user", "assistant"]));
    assert_eq!(done.data["session"]["messages"][1]["reasoning"], "hm");
    assert_eq!(done.data["session"]["active_stream_id"], Value::Null);

    let at = |query: &str| http.open_stream(&format!("/api/chat/stream?stream_id={stream}&{query}")).wait_end();
    for (query, from) in
        [("after_seq=2", 3), ("after_seq=0&replay=1&after_event_id=", 1), ("after_seq=999", 1), ("after_seq=x", 1)]
    {
        assert_eq!(event_numbers(&at(query), &stream)[0], from, "{query}");
    }
    let headed = http.clone().with_header("last-event-id", &format!("{stream}:2")).stream_chat(&stream).wait_end();
    assert_eq!(event_numbers(&headed, &stream)[0], 3);
    let foreign =
        http.clone().with_header("last-event-id", &format!("{}:2", "e".repeat(32))).stream_chat(&stream).wait_end();
    assert_eq!(event_numbers(&foreign, &stream)[0], 1);

    let listed = http.get("/api/sessions").json();
    assert_eq!(listed["sessions"][0]["title"], "how are you");
    assert_eq!(listed["sessions"][0]["message_count"], 2);
    let status = http.get(&format!("/api/chat/stream/status?stream_id={stream}")).json();
    assert_eq!((&status["active"], &status["journal"]["terminal_state"]), (&json!(false), &json!("completed")));
}

#[test]
fn invalid_requests_get_errors_in_the_form_of_the_protocol() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    let session = http.create_session();
    let nobody = "0".repeat(12);
    let long = "x".repeat((1 << 20) + 1);
    for (path, body, status, error) in [
        ("/api/chat/start", json!({ "message": "x" }), 400, "Missing required field(s): session_id"),
        ("/api/chat/start", json!({ "session_id": session }), 400, "message is required"),
        ("/api/chat/start", json!({ "session_id": session, "message": " \n" }), 400, "message is required"),
        ("/api/chat/start", json!({ "session_id": nobody, "message": "x" }), 404, "Session not found"),
        (
            "/api/chat/start",
            json!({ "session_id": session, "message": long }),
            400,
            "message is longer than 1048576 bytes",
        ),
        (
            "/api/chat/start",
            json!({ "session_id": session, "message": "x", "model": "none" }),
            400,
            "model must be one of local/small, demo/scripted-1, not none",
        ),
        ("/api/chat/start", json!({ "session_id": session, "message": 1 }), 400, "message must be a text"),
        ("/api/chat/start", json!({ "session_id": session, "message": "x", "model": 1 }), 400, "model must be a text"),
        (
            "/api/chat/start",
            json!({ "session_id": session, "message": "x", "attachments": "a" }),
            400,
            "attachments must be a list",
        ),
        ("/api/chat/steer", json!({ "session_id": session, "text": 5 }), 400, "text must be a text"),
        ("/api/session/new", json!({ "workspace": 1 }), 400, "workspace must be a text"),
        ("/api/session/new", json!({ "model": 1 }), 400, "model must be a text"),
        (
            "/api/session/new",
            json!({ "model_provider": "bogus" }),
            400,
            "model_provider must be one of local, demo, not bogus",
        ),
        ("/api/session/rename", json!({ "session_id": session, "title": 5 }), 400, "title must be a text"),
        ("/api/session/rename", json!({ "session_id": session, "title": " " }), 400, "title is required"),
        (
            "/api/chat/start",
            json!({ "session_id": "agent:default", "message": "x" }),
            403,
            "This session cannot be spoken in from here",
        ),
        ("/api/chat/steer", json!({ "session_id": session }), 400, "text is required"),
        ("/api/session/new", json!({ "workspace": "/etc" }), 400, "Workspace is not a folder of this gateway: /etc"),
        ("/api/session/new", json!({ "workspace": "../x" }), 400, "Workspace is not a folder of this gateway: ../x"),
        ("/api/session/rename", json!({ "session_id": nobody, "title": "x" }), 404, "Session not found"),
        (
            "/api/session/rename",
            json!({ "session_id": session, "title": "x".repeat(5000) }),
            400,
            "a session's name is longer than 4096 bytes",
        ),
    ] {
        let reply = http.post(path, &body);
        assert_eq!((reply.status, reply.json()["error"].as_str()), (status, Some(error)), "{path} {body:.60}");
    }
    for (path, status, error) in [
        ("/api/session", 400, "session_id is required"),
        ("/api/session?session_id=000000000000", 404, "Session not found"),
        ("/api/session?session_id=0&msg_limit=x", 400, "msg_limit must be a whole number from 0 on"),
        ("/api/session?session_id=0&msg_before=x", 400, "msg_before must be a whole number from 0 on"),
        ("/api/session?session_id=0&messages=x", 400, "messages must be 0 or 1, not x"),
        ("/api/session/stream?session_id=0&known_count=x", 400, "known_count must be a whole number from 0 on"),
        ("/api/session/status?session_id=000000000000", 404, "Session not found"),
        ("/api/chat/stream", 404, "stream not found"),
        ("/api/chat/stream?stream_id=7", 404, "stream not found"),
        ("/api/chat/cancel", 400, "stream_id is required"),
        ("/api/nothing/of/that/kind", 404, "not found"),
    ] {
        let reply = http.get(path);
        assert_eq!((reply.status, reply.json()["error"].as_str()), (status, Some(error)), "{path}");
    }
    assert_eq!(talk.provider.request_count(), 0, "no model was asked");
}

#[test]
fn fields_that_clients_leave_unset_are_null_or_empty() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    let body = json!({ "workspace": null, "model": null, "model_provider": null, "profile": null, "project_id": null });
    let reply = http.post("/api/session/new", &body);
    assert_eq!(reply.status, 200, "{reply:?}");
    let session = reply.json()["session"]["session_id"].clone();
    talk.provider.script_replies([text_reply("heard")]);
    let body = json!({
        "session_id": session, "message": "x", "model": "", "model_provider": null, "regenerate": null, "attachments": null,
    });
    let reply = http.post("/api/chat/start", &body);
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(token_text(&http.stream_chat(reply.json()["stream_id"].as_str().unwrap()).wait_end()), "heard");
    // A provider that does not have the model is an earlier one.
    let body = json!({ "session_id": session, "model": "small", "model_provider": "demo" });
    assert_eq!(http.post("/api/session/update", &body).json()["session"]["model_provider"], "local");
}

#[test]
fn bodies_that_are_none_are_refused() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    let too_large = format!("{{\"session_id\":\"{}\"}}", "x".repeat(4 << 20));
    for (body, status, error) in [
        ("{", 400, "Invalid JSON: "),
        ("[1]", 400, "Request body must be a JSON object"),
        ("\"text\"", 400, "Request body must be a JSON object"),
        (&too_large, 413, "Request body is larger than 4194304 bytes"),
    ] {
        let reply =
            http.clone().with_header("content-type", "application/json").send_request("POST", "/api/chat/start", body);
        assert_eq!(reply.status, status, "{body:.20}");
        assert!(reply.json()["error"].as_str().unwrap().starts_with(error), "{reply:?}");
    }
}

#[test]
fn a_session_has_one_turn_at_a_time_and_a_turn_can_be_stopped() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    talk.provider.script_replies([ProviderReply::new(vec![saying("some words"), ReplyPart::Hang]), text_reply("here")]);
    let session = http.create_session();
    let stream = http.start_chat(&session, "begin");
    let turn = http.stream_chat(&stream);
    turn.wait_named("token");
    let again = http.post("/api/chat/start", &json!({ "session_id": session, "message": "more" }));
    assert_eq!((again.status, &again.json()["active_stream_id"]), (409, &json!(stream)));
    let body = json!({ "session_id": session, "message": "more", "model": "other" });
    let again = http.post("/api/chat/start", &body);
    assert_eq!((again.status, &again.json()["active_stream_id"]), (409, &json!(stream)));
    let known = http.get(&format!("/api/session?session_id={session}&messages=0")).json();
    assert_eq!((&known["session"]["active_stream_id"], &known["session"]["model"]), (&json!(stream), &json!("small")));
    assert_eq!(known["session"].get("messages"), None);

    let cancel = format!("/api/chat/cancel?stream_id={stream}");
    for (name, value) in
        [("origin", "http://evil.example"), ("referer", "http://evil.example/x"), ("sec-fetch-site", "cross-site")]
    {
        assert_eq!(http.clone().with_header(name, value).get(&cancel).status, 403, "{name}");
    }
    assert_eq!(http.get(&cancel).json(), json!({ "ok": true, "cancelled": true, "stream_id": stream }));
    let events = turn.wait_end();
    assert_eq!(event_names(&events).last(), Some(&"cancel"));
    assert_eq!(event_numbers(&events, &stream), (1..=events.len() as u64).collect::<Vec<_>>());
    talk.provider.wait_request_when(0, |request| request.is_gone);
    assert_eq!(http.get(&cancel).json()["cancelled"], false, "it is over");
    let loaded = http.get(&format!("/api/session?session_id={session}")).json();
    let messages = loaded["session"]["messages"].as_array().unwrap();
    assert_eq!(message_roles(&loaded["session"]), ["user", "assistant", "assistant"]);
    assert_eq!((&messages[1]["content"], &messages[1]["_partial"]), (&json!("some words"), &json!(true)));
    assert_eq!(messages[2]["_error"], true);

    let next = http.start_chat(&session, "still there?");
    assert_eq!(token_text(&http.stream_chat(&next).wait_end()), "here");
}

#[test]
fn a_turn_that_is_stopped_at_a_call_says_so_and_no_other_does() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    let waits = ProviderReply::new(vec![saying("now: "), bash_part("c1", "echo ran")]);
    talk.provider.script_replies([waits, text_reply("here")]);
    let session = http.create_session();
    let stream = http.start_chat(&session, "begin");
    let turn = http.stream_chat(&stream);
    turn.wait_named("approval");
    assert_eq!(http.get(&format!("/api/chat/cancel?stream_id={stream}")).json()["cancelled"], true);
    turn.wait_end();
    let read = |query: &str| http.get(&format!("/api/session?session_id={session}{query}")).json()["session"].clone();
    let loaded = read("");
    assert_eq!(message_roles(&loaded), ["user", "assistant", "tool", "assistant"]);
    let note = &loaded["messages"][3];
    assert_eq!((&note["content"], &note["_error"]), (&json!("Task cancelled."), &json!(true)));
    http.stream_chat(&http.start_chat(&session, "still there?")).wait_end();
    let all = ["user", "assistant", "tool", "assistant", "user", "assistant"];
    assert_eq!(message_roles(&read("")), all);
    assert_eq!(message_roles(&read("&msg_limit=2")), all[4..]);
    // Clients count the note as well.
    assert_eq!(message_roles(&read("&msg_limit=3&msg_before=3")), all[..3]);
}

#[test]
fn a_turn_is_steered_on_its_way() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    let latch = Latch::default();
    talk.provider.script_replies([
        ProviderReply::new(vec![saying("wait"), ReplyPart::Until(latch.clone())]),
        text_reply("as you say"),
    ]);
    let session = http.create_session();
    let idle = http.post("/api/chat/steer", &json!({ "session_id": session, "text": "left" })).json();
    assert_eq!(idle["accepted"], false);
    let stream = http.start_chat(&session, "begin");
    let turn = http.stream_chat(&stream);
    turn.wait_named("token");
    let steered = http.post("/api/chat/steer", &json!({ "session_id": session, "text": "to the left" })).json();
    assert_eq!((&steered["accepted"], &steered["stream_id"]), (&json!(true), &json!(stream)));
    latch.open();
    assert!(talk.provider.wait_request(1).messages_text().contains("to the left"));
    assert_eq!(token_text(&turn.wait_end()), "waitas you say");
}

#[test]
fn a_failure_of_the_model_is_reported_and_closes_the_stream() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    talk.provider.script_replies([error_reply(400, "no such thing")]);
    let stream = http.start_chat(&http.create_session(), "begin");
    let events = http.stream_chat(&stream).wait_end();
    let last = events.last().unwrap();
    assert_eq!(last.name, "apperror", "{events:?}");
    assert!(last.data["message"].as_str().unwrap().contains("no such thing"), "{last:?}");
}

/// Kills the process during a call that waits for approval: the turn continues under its name, with new numbers.
#[test]
fn a_turn_goes_on_after_a_power_cut() {
    let talk = GatewayFixture::for_web();
    let (gateway, http) = talk.start_web();
    let command = bash_part("c1", "echo ran >> count");
    talk.provider.script_replies([ProviderReply::new(vec![saying("now: "), command]), text_reply("done")]);
    let session = http.create_session();
    let stream = http.start_chat(&session, "begin");
    let before = http.stream_chat(&stream);
    before.wait_named("tool");
    eventually("the gate", || talk.run_as_person(&["gates", "list", "--json"]).json().as_array()?.first().cloned());
    let given = event_numbers(&before.events_so_far(), &stream);
    gateway.kill();

    let (_gateway, http) = talk.start_web();
    let known = http.get(&format!("/api/session?session_id={session}")).json();
    assert_eq!(known["session"]["active_stream_id"], json!(stream), "a page that comes back finds it");
    let last = given.last().unwrap();
    let turn = http.open_stream(&format!("/api/chat/stream?stream_id={stream}&after_seq={last}"));
    turn.wait_named("approval");
    let gates = talk.run_as_person(&["gates", "list", "--json"]).json();
    talk.run_as_person(&["gates", "allow", gates[0]["id"].as_str().unwrap()]);
    let events = turn.wait_end();
    assert_eq!(token_text(&events), "now: done");
    assert_eq!(event_names(&events).last(), Some(&"stream_end"));
    let numbers = event_numbers(&events, &stream);
    assert!(numbers.is_sorted_by(|one, other| one < other) && numbers[0] > *last, "{given:?} {numbers:?}");
    let count = talk.data_dir().join("agents/main/count");
    assert_eq!(std::fs::read_to_string(count).unwrap(), "ran\n");
}

#[test]
fn messages_are_there_after_a_restart() {
    let talk = GatewayFixture::for_web();
    let (mut gateway, http) = talk.start_web();
    talk.provider.script_replies([spoken()]);
    let session = http.create_session();
    let stream = http.start_chat(&session, "remember");
    let first = event_numbers(&http.stream_chat(&stream).wait_end(), &stream);
    assert_eq!(gateway.stop().code, Some(0));

    let (_gateway, http) = talk.start_web();
    let loaded = http.get(&format!("/api/session?session_id={session}")).json();
    assert_eq!(message_roles(&loaded["session"]), ["user", "assistant"]);
    let events = http.stream_chat(&stream).wait_end();
    assert_eq!(token_text(&events), "hello there");
    assert!(event_numbers(&events, &stream).iter().all(|number| !first.contains(number)), "no number twice");
    let listed = http.get("/api/sessions").json();
    assert_eq!(listed["sessions"][0]["session_id"], json!(session));
}

#[test]
fn a_run_is_confined_to_its_workspace_and_to_the_rules() {
    let talk = GatewayFixture::for_web();
    talk.write_file("secret.txt", "do not read");
    let (_gateway, http) = talk.start_web();
    let outside = talk.folder.join("secret.txt").display().to_string();
    let read = |id: &str, path: &str| provider::call_part(id, "read", &json!({ "path": path }));
    talk.provider.script_replies([
        ProviderReply::new(vec![read("c1", &outside), read("c2", "../../../secret.txt")]),
        text_reply("ok"),
    ]);
    let stream = http.start_chat(&http.create_session(), "read it");
    let events = http.stream_chat(&stream).wait_end();
    let ends: Vec<&Value> =
        events.iter().filter(|event| event.name == "tool_complete").map(|event| &event.data["is_error"]).collect();
    assert_eq!(ends, [&json!(true), &json!(true)]);
    assert!(!talk.provider.last_request().messages_text().contains("do not read"));
}

#[test]
fn without_the_password_nothing_is_visible() {
    let talk = GatewayOptions::for_web().with_config("web: { password: open-sesame }\n").create();
    let (gateway, http) = talk.start_web();
    for path in ["/api/sessions", "/api/session?session_id=x", "/api/models", "/api/chat/stream?stream_id=x"] {
        let reply = http.get(path);
        assert_eq!((reply.status, reply.json()["error"].as_str()), (401, Some("Authentication required")), "{path}");
    }
    assert_eq!(http.get("/health").status, 200, "anybody may ask whether it runs");
    let status = http.get("/api/auth/status").json();
    assert_eq!(
        (&status["auth_enabled"], &status["password_required"], &status["logged_in"]),
        (&json!(true), &json!(true), &json!(false))
    );
    let wrong = http.post("/api/auth/login", &json!({ "password": "guess" }));
    assert_eq!((wrong.status, wrong.json()["error"].as_str()), (401, Some("Invalid password")));
    let right = http.post("/api/auth/login", &json!({ "password": "open-sesame" }));
    let line = right.header("set-cookie").unwrap().to_owned();
    assert!(
        line.starts_with("hermes_session=") && line.contains("HttpOnly") && line.contains("SameSite=Lax"),
        "{line}"
    );
    let cookie = line.split(';').next().unwrap();
    let known = http.clone().with_header("cookie", cookie);
    assert_eq!(known.get("/api/sessions").status, 200);

    // A page has to send its token; a program that names no page need not.
    let own = known.clone().with_header("origin", &format!("http://{}", gateway.address));
    let refused = own.post("/api/session/new", &json!({}));
    assert_eq!((refused.status, refused.json()["error"].as_str()), (403, Some("Session expired - reload the page")));
    assert_eq!(known.post("/api/session/new", &json!({})).status, 200);
    assert_eq!(known.post("/api/auth/logout", &json!({})).status, 200);
    assert_eq!(known.get("/api/sessions").status, 401, "a cookie that was given back is good for nothing");
    for _ in 0..4 {
        http.post("/api/auth/login", &json!({ "password": "guess" }));
    }
    assert_eq!(http.post("/api/auth/login", &json!({ "password": "open-sesame" })).status, 429);
    assert!(!gateway.log_text().contains("open-sesame"));
}

#[test]
fn names_of_others_and_agents_tokens_open_nothing() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    assert_eq!(http.clone().with_header("host", "evil.example").get("/api/sessions").status, 403);
    assert_eq!(http.clone().with_header("origin", "http://evil.example").get("/api/sessions").status, 403);
    let agent = http.clone().with_header("authorization", &format!("Bearer {AGENT_TOKEN}"));
    assert_eq!(agent.get("/api/sessions").status, 401, "an agent is no person");
}

#[test]
fn a_front_end_is_served_with_our_facts_in_it() {
    let talk = GatewayOptions::for_web().with_config("web: { password: open-sesame }\n").create();
    let front = talk.folder.join("front/static");
    std::fs::create_dir_all(&front).unwrap();
    std::fs::write(front.join("index.html"), "v=__WEBUI_VERSION__ max=__MAX_UPLOAD_BYTES__ csrf=__CSRF_TOKEN_JSON__\n")
        .unwrap();
    std::fs::write(front.join("ui.js"), "let a = 1;").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", front.join("leak.txt")).unwrap();
    let gateway = GatewayServer::start_with(&talk, &["--webui", "front"]);
    let http = HttpClient::new(&gateway.address);
    assert_eq!(http.get("/session/abc").status, 302, "a page asks who comes");
    assert!(http.get("/").header("location").unwrap().starts_with("/login?next="));
    let script = http.get("/static/ui.js");
    assert_eq!(
        (script.body.as_str(), script.header("content-type")),
        ("let a = 1;", Some("text/javascript; charset=utf-8"))
    );
    for path in ["/static/leak.txt", "/static/../config.yaml", "/static/%2e%2e/config.yaml", "/static/none.js"] {
        assert_eq!(http.get(path).status, 404, "{path}");
    }
    let login = http.post("/api/auth/login", &json!({ "password": "open-sesame" }));
    let cookie = login.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let page = http.with_header("cookie", &cookie).get("/session/abc");
    assert_eq!(page.status, 200);
    // The styles that hide missing features follow the page.
    let (page, hiding) = page.body.split_once("\n<style>").unwrap();
    assert!(!page.contains("__") && hiding.contains("kanban"), "{page}");
    let token: String = serde_json::from_str(page.rsplit("csrf=").next().unwrap()).unwrap();
    assert_eq!(token.len(), 64);
}

#[test]
fn a_preflight_request_gets_no_permission_for_another_origin() {
    let talk = GatewayOptions::for_web().with_config("web: { password: open-sesame }\n").create();
    let (gateway, ours) = talk.start_web();
    let theirs = HttpClient::new(&gateway.address).with_header("origin", "http://evil.example");
    for (http, status) in [(ours, 200), (theirs, 403)] {
        let http = http.with_header("access-control-request-method", "POST");
        for path in ["/api/chat/start", "/api/approval/respond", "/api/v1/gates", "/console/rules"] {
            let reply = http.send_request("OPTIONS", path, "");
            assert_eq!(reply.status, status, "{path}: {}", reply.body);
            for name in ["origin", "methods", "credentials"] {
                assert_eq!(reply.header(&format!("access-control-allow-{name}")), None, "{path}");
            }
        }
    }
}

#[test]
fn a_front_end_that_lies_as_it_is_served_finds_its_files() {
    let talk = GatewayFixture::for_web();
    let front = talk.folder.join("front");
    std::fs::create_dir_all(front.join("static/js")).unwrap();
    for (name, text) in [("index.html", "page"), ("logo.svg", "logo"), ("static/js/ui.js", "let a = 1;")] {
        std::fs::write(front.join(name), text).unwrap();
    }
    let gateway = GatewayServer::start_with(&talk, &["--webui", "front"]);
    let http = HttpClient::new(&gateway.address);
    for (path, want) in [("/", "page"), ("/static/js/ui.js", "let a = 1;"), ("/static/logo.svg", "logo")] {
        let got = http.get(path);
        let text = got.body.split("<style>").next().unwrap_or_default();
        assert_eq!((got.status, text), (200, want), "{path}");
    }
    for path in ["/static/js/../../../config.yaml", "/static/static/js/none.js", "/static/js"] {
        assert_eq!(http.get(path).status, 404, "{path}");
    }
}
