//! Streams of events: the frames for a client that reconnects.

use super::*;

#[tokio::test]
async fn a_returning_client_gets_the_missed_frames_or_a_notice_that_they_are_gone() {
    let stage = BridgeFixture::open();
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
    let stage = BridgeFixture::open();
    let path = format!("/v1/sessions/{SESSION}/events");
    let others = Arc::clone(&stage.state.streams).try_acquire_many_owned(u32::try_from(STREAMS - 1).unwrap()).unwrap();
    let held = stage.send(request("GET", &path, &[KNOWN], "")).await;
    assert_eq!(held.status(), 200);
    let none = (503, json!({"error": "events_unavailable"}));
    assert_eq!(stage.ask("GET", &path, &[KNOWN], "").await, none);
    drop(held);
    drop(others);
    drop(stage.send(request("GET", &path, &[KNOWN], "")).await);
    let conversation = stage.state.all_conversations().remove(0);
    drop(stage.frames);
    conversation.window.wait_until_over().await;
    let (state, _session) = (stage.state, stage.session);
    let answer = |method: &'static str, path: String, body: &'static str| {
        let state = Arc::clone(&state);
        async move { routes::answer_request(axum::extract::State(state), request(method, &path, &[KNOWN], body)).await }
    };
    assert_eq!(answer("GET", path, "").await.status(), 503);
    let path = format!("/v1/sessions/{SESSION}/commands");
    assert_eq!(answer("POST", path, r#"{"type":"abort"}"#).await.status(), 503);
}
