//! Dialogs, calls to allow and gates: who answers them, and how often.

use super::*;

#[tokio::test]
async fn dialogs_are_answered_once_and_by_who_holds_control() {
    let mut stage = BridgeFixture::open();
    stage
        .says(json!({"type": "extension_ui_request", "id": "d1", "method": "confirm", "title": "T", "message": "M"}))
        .await;
    let frame = stage.events("?last_seq=0").await.remove(0);
    assert_eq!((&frame["type"], &frame["correlation_id"]), (&json!("ui_request"), &json!("d1")));
    let owner = stage.claim().await;
    let (status, reply) = stage.post("control:claim", &[], &json!({})).await;
    assert_eq!((status, reply), (409, json!({"error": "controller_busy"})));
    let yes = json!({"status": "value", "value": true});
    for shown in [&[][..], &[("x-gjc-bridge-owner-token", "0000")]] {
        let (status, reply) = stage.post("ui-responses/d1", shown, &yes).await;
        assert_eq!((status, reply), (403, json!({"status": "rejected", "code": "not_controller"})));
    }
    let own = [("x-gjc-bridge-owner-token", owner.as_str())];
    let (status, reply) = stage.post("ui-responses/d1", &own, &json!({"status": "value", "value": 3})).await;
    assert_eq!((status, &reply["error"]), (400, &json!("invalid_ui_response")));
    assert!(stage.has_no_line(), "it still waits");
    assert_eq!(stage.post("ui-responses/d1", &own, &yes).await, (200, json!({"status": "accepted"})));
    assert_eq!(stage.next_line().await, json!({"type": "extension_ui_response", "id": "d1", "confirmed": true}));
    let late = json!({"status": "rejected", "code": "already_resolved"});
    assert_eq!(stage.post("ui-responses/d1", &own, &yes).await, (409, late.clone()));
    let unknown = json!({"status": "rejected", "code": "unknown_request"});
    assert_eq!(stage.post("ui-responses/d9", &own, &yes).await, (409, unknown));
    // Another surface answered.
    stage.says(json!({"type": "extension_ui_request", "id": "d2", "method": "input", "title": "T"})).await;
    stage.says(json!({"type": "extension_ui_request", "id": "x", "method": "cancel", "targetId": "d2"})).await;
    assert_eq!(stage.post("ui-responses/d2", &own, &json!({"status": "value", "value": "x"})).await, (409, late));
    assert!(stage.has_no_line());
}

#[tokio::test]
async fn a_call_that_somebody_must_allow_is_answered_by_its_own_id() {
    let mut stage = BridgeFixture::open();
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
    assert_eq!(stage.next_line().await, json!({"type": "extension_ui_response", "id": "d1", "value": "allow_once"}));
}

#[tokio::test]
async fn who_gives_control_back_leaves_nothing_waiting() {
    let mut stage = BridgeFixture::open();
    stage.says(json!({"type": "extension_ui_request", "id": "d1", "method": "input", "title": "T"})).await;
    let owner = stage.claim().await;
    let own = [("x-gjc-bridge-owner-token", owner.as_str())];
    assert_eq!(stage.post("control:disconnect", &own, &json!({})).await, (200, json!({"status": "released"})));
    assert_eq!(stage.next_line().await, json!({"type": "extension_ui_response", "id": "d1", "cancelled": true}));
    assert_ne!(stage.claim().await, owner);
}

#[tokio::test]
async fn a_token_of_one_session_is_nothing_in_another() {
    let stage = BridgeFixture::open();
    let (_lines, frames, _current) = join_session(&stage.state, "other");
    frames
        .send(Bytes::from(
            json!({"type": "extension_ui_request", "id": "d1", "method": "input", "title": "T"}).to_string(),
        ))
        .await
        .unwrap();
    stage.state.all_conversations()[1].window.wait_for_frame(0).await;
    let owner = stage.claim().await;
    let headers = [KNOWN, ("x-gjc-bridge-owner-token", owner.as_str())];
    let answer = stage.ask("POST", "/v1/sessions/other/ui-responses/d1", &headers, r#"{"status":"cancelled"}"#).await;
    assert_eq!(answer, (403, json!({"status": "rejected", "code": "not_controller"})));
}

#[tokio::test]
async fn gates_are_answered_by_their_id_and_the_outcome_is_returned() {
    let mut stage = BridgeFixture::open();
    stage.says(json!({"type": "workflow_gate", "gate_id": "wg_1_ralplan_000001"})).await;
    let frame = stage.events("?last_seq=0").await.remove(0);
    assert_eq!((&frame["type"], &frame["correlation_id"]), (&json!("workflow_gate"), &json!("wg_1_ralplan_000001")));
    let owner = stage.claim().await;
    let resolution = json!({"gate_id": "wg_1_ralplan_000001", "status": "accepted"});
    for (response, want) in [
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
        let (state, owner) = (Arc::clone(&stage.state), owner.clone());
        let answering = tokio::spawn(async move {
            let headers = [KNOWN, ("x-gjc-bridge-owner-token", owner.as_str())];
            let path = format!("/v1/sessions/{SESSION}/ui-responses/wg_1_ralplan_000001");
            let body = json!({"gate_id": "wg_1_ralplan_000001", "answer": {"decision": "approve"}}).to_string();
            let answer =
                routes::answer_request(axum::extract::State(state), request("POST", &path, &headers, &body)).await;
            let status = answer.status().as_u16();
            let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
            (status, serde_json::from_slice::<Value>(&body).unwrap())
        });
        let command = stage.next_line().await;
        assert_eq!(
            (&command["type"], &command["answer"]),
            (&json!("workflow_gate_response"), &json!({"decision": "approve"}))
        );
        let mut response = response;
        response["type"] = json!("response");
        response["id"] = command["id"].clone();
        stage.says(response).await;
        assert_eq!(answering.await.unwrap(), want);
    }
    let own = [("x-gjc-bridge-owner-token", owner.as_str())];
    for (body, want) in [
        (json!({"gate_id": "wg_1", "answer": 1}), "`gate_id` must be that of the path"),
        (json!({"gate_id": "wg_2"}), "`answer` is required"),
    ] {
        let (status, reply) = stage.post("ui-responses/wg_2", &own, &body).await;
        assert_eq!((status, &reply["message"]), (400, &json!(want)));
    }
}

#[tokio::test]
async fn a_key_stands_for_one_request() {
    let mut stage = BridgeFixture::open();
    let state = Arc::clone(&stage.state);
    let send = |body: Value, owner: &'static str| {
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            let headers = [KNOWN, ("idempotency-key", "k"), ("x-gjc-bridge-owner-token", owner)];
            let path = format!("/v1/sessions/{SESSION}/commands");
            let answer = routes::answer_request(
                axum::extract::State(state),
                request("POST", &path, &headers, &body.to_string()),
            )
            .await;
            let status = answer.status().as_u16();
            let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
            (status, serde_json::from_slice::<Value>(&body).unwrap())
        })
    };
    let prompt = json!({"type": "prompt", "message": "x"});
    let (one, other) = (send(prompt.clone(), "a"), send(prompt.clone(), "a"));
    let command = stage.next_line().await;
    stage.says(json!({"id": command["id"], "type": "response", "command": "prompt", "success": true})).await;
    let answer = (200, json!({"type": "response", "command": "prompt", "success": true}));
    assert_eq!((one.await.unwrap(), other.await.unwrap()), (answer.clone(), answer.clone()));
    assert_eq!(send(prompt.clone(), "a").await.unwrap(), answer);
    let conflict = (409, json!({"error": "idempotency_conflict"}));
    assert_eq!(send(json!({"type": "prompt", "message": "y"}), "a").await.unwrap(), conflict);
    let other = (403, json!({"status": "rejected", "code": "not_controller"}));
    assert_eq!(send(prompt, "b").await.unwrap(), other);
    assert!(stage.has_no_line(), "it was done once");
}
