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
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (answer, noted): (Arc<Answer>, _) = (Arc::new(answer), Arc::clone(&seen));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&answer), Arc::clone(&noted)));
            }
        });
        Self { url, seen }
    }

    fn transport(&self, auth: Option<ClientCredentials>) -> ServerTransport {
        let headers = BTreeMap::from([("X-Key".to_owned(), "s3cret-value".into())]);
        ServerTransport::Http { url: format!("{}/mcp", self.url), headers, auth }
    }
}

async fn serve(stream: TcpStream, answer: Arc<Answer>, seen: Arc<Mutex<Vec<Request>>>) {
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
        let head =
            format!("HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
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
async fn a_failure_is_sorted_by_what_left_and_names_no_address() {
    for (case, status, body, want) in [
        ("status", 500, "no".to_owned(), "MCP server box: open failed: status 500"),
        ("gateway", 504, "no".to_owned(), "Outcome unknown: MCP server box got the call of open, but status 504"),
        (
            "too large",
            200,
            json!({"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "x".repeat(20_000)}]}})
                .to_string(),
            "MCP server box: open failed: the answer is larger than 10000 bytes",
        ),
    ] {
        let server = HttpServer::start(move |request| answer_mcp(request, |_| (status, body.clone()))).await;
        let mut options = options();
        options.limits.message = 10_000;
        let outcome = call(&servers(server.transport(None), options)).await;
        let (CallOutcome::Failed { text } | CallOutcome::InDoubt { text }) = outcome else {
            panic!("{case}: {outcome:?}")
        };
        assert_eq!(text, want, "{case}");
    }
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
async fn a_token_is_fetched_with_client_credentials_and_again_when_it_does_not_count_any_more() {
    let tokens = std::sync::atomic::AtomicUsize::new(0);
    let calls = std::sync::atomic::AtomicUsize::new(0);
    let server = HttpServer::start(move |request| {
        use std::sync::atomic::Ordering::SeqCst;
        if request.line.starts_with("POST /token") {
            assert_eq!(request.body, "grant_type=client_credentials&scope=doors");
            assert_eq!(request.headers["authorization"], "Basic Z2F0ZTpodXNoLWh1c2g=");
            let token = format!("token-{}", tokens.fetch_add(1, SeqCst));
            return (200, json!({"access_token": token, "expires_in": 3600, "token_type": "Bearer"}).to_string());
        }
        let is_revoked = request.headers["authorization"] == "Bearer token-0" && calls.load(SeqCst) > 0;
        answer_mcp(request, |message| {
            calls.fetch_add(1, SeqCst);
            if is_revoked { (401, String::new()) } else { opened(message) }
        })
    })
    .await;
    let auth = ClientCredentials {
        token_url: format!("{}/token", server.url),
        client_id: "gate".to_owned(),
        client_secret: "hush-hush".into(),
        scope: Some("doors".to_owned()),
    };
    let servers = servers(server.transport(Some(auth)), options());
    for _ in 0..2 {
        let outcome = call(&servers).await;
        assert!(is_done(&outcome), "{outcome:?}");
    }
    let seen = server.seen.lock().unwrap();
    let last = seen.iter().rev().find(|request| request.body.contains("tools/call")).unwrap();
    assert_eq!(last.headers["authorization"], "Bearer token-1");
}
