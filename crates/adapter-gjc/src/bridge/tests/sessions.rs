//! Handshakes, and sessions under their ids.

use super::*;

#[tokio::test]
async fn a_handshake_lists_the_active_and_known_features() {
    let mut stage = BridgeFixture::new("events", "message:read");
    let shake = |range: Value, more: Value| {
        let mut body = json!({"protocol_version_range": range, "capabilities": ["events", "workflow_gate", "telepathy"],
            "requested_scopes": ["prompt", "message:read", "bash"]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body.to_string()
    };
    let (status, reply) =
        stage.ask("POST", "/v1/handshake", &[KNOWN], &shake(json!({"min": 1, "max": 2}), json!({}))).await;
    assert_eq!(status, 200);
    assert_eq!(reply["status"], "accepted");
    assert_eq!(reply["session_id"], SESSION);
    assert_eq!(reply["accepted_capabilities"], json!(["events", "workflow_gate"]));
    assert_eq!(
        (&reply["accepted_scopes"], &reply["unsupported"]),
        (&json!(["prompt", "message:read"]), &json!(["telepathy"]))
    );
    assert_eq!(reply["endpoints"]["events"], format!("/v1/sessions/{SESSION}/events"));
    assert_eq!((&reply["endpoints"]["commands"], reply.get("accepted_unattended")), (&json!(""), None));

    let (status, reply) =
        stage.ask("POST", "/v1/handshake", &[KNOWN], &shake(json!({"min": 3, "max": 4}), json!({}))).await;
    assert_eq!((status, &reply["status"], &reply["reason"]), (200, &json!("rejected"), &json!("incompatible_version")));

    let unattended = shake(json!({"min": 2, "max": 2}), json!({"unattended": {"actor": "x"}}));
    for (answer, want) in [
        (
            json!({"type": "response", "success": true, "data": {"run_id": "r"}}),
            (200, json!({"run_id": "r"}), json!(true)),
        ),
        (
            json!({"type": "response", "success": false, "error": {"code": "incomplete_budget", "message": "m"}}),
            (403, Value::Null, Value::Null),
        ),
    ] {
        let asking = stage.state.clone();
        let body = unattended.clone();
        let handshake = tokio::spawn(async move {
            routes::answer_request(axum::extract::State(asking), request("POST", "/v1/handshake", &[KNOWN], &body))
                .await
        });
        let command = stage.next_line().await;
        assert_eq!(
            (&command["type"], &command["declaration"]),
            (&json!("negotiate_unattended"), &json!({"actor": "x"}))
        );
        let mut answer = answer;
        answer["id"] = command["id"].clone();
        stage.says(answer).await;
        let response = handshake.await.unwrap();
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((status, body["accepted_unattended"].clone(), body["unattended_active"].clone()), want);
        if status == 403 {
            assert_eq!(body, json!({"code": "incomplete_budget", "message": "m"}));
        }
    }
    for (body, error) in [("{", "invalid_json"), (r#"{"capabilities":[]}"#, "invalid_request")] {
        let (status, reply) = stage.ask("POST", "/v1/handshake", &[KNOWN], body).await;
        assert_eq!((status, &reply["error"]), (400, &json!(error)));
    }
}

#[tokio::test]
async fn a_session_is_found_under_every_id_that_it_had() {
    let stage = BridgeFixture::open();
    stage.session.send_replace("second".to_owned());
    stage.says(json!({"type": "response", "command": "new_session", "success": true})).await;
    let (status, reply) = stage.ask("GET", "/v1/sessions", &[KNOWN], "").await;
    assert_eq!((status, reply), (200, json!({"sessions": [{"session_id": "second"}]})));
    for id in [SESSION, "second"] {
        let answer = stage.ask("GET", &format!("/v1/sessions/{id}/events?last_seq=x"), &[KNOWN], "").await;
        assert_eq!(answer.0, 400, "{id} is there");
    }
    assert_eq!(stage.ask("POST", "/v1/sessions", &[KNOWN], "{}").await, {
        (400, json!({"error": "invalid_request", "message": "no door is here"}))
    });
}

#[tokio::test]
async fn a_command_is_answered_under_the_id_of_its_client_and_its_events_go_to_all() {
    let mut stage = BridgeFixture::open();
    let state = Arc::clone(&stage.state);
    let send = |id: &'static str| {
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            let body = json!({"type": "get_state", "id": id}).to_string();
            let path = format!("/v1/sessions/{SESSION}/commands");
            let answer =
                routes::answer_request(axum::extract::State(state), request("POST", &path, &[KNOWN], &body)).await;
            axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap()
        })
    };
    // Two clients have the same id.
    let (one, other) = (send("1"), send("1"));
    let (first, second) = (stage.next_line().await, stage.next_line().await);
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
    let mut sorted: Vec<Value> = answers.to_vec();
    sorted.sort_by_key(|answer| answer["data"].as_u64());
    assert_eq!(sorted, [answer(1), answer(2)]);
    let events = stage.events("?last_seq=0").await;
    let shown: Vec<_> = events.iter().map(|event| (event["seq"].as_u64().unwrap(), event["payload"].clone())).collect();
    assert_eq!(shown, [(1, answer(2)), (2, answer(1))]);
    assert!(events.iter().all(|event| event["type"] == "response" && event["session_id"] == SESSION));
}
