use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, to_bytes},
    extract::{Request, State},
    http::Method,
    response::Response,
};
use countersign_core::id::PrincipalId;
use countersign_http::web::{AuthMethod, HttpCaller, TokenScope};
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use super::{McpRoute, SESSION, serve_request};
use crate::{http_sessions::HttpSessions, test_fixture::Fixture};

/// Client of the route with a token.
struct Client {
    route: Arc<McpRoute>,
    session: Option<String>,
}

impl Client {
    fn new(fixture: &Fixture) -> Self {
        let sessions = HttpSessions::new(Duration::from_secs(60));
        Self { route: Arc::new(McpRoute::new(&fixture.adapter, sessions)), session: None }
    }

    /// Begins a session.
    async fn initialize(&self) -> Self {
        let client = json!({ "name": "test", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        let reply = self.post(json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello })).await;
        let session = reply.headers()[SESSION].to_str().unwrap().to_owned();
        let client = Self { route: Arc::clone(&self.route), session: Some(session) };
        let initialized = client.post(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        assert_eq!(initialized.status(), 202);
        client
    }

    async fn post(&self, message: Value) -> Response {
        let mut request = Request::builder()
            .method(Method::POST)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .extension(caller());
        if let Some(session) = &self.session {
            request = request.header(SESSION, session).header("mcp-protocol-version", "2025-11-25");
        } else if message["params"]["_meta"].is_object() {
            request = request.header("mcp-protocol-version", "2026-07-28").header("mcp-method", "tools/call");
            request = request.header("mcp-name", "request_approval");
        }
        let request = request.body(Body::from(message.to_string())).unwrap();
        serve_request(State(Arc::clone(&self.route)), request).await
    }

    /// Ends the session.
    async fn delete(&self) -> Response {
        let request = Request::builder().method(Method::DELETE).header("host", "localhost").extension(caller());
        let request = request.header(SESSION, self.session.as_deref().unwrap());
        let request = request.header("mcp-protocol-version", "2025-11-25").body(Body::empty()).unwrap();
        serve_request(State(Arc::clone(&self.route)), request).await
    }
}

/// Returns the client that the guard of the route has found.
fn caller() -> HttpCaller {
    HttpCaller {
        principal: PrincipalId::new("token:ci"),
        name: "ci".to_owned(),
        via: AuthMethod::Token { scopes: vec![TokenScope::Call] },
    }
}

fn ask(id: u32, action: &str, meta: &Value) -> Value {
    let mut params = json!({ "name": "request_approval", "arguments": { "action": action } });
    if !meta.is_null() {
        params["_meta"] = meta.clone();
    }
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}

async fn text(response: Response) -> String {
    String::from_utf8(to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec()).unwrap()
}

async fn wait_gates(fixture: &Fixture, count: usize) {
    while fixture.pending_gates().await.len() < count {
        tokio::task::yield_now().await;
    }
}

async fn assert_used(response: Response) {
    let status = response.status();
    let fault: Value = serde_json::from_str(&text(response).await).unwrap();
    let error = json!({ "code": -32600, "message": "the id is the id of another open request" });
    assert_eq!((status.as_u16(), fault), (400, json!({ "jsonrpc": "2.0", "error": error })));
}

#[tokio::test]
async fn a_reply_reaches_the_call_that_it_answers_and_no_other_with_its_id() {
    let fixture = Fixture::open().await;
    let client = Client::new(&fixture).initialize().await;
    let first = client.post(ask(7, "list files", &Value::Null)).await;
    wait_gates(&fixture, 1).await;
    assert_used(client.post(ask(7, "drop the database", &Value::Null)).await).await;
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 8 } });
    assert_eq!(client.post(cancel).await.status(), 202, "of no request");
    fixture.allow(fixture.pending_gates().await[0]).await;
    assert!(text(first).await.contains(r#""decision":"allow""#));
    let ping = json!({ "jsonrpc": "2.0", "id": 7, "method": "ping" });
    assert!(text(client.post(ping).await).await.contains(r#""id":7,"result":{}"#), "its id is free after the reply");
    assert!(fixture.pending_gates().await.is_empty());
}

#[tokio::test]
async fn an_id_is_free_after_a_lost_connection_and_stays_used_after_a_cancellation() {
    let fixture = Fixture::open().await;
    let client = Client::new(&fixture).initialize().await;
    drop(client.post(ask(1, "lost", &Value::Null)).await);
    let cancelled = client.post(ask(2, "cancelled", &Value::Null)).await;
    wait_gates(&fixture, 2).await;
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 2 } });
    assert_eq!(client.post(cancel).await.status(), 202);
    assert_eq!(text(cancelled).await, "");
    assert_used(client.post(ask(2, "drop the database", &Value::Null)).await).await;
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    while client.post(ping.clone()).await.status() != 200 {
        tokio::task::yield_now().await;
    }
    // The same calls with new ids get the decisions.
    let repeated =
        [client.post(ask(3, "lost", &Value::Null)).await, client.post(ask(4, "cancelled", &Value::Null)).await];
    for gate in fixture.pending_gates().await {
        fixture.allow(gate).await;
    }
    for reply in repeated {
        let decision = text(reply).await;
        assert!(decision.contains(r#""decision""#), "{decision}");
    }
}

#[tokio::test]
async fn the_close_answers_every_call_that_waits() {
    let fixture = Fixture::open().await;
    let client = Arc::new(Client::new(&fixture));
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {}
    });
    let mut waiting = Vec::new();
    for number in 0..5 {
        let session = client.initialize().await;
        let action = format!("a{number}");
        waiting.push(tokio::spawn(async move { session.post(ask(9, &action, &Value::Null)).await }));
        let (client, meta, action) = (Arc::clone(&client), meta.clone(), format!("b{number}"));
        waiting.push(tokio::spawn(async move { client.post(ask(9, &action, &meta)).await }));
    }
    let session = client.initialize().await;
    wait_gates(&fixture, 10).await;
    fixture.adapter.close();
    for reply in waiting {
        let reply = reply.await.unwrap();
        assert_eq!(reply.status(), 200);
        let reply = text(reply).await;
        assert!(reply.contains(r#""error":{"code":-32603"#) && reply.contains(r#""id":9"#), "{reply}");
    }
    fixture.adapter.http_end.cancelled().await;
    let late = session.post(ask(10, "late", &Value::Null)).await;
    assert_eq!(late.status(), 503);
    assert!(text(late).await.contains("-32603"));
    assert_eq!(fixture.pending_gates().await.len(), 10, "the requests stay pending");
}

#[tokio::test]
async fn a_stream_without_requests_ends_with_the_gateway() {
    let fixture = Fixture::open().await;
    let client = Client::new(&fixture).initialize().await;
    let request = Request::builder().header("host", "localhost").header("accept", "text/event-stream");
    let request = request.header(SESSION, client.session.as_deref().unwrap()).extension(caller());
    let stream = serve_request(State(Arc::clone(&client.route)), request.body(Body::empty()).unwrap()).await;
    assert_eq!(stream.status(), 200);
    fixture.adapter.close();
    assert!(stream.into_body().into_data_stream().next().await.is_none());
}

#[tokio::test]
async fn a_call_whose_session_ends_gets_the_reason_and_its_outcome_in_the_next_one() {
    let fixture = Fixture::open().await;
    let client = Client::new(&fixture);
    let session = client.initialize().await;
    let waiting =
        [session.post(ask(1, "by itself", &Value::Null)).await, session.post(ask(2, "cancelled", &Value::Null)).await];
    wait_gates(&fixture, 2).await;
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 2 } });
    assert_eq!(session.post(cancel).await.status(), 202);
    client.route.sessions.end_unauthorized(session.session.as_deref().unwrap()).await;
    let [ended, cancelled] = waiting;
    assert_eq!(ended.status(), 200);
    let ended = text(ended).await;
    for part in [r#""error":{"code":-32603"#, r#""id":1"#, "its token was removed or has expired"] {
        assert!(ended.contains(part), "{ended}");
    }
    assert_eq!(text(cancelled).await, "");
    assert_eq!(session.post(ask(3, "late", &Value::Null)).await.status(), 404);
    assert_eq!(fixture.pending_gates().await.len(), 2, "the requests stay pending");

    let again = client.initialize().await.post(ask(1, "by itself", &Value::Null)).await;
    for gate in fixture.pending_gates().await {
        fixture.allow(gate).await;
    }
    let decision = text(again).await;
    assert!(decision.contains(r#""decision":"allow""#), "{decision}");
}

#[tokio::test]
async fn a_decision_whose_client_has_gone_goes_to_the_same_call_repeated() {
    for (case, is_closed, is_ended) in
        [("connection closed", true, false), ("session ended", false, true), ("both", true, true)]
    {
        let fixture = Fixture::open().await;
        let client = Client::new(&fixture);
        let session = client.initialize().await;
        let mut waiting = Some(session.post(ask(1, "deploy", &Value::Null)).await);
        wait_gates(&fixture, 1).await;
        let gate = fixture.pending_gates().await[0];
        if is_closed {
            waiting = None;
        }
        if is_ended {
            assert!(session.delete().await.status().is_success(), "{case}");
        }
        fixture.allow(gate).await;
        let again = client.initialize().await.post(ask(1, "deploy", &Value::Null)).await;
        tokio::select! {
            decision = text(again) => {
                let has_gate = decision.contains(&gate.to_string());
                assert!(has_gate && decision.contains(r#""decision":"allow""#), "{case}: {decision}");
            }
            () = wait_gates(&fixture, 1) => panic!("{case}: the decision is lost, and the call waits for another one"),
        }
        drop(waiting);
    }
}
