use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use countersign_mcp_client::{CallOutcome, ClientCredentials, McpServers, ProgressSink, ServerTransport};
use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::CancellationToken;

use super::{options, servers};

/// A request as a server gets it.
#[derive(Clone, Debug)]
struct Request {
    line: String,
    headers: BTreeMap<String, String>,
    body: String,
}

type Answer = dyn Fn(&Request) -> (u16, String) + Send + Sync;

/// A server over HTTP on a free port, with all requests that it got.
struct HttpServer {
    url: String,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl HttpServer {
    async fn start(answer: impl Fn(&Request) -> (u16, String) + Send + Sync + 'static) -> Self {
        Self::start_with_head("", answer).await
    }

    /// The same, with a session.
    async fn start_with_session(answer: impl Fn(&Request) -> (u16, String) + Send + Sync + 'static) -> Self {
        Self::start_with_head("mcp-session-id: S1\r\n", answer).await
    }

    async fn start_with_head(
        head: &'static str,
        answer: impl Fn(&Request) -> (u16, String) + Send + Sync + 'static,
    ) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (answer, noted): (Arc<Answer>, _) = (Arc::new(answer), Arc::clone(&seen));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, head, Arc::clone(&answer), Arc::clone(&noted)));
            }
        });
        Self { url, seen }
    }

    fn transport(&self, auth: Option<ClientCredentials>) -> ServerTransport {
        let headers = BTreeMap::from([("X-Key".to_owned(), "s3cret-value".into())]);
        ServerTransport::Http { url: format!("{}/mcp", self.url), headers, auth }
    }
}

async fn serve(stream: TcpStream, extra: &'static str, answer: Arc<Answer>, seen: Arc<Mutex<Vec<Request>>>) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
            return;
        }
        let mut headers = BTreeMap::new();
        loop {
            let mut header = String::new();
            stream.read_line(&mut header).await.unwrap();
            let Some((name, value)) = header.trim_end().split_once(": ") else { break };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        let request = Request { line, headers, body: String::from_utf8(body).unwrap() };
        seen.lock().unwrap().push(request.clone());
        let (status, body) = answer(&request);
        let head = format!(
            "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\n{extra}content-length: {}\r\n\r\n",
            body.len()
        );
        if stream.write_all((head + &body).as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Answers a message of MCP of 2025, and calls by `on_call`.
fn answer_mcp(request: &Request, on_call: impl Fn(&Value) -> (u16, String)) -> (u16, String) {
    if !request.line.starts_with("POST") {
        return (405, String::new());
    }
    let message: Value = serde_json::from_str(&request.body).unwrap();
    let result = match message["method"].as_str().unwrap_or_default() {
        "server/discover" => {
            let error = json!({"code": -32601, "message": "unknown method"});
            return (200, json!({"jsonrpc": "2.0", "id": message["id"], "error": error}).to_string());
        }
        "initialize" => {
            let info = json!({"name": "web", "version": "1"});
            json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info})
        }
        "tools/call" => return on_call(&message),
        _ => return (202, String::new()),
    };
    (200, json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string())
}

fn opened(message: &Value) -> (u16, String) {
    let result = json!({"content": [{"type": "text", "text": "opened"}]});
    (200, json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string())
}

async fn call(servers: &McpServers) -> CallOutcome {
    servers.call_tool("box", "open", Map::new(), CancellationToken::new(), ProgressSink::default()).await
}

fn is_done(outcome: &CallOutcome) -> bool {
    matches!(outcome, CallOutcome::Done { content, .. } if content[0].as_text() == Some("opened"))
}

#[tokio::test]
async fn a_server_over_http_gets_its_headers_with_every_request() {
    let server = HttpServer::start(|request| answer_mcp(request, opened)).await;
    let servers = servers(server.transport(None), options());
    let outcome = call(&servers).await;
    assert!(is_done(&outcome), "{outcome:?}");
    let seen = server.seen.lock().unwrap();
    assert!(seen.len() >= 4 && seen.iter().all(|request| request.headers["x-key"] == "s3cret-value"));
}

#[tokio::test]
async fn a_server_that_does_not_know_discovery_is_initialized_whatever_it_answers() {
    for (status, body) in [
        (200, json!({"jsonrpc": "2.0", "id": 0, "result": {}}).to_string()),
        (200, json!({"jsonrpc": "2.0", "id": 0, "result": {"tools": []}}).to_string()),
        (400, "Bad Request: no valid session".to_owned()),
        (404, String::new()),
        (500, "<html>Internal Server Error</html>".to_owned()),
    ] {
        let answer = body.clone();
        let server = HttpServer::start(move |request| {
            if !request.body.contains("server/discover") {
                return answer_mcp(request, opened);
            }
            let message: Value = serde_json::from_str(&request.body).unwrap();
            (status, answer.replace("\"id\":0", &format!("\"id\":{}", message["id"])))
        })
        .await;
        let outcome = call(&servers(server.transport(None), options())).await;
        assert!(is_done(&outcome), "{status} {body}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_json_body_that_wants_input_in_an_unknown_mode_fails_the_call() {
    for (mode, want) in [
        (
            "foo",
            "MCP server box: open failed: the server asks in a form that is not accepted: mode is \"foo\", expected \"form\" or \"url\" (code -32603)",
        ),
        (
            "form",
            "Outcome unknown: MCP server box got the call of open, but the call was not finished: the server wants input from a person, and no approver can be asked here",
        ),
    ] {
        let params = json!({"mode": mode, "message": "Who?", "requestedSchema": {"type": "object", "properties": {}}});
        let input = json!({"who": {"method": "elicitation/create", "params": params}});
        let result = json!({"resultType": "input_required", "inputRequests": input, "requestState": "s"});
        let server = HttpServer::start(move |request| {
            answer_mcp(request, |message| {
                (200, json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string())
            })
        })
        .await;
        let outcome = call(&servers(server.transport(None), options())).await;
        let (CallOutcome::Failed { text } | CallOutcome::InDoubt { text }) = outcome else {
            panic!("{mode}: {outcome:?}")
        };
        assert_eq!(text, want, "{mode}");
        assert_eq!(calls(&server), 1, "{mode}");
    }
}

fn auth(server: &HttpServer) -> ClientCredentials {
    ClientCredentials {
        token_url: format!("{}/token", server.url),
        client_id: "gate".to_owned(),
        client_secret: "hush-hush".into(),
        scope: Some("doors".to_owned()),
    }
}

/// Answers a request for a token, or another one by `answer`.
fn with_token(request: &Request, answer: impl Fn(&Request) -> (u16, String)) -> (u16, String) {
    if request.line.starts_with("POST /token") {
        return (200, json!({"access_token": "token-0", "expires_in": 3600, "token_type": "Bearer"}).to_string());
    }
    answer(request)
}

#[tokio::test]
async fn a_failure_is_sorted_by_what_the_server_may_have_done_and_names_no_address() {
    let large =
        json!({"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "x".repeat(20_000)}]}});
    let refused = |why: &str| format!("MCP server box: open failed: {why}");
    let in_doubt = |why: &str| format!("Outcome unknown: MCP server box got the call of open, but {why}");
    for (status, body, want) in [
        (400, "no", refused("status 400")),
        (403, "no", refused("status 403")),
        (404, "no", refused("status 404")),
        (429, "no", refused("status 429")),
        (408, "no", in_doubt("status 408")),
        (500, "no", in_doubt("status 500")),
        (502, "no", in_doubt("status 502")),
        (503, "no", in_doubt("status 503")),
        (504, "no", in_doubt("status 504")),
        (520, "no", in_doubt("status 520")),
        (524, "no", in_doubt("status 524")),
        (200, &large.to_string(), refused("the answer is larger than 10000 bytes")),
    ] {
        let answer = body.to_owned();
        let server = HttpServer::start(move |request| {
            with_token(request, |request| answer_mcp(request, |_| (status, answer.clone())))
        })
        .await;
        for auth in [None, Some(auth(&server))] {
            let mut options = options();
            options.limits.message = 10_000;
            let outcome = call(&servers(server.transport(auth), options)).await;
            let (CallOutcome::Failed { text } | CallOutcome::InDoubt { text }) = outcome else {
                panic!("{status}: {outcome:?}")
            };
            assert_eq!(text, want, "{status}");
        }
        assert_eq!(calls(&server), 2, "{status}: sent once each");
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_leaves_the_outcome_in_doubt() {
    for body in ["", "{", "<html>", "[]", r#"{"jsonrpc":"2.0"}"#] {
        let server = HttpServer::start(move |request| answer_mcp(request, |_| (200, body.to_owned()))).await;
        let outcome = call(&servers(server.transport(None), options())).await;
        assert!(matches!(outcome, CallOutcome::InDoubt { .. }), "{body:?}: {outcome:?}");
        assert_eq!(calls(&server), 1, "{body:?}");
    }
}

/// Number of calls that a server got.
fn calls(server: &HttpServer) -> usize {
    server.seen.lock().unwrap().iter().filter(|request| request.body.contains("tools/call")).count()
}

#[tokio::test]
async fn nothing_is_sent_to_an_address_without_a_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp?key=s3cret-value", listener.local_addr().unwrap());
    drop(listener);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let transport = ServerTransport::Http { url, headers: BTreeMap::new(), auth: None };
    let want = "cannot start MCP server box: cannot connect: Connection refused (os error 111)";
    assert_eq!(call(&servers(transport, options())).await, CallOutcome::NotBegun { text: want.to_owned() });
}

#[tokio::test]
async fn a_call_whose_token_was_refused_is_not_repeated_and_the_next_one_gets_a_new_token() {
    let tokens = std::sync::atomic::AtomicUsize::new(0);
    let calls_made = std::sync::atomic::AtomicUsize::new(0);
    let server = HttpServer::start(move |request| {
        use std::sync::atomic::Ordering::SeqCst;
        if request.line.starts_with("POST /token") {
            assert_eq!(request.body, "grant_type=client_credentials&scope=doors");
            assert_eq!(request.headers["authorization"], "Basic Z2F0ZTpodXNoLWh1c2g=");
            let token = format!("token-{}", tokens.fetch_add(1, SeqCst));
            return (200, json!({"access_token": token, "expires_in": 3600, "token_type": "Bearer"}).to_string());
        }
        let is_revoked = request.headers["authorization"] == "Bearer token-0" && calls_made.load(SeqCst) > 0;
        answer_mcp(request, |message| {
            calls_made.fetch_add(1, SeqCst);
            if is_revoked { (401, String::new()) } else { opened(message) }
        })
    })
    .await;
    let servers = servers(server.transport(Some(auth(&server))), options());
    let first = call(&servers).await;
    assert!(is_done(&first), "{first:?}");
    let why = "it did not accept the token (status 401); the next request uses a new one";
    assert_eq!(call(&servers).await, CallOutcome::Failed { text: format!("MCP server box: open failed: {why}") });
    assert_eq!(calls(&server), 2);
    let third = call(&servers).await;
    assert!(is_done(&third), "{third:?}");
    let seen = server.seen.lock().unwrap();
    let last = seen.iter().rev().find(|request| request.body.contains("tools/call")).unwrap();
    assert_eq!(last.headers["authorization"], "Bearer token-1");
}

#[tokio::test]
async fn a_call_that_a_restarted_server_refuses_is_refused_and_the_next_one_opens_a_session() {
    let refused = std::sync::atomic::AtomicBool::new(false);
    let server = HttpServer::start_with_session(move |request| {
        answer_mcp(request, |message| {
            use std::sync::atomic::Ordering::SeqCst;
            if refused.swap(true, SeqCst) { opened(message) } else { (404, "unknown session".to_owned()) }
        })
    })
    .await;
    let servers = servers(server.transport(None), options());
    let why = "its session expired (status 404); the next request opens another";
    assert_eq!(call(&servers).await, CallOutcome::Failed { text: format!("MCP server box: open failed: {why}") });
    let next = call(&servers).await;
    assert!(is_done(&next), "{next:?}");
    assert_eq!(calls(&server), 2);
}
