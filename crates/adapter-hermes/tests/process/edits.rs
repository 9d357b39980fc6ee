//! Changes by clients of hermes besides messages: conversations, their lists, settings, drafts. Source:
//! docs/protocol/hermes.md.

use std::{
    fs,
    time::{Duration, Instant},
};

use countersign_testkit::process::{
    FakeProvider, GatewayFixture, GatewayOptions, Latch, eventually,
    hermes::{RULES, event_names, message_roles},
    http::{HttpClient, SseEvent},
    provider::{ProviderReply, ReplyPart, bash_part, call_part, text_reply},
};
use serde_json::{Value, json};

/// Creates a conversation of one exchange for each message, each answered with its number.
fn create_conversation(talk: &GatewayFixture, http: &HttpClient, messages: &[&str]) -> String {
    let session = http.create_session();
    for (number, message) in messages.iter().enumerate() {
        talk.provider.script_replies([text_reply(&format!("answer {number}"))]);
        http.stream_chat(&http.start_chat(&session, message)).wait_end();
    }
    session
}

fn load(http: &HttpClient, session: &str) -> Value {
    let reply = http.get(&format!("/api/session?session_id={session}"));
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["session"].clone()
}

fn texts(session: &Value) -> Vec<String> {
    let messages = session["messages"].as_array().unwrap().iter();
    messages.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

fn post_ok(http: &HttpClient, path: &str, body: Value) -> Value {
    let reply = http.post(path, &body);
    assert_eq!(reply.status, 200, "{path} {body}: {reply:?}");
    reply.json()
}

fn row(http: &HttpClient, session: &str) -> Option<Value> {
    let listed = http.get("/api/sessions").json();
    listed["sessions"].as_array().unwrap().iter().find(|row| row["session_id"] == session).cloned()
}

fn request_text(talk: &GatewayFixture, number: usize) -> String {
    talk.provider.wait_request(number).messages().iter().map(Value::to_string).collect()
}

#[test]
fn what_is_taken_back_is_shown_neither_to_people_nor_to_the_model() {
    let talk = GatewayFixture::for_web();
    let (gateway, http) = talk.start_web();
    let session = create_conversation(&talk, &http, &["first", "second"]);
    let back = post_ok(&http, "/api/session/undo", json!({ "session_id": session }));
    assert_eq!((&back["removed_count"], &back["removed_preview"]), (&json!(2), &json!("second")));
    assert_eq!(texts(&load(&http, &session)), ["first", "answer 0"]);
    assert_eq!(row(&http, &session).unwrap()["message_count"], 2);
    // It stays so after a restart, and the model does not get it.
    gateway.kill();
    let (_gateway, http) = talk.start_web();
    assert_eq!(texts(&load(&http, &session)), ["first", "answer 0"]);
    assert_eq!(row(&http, &session).unwrap()["message_count"], 2);
    talk.provider.script_replies([text_reply("again")]);
    http.stream_chat(&http.start_chat(&session, "third")).wait_end();
    let prompt = request_text(&talk, 2);
    assert!(prompt.contains("first") && prompt.contains("third") && !prompt.contains("second"), "{prompt}");

    let back = post_ok(&http, "/api/session/retry", json!({ "session_id": session }));
    assert_eq!(back["last_user_text"], "third");
    post_ok(&http, "/api/session/undo", json!({ "session_id": session }));
    let nothing = post_ok(&http, "/api/session/undo", json!({ "session_id": session }));
    assert!(nothing["error"].as_str().unwrap().starts_with("Nothing to undo"), "{nothing}");
}

#[test]
fn a_conversation_is_cut_copied_and_cleared_where_a_client_counts() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    let session = create_conversation(&talk, &http, &["first", "second"]);
    let fork = post_ok(&http, "/api/session/branch", json!({ "session_id": session, "keep_count": 2 }));
    assert_eq!((&fork["title"], &fork["parent_session_id"]), (&json!("first (fork)"), &json!(session)));
    let copy = post_ok(&http, "/api/session/duplicate", json!({ "session_id": session }));
    assert_eq!(copy["session"]["title"], "first (copy)");
    let cut = post_ok(&http, "/api/session/truncate", json!({ "session_id": session, "keep_count": 3 }));
    assert_eq!(texts(&cut["session"]), ["first", "answer 0", "second"]);
    assert_eq!(row(&http, &session).unwrap()["message_count"], 3);
    // Each is a conversation of its own.
    let fork = fork["session_id"].as_str().unwrap();
    assert_eq!(load(&http, fork)["parent_session_id"], session.as_str());
    assert_eq!(load(&http, &session)["parent_session_id"], Value::Null);
    talk.provider.script_replies([text_reply("forked")]);
    http.stream_chat(&http.start_chat(fork, "elsewhere")).wait_end();
    assert_eq!(texts(&load(&http, fork)), ["first", "answer 0", "elsewhere", "forked"]);
    let prompt = request_text(&talk, 2);
    assert!(prompt.contains("answer 0") && !prompt.contains("second"), "{prompt}");
    let copy = copy["session"]["session_id"].as_str().unwrap();
    assert_eq!(texts(&load(&http, copy)), ["first", "answer 0", "second", "answer 1"]);

    let cleared = post_ok(&http, "/api/session/clear", json!({ "session_id": session }));
    assert_eq!((message_roles(&cleared["session"]).len(), &cleared["session"]["title"]), (0, &json!("Untitled")));
    talk.provider.script_replies([text_reply("fresh")]);
    http.stream_chat(&http.start_chat(&session, "begin anew")).wait_end();
    assert_eq!(load(&http, &session)["title"], "begin anew");
}

#[test]
fn what_is_cut_keeps_the_results_of_calls_that_ran() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    let write = |id: &str| call_part(id, "write", &json!({ "path": format!("{id}.txt"), "content": "written" }));
    for keep in [2, 3, 4] {
        let session = http.create_session();
        talk.provider.script_replies([ProviderReply::new(vec![write("c1"), write("c2")]), text_reply("both written")]);
        http.stream_chat(&http.start_chat(&session, "write both")).wait_end();
        let cut = post_ok(&http, "/api/session/truncate", json!({ "session_id": session, "keep_count": keep }));
        assert_eq!(message_roles(&cut["session"]), ["user", "assistant", "tool", "tool"], "{keep}");
        talk.provider.script_replies([text_reply("next")]);
        http.stream_chat(&http.start_chat(&session, "go on")).wait_end();
        let request = talk.provider.last_request();
        let results = ["c1", "c2"].map(|id| request.call_result(id).unwrap());
        assert!(results.iter().all(|result| result.ends_with("wrote 7 bytes")), "{keep}: {results:?}");
        assert!(!request.messages_text().contains("both written"), "{keep}");
    }
}

#[test]
fn a_regenerated_answer_replaces_the_earlier_one() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    let session = http.create_session();
    talk.provider.script_replies([text_reply("answer 0")]);
    let events = http.stream_chat(&http.start_chat(&session, "first")).wait_end();
    let done = events.iter().find(|event| event.name == "done").unwrap();
    let revision = load(&http, &session)["regeneration_revision"].clone();
    assert!(revision.is_string() && done.data["session"]["regeneration_revision"] == revision, "{done:?}");
    let start = |revision: &Value| {
        let body = json!({ "session_id": session, "regenerate": true, "regeneration_revision": revision });
        http.post("/api/chat/start", &body)
    };
    assert_eq!(start(&json!("gone")).status, 409);
    talk.provider.script_replies([text_reply("better")]);
    let reply = start(&revision);
    assert_eq!(reply.status, 200, "{reply:?}");
    http.stream_chat(reply.json()["stream_id"].as_str().unwrap()).wait_end();
    assert_eq!(texts(&load(&http, &session)), ["first", "better"]);
    assert_eq!(row(&http, &session).unwrap()["message_count"], 2);
    assert!(!request_text(&talk, 1).contains("answer 0"));
    assert_eq!(start(&revision).status, 409, "that answer is not there any more");
}

#[test]
fn a_regenerated_answer_after_calls_repeats_none_of_them() {
    let allow = "defaults:\n  - { pattern: '*', action: allow }\n";
    let talk = GatewayOptions::for_web().with_rules(allow).create();
    let (_gateway, http) = talk.start_web();
    let session = http.create_session();
    talk.provider.script_replies([
        ProviderReply::new(vec![bash_part("c1", "echo ran >> made.txt")]),
        text_reply("answer 0"),
        text_reply("better"),
        text_reply("best"),
    ]);
    http.stream_chat(&http.start_chat(&session, "run it")).wait_end();
    let regenerate = || {
        let revision = load(&http, &session)["regeneration_revision"].clone();
        let body = json!({ "session_id": session, "regenerate": true, "regeneration_revision": revision });
        let started = post_ok(&http, "/api/chat/start", body);
        http.stream_chat(started["stream_id"].as_str().unwrap()).wait_end()
    };
    for (number, answer) in [(2, "better"), (3, "best")] {
        let events = regenerate();
        assert!(!event_names(&events).contains(&"tool"), "{events:?}");
        let requests = [1, number].map(|number| talk.provider.wait_request(number).messages().to_vec());
        assert_eq!(requests[0], requests[1], "the last request again");
        let loaded = load(&http, &session);
        assert_eq!(message_roles(&loaded), ["user", "assistant", "tool", "assistant"]);
        assert_eq!(texts(&loaded).last().unwrap(), answer);
    }
    let file = fs::read_to_string(talk.data_dir().join("agents/main/made.txt")).unwrap();
    assert_eq!(file, "ran\n");
}

#[test]
fn a_turn_that_ended_is_listed_as_running_until_its_stream_is_read() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    let session = http.create_session();
    talk.provider.script_replies([text_reply("at once")]);
    let stream = http.start_chat(&session, "first");
    let status = || http.get(&format!("/api/chat/stream/status?stream_id={stream}")).json()["active"].clone();
    eventually("the end", || (status() == false).then_some(()));
    let running = |row: &Value| (row["is_streaming"].clone(), row["active_stream_id"].clone());
    assert_eq!(running(&row(&http, &session).unwrap()), (json!(true), json!(stream)));
    assert_eq!(running(&load(&http, &session)), (json!(false), Value::Null), "it takes a next message");
    http.stream_chat(&stream).wait_end();
    assert_eq!(running(&row(&http, &session).unwrap()), (json!(false), Value::Null));
}

#[test]
fn what_is_pinned_put_away_or_deleted_is_so_after_a_restart() {
    let talk = GatewayFixture::for_web();
    let (gateway, http) = talk.start_web();
    let [kept, gone] = ["kept", "gone"].map(|text| create_conversation(&talk, &http, &[text]));
    post_ok(&http, "/api/session/pin", json!({ "session_id": kept }));
    let archived = post_ok(&http, "/api/session/archive", json!({ "session_id": kept, "archived": true }));
    assert_eq!((&archived["session"]["pinned"], &archived["session"]["archived"]), (&json!(true), &json!(true)));
    assert_eq!(post_ok(&http, "/api/session/delete", json!({ "session_id": gone }))["ok"], true);
    gateway.kill();
    let (_gateway, http) = talk.start_web();
    let listed = row(&http, &kept).unwrap();
    assert_eq!((&listed["pinned"], &listed["archived"]), (&json!(true), &json!(true)));
    assert_eq!(http.get("/api/sessions").json()["archived_count"], 1);
    assert_eq!(row(&http, &gone), None);
    assert_eq!(http.get(&format!("/api/session?session_id={gone}")).status, 404);
    let message = json!({ "session_id": gone, "message": "are you there" });
    assert_eq!(http.post("/api/chat/start", &message).status, 404);
    let listed = http.get("/api/v1/sessions").body;
    assert!(listed.contains(&kept) && !listed.contains(&gone), "{listed}");
    post_ok(&http, "/api/session/pin", json!({ "session_id": kept, "pinned": false }));
    assert_eq!(row(&http, &kept).unwrap()["pinned"], false);
    // The record has the change.
    let tail = talk.run_as_person(&["audit", "tail"]);
    assert!(tail.out.contains("deleted"), "{tail:?}");
}

#[test]
fn a_limit_of_pinned_sessions_is_no_answer_for_a_session_that_is_not_there() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    post_ok(&http, "/api/settings", json!({ "pinned_sessions_limit": 1 }));
    let [pinned, other] = ["one", "two"].map(|text| create_conversation(&talk, &http, &[text]));
    post_ok(&http, "/api/session/pin", json!({ "session_id": pinned }));
    let pin = |session: &str| http.post("/api/session/pin", &json!({ "session_id": session })).status;
    assert_eq!((pin(&pinned), pin(&other), pin("nobody")), (200, 400, 404));
}

#[test]
fn a_session_that_is_deleted_at_work_stops_and_waits_for_nobody() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    talk.provider.script_replies([ProviderReply::new(vec![bash_part("c1", "echo hi")]), text_reply("unheard")]);
    let session = http.create_session();
    http.start_chat(&session, "run it");
    let waits = || http.get(&format!("/api/approval/pending?session_id={session}")).json()["pending_count"].clone();
    eventually("a card", || (waits() == 1).then_some(()));
    post_ok(&http, "/api/session/delete", json!({ "session_id": session }));
    eventually("no card", || (waits() == 0).then_some(()));
    assert_eq!(row(&http, &session), None, "also once the end of its turn is recorded");
}

#[test]
fn a_session_and_its_draft_outlive_a_crash_before_the_first_message() {
    let talk = GatewayFixture::for_web();
    let (gateway, http) = talk.start_web();
    let session = http.create_session();
    post_ok(&http, "/api/session/draft", json!({ "session_id": session, "text": "half a thought" }));
    gateway.kill();
    let (_gateway, http) = talk.start_web();
    assert_eq!(load(&http, &session)["composer_draft"]["text"], "half a thought");
    assert_eq!(row(&http, &session), None, "nothing was said in it");
    talk.provider.script_replies([text_reply("heard")]);
    http.stream_chat(&http.start_chat(&session, "a whole thought")).wait_end();
    assert_eq!(texts(&load(&http, &session)), ["a whole thought", "heard"]);
}

#[test]
fn settings_drafts_and_the_reasoning_effort_are_kept() {
    let talk = GatewayFixture::for_web();
    let (gateway, http) = talk.start_web();
    let session = create_conversation(&talk, &http, &["first"]);
    let set =
        post_ok(&http, "/api/settings", json!({ "send_key": "ctrl+enter", "show_cli_sessions": true, "tts_rate": 1 }));
    assert_eq!((&set["send_key"], &set["show_cli_sessions"]), (&json!("ctrl+enter"), &json!(false)));
    assert_eq!(set["not_changed"], json!(["show_cli_sessions"]), "it would show what is not here");
    post_ok(&http, "/api/session/draft", json!({ "session_id": session, "text": "half a thought ", "files": [] }));
    post_ok(&http, "/api/reasoning", json!({ "effort": "high" }));
    gateway.kill();
    let (_gateway, http) = talk.start_web();
    assert_eq!(http.get("/api/settings").json()["send_key"], "ctrl+enter");
    let draft = http.get(&format!("/api/session/draft?session_id={session}")).json();
    assert_eq!(draft["draft"]["text"], "half a thought ");
    assert_eq!(load(&http, &session)["composer_draft"]["text"], "half a thought ", "where the front end looks for it");
    // The model has no reasoning, so that is not offered for it.
    let reasoning = http.get("/api/reasoning?model=small&provider=local").json();
    assert_eq!((&reasoning["supported_efforts"], &reasoning["reasoning_effort"]), (&json!([]), &json!("")));
    talk.provider.script_replies([text_reply("heard")]);
    http.stream_chat(&http.start_chat(&session, "a whole thought")).wait_end();
    let draft = http.get(&format!("/api/session/draft?session_id={session}")).json();
    assert_eq!(draft["draft"], json!({}), "it was sent");
}

#[test]
fn an_error_names_the_invalid_field() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    let session = create_conversation(&talk, &http, &["first"]);
    let nobody = "0".repeat(12);
    for (path, body, status, error) in [
        ("/api/session/pin", json!({}), 400, "session_id is required"),
        ("/api/session/pin", json!({ "session_id": 7 }), 400, "session_id must be a text"),
        ("/api/session/pin", json!({ "session_id": nobody }), 404, "Session not found"),
        ("/api/session/pin", json!({ "session_id": session, "pinned": "yes" }), 400, "pinned must be true or false"),
        (
            "/api/session/archive",
            json!({ "session_id": session, "archived": 1 }),
            400,
            "archived must be true or false",
        ),
        ("/api/session/delete", json!({ "session_id": nobody }), 404, "Session not found"),
        (
            "/api/session/delete",
            json!({ "session_id": "agent:default" }),
            403,
            "This session cannot be spoken in from here",
        ),
        ("/api/session/undo", json!({ "session_id": nobody }), 404, "Session not found"),
        ("/api/session/truncate", json!({ "session_id": session }), 400, "Missing required field(s): keep_count"),
        (
            "/api/session/truncate",
            json!({ "session_id": session, "keep_count": -1 }),
            400,
            "keep_count must be a whole number from 0 on",
        ),
        (
            "/api/session/branch",
            json!({ "session_id": session, "keep_count": "2" }),
            400,
            "keep_count must be a whole number from 0 on",
        ),
        ("/api/session/branch", json!({ "session_id": nobody }), 404, "Session not found"),
        ("/api/session/branch", json!({ "session_id": session, "title": [] }), 400, "title must be a text"),
        (
            "/api/session/update",
            json!({ "session_id": session, "model": "none" }),
            400,
            "model must be one of local/small, demo/scripted-1, not none",
        ),
        ("/api/session/pin", json!({ "session_id": session, "pinned": null }), 400, "pinned must be true or false"),
        (
            "/api/session/archive",
            json!({ "session_id": session, "archived": null }),
            400,
            "archived must be true or false",
        ),
        ("/api/session/update", json!({ "session_id": session, "model": 7 }), 400, "model must be a text"),
        (
            "/api/session/update",
            json!({ "session_id": session, "workspace": "/etc" }),
            400,
            "Workspace is not a folder of this gateway: /etc",
        ),
        ("/api/session/compress/start", json!({ "session_id": nobody }), 404, "Session not found"),
        (
            "/api/session/compress/start",
            json!({ "session_id": session }),
            400,
            "nothing to compact (session too small)",
        ),
        ("/api/session/draft", json!({ "session_id": session, "text": 7 }), 400, "text must be a text"),
        ("/api/session/draft", json!({ "session_id": session, "files": "a" }), 400, "files must be a list"),
        ("/api/settings", json!({ "rtl": "yes" }), 400, "rtl must be true or false"),
        ("/api/settings", json!({ "theme": "bogus" }), 400, "theme must be one of dark, light, system"),
        ("/api/settings", json!({ "colour": "red" }), 400, "unknown setting: colour"),
        (
            "/api/reasoning",
            json!({ "effort": "most" }),
            400,
            "effort must be none, minimal, low, medium, high, xhigh or default, not most",
        ),
        ("/api/reasoning", json!({}), 400, "reasoning: display or effort is required"),
        (
            "/api/chat/start",
            json!({ "session_id": session, "regenerate": true }),
            400,
            "regeneration_revision is required",
        ),
        ("/api/chat/start", json!({ "session_id": session, "regenerate": 1 }), 400, "regenerate must be true or false"),
    ] {
        let reply = http.post(path, &body);
        assert_eq!((reply.status, reply.json()["error"].as_str()), (status, Some(error)), "{path} {body}");
    }
    for (path, status, error) in [
        ("/api/session/export".to_owned(), 400, "session_id is required"),
        (format!("/api/session/export?session_id={nobody}"), 404, "Session not found"),
        (format!("/api/session/export?session_id={session}&format=pdf"), 400, "format must be json or html, not pdf"),
        ("/api/sessions/search?q=x&depth=-1".to_owned(), 400, "depth must be a whole number from 0 on"),
        ("/api/sessions/search?q=x&content=2".to_owned(), 400, "content must be 0 or 1, not 2"),
        (format!("/api/list?session_id={nobody}"), 404, "Session not found"),
        (format!("/api/list?session_id={session}&path=../.."), 404, "path is not in the folder of this session"),
        (format!("/api/file?session_id={session}&path=/etc/passwd"), 404, "path is not in the folder of this session"),
        (format!("/api/file?session_id={session}"), 400, "path is required"),
        (format!("/api/session/draft?session_id={nobody}"), 404, "Session not found"),
        ("/api/session/compress/status".to_owned(), 400, "session_id is required"),
    ] {
        let reply = http.get(&path);
        assert_eq!((reply.status, reply.json()["error"].as_str()), (status, Some(error)), "{path}");
    }
    assert_eq!(texts(&load(&http, &session)), ["first", "answer 0"], "nothing was changed");
}

#[test]
fn conversations_are_searched_exported_and_their_files_read() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    let session = create_conversation(&talk, &http, &["where is the green door"]);
    let found = http.get("/api/sessions/search?q=ANSWER&content=1&depth=5").json();
    assert_eq!((&found["count"], &found["sessions"][0]["match_type"]), (&json!(1), &json!("content")));
    assert_eq!(found["sessions"][0]["match_preview"], "answer 0");
    assert_eq!(http.get("/api/sessions/search?q=green").json()["sessions"][0]["match_type"], "title");
    assert_eq!(http.get("/api/sessions/search?q=answer&content=0").json()["count"], 0);
    assert_eq!(http.get("/api/sessions/search?q=answer&content=&depth=").json()["count"], 1, "empty is absent");

    let export = |format: &str| http.get(&format!("/api/session/export?session_id={session}&format={format}"));
    let json = export("json");
    assert_eq!(texts(&json.json()), ["where is the green door", "answer 0"]);
    assert_eq!(json.header("content-disposition"), Some(&*format!("attachment; filename=\"hermes-{session}.json\"")));
    assert!(export("html").body.contains("answer 0"));

    let folder = talk.data_dir().join("agents/main");
    fs::create_dir_all(folder.join("sub")).unwrap();
    fs::write(folder.join("note.txt"), "one\ntwo\n").unwrap();
    fs::write(folder.join("page.html"), "<script>alert(1)</script>").unwrap();
    let listed = http.get(&format!("/api/list?session_id={session}&path=.")).json();
    let listed: Vec<&str> =
        listed["entries"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(listed, ["sub", "note.txt", "page.html"]);
    let read = http.get(&format!("/api/file?session_id={session}&path=note.txt")).json();
    assert_eq!((&read["content"], &read["lines"]), (&json!("one\ntwo\n"), &json!(3)));
    let raw = http.get(&format!("/api/file/raw?session_id={session}&path=page.html"));
    assert_eq!(raw.header("content-type"), Some("application/octet-stream"), "no page of an agent runs here");
    assert!(raw.header("content-disposition").unwrap().starts_with("attachment"));
}

#[test]
fn a_model_and_a_folder_are_chosen_in_the_ways_that_clients_write_them() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    let session = http.create_session();
    for (model, provider) in
        [("scripted-1", json!("demo")), ("@local:small", json!(null)), ("demo/scripted-1", json!(null))]
    {
        let body = json!({ "session_id": session, "model": model, "model_provider": provider });
        let updated = post_ok(&http, "/api/session/update", body);
        assert_eq!(
            updated["session"]["model"],
            model.trim_start_matches("@local:").trim_start_matches("demo/"),
            "{model}"
        );
    }
    let updated = post_ok(&http, "/api/session/update", json!({ "session_id": session, "workspace": "other" }));
    assert!(updated["session"]["workspace"].as_str().unwrap().ends_with("/agents/other"), "{updated}");
}

#[test]
fn a_denial_binds_its_conversation_alone_and_both_sides_read_that() {
    let talk = GatewayFixture::for_web();
    let (gateway, http) = talk.start_web();
    let [here, there] = [(); 2].map(|()| http.create_session());
    let turn = |session: &str, word: &str| {
        talk.provider.script_replies([ProviderReply::new(vec![bash_part("c1", "echo hi")]), text_reply(word)]);
        http.stream_chat(&http.start_chat(session, "run it"))
    };
    let decide = |session: &str, choice: &str| {
        let body = json!({ "session_id": session, "choice": choice });
        assert_eq!(http.post("/api/approval/respond", &body).json()["ok"], true);
    };
    let notices = |events: &[SseEvent]| -> Vec<String> {
        let warnings = events.iter().filter(|event| event.name == "warning" && event.data["type"] == "denied");
        warnings.map(|event| event.data["message"].as_str().unwrap().to_owned()).collect()
    };
    let first = turn(&here, "no");
    first.wait_named("approval");
    decide(&here, "deny");
    let denials = notices(&first.wait_end());
    assert_eq!(
        denials,
        ["Denied. The same call of bash stays denied for 15 minutes, in this conversation and in no other."]
    );
    let output = talk.provider.wait_request(1).call_result("c1").unwrap();
    assert!(output.ends_with("stays denied. That holds in this conversation for 15 minutes."), "{output}");

    // In the same conversation no gate opens, and both sides get the reason; also after a restart.
    gateway.kill();
    let (_gateway, http) = talk.start_web();
    let turn = |session: &str, word: &str| {
        talk.provider.script_replies([ProviderReply::new(vec![bash_part("c2", "echo hi")]), text_reply(word)]);
        http.stream_chat(&http.start_chat(session, "once more"))
    };
    let again = turn(&here, "still no").wait_end();
    assert!(!event_names(&again).contains(&"approval"), "{again:?}");
    let denials = notices(&again);
    assert!(
        denials[0].starts_with(
            "bash was denied without a question. Denied by policy: because web:open denied it in this conversation"
        ),
        "{denials:?}"
    );
    // In another one it waits for an approver as usual.
    let other = turn(&there, "yes");
    other.wait_named("approval");
    let body = json!({ "session_id": there, "choice": "once" });
    assert_eq!(http.post("/api/approval/respond", &body).json()["ok"], true);
    assert_eq!(notices(&other.wait_end()), [""; 0]);
    // A denial in force names its conversation, and is lifted alone.
    let listed = talk.run_as_person(&["grants", "denials", "--json"]).json();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["session"]), (1, &json!(here)));
    let id = listed[0]["id"].as_str().unwrap();
    assert_eq!(talk.run_as_person(&["grants", "revoke", id]).code, Some(0));
    turn(&here, "yes again").wait_named("approval");
}

#[test]
fn a_denial_in_a_copy_binds_the_copy_alone_whatever_the_original_is_of() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    talk.provider.script_replies([text_reply("opened")]);
    let opened = http.post("/api/v1/sessions", &json!({ "message": "begin" })).json();
    let original = opened["id"].as_str().unwrap().to_owned();
    eventually("rest", || {
        (http.get(&format!("/api/v1/sessions/{original}")).json()["state"] == "resting").then_some(())
    });
    let turn = |session: &str, command: &str| {
        talk.provider.script_replies([ProviderReply::new(vec![bash_part("c1", command)]), text_reply("over")]);
        let events = http.stream_chat(&http.start_chat(session, "run it"));
        events.wait_named("approval");
        events
    };
    let deny = |session: &str| {
        let body = json!({ "session_id": session, "choice": "deny" });
        assert_eq!(http.post("/api/approval/respond", &body).json()["ok"], true);
    };
    let body = json!({ "session_id": original });
    for (command, copy) in [
        ("echo branch", post_ok(&http, "/api/session/branch", body.clone())["session_id"].clone()),
        ("echo copy", post_ok(&http, "/api/session/duplicate", body)["session"]["session_id"].clone()),
    ] {
        let copy = copy.as_str().unwrap();
        let events = turn(copy, command);
        deny(copy);
        let events = events.wait_end();
        let notice = events.iter().find(|event| event.name == "warning").unwrap();
        let message = notice.data["message"].as_str().unwrap();
        assert!(message.ends_with("in this conversation and in no other."), "{message}");
        let fresh = http.create_session();
        let events = turn(&fresh, command);
        deny(&fresh);
        events.wait_end();
    }
}

#[test]
fn a_denial_of_another_adapter_is_named_with_its_end_and_its_reach() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    let call = |word: &str| [ProviderReply::new(vec![bash_part("c1", "echo hi")]), text_reply(word)];
    talk.provider.script_replies(call("no"));
    let opened = http.post("/api/v1/sessions", &json!({ "message": "begin" })).json();
    let original = opened["id"].as_str().unwrap();
    let gate = eventually("a gate", || {
        let gates = http.get("/api/v1/gates").json()["gates"].clone();
        gates[0]["id"].as_str().map(str::to_owned)
    });
    assert_eq!(http.post(&format!("/api/v1/gates/{gate}/deny"), &json!({ "reason": "not today" })).status, 200);
    eventually("rest", || {
        (http.get(&format!("/api/v1/sessions/{original}")).json()["state"] == "resting").then_some(())
    });
    talk.provider.script_replies(call("still no"));
    let events = http.stream_chat(&http.start_chat(&http.create_session(), "run it")).wait_end();
    let notice = events.iter().find(|event| event.name == "warning").unwrap();
    let result = talk.provider.last_request().call_result("c1").unwrap();
    for text in [notice.data["message"].as_str().unwrap(), &result] {
        assert!(
            text.contains("Denied by policy: because web:open denied it, which holds in all sessions until "),
            "{text}"
        );
        assert!(text.contains(" UTC: not today"), "{text}");
    }
}

#[test]
fn three_denials_in_a_row_still_stop_a_turn_from_asking() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    let session = http.create_session();
    let call = |number: u32| ProviderReply::new(vec![bash_part(&format!("c{number}"), &format!("echo {number}"))]);
    talk.provider.script_replies((0..4).map(call).chain([text_reply("I stop")]));
    let turn = http.stream_chat(&http.start_chat(&session, "run them"));
    for number in 0..3 {
        let pending = format!("/api/approval/pending?session_id={session}");
        let card = eventually(&format!("card {number}"), || {
            let approval = http.get(&pending).json()["pending"].clone();
            (approval["command"] == format!("echo {number}")).then_some(approval)
        });
        let body = json!({ "session_id": session, "choice": "deny", "approval_id": card["approval_id"] });
        assert_eq!(http.post("/api/approval/respond", &body).json()["ok"], true);
    }
    let events = turn.wait_end();
    assert_eq!(event_names(&events).iter().filter(|name| **name == "approval").count(), 3);
    assert!(talk.provider.wait_request(4).call_result("c3").unwrap().starts_with("Denied: three denials in a row."));
}

#[test]
fn arguments_are_texts_in_events_and_in_the_history() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    let session = http.create_session();
    let arguments = json!({ "path": "a.txt", "edits": [{ "old_text": "a" }], "all": true });
    talk.provider.script_replies([ProviderReply::new(vec![call_part("c1", "edit", &arguments)]), text_reply("done")]);
    let events = http.stream_chat(&http.start_chat(&session, "edit it")).wait_end();
    let want = json!({ "path": "a.txt", "edits": "[{\"old_text\":\"a\"}]", "all": "true" });
    let ended = events.iter().filter(|event| event.name.starts_with("tool"));
    let event_args: Vec<&Value> = ended.map(|event| &event.data["args"]).collect();
    assert_eq!(event_args, [&want, &want]);
    let loaded = load(&http, &session);
    assert_eq!(loaded["tool_calls"][0]["args"], want);
    let written = loaded["messages"][1]["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
    let mut expected = arguments;
    expected["_i"] = "a test".into();
    assert_eq!(serde_json::from_str::<Value>(written).unwrap(), expected, "as the model wrote them");
}

#[test]
fn an_answer_has_its_own_time_and_its_tokens_in_every_count() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    let session = http.create_session();
    let latch = Latch::default();
    let parts = vec![ReplyPart::Until(latch.clone()), ReplyPart::Text(vec!["at last".to_owned()])];
    talk.provider.script_replies([ProviderReply::new(parts).with_input_tokens(2400)]);
    let stream = http.start_chat(&session, "think about it");
    talk.provider.wait_request(0);
    let began = Instant::now();
    eventually("a moment", || (began.elapsed() >= Duration::from_millis(50)).then_some(()));
    latch.open();
    let events = http.stream_chat(&stream).wait_end();
    let usage = &events.iter().find(|event| event.name == "done").unwrap().data["usage"];
    assert_eq!((&usage["input_tokens"], &usage["output_tokens"]), (&json!(2400), &json!(50)));
    let loaded = load(&http, &session);
    let times: Vec<f64> = (0..2).map(|at| loaded["messages"][at]["timestamp"].as_f64().unwrap()).collect();
    assert!(times[1] - times[0] >= 0.05, "{times:?}");
    assert!(loaded["last_message_at"].as_f64().unwrap() >= times[1], "{loaded}");
    for path in ["session?messages=0&", "session?messages=1&msg_limit=1&", "session/status?"] {
        let reply = http.get(&format!("/api/{path}session_id={session}")).json();
        let counts = if path.starts_with("session?") { &reply["session"] } else { &reply };
        assert_eq!((&counts["input_tokens"], &counts["output_tokens"]), (&json!(2400), &json!(50)), "{path}");
    }
    assert_eq!(row(&http, &session).unwrap()["input_tokens"], 2450, "the list knows the sum");
}

#[test]
fn a_card_says_a_command_once() {
    let talk = GatewayFixture::for_web();
    let (_gateway, http) = talk.start_web();
    let session = http.create_session();
    let more = call_part("c2", "bash", &json!({ "command": "date -u", "timeout": 5 }));
    talk.provider.script_replies([
        ProviderReply::new(vec![bash_part("c1", "echo hi > made")]),
        ProviderReply::new(vec![more]),
        text_reply("done"),
    ]);
    let turn = http.stream_chat(&http.start_chat(&session, "run it"));
    for command in ["echo hi > made", "date -u"] {
        let card = eventually("the card", || {
            let approval = http.get(&format!("/api/approval/pending?session_id={session}")).json()["pending"].clone();
            approval["command"].as_str().is_some_and(|shown| shown.contains(command)).then_some(approval)
        });
        // The text that the front end makes of it.
        let shown = format!("{} [{}] {}", card["description"], card["pattern_keys"][0], card["command"]);
        assert_eq!(shown.matches(command).count(), 1, "{shown}");
        let body = json!({ "session_id": session, "choice": "once", "approval_id": card["approval_id"] });
        assert_eq!(http.post("/api/approval/respond", &body).json()["ok"], true);
    }
    turn.wait_end();
}

#[test]
fn the_reasoning_effort_in_the_settings_is_requested() {
    let provider = FakeProvider::start();
    let models = format!(
        "model: {{ provider: local, id: deep }}\nproviders:\n  local:\n    api: openai-completions\n    base_url: {}/v1\n    api_key: key\n    models: [ {{ id: deep, reasoning: true, context_window: 100000, max_tokens: 4096 }} ]\n",
        provider.url
    );
    let talk = GatewayOptions::new().with_config(&models).with_rules(RULES).with_provider(provider).create();
    let (_gateway, http) = talk.start_web();
    let session = http.create_session();
    let set = post_ok(&http, "/api/reasoning", json!({ "effort": "high", "model": "deep", "provider": "local" }));
    assert_eq!((&set["reasoning_effort"], &set["supports_reasoning_effort"]), (&json!("high"), &json!(true)));
    for (number, effort) in ["high", "low"].into_iter().enumerate() {
        post_ok(&http, "/api/reasoning", json!({ "effort": effort }));
        talk.provider.script_replies([text_reply("yes")]);
        http.stream_chat(&http.start_chat(&session, "think")).wait_end();
        assert_eq!(talk.provider.wait_request(number).body["reasoning_effort"], effort);
    }
}

#[test]
fn a_feature_that_is_missing_is_answered_so_that_a_front_end_hides_it() {
    let talk = GatewayOptions::for_web().create();
    let (_gateway, http) = talk.start_web();
    for (path, shown, want) in [
        ("/api/personalities", "/personalities", json!([])),
        ("/api/skills", "/skills", json!([])),
        ("/api/crons", "/jobs", json!([])),
        ("/api/plugins", "/plugins", json!([])),
        ("/api/mcp/servers", "/servers", json!([])),
        ("/api/updates/check", "/disabled", json!(true)),
        ("/api/dashboard/status", "/available", json!(false)),
        ("/api/transcribe/capability", "/available", json!(false)),
        ("/api/provider/quota", "/supported", json!(false)),
        ("/api/git-info", "/git", Value::Null),
    ] {
        let reply = http.get(path);
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
        let body: Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!(body.pointer(shown), Some(&want), "{path}: {body}");
    }
}

#[test]
fn what_is_not_public_is_401_before_it_is_404_or_405() {
    let talk = GatewayOptions::for_web().with_config("web: { password: correct-horse-battery }\n").create();
    let (_gateway, http) = talk.start_web();
    for (method, path) in [
        ("GET", "/api/status"),
        ("POST", "/api/status"),
        ("GET", "/api/session/new"),
        ("GET", "/api/kanban/boards"),
        ("GET", "/api/v1/nothing"),
        ("GET", "/api/session/export?session_id=x"),
        ("POST", "/api/session/delete"),
    ] {
        let reply = http.send_request(method, path, if method == "GET" { "" } else { "{}" });
        assert_eq!(reply.status, 401, "{method} {path}: {reply:?}");
        assert!(reply.body.contains("Authentication required"), "{reply:?}");
    }
    // Public paths are answered as they are, and a path that is no API leads nowhere.
    assert_eq!(http.get("/api/auth/login").status, 405);
    assert_eq!(http.get("/nothing").status, 404);
    let login = http.post("/api/auth/login", &json!({ "password": "correct-horse-battery" }));
    let cookie = login.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let http = http.with_header("cookie", &cookie);
    assert_eq!((http.get("/api/status").status, http.get("/api/session/new").status), (404, 405));
    // A page of this origin has to show its token for each new route that changes something.
    let page = http.clone().with_header("origin", &format!("http://{}", http.address));
    let body = json!({ "session_id": "x" });
    for path in [
        "undo",
        "retry",
        "truncate",
        "clear",
        "branch",
        "duplicate",
        "compress/start",
        "title/regenerate",
        "update",
        "pin",
        "archive",
        "delete",
        "draft",
        "anchor-scene",
    ] {
        let reply = page.post(&format!("/api/session/{path}"), &body);
        assert_eq!(
            (reply.status, reply.json()["error"].as_str()),
            (403, Some("Session expired - reload the page")),
            "{path}"
        );
    }
    let foreign = http.clone().with_header("origin", "http://evil.example");
    assert_eq!(foreign.post("/api/settings", &json!({})).status, 403);
}
