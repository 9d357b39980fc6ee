use axum::{body::Body, http::Request, response::Response};
use bytes::Bytes;
use countersign_protocol::{gjc::bridge::Endpoints, gjc::bridge::scopes, lines::Line};
use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;

const SESSION: &str = "0190a5b2-0000-7000-8000-000000000001";
const TOKEN: &str = "the token";

/// The bridge in front of a door that the test speaks for.
struct Stage {
    house: Arc<House>,
    lines: mpsc::Receiver<Line>,
    frames: mpsc::Sender<Bytes>,
    session: watch::Sender<String>,
}

impl Stage {
    fn new(endpoints: &str, allowed: &str) -> Self {
        let setup = Setup {
            token: SecretString::from(TOKEN.to_owned()),
            address: ([127, 0, 0, 1], 4077).into(),
            tls: None,
            scopes: scopes(allowed).unwrap(),
            endpoints: Endpoints::read(endpoints).unwrap(),
        };
        let house = Arc::new(House {
            hosts: Hosts::new(setup.address.ip(), []),
            setup,
            is_tls: false,
            address: "http://127.0.0.1:4077".to_owned(),
            conversations: Mutex::default(),
            streams: Arc::new(Semaphore::new(1)),
            open: Box::new(|_, _| Box::pin(async { Err(StartError::new("no door is here")) })),
            end: CancellationToken::new(),
            doors: TaskTracker::new(),
        });
        let (lines, frames, session) = join(&house, SESSION);
        Self { house, lines, frames, session }
    }

    fn open() -> Self {
        Self::new("all", "control,session,message:read,host_tools,host_uri,bash")
    }

    async fn send(&self, request: Request<Body>) -> Response {
        routes::answer(axum::extract::State(Arc::clone(&self.house)), request).await
    }

    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, Value) {
        let response = self.send(request(method, path, headers, body)).await;
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }

    /// A request of somebody who knows the token, to a route of the session.
    async fn post(&self, route: &str, headers: &[(&str, &str)], body: &Value) -> (u16, Value) {
        let headers: Vec<_> = [("authorization", "bearer the token")].iter().chain(headers).copied().collect();
        self.ask("POST", &format!("/v1/sessions/{SESSION}/{route}"), &headers, &body.to_string()).await
    }

    async fn claim(&self) -> String {
        let (status, told) = self.post("control:claim", &[], &json!({})).await;
        assert_eq!((status, &told["status"]), (200, &json!("claimed")));
        told["ownerToken"].as_str().unwrap().to_owned()
    }

    /// The door says something, and it is heard.
    async fn says(&self, frame: Value) {
        let before = self.house.all()[0].window.last();
        let is_heard = frame["method"] != "cancel";
        self.frames.send(Bytes::from(format!("{frame}\n"))).await.unwrap();
        if is_heard {
            self.house.all()[0].window.moves(before).await;
        } else {
            // Another one behind it tells that it was heard.
            self.frames.send(Bytes::from("{\"type\":\"extension_error\"}\n")).await.unwrap();
            self.house.all()[0].window.moves(before).await;
        }
    }

    /// What the door was told next.
    async fn told(&mut self) -> Value {
        match self.lines.recv().await.unwrap() {
            Line::Text(line) => serde_json::from_str(&line).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn is_told_nothing(&mut self) -> bool {
        self.lines.try_recv().is_err()
    }

    /// The events that a client gets at once that has seen what came up to `last`.
    async fn events(&self, query: &str) -> Vec<Value> {
        let path = format!("/v1/sessions/{SESSION}/events{query}");
        let response = self.send(request("GET", &path, &[("authorization", "Bearer the token")], "")).await;
        assert_eq!(response.status(), 200);
        let mut body = response.into_body().into_data_stream();
        let mut events = Vec::new();
        while let Some(Some(frame)) = body.next().now_or_never() {
            let frame = String::from_utf8(frame.unwrap().to_vec()).unwrap();
            let data = frame.strip_prefix("data: ").and_then(|frame| frame.strip_suffix("\n\n")).unwrap();
            events.push(serde_json::from_str(data).unwrap());
        }
        events
    }
}

type Ends = (mpsc::Receiver<Line>, mpsc::Sender<Bytes>, watch::Sender<String>);

/// Puts another session into the house.
fn join(house: &Arc<House>, session: &str) -> Ends {
    let (lines, input) = mpsc::channel(16);
    let (output, frames) = mpsc::channel(16);
    let (current, watched) = watch::channel(session.to_owned());
    let conversation = Conversation::new(lines, watched);
    house.conversations.lock().push(Arc::clone(&conversation));
    tokio::spawn(async move { conversation.hear(frames).await });
    (input, output, current)
}

fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", "127.0.0.1:4077");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::from(body.to_owned())).unwrap()
}

const KNOWN: (&str, &str) = ("authorization", "Bearer the token");

#[tokio::test]
async fn every_refusal_comes_in_its_order() {
    let stage = Stage::new("commands,uiResponses", "message:read");
    let all = Stage::open();
    let at = |route: &str| format!("/v1/sessions/{SESSION}/{route}");
    let wrong = ("authorization", "Bearer the tokem");
    let unauthorized = (401, json!({"error": "unauthorized"}));
    let not_found = (404, json!({"error": "not_found"}));
    let off = |name: &str| (403, json!({"error": "endpoint_disabled", "endpoint": name}));
    let denied = |scope: &str| (403, json!({"error": "scope_denied", "scope": scope}));
    let rejected = |status: u16, code: &str| (status, json!({"status": "rejected", "code": code}));
    let plain = |status: u16, error: &str| (status, json!({"error": error}));
    let invalid = |error: &str, message: &str| (400, json!({"error": error, "message": message}));
    let get_state = r#"{"type":"get_state"}"#;
    for (case, stage, method, path, headers, body, want) in [
        ("health", &stage, "GET", "/healthz".to_owned(), &[][..], "", (200, json!({"status": "ok"}))),
        ("no token", &stage, "POST", at("commands"), &[], get_state, unauthorized.clone()),
        ("a wrong token", &stage, "POST", at("commands"), &[wrong], get_state, unauthorized.clone()),
        (
            "no bearer",
            &stage,
            "POST",
            at("commands"),
            &[("authorization", "the token")],
            get_state,
            unauthorized.clone(),
        ),
        ("an unknown path tells nobody", &stage, "GET", "/v1/secret".to_owned(), &[], "", unauthorized),
        ("an unknown path", &stage, "GET", "/v1/secret".to_owned(), &[KNOWN], "", not_found.clone()),
        (
            "another session",
            &stage,
            "POST",
            "/v1/sessions/x/commands".to_owned(),
            &[KNOWN],
            get_state,
            not_found.clone(),
        ),
        ("an unknown route", &stage, "POST", at("control:steal"), &[KNOWN], "", not_found.clone()),
        ("another method", &stage, "GET", at("commands"), &[KNOWN], "", not_found),
        ("off before its scope", &stage, "POST", at("control:claim"), &[KNOWN], "", off("control")),
        ("off before its body", &stage, "POST", at("host-tool-results/1"), &[KNOWN], "{", off("hostToolResults")),
        ("off", &stage, "POST", at("host-uri-results/1"), &[KNOWN], "{", off("hostUriResults")),
        ("off before its query", &stage, "GET", at("events?last_seq=x"), &[KNOWN], "", off("events")),
        ("scope before control", &stage, "POST", at("ui-responses/1"), &[KNOWN], "{", denied("control")),
        ("the scope of a command", &stage, "POST", at("commands"), &[KNOWN], r#"{"type":"bash","command":"ls"}"#, {
            denied("bash")
        }),
        ("no JSON", &stage, "POST", at("commands"), &[KNOWN], "{", plain(400, "invalid_json")),
        ("no object", &stage, "POST", at("commands"), &[KNOWN], "[]", {
            invalid("invalid_command", "the body must be an object")
        }),
        ("no command", &stage, "POST", at("commands"), &[KNOWN], r#"{"type":"dance"}"#, {
            invalid("invalid_command", "Unknown command: dance")
        }),
        ("an id that is none", &stage, "POST", at("commands"), &[KNOWN], r#"{"type":"get_state","id":7}"#, {
            invalid("invalid_command", "`id` must be a string")
        }),
        ("a key that is none", &stage, "POST", at("commands"), &[KNOWN, ("idempotency-key", "")], get_state, {
            invalid("invalid_command", "`Idempotency-Key` must have 1 to 255 characters")
        }),
        ("a place that is none", &all, "GET", at("events?last_seq=x"), &[KNOWN], "", {
            invalid("invalid_last_seq", "`last_seq` must be a whole number that is not negative")
        }),
        ("nobody holds control", &all, "POST", at("ui-responses/1"), &[KNOWN], "{}", rejected(403, "not_controller")),
        ("nobody gives it back", &all, "POST", at("control:disconnect"), &[KNOWN], "", rejected(403, "not_controller")),
        (
            "a gate beside its owner",
            &all,
            "POST",
            at("commands"),
            &[KNOWN],
            { r#"{"type":"workflow_gate_response","gate_id":"wg_1","answer":1}"# },
            {
                // The scope of answers is always there.
                rejected(403, "not_controller")
            },
        ),
        (
            "a call that nobody asked for",
            &all,
            "POST",
            at("host-tool-results/1"),
            &[KNOWN],
            { r#"{"type":"host_tool_result","result":{"content":[]}}"# },
            plain(404, "unknown_request"),
        ),
        ("a URI that nobody asked for", &all, "POST", at("host-uri-results/1"), &[KNOWN], r#"{"content":"x"}"#, {
            plain(404, "unknown_request")
        }),
    ] {
        assert_eq!(stage.ask(method, &path, headers, body).await, want, "{case}");
    }
    let (status, told) = all.ask("POST", &at("host-tool-results/1"), &[KNOWN], r#"{"type":"host_tool_result"}"#).await;
    assert_eq!((status, &told["error"]), (400, &json!("invalid_host_tool_result")));
    let (status, told) = all.ask("POST", &at("host-uri-results/1"), &[KNOWN], r#"{"type":"x"}"#).await;
    assert_eq!((status, &told["error"]), (400, &json!("invalid_host_uri_result")));
}

#[tokio::test]
async fn pages_of_others_and_other_names_are_not_heard() {
    let stage = Stage::open();
    for headers in [
        &[KNOWN, ("host", "evil.example")][..],
        &[KNOWN, ("origin", "https://evil.example")],
        &[KNOWN, ("origin", "null")],
    ] {
        let (status, told) = stage.ask("GET", "/healthz", headers, "").await;
        assert_eq!((status, &told["error"]), (403, &json!("forbidden")), "{headers:?}");
    }
}

#[tokio::test]
async fn nothing_is_on_by_itself_and_help_says_so() {
    let stage = Stage::new("", "control");
    let (_, help) = stage.ask("GET", "/v1/help", &[], "").await;
    let none = json!({"events": false, "commands": false, "control": false, "uiResponses": false,
        "hostToolResults": false, "hostUriResults": false});
    assert_eq!((&help["status"], &help["endpoints"]), (&json!("experimental_gated"), &none));
}

#[tokio::test]
async fn a_handshake_tells_what_is_on_and_what_is_known() {
    let mut stage = Stage::new("events", "message:read");
    let shake = |range: Value, more: Value| {
        let mut body = json!({"protocol_version_range": range, "capabilities": ["events", "workflow_gate", "telepathy"],
            "requested_scopes": ["prompt", "message:read", "bash"]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body.to_string()
    };
    let (status, told) =
        stage.ask("POST", "/v1/handshake", &[KNOWN], &shake(json!({"min": 1, "max": 2}), json!({}))).await;
    assert_eq!(status, 200);
    assert_eq!(told["status"], "accepted");
    assert_eq!(told["session_id"], SESSION);
    assert_eq!(told["accepted_capabilities"], json!(["events", "workflow_gate"]));
    assert_eq!(
        (&told["accepted_scopes"], &told["unsupported"]),
        (&json!(["prompt", "message:read"]), &json!(["telepathy"]))
    );
    assert_eq!(told["endpoints"]["events"], format!("/v1/sessions/{SESSION}/events"));
    assert_eq!((&told["endpoints"]["commands"], told.get("accepted_unattended")), (&json!(""), None));

    let (status, told) =
        stage.ask("POST", "/v1/handshake", &[KNOWN], &shake(json!({"min": 3, "max": 4}), json!({}))).await;
    assert_eq!((status, &told["status"], &told["reason"]), (200, &json!("rejected"), &json!("incompatible_version")));

    let unattended = shake(json!({"min": 2, "max": 2}), json!({"unattended": {"actor": "x"}}));
    for (said, want) in [
        (
            json!({"type": "response", "success": true, "data": {"run_id": "r"}}),
            (200, json!({"run_id": "r"}), json!(true)),
        ),
        (
            json!({"type": "response", "success": false, "error": {"code": "incomplete_budget", "message": "m"}}),
            (403, Value::Null, Value::Null),
        ),
    ] {
        let asking = stage.house.clone();
        let body = unattended.clone();
        let asked = tokio::spawn(async move {
            routes::answer(axum::extract::State(asking), request("POST", "/v1/handshake", &[KNOWN], &body)).await
        });
        let command = stage.told().await;
        assert_eq!(
            (&command["type"], &command["declaration"]),
            (&json!("negotiate_unattended"), &json!({"actor": "x"}))
        );
        let mut said = said;
        said["id"] = command["id"].clone();
        stage.says(said).await;
        let response = asked.await.unwrap();
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((status, body["accepted_unattended"].clone(), body["unattended_active"].clone()), want);
        if status == 403 {
            assert_eq!(body, json!({"code": "incomplete_budget", "message": "m"}));
        }
    }
    for (body, error) in [("{", "invalid_json"), (r#"{"capabilities":[]}"#, "invalid_request")] {
        let (status, told) = stage.ask("POST", "/v1/handshake", &[KNOWN], body).await;
        assert_eq!((status, &told["error"]), (400, &json!(error)));
    }
}

#[tokio::test]
async fn a_command_is_answered_under_the_id_of_its_client_and_is_told_to_all() {
    let mut stage = Stage::open();
    let house = Arc::clone(&stage.house);
    let send = |id: &'static str| {
        let house = Arc::clone(&house);
        tokio::spawn(async move {
            let body = json!({"type": "get_state", "id": id}).to_string();
            let path = format!("/v1/sessions/{SESSION}/commands");
            let answer = routes::answer(axum::extract::State(house), request("POST", &path, &[KNOWN], &body)).await;
            axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap()
        })
    };
    // Two clients have the same id.
    let (one, other) = (send("1"), send("1"));
    let (first, second) = (stage.told().await, stage.told().await);
    assert_ne!(first["id"], second["id"]);
    stage
        .says(json!({"id": second["id"], "type": "response", "command": "get_state", "success": true, "data": 2}))
        .await;
    stage
        .says(json!({"id": first["id"], "type": "response", "command": "get_state", "success": true, "data": 1}))
        .await;
    let answers = [one.await.unwrap(), other.await.unwrap()].map(|answer| serde_json::from_slice(&answer).unwrap());
    let answer =
        |data: u32| json!({"id": "1", "type": "response", "command": "get_state", "success": true, "data": data});
    let mut told: Vec<Value> = answers.to_vec();
    told.sort_by_key(|answer| answer["data"].as_u64());
    assert_eq!(told, [answer(1), answer(2)]);
    let events = stage.events("?last_seq=0").await;
    let shown: Vec<_> = events.iter().map(|event| (event["seq"].as_u64().unwrap(), event["payload"].clone())).collect();
    assert_eq!(shown, [(1, answer(2)), (2, answer(1))]);
    assert!(events.iter().all(|event| event["type"] == "response" && event["session_id"] == SESSION));
}

#[tokio::test]
async fn a_value_that_a_command_cannot_have_is_told_in_its_response() {
    let mut stage = Stage::new("commands", "model");
    let (status, told) =
        stage.post("commands", &[], &json!({"id": "1", "type": "set_thinking_level", "level": "hard"})).await;
    assert_eq!((status, &told["success"], &told["id"]), (200, &json!(false), &json!("1")));
    assert_eq!(told["error"], "Invalid thinking level: hard");
    assert!(stage.is_told_nothing());
}

#[tokio::test]
async fn dialogs_are_answered_once_and_by_who_holds_control() {
    let mut stage = Stage::open();
    stage
        .says(json!({"type": "extension_ui_request", "id": "d1", "method": "confirm", "title": "T", "message": "M"}))
        .await;
    let frame = stage.events("?last_seq=0").await.remove(0);
    assert_eq!((&frame["type"], &frame["correlation_id"]), (&json!("ui_request"), &json!("d1")));
    let owner = stage.claim().await;
    let (status, told) = stage.post("control:claim", &[], &json!({})).await;
    assert_eq!((status, told), (409, json!({"error": "controller_busy"})));
    let yes = json!({"status": "value", "value": true});
    for shown in [&[][..], &[("x-gjc-bridge-owner-token", "0000")]] {
        let (status, told) = stage.post("ui-responses/d1", shown, &yes).await;
        assert_eq!((status, told), (403, json!({"status": "rejected", "code": "not_controller"})));
    }
    let own = [("x-gjc-bridge-owner-token", owner.as_str())];
    let (status, told) = stage.post("ui-responses/d1", &own, &json!({"status": "value", "value": 3})).await;
    assert_eq!((status, &told["error"]), (400, &json!("invalid_ui_response")));
    assert!(stage.is_told_nothing(), "it still waits");
    assert_eq!(stage.post("ui-responses/d1", &own, &yes).await, (200, json!({"status": "accepted"})));
    assert_eq!(stage.told().await, json!({"type": "extension_ui_response", "id": "d1", "confirmed": true}));
    let late = json!({"status": "rejected", "code": "already_resolved"});
    assert_eq!(stage.post("ui-responses/d1", &own, &yes).await, (409, late.clone()));
    let unknown = json!({"status": "rejected", "code": "unknown_request"});
    assert_eq!(stage.post("ui-responses/d9", &own, &yes).await, (409, unknown));
    // Another surface answered.
    stage.says(json!({"type": "extension_ui_request", "id": "d2", "method": "input", "title": "T"})).await;
    stage.says(json!({"type": "extension_ui_request", "id": "x", "method": "cancel", "targetId": "d2"})).await;
    assert_eq!(stage.post("ui-responses/d2", &own, &json!({"status": "value", "value": "x"})).await, (409, late));
    assert!(stage.is_told_nothing());
}

#[tokio::test]
async fn a_call_that_somebody_must_allow_is_answered_by_its_own_id() {
    let mut stage = Stage::open();
    let payload =
        json!({"kind": "permission", "toolCall": {"toolCallId": "call/1", "toolName": "bash"}, "options": []});
    stage.says(json!({"type": "permission_request", "id": "d1", "payload": payload})).await;
    let frame = stage.events("?last_seq=0").await.remove(0);
    assert_eq!(
        (&frame["type"], &frame["correlation_id"], &frame["payload"]),
        (&json!("permission_request"), &json!("call/1"), &payload)
    );
    let owner = stage.claim().await;
    let own = [("x-gjc-bridge-owner-token", owner.as_str())];
    let allow = json!({"outcome": "selected", "optionId": "allow_once", "kind": "allow_once"});
    assert_eq!(stage.post("ui-responses/call%2F1", &own, &allow).await, (200, json!({"status": "accepted"})));
    assert_eq!(stage.told().await, json!({"type": "extension_ui_response", "id": "d1", "value": "allow_once"}));
}

#[tokio::test]
async fn who_gives_control_back_leaves_nothing_waiting() {
    let mut stage = Stage::open();
    stage.says(json!({"type": "extension_ui_request", "id": "d1", "method": "input", "title": "T"})).await;
    let owner = stage.claim().await;
    let own = [("x-gjc-bridge-owner-token", owner.as_str())];
    assert_eq!(stage.post("control:disconnect", &own, &json!({})).await, (200, json!({"status": "released"})));
    assert_eq!(stage.told().await, json!({"type": "extension_ui_response", "id": "d1", "cancelled": true}));
    assert_ne!(stage.claim().await, owner);
}

#[tokio::test]
async fn a_token_of_one_session_is_nothing_in_another() {
    let stage = Stage::open();
    let (_lines, frames, _current) = join(&stage.house, "other");
    frames
        .send(Bytes::from(
            json!({"type": "extension_ui_request", "id": "d1", "method": "input", "title": "T"}).to_string(),
        ))
        .await
        .unwrap();
    stage.house.all()[1].window.moves(0).await;
    let owner = stage.claim().await;
    let headers = [KNOWN, ("x-gjc-bridge-owner-token", owner.as_str())];
    let answer = stage.ask("POST", "/v1/sessions/other/ui-responses/d1", &headers, r#"{"status":"cancelled"}"#).await;
    assert_eq!(answer, (403, json!({"status": "rejected", "code": "not_controller"})));
}

#[tokio::test]
async fn gates_are_answered_by_their_id_and_told_what_became_of_the_answer() {
    let mut stage = Stage::open();
    stage.says(json!({"type": "workflow_gate", "gate_id": "wg_1_ralplan_000001"})).await;
    let frame = stage.events("?last_seq=0").await.remove(0);
    assert_eq!((&frame["type"], &frame["correlation_id"]), (&json!("workflow_gate"), &json!("wg_1_ralplan_000001")));
    let owner = stage.claim().await;
    let resolution = json!({"gate_id": "wg_1_ralplan_000001", "status": "accepted"});
    for (said, want) in [
        (json!({"success": true, "data": resolution}), (200, resolution.clone())),
        (json!({"success": false, "error": {"code": "already_resolved", "message": "m"}}), {
            (409, json!({"code": "already_resolved", "message": "m"}))
        }),
        (json!({"success": false, "error": "workflow gates are not available"}), {
            (409, json!({"code": "unattended_not_negotiated", "message": "workflow gates are not available"}))
        }),
        (json!({"success": false, "error": {"code": "scope_denied", "scope": "prompt"}}), {
            (403, json!({"code": "scope_denied", "scope": "prompt"}))
        }),
    ] {
        let (house, owner) = (Arc::clone(&stage.house), owner.clone());
        let answering = tokio::spawn(async move {
            let headers = [KNOWN, ("x-gjc-bridge-owner-token", owner.as_str())];
            let path = format!("/v1/sessions/{SESSION}/ui-responses/wg_1_ralplan_000001");
            let body = json!({"gate_id": "wg_1_ralplan_000001", "answer": {"decision": "approve"}}).to_string();
            let answer = routes::answer(axum::extract::State(house), request("POST", &path, &headers, &body)).await;
            let status = answer.status().as_u16();
            let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
            (status, serde_json::from_slice::<Value>(&body).unwrap())
        });
        let command = stage.told().await;
        assert_eq!(
            (&command["type"], &command["answer"]),
            (&json!("workflow_gate_response"), &json!({"decision": "approve"}))
        );
        let mut said = said;
        said["type"] = json!("response");
        said["id"] = command["id"].clone();
        stage.says(said).await;
        assert_eq!(answering.await.unwrap(), want);
    }
    let own = [("x-gjc-bridge-owner-token", owner.as_str())];
    for (body, want) in [
        (json!({"gate_id": "wg_1", "answer": 1}), "`gate_id` must be that of the path"),
        (json!({"gate_id": "wg_2"}), "`answer` is required"),
    ] {
        let (status, told) = stage.post("ui-responses/wg_2", &own, &body).await;
        assert_eq!((status, &told["message"]), (400, &json!(want)));
    }
}

#[tokio::test]
async fn a_key_stands_for_one_request() {
    let mut stage = Stage::open();
    let house = Arc::clone(&stage.house);
    let send = |body: Value, owner: &'static str| {
        let house = Arc::clone(&house);
        tokio::spawn(async move {
            let headers = [KNOWN, ("idempotency-key", "k"), ("x-gjc-bridge-owner-token", owner)];
            let path = format!("/v1/sessions/{SESSION}/commands");
            let answer =
                routes::answer(axum::extract::State(house), request("POST", &path, &headers, &body.to_string())).await;
            let status = answer.status().as_u16();
            let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
            (status, serde_json::from_slice::<Value>(&body).unwrap())
        })
    };
    let prompt = json!({"type": "prompt", "message": "x"});
    let (one, other) = (send(prompt.clone(), "a"), send(prompt.clone(), "a"));
    let command = stage.told().await;
    stage.says(json!({"id": command["id"], "type": "response", "command": "prompt", "success": true})).await;
    let answer = (200, json!({"type": "response", "command": "prompt", "success": true}));
    assert_eq!((one.await.unwrap(), other.await.unwrap()), (answer.clone(), answer.clone()));
    assert_eq!(send(prompt.clone(), "a").await.unwrap(), answer);
    let conflict = (409, json!({"error": "idempotency_conflict"}));
    assert_eq!(send(json!({"type": "prompt", "message": "y"}), "a").await.unwrap(), conflict);
    let other = (403, json!({"status": "rejected", "code": "not_controller"}));
    assert_eq!(send(prompt, "b").await.unwrap(), other);
    assert!(stage.is_told_nothing(), "it was done once");
}

#[tokio::test]
async fn what_the_host_did_is_told_once() {
    let mut stage = Stage::open();
    stage
        .says(json!({"type": "host_tool_call", "id": "a1", "toolCallId": "t", "toolName": "n", "arguments": {}}))
        .await;
    let update = json!({"type": "host_tool_update", "partialResult": {"content": []}});
    assert_eq!(stage.post("host-tool-results/a1", &[], &update).await.0, 200);
    assert_eq!(stage.told().await["id"], "a1");
    // The id is that of the path.
    let result = json!({"type": "host_tool_result", "id": "b2", "result": {"content": []}});
    assert_eq!(stage.post("host-tool-results/a1", &[], &result).await, (200, json!({"status": "accepted"})));
    let told = stage.told().await;
    assert_eq!((&told["type"], &told["id"]), (&json!("host_tool_result"), &json!("a1")));
    assert_eq!(stage.post("host-tool-results/a1", &[], &result).await, (404, json!({"error": "unknown_request"})));
    stage
        .says(json!({"type": "host_tool_call", "id": "a2", "toolCallId": "t", "toolName": "n", "arguments": {}}))
        .await;
    stage.says(json!({"type": "host_tool_cancel", "id": "c", "targetId": "a2"})).await;
    assert_eq!(stage.post("host-tool-results/a2", &[], &result).await.0, 404);
    stage.says(json!({"type": "host_uri_request", "id": "u1", "operation": "read", "url": "db://a"})).await;
    assert_eq!(stage.post("host-uri-results/u1", &[], &json!({"content": "x"})).await.0, 200);
    assert_eq!(stage.told().await, json!({"content": "x", "type": "host_uri_result", "id": "u1"}));
}

#[tokio::test]
async fn whoever_comes_back_gets_what_was_missed_or_is_told_that_it_is_gone() {
    let stage = Stage::open();
    for number in 1..=1003 {
        let event = json!({"protocol_version": 2, "session_id": SESSION, "seq": number, "frame_id": "f", "type": "event",
            "payload": {"event_type": "notice", "number": number}});
        stage.says(event).await;
    }
    let seqs = |events: Vec<Value>| events.iter().map(|event| event["seq"].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(seqs(stage.events("?last_seq=1001").await), [1002, 1003]);
    assert_eq!(seqs(stage.events("").await), [0; 0]);
    let all = stage.events("?last_seq=0").await;
    assert_eq!((all.len(), &all[0]["seq"]), (1000, &json!(4)));
    let mut lost = stage.events("?last_seq=2").await;
    assert_eq!(lost.len(), 1001);
    let reset = lost.remove(0);
    assert_eq!((&reset["type"], &reset["frame_id"], &reset["seq"]), (&json!("reset"), &json!("reset-4"), &json!(3)));
    assert_eq!(reset["payload"], json!({"reason": "replay_window_exceeded", "first_seq": 4}));
}

#[tokio::test]
async fn a_stream_is_refused_where_there_is_no_room_or_nothing_more_comes() {
    let stage = Stage::open();
    let path = format!("/v1/sessions/{SESSION}/events");
    let held = stage.send(request("GET", &path, &[KNOWN], "")).await;
    assert_eq!(held.status(), 200);
    let none = (503, json!({"error": "events_unavailable"}));
    assert_eq!(stage.ask("GET", &path, &[KNOWN], "").await, none);
    drop(held);
    drop(stage.send(request("GET", &path, &[KNOWN], "")).await);
    let conversation = stage.house.all().remove(0);
    drop(stage.frames);
    conversation.window.ended().await;
    let (house, _session) = (stage.house, stage.session);
    let answer = |method: &'static str, path: String, body: &'static str| {
        let house = Arc::clone(&house);
        async move { routes::answer(axum::extract::State(house), request(method, &path, &[KNOWN], body)).await }
    };
    assert_eq!(answer("GET", path, "").await.status(), 503);
    let path = format!("/v1/sessions/{SESSION}/commands");
    assert_eq!(answer("POST", path, r#"{"type":"abort"}"#).await.status(), 503);
}

#[tokio::test]
async fn a_session_is_found_under_every_id_that_it_had() {
    let stage = Stage::open();
    stage.session.send_replace("second".to_owned());
    stage.says(json!({"type": "response", "command": "new_session", "success": true})).await;
    let (status, told) = stage.ask("GET", "/v1/sessions", &[KNOWN], "").await;
    assert_eq!((status, told), (200, json!({"sessions": [{"session_id": "second"}]})));
    for id in [SESSION, "second"] {
        let answer = stage.ask("GET", &format!("/v1/sessions/{id}/events?last_seq=x"), &[KNOWN], "").await;
        assert_eq!(answer.0, 400, "{id} is there");
    }
    assert_eq!(stage.ask("POST", "/v1/sessions", &[KNOWN], "{}").await, {
        (400, json!({"error": "invalid_request", "message": "no door is here"}))
    });
}
