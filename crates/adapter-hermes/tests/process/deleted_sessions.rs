//! Sessions that were deleted, at every route that takes a session or a stream.

use countersign_testkit::process::{
    GatewayFixture, GatewayOptions,
    gsv::{self, GsvPeer},
    hermes::event_names,
    http::{HttpClient, HttpClientReply},
    provider::{ProviderReply, bash_part, text_reply},
};
use serde_json::{Value, json};

/// Id of a session, of its only turn, and of an approval in it.
struct SessionNames {
    session: String,
    stream: String,
    approval: String,
}

impl SessionNames {
    fn fill(&self, template: &str) -> String {
        template
            .replace("{session}", &self.session)
            .replace("{stream}", &self.stream)
            .replace("{approval}", &self.approval)
    }

    /// Returns status and body of a reply, with the names of this session taken out.
    fn plain(&self, reply: &HttpClientReply) -> (u16, String) {
        let body = reply.body.replace(&self.session, "{session}").replace(&self.stream, "{stream}");
        (reply.status, body)
    }
}

const GET: &[&str] = &[
    "/api/session?session_id={session}",
    "/api/session?session_id={session}&messages=0",
    "/api/session/status?session_id={session}",
    "/api/session/draft?session_id={session}",
    "/api/session/yolo?session_id={session}",
    "/api/session/compress/status?session_id={session}",
    "/api/session/export?session_id={session}&format=json",
    "/api/session/export?session_id={session}&format=html",
    "/api/list?session_id={session}",
    "/api/file?session_id={session}&path=made.txt",
    "/api/file/raw?session_id={session}&path=made.txt",
    "/api/approval/pending?session_id={session}",
    "/api/clarify/pending?session_id={session}",
    "/api/chat/stream?stream_id={stream}",
    "/api/chat/stream?stream_id={stream}&replay=1&after_seq=0",
    "/api/chat/stream/status?stream_id={stream}",
    "/api/chat/cancel?stream_id={stream}",
    "/api/v1/sessions/{session}",
    "/console/live?session={session}",
];

const POST: &[(&str, &str)] = &[
    ("/api/session/rename", r#"{"session_id":"{session}","title":"again"}"#),
    ("/api/session/draft", r#"{"session_id":"{session}","text":"again"}"#),
    ("/api/session/undo", r#"{"session_id":"{session}"}"#),
    ("/api/session/retry", r#"{"session_id":"{session}"}"#),
    ("/api/session/truncate", r#"{"session_id":"{session}","keep_count":1}"#),
    ("/api/session/clear", r#"{"session_id":"{session}"}"#),
    ("/api/session/branch", r#"{"session_id":"{session}","keep_count":1}"#),
    ("/api/session/branch", r#"{"session_id":"{session}"}"#),
    ("/api/session/duplicate", r#"{"session_id":"{session}"}"#),
    ("/api/session/compress/start", r#"{"session_id":"{session}"}"#),
    ("/api/session/title/regenerate", r#"{"session_id":"{session}"}"#),
    ("/api/session/update", r#"{"session_id":"{session}","workspace":"other"}"#),
    ("/api/session/pin", r#"{"session_id":"{session}"}"#),
    ("/api/session/archive", r#"{"session_id":"{session}"}"#),
    ("/api/session/delete", r#"{"session_id":"{session}"}"#),
    ("/api/session/anchor-scene", r#"{"session_id":"{session}"}"#),
    ("/api/session/yolo", r#"{"session_id":"{session}"}"#),
    ("/api/session/yolo", r#"{"session_id":"{session}","enabled":false}"#),
    ("/api/approval/respond", r#"{"session_id":"{session}","choice":"once","yolo":true}"#),
    ("/api/approval/respond", r#"{"session_id":"{session}","choice":"once","approval_id":"{approval}","yolo":true}"#),
    ("/api/clarify/respond", r#"{"session_id":"{session}","response":"yes"}"#),
    ("/api/chat/start", r#"{"session_id":"{session}","message":"are you there"}"#),
    ("/api/chat/start", r#"{"session_id":"{session}","regenerate":true,"regeneration_revision":"x"}"#),
    ("/api/chat/steer", r#"{"session_id":"{session}","text":"this way"}"#),
    ("/api/v1/sessions/{session}/messages", r#"{"text":"are you there"}"#),
    ("/api/v1/sessions/{session}/steer", r#"{"text":"this way"}"#),
    ("/api/v1/sessions/{session}/stop", "{}"),
];

const STREAMS: &[&str] = &[
    "/api/session/stream?session_id={session}&known_count=0",
    "/api/approval/stream?session_id={session}",
    "/api/clarify/stream?session_id={session}",
];

/// Checks that each route answers for both the same.
fn same_answers(http: &HttpClient, deleted: &SessionNames, unknown: &SessionNames) {
    let answers =
        |ask: &dyn Fn(&SessionNames) -> HttpClientReply| [deleted, unknown].map(|names| names.plain(&ask(names)));
    for template in GET {
        let [of_deleted, of_unknown] = answers(&|names| http.get(&names.fill(template)));
        assert_eq!(of_deleted, of_unknown, "{template}");
    }
    for (path, body) in POST {
        let [of_deleted, of_unknown] =
            answers(&|names| http.send_request("POST", &names.fill(path), &names.fill(body)));
        assert_eq!(of_deleted, of_unknown, "{path} {body}");
    }
    for template in STREAMS {
        let [of_deleted, of_unknown] = [deleted, unknown].map(|names| {
            let stream = http.open_stream(&names.fill(template));
            let first = stream.wait_named("initial").data.to_string().replace(&names.session, "{session}");
            (first, event_names(&stream.events_so_far()).len())
        });
        assert_eq!(of_deleted, of_unknown, "{template}");
    }
    let page = http.get(&deleted.fill("/console/sessions/{session}"));
    assert!(page.status == 404 && !page.body.contains("unsaid"), "{page:?}");
}

#[test]
fn a_deleted_session_is_answered_as_an_unknown_one_by_every_route() {
    let talk = GatewayFixture::for_web();
    let (gateway, http) = talk.start_web();
    talk.provider
        .script_replies([ProviderReply::new(vec![bash_part("c1", "echo hi > made.txt")]), text_reply("unsaid")]);
    let session = http.create_session();
    let stream = http.start_chat(&session, "run it");
    let events = http.stream_chat(&stream);
    let approval = events.wait_named("approval").data["approval_id"].as_str().unwrap().to_owned();
    let allow = json!({ "session_id": session, "choice": "once", "approval_id": approval, "yolo": true });
    assert_eq!(http.post("/api/approval/respond", &allow).json()["yolo_enabled"], true);
    events.wait_end();
    assert_eq!(http.post("/api/session/draft", &json!({ "session_id": session, "text": "half" })).status, 200);
    assert_eq!(http.post("/api/session/delete", &json!({ "session_id": session })).status, 200);

    let deleted = SessionNames { session, stream, approval };
    let unknown = SessionNames { session: "0".repeat(12), stream: "f".repeat(32), approval: deleted.approval.clone() };
    let status = http.get(&unknown.fill("/api/session/compress/status?session_id={session}"));
    assert_eq!((status.status, &status.json()["error"]), (404, &json!("Session not found")));
    same_answers(&http, &deleted, &unknown);
    gateway.kill();
    let (_gateway, http) = talk.start_web();
    same_answers(&http, &deleted, &unknown);
    // The record keeps everything.
    let tail = talk.run_as_person(&["audit", "tail", "--session", &deleted.session]);
    assert!(tail.out.contains("echo hi > made.txt"), "{tail:?}");
}

#[test]
fn a_session_whose_own_clients_still_use_it_is_archived_and_not_deleted() {
    let talk = GatewayOptions::for_web().with_config(&format!("clients: {{ token: {} }}\n", gsv::TOKEN)).create();
    let (gateway, http) = talk.start_web();
    let mut peer = GsvPeer::connect_client(&gateway, "tester");
    let mut say = |message: &str, run: &str| {
        talk.provider.script_replies([text_reply("heard")]);
        peer.expect_ok("chat.send", json!({ "sessionKey": "book", "message": message, "runId": run }));
        peer.wait_event("chat", &json!({ "runId": run }))
    };
    say("first", "r1");
    let listed = || -> Vec<Value> {
        let rows = http.get("/api/sessions").json()["sessions"].as_array().unwrap().clone();
        rows.into_iter().filter(|row| row["source"] == "gsv").collect()
    };
    let [row] = &listed()[..] else { panic!("one session") };
    let session = row["session_id"].clone();
    let refused = http.post("/api/session/delete", &json!({ "session_id": session }));
    let why = "This session belongs to gsv, whose clients still use it: archive it instead";
    assert_eq!((refused.status, &refused.json()["error"]), (403, &json!(why)));
    let archived = http.post("/api/session/archive", &json!({ "session_id": session })).json();
    assert_eq!(archived["session"]["archived"], true);
    say("second", "r2");
    assert_eq!(listed().len(), 1, "a message is seen here too");
}
