//! Refusals, and their order.

use super::*;

#[tokio::test]
async fn every_refusal_comes_in_its_order() {
    let stage = BridgeFixture::new("commands,uiResponses", "message:read");
    let all = BridgeFixture::open();
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
    let (status, reply) = all.ask("POST", &at("host-tool-results/1"), &[KNOWN], r#"{"type":"host_tool_result"}"#).await;
    assert_eq!((status, &reply["error"]), (400, &json!("invalid_host_tool_result")));
    let (status, reply) = all.ask("POST", &at("host-uri-results/1"), &[KNOWN], r#"{"type":"x"}"#).await;
    assert_eq!((status, &reply["error"]), (400, &json!("invalid_host_uri_result")));
}

#[tokio::test]
async fn other_origins_and_host_names_are_refused() {
    let stage = BridgeFixture::open();
    for headers in [
        &[KNOWN, ("host", "evil.example")][..],
        &[KNOWN, ("origin", "https://evil.example")],
        &[KNOWN, ("origin", "null")],
    ] {
        let (status, reply) = stage.ask("GET", "/healthz", headers, "").await;
        assert_eq!((status, &reply["error"]), (403, &json!("forbidden")), "{headers:?}");
    }
}

#[tokio::test]
async fn nothing_is_on_by_itself_and_help_says_so() {
    let stage = BridgeFixture::new("", "control");
    let (_, help) = stage.ask("GET", "/v1/help", &[], "").await;
    let none = json!({"events": false, "commands": false, "control": false, "uiResponses": false,
        "hostToolResults": false, "hostUriResults": false});
    assert_eq!((&help["status"], &help["endpoints"]), (&json!("experimental_gated"), &none));
}

#[tokio::test]
async fn an_invalid_value_of_a_command_is_reported_in_its_response() {
    let mut stage = BridgeFixture::new("commands", "model");
    let (status, reply) =
        stage.post("commands", &[], &json!({"id": "1", "type": "set_thinking_level", "level": "hard"})).await;
    assert_eq!((status, &reply["success"], &reply["id"]), (200, &json!(false), &json!("1")));
    assert_eq!(reply["error"], "Invalid thinking level: hard");
    assert!(stage.has_no_line());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let stage = BridgeFixture::open();
    let never = futures_util::stream::pending::<Result<Bytes, io::Error>>();
    let path = format!("/v1/sessions/{SESSION}/commands");
    let mut pending_request = request("POST", &path, &[KNOWN], "");
    *pending_request.body_mut() = Body::from_stream(never);
    let response = stage.send(pending_request).await;
    assert_eq!(response.status(), 408);
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["error"], "body_timeout");
}

#[tokio::test]
async fn there_are_only_so_many_sessions() {
    let stage = BridgeFixture::open();
    let others =
        Arc::clone(&stage.state.session_slots).try_acquire_many_owned(u32::try_from(SESSIONS).unwrap()).unwrap();
    let (status, reply) = stage.ask("POST", "/v1/sessions", &[KNOWN], "{}").await;
    assert_eq!((status, &reply["error"]), (503, &json!("too_many_sessions")), "{reply}");
    drop(others);
}
