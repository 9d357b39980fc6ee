//! Over a real socket, with a server that does what real ones do only on bad days.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use countersign_models::{
    FailureKind, FinishReason, LanguageModel, ModelApi, ModelEvent, ModelFailure, ProviderClient,
};
use futures_util::StreamExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

use crate::{entry, request};

/// Reply on one connection: pieces that are written one by one, and its end.
pub(crate) struct HttpReply {
    pieces: Vec<String>,
    end: ReplyEnd,
}

enum ReplyEnd {
    Close,
    /// Keeps the connection until the other side closes it.
    Hang,
    /// Resets the connection.
    Cut,
}

/// A request as it was seen.
#[derive(Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) head: String,
    pub(crate) body: String,
}

pub(crate) struct ReplyServer {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
    gone: Arc<Notify>,
}

impl ReplyServer {
    pub(crate) async fn start(replies: Vec<HttpReply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (seen, gone) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
        let server = Self { url, seen: Arc::clone(&seen), gone: Arc::clone(&gone) };
        tokio::spawn(async move {
            for reply in replies {
                let (mut socket, _) = listener.accept().await.unwrap();
                let request = receive(&mut socket).await;
                seen.lock().unwrap().push(request);
                for piece in reply.pieces {
                    socket.write_all(piece.as_bytes()).await.unwrap();
                }
                match reply.end {
                    ReplyEnd::Close => {}
                    ReplyEnd::Hang => while socket.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {},
                    ReplyEnd::Cut => socket.set_zero_linger().unwrap(),
                }
                drop(socket);
                gone.notify_one();
            }
        });
        server
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.seen.lock().unwrap().clone()
    }
}

async fn receive(socket: &mut TcpStream) -> ReceivedRequest {
    let mut bytes = Vec::new();
    loop {
        let mut chunk = [0; 4096];
        let count = socket.read(&mut chunk).await.unwrap();
        bytes.extend_from_slice(&chunk[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
            if body.len() >= length.parse().unwrap() {
                return ReceivedRequest { head, body: body.to_owned() };
            }
        }
        assert!(count > 0, "the request ended early");
    }
}

pub(crate) fn reply(status: &str, form: &str, body: &str) -> HttpReply {
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-type: {form}\r\ncontent-length: {}\r\nconnection: close\r\n", body.len());
    HttpReply { pieces: vec![head, format!("\r\n{body}")], end: ReplyEnd::Close }
}

fn events(data: &[&str], end: ReplyEnd) -> HttpReply {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nconnection: close\r\n\r\n";
    let events = data.iter().map(|data| format!("data: {data}\n\n"));
    HttpReply { pieces: std::iter::once(head.to_owned()).chain(events).collect(), end }
}

const HI: &str = r#"{"id":"c1","choices":[{"delta":{"content":"Hi"}}]}"#;
const FIN: &str = r#"{"id":"c1","choices":[{"delta":{},"finish_reason":"stop"}]}"#;

async fn ask(server: &ReplyServer) -> Vec<Result<ModelEvent, ModelFailure>> {
    let request = request(entry(ModelApi::OpenaiCompletions, &format!("{}/v1/", server.url)));
    ProviderClient::default().stream(request).collect().await
}

fn failure(items: &[Result<ModelEvent, ModelFailure>]) -> &ModelFailure {
    items.last().unwrap().as_ref().unwrap_err()
}

#[tokio::test]
async fn an_answer_ends_with_its_end() {
    for (case, data, end) in [
        ("done", vec![HI, FIN, "[DONE]"], ReplyEnd::Close),
        ("no done", vec![HI, FIN], ReplyEnd::Close),
        ("a server that does not hang up", vec![HI, FIN, "[DONE]"], ReplyEnd::Hang),
        ("cut after it was whole", vec![HI, FIN], ReplyEnd::Cut),
    ] {
        let server = ReplyServer::start(vec![events(&data, end)]).await;
        let items = ask(&server).await;
        assert_eq!(items.last(), Some(&Ok(ModelEvent::Stop(FinishReason::Stop))), "{case}");
    }
}

#[tokio::test]
async fn a_stream_of_events_is_read_under_any_content_type() {
    for (form, begins) in [
        ("text/plain", ""),
        ("application/octet-stream", ": hello\n\n"),
        ("application/json; charset=utf-8", "\u{feff}event: message\n"),
        ("application/x-ndjson", "\r\nid: 1\n"),
        ("text/html", "retry: 10\n"),
    ] {
        let body = format!("{begins}data: {HI}\n\ndata: {FIN}\n\ndata: [DONE]\n\n");
        let mut whole = reply("200 OK", form, &body);
        // Its first bytes one by one.
        let pieces: Vec<String> = whole.pieces.remove(1).chars().map(String::from).collect();
        whole.pieces.extend(pieces);
        let items = ask(&ReplyServer::start(vec![whole]).await).await;
        assert_eq!(items.last(), Some(&Ok(ModelEvent::Stop(FinishReason::Stop))), "{form}: {items:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn silence_before_the_first_line_ends_under_any_content_type() {
    for begin in ["", "data", "\u{feff}"] {
        let server = ReplyServer::start(vec![plain_text(begin, ReplyEnd::Hang)]).await;
        let items = ask(&server).await;
        assert_eq!(failure(&items).kind, FailureKind::Silence, "{begin:?}: {items:?}");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_in_the_first_line_is_a_network_failure() {
    let server = ReplyServer::start(vec![plain_text("da", ReplyEnd::Cut)]).await;
    let items = ask(&server).await;
    assert_eq!(failure(&items).kind, FailureKind::Network, "{items:?}");
}

fn plain_text(begin: &str, end: ReplyEnd) -> HttpReply {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n";
    HttpReply { pieces: vec![format!("{head}{begin}")], end }
}

#[tokio::test]
async fn an_empty_error_next_to_content_is_none() {
    for error in ["null", "{}", r#""""#] {
        let hi = format!(r#"{{"id":"c1","error":{error},"choices":[{{"error":{error},"delta":{{"content":"Hi"}}}}]}}"#);
        let server = ReplyServer::start(vec![events(&[&hi, FIN, "[DONE]"], ReplyEnd::Close)]).await;
        let items = ask(&server).await;
        assert_eq!(items.last(), Some(&Ok(ModelEvent::Stop(FinishReason::Stop))), "{error}: {items:?}");
    }
    for error in ["true", "1", r#"{"code":500}"#, r#"[""]"#] {
        let hi = format!(r#"{{"id":"c1","error":{error},"choices":[{{"delta":{{"content":"Hi"}}}}]}}"#);
        let server = ReplyServer::start(vec![events(&[&hi, FIN, "[DONE]"], ReplyEnd::Close)]).await;
        assert!(ask(&server).await.last().unwrap().is_err(), "{error}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_a_failure() {
    for (case, data, end, kind, words) in [
        ("ended", vec![HI], ReplyEnd::Close, FailureKind::Broken, "stream ended before its end (terminated)"),
        ("empty", vec![], ReplyEnd::Close, FailureKind::Broken, "stream ended before its end (terminated)"),
        ("cut", vec![HI], ReplyEnd::Cut, FailureKind::Network, "connection error: the stream broke (terminated)"),
    ] {
        let server = ReplyServer::start(vec![events(&data, end)]).await;
        let items = ask(&server).await;
        let failure = failure(&items);
        assert_eq!(failure.kind, kind, "{case}");
        assert!(failure.message.starts_with(words), "{case}: {failure}");
        assert!(failure.kind.is_retryable(), "{case}");
    }
}

#[tokio::test]
async fn a_refusal_names_its_status_and_the_providers_words() {
    for (status, form, body, kind, words) in [
        (
            "429 Too Many",
            "application/json",
            r#"{"error":{"message":"slow down"}}"#,
            FailureKind::RateLimit,
            "429 rate limit: slow down",
        ),
        (
            "401 No",
            "application/json",
            r#"{"error":{"message":"bad key sk-very-secret"}}"#,
            FailureKind::Auth,
            "401 authentication failed: bad key [hidden]",
        ),
        ("502 Bad Gateway", "text/html", "<html>\u{1b}[2J", FailureKind::Server, "502 server error: <html>\\u{1b}[2J"),
        ("400 Bad", "text/plain", "", FailureKind::Overflow, "400 context too long: no body"),
        (
            "200 OK",
            "application/json",
            r#"{"error":{"message":"boom","type":"server_error"}}"#,
            FailureKind::Server,
            "server error: boom",
        ),
        (
            "200 OK",
            "text/html",
            "<h1>Hi</h1>",
            FailureKind::Refused,
            "expected a stream of events, got 200 with text/html: <h1>Hi</h1>",
        ),
        (
            "200 OK",
            "text/event-stream",
            "<h1>Hi</h1>",
            FailureKind::Refused,
            "expected a stream of events, got a body: <h1>Hi</h1>",
        ),
        (
            "200 OK",
            "text/event-stream",
            r#"{"error":{"message":"boom","type":"server_error"}}"#,
            FailureKind::Server,
            "server error: boom",
        ),
        (
            "200 OK",
            "application/json",
            "",
            FailureKind::Broken,
            "expected a stream of events, got 200 with application/json without content (terminated)",
        ),
    ] {
        let server = ReplyServer::start(vec![reply(status, form, body)]).await;
        let items = ask(&server).await;
        assert_eq!((failure(&items).kind, failure(&items).message.as_str()), (kind, words));
    }
}

#[tokio::test]
async fn a_wait_that_a_header_asks_for_is_passed_on() {
    let server =
        ReplyServer::start(vec![reply("429 Too Many\r\nretry-after-ms: 1500", "application/json", "{}")]).await;
    assert_eq!(failure(&ask(&server).await).retry_after, Some(Duration::from_millis(1500)));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = ReplyServer::start(vec![events(&[HI, FIN], ReplyEnd::Close)]).await;
    let status = format!("307 Elsewhere\r\nlocation: {}/v1/chat/completions", other.url);
    let server = ReplyServer::start(vec![reply(&status, "text/plain", "")]).await;
    let items = ask(&server).await;
    assert_eq!(failure(&items).message, "307 redirected to another address, which is not followed");
    assert_eq!(other.requests().len(), 0);
}

#[tokio::test]
async fn nobody_there_is_a_connection_error() {
    for scheme in ["http", "https"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("{scheme}://{}", listener.local_addr().unwrap());
        drop(listener);
        let items: Vec<_> =
            ProviderClient::default().stream(request(entry(ModelApi::AnthropicMessages, &base_url))).collect().await;
        assert_eq!(failure(&items).kind, FailureKind::Network);
        let message = &failure(&items).message;
        assert!(message.starts_with("connection error: ") && message.contains("refused"), "{message}");
    }
}

#[tokio::test]
async fn an_address_that_is_none_is_refused_without_a_request() {
    for base_url in ["", "not a url", "file:///etc/passwd", "http://"] {
        for api in [ModelApi::OpenaiCompletions, ModelApi::GoogleGenerativeAi] {
            let items: Vec<_> = ProviderClient::default().stream(request(entry(api, base_url))).collect().await;
            assert_eq!(failure(&items).kind, FailureKind::Refused, "{base_url:?}");
        }
    }
}

#[tokio::test]
async fn dropping_the_stream_closes_the_connection() {
    let server = ReplyServer::start(vec![events(&[HI], ReplyEnd::Hang)]).await;
    let mut stream = ProviderClient::default().stream(request(entry(ModelApi::OpenaiCompletions, &server.url)));
    while !matches!(stream.next().await, Some(Ok(ModelEvent::Delta { .. }))) {}
    drop(stream);
    tokio::time::timeout(Duration::from_secs(120), server.gone.notified()).await.expect("the connection is closed");
}

#[tokio::test]
async fn the_key_travels_in_the_header_of_the_wire_and_the_path_is_the_wires() {
    for (api, key, line, path) in [
        (ModelApi::OpenaiCompletions, "sk-very-secret", "authorization: bearer sk-very-secret", "/chat/completions "),
        (ModelApi::OpenaiResponses, "sk-very-secret", "authorization: bearer sk-very-secret", "/responses "),
        (ModelApi::AnthropicMessages, "sk-very-secret", "x-api-key: sk-very-secret", "/v1/messages "),
        (ModelApi::AnthropicMessages, "sk-ant-oat01-x", "authorization: bearer sk-ant-oat01-x", "/v1/messages "),
        (
            ModelApi::GoogleGenerativeAi,
            "sk-very-secret",
            "x-goog-api-key: sk-very-secret",
            "/models/small-1:streamgeneratecontent?alt=sse ",
        ),
    ] {
        let server = ReplyServer::start(vec![reply("400 Bad", "application/json", "{}")]).await;
        let mut entry = entry(api, &server.url);
        entry.headers = [("X-Tenant".to_owned(), "blue".to_owned())].into();
        let mut request = request(entry);
        request.key = Some(key.into());
        ProviderClient::default().stream(request).collect::<Vec<_>>().await;
        let head = server.requests()[0].head.clone();
        assert!(head.starts_with(&format!("post {path}")), "{head}");
        assert!(
            head.contains(line) && head.contains("x-tenant: blue") && head.contains("content-type: application/json"),
            "{head}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_nothing_times_out() {
    for data in [None, Some(vec![]), Some(vec![HI])] {
        let silent = HttpReply { pieces: vec![], end: ReplyEnd::Hang };
        let server = ReplyServer::start(vec![data.map_or(silent, |data| events(&data, ReplyEnd::Hang))]).await;
        let mut request = request(entry(ModelApi::OpenaiCompletions, &server.url));
        request.silence = Duration::from_secs(120);
        let items: Vec<_> = ProviderClient::default().stream(request).collect().await;
        assert_eq!(
            (failure(&items).kind, failure(&items).message.as_str()),
            (FailureKind::Silence, "timeout: no data for 120 s")
        );
    }
}

#[tokio::test]
async fn one_connection_serves_one_request_after_another() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let body = format!("data: {HI}\n\ndata: {FIN}\n\ndata: [DONE]\n\n");
    let chunked = format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        for _ in 0..2 {
            receive(&mut socket).await;
            socket.write_all(chunked.as_bytes()).await.unwrap();
        }
    });
    let providers = ProviderClient::default();
    for _ in 0..2 {
        let items: Vec<_> = providers.stream(request(entry(ModelApi::OpenaiCompletions, &base_url))).collect().await;
        assert_eq!(items.last(), Some(&Ok(ModelEvent::Stop(FinishReason::Stop))));
    }
}

const TOO_LARGE: &str = r#"{"error":{"message":"This model's maximum context length is 8192 tokens. However, you requested 8200 tokens (8 in the messages, 8192 in the completion).","code":"context_length_exceeded"}}"#;

/// Returns the cap of each request.
fn caps(server: &ReplyServer) -> Vec<u64> {
    let body = |seen: ReceivedRequest| serde_json::from_str::<serde_json::Value>(&seen.body).unwrap();
    server.requests().into_iter().map(|seen| body(seen)["max_tokens"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn a_cap_that_is_too_large_is_lowered_once() {
    let refusal = || reply("400 Bad", "application/json", TOO_LARGE);
    let server = ReplyServer::start(vec![refusal(), events(&[HI, FIN], ReplyEnd::Close)]).await;
    assert_eq!(ask(&server).await.last(), Some(&Ok(ModelEvent::Stop(FinishReason::Stop))));
    assert_eq!(caps(&server), [8192, 8184]);

    let server = ReplyServer::start(vec![refusal(), refusal(), refusal()]).await;
    assert_eq!(failure(&ask(&server).await).kind, FailureKind::Overflow);
    assert_eq!(caps(&server), [8192, 8184]);

    let other = reply("400 Bad", "application/json", r#"{"error":{"message":"tools.0: bad"}}"#);
    let server = ReplyServer::start(vec![other, refusal()]).await;
    assert_eq!(failure(&ask(&server).await).kind, FailureKind::Refused);
    assert_eq!(caps(&server), [8192]);
}
