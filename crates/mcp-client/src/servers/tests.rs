mod bad_servers;
mod input;
mod lists;
mod withdrawn;

use std::time::Duration;

use countersign_core::message::MessageBlock;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::McpServers;
use crate::{
    connection_monitor::ProgressSink,
    error::McpError,
    scripted_server::{ScriptedServer, Step, answer, error, method, text_result, tool},
    tool_call::CallOutcome,
};

async fn call(servers: &McpServers) -> CallOutcome {
    servers.call_tool("box", "open", Map::new(), CancellationToken::new(), ProgressSink::default()).await
}

fn done(text: &str) -> CallOutcome {
    CallOutcome::Done { content: vec![MessageBlock::from_text(text)], is_error: false, structured: None }
}

fn failed(text: &str) -> CallOutcome {
    CallOutcome::Failed { text: format!("MCP server box: open failed: {text}") }
}

fn not_begun(text: &str) -> CallOutcome {
    CallOutcome::NotBegun { text: text.to_owned() }
}

fn in_doubt(text: &str) -> CallOutcome {
    CallOutcome::InDoubt { text: format!("Outcome unknown: MCP server box got the call of open, but {text}") }
}

/// A server that answers calls by `script` and nothing else.
fn calling(script: impl Fn(&Value) -> Vec<Step> + Send + Sync + 'static) -> ScriptedServer {
    ScriptedServer::older(json!([tool("open")]), move |message| match method(message) {
        "tools/call" => script(message),
        _ => Vec::new(),
    })
}

#[tokio::test]
async fn both_generations_of_the_protocol_are_spoken() {
    let on_call = |message: &Value| match method(message) {
        "tools/call" => vec![answer(message, text_result("opened"))],
        _ => Vec::new(),
    };
    for (server, want) in [
        (
            ScriptedServer::older(json!([tool("open")]), on_call),
            vec!["server/discover", "initialize", "notifications/initialized", "tools/list", "tools/call"],
        ),
        (ScriptedServer::newer(json!([tool("open")]), on_call), vec!["server/discover", "tools/list", "tools/call"]),
    ] {
        let servers = server.servers();
        assert_eq!(server.starts(), 0);
        let listing = servers.list_tools("box").await.unwrap();
        assert_eq!(listing.tools[0].offered_name, "mcp__box__open");
        assert_eq!(call(&servers).await, done("opened"));
        assert_eq!(server.seen_methods(), want);
        assert_eq!(server.starts(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ignores_discovery_gets_the_handshake_and_its_late_answer_does_no_harm() {
    let server = ScriptedServer::new(|message| match method(message) {
        "initialize" => vec![
            Step::Send(json!({"jsonrpc": "2.0", "id": 0, "error": {"code": -32601, "message": "late"}})),
            answer(
                message,
                json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}),
            ),
        ],
        "tools/call" => vec![answer(message, text_result("opened"))],
        _ => Vec::new(),
    });
    assert_eq!(call(&server.servers()).await, done("opened"));
}

#[tokio::test]
async fn a_server_that_ends_at_discovery_is_started_again_for_the_handshake() {
    let older = ScriptedServer::older(json!([]), |message| vec![answer(message, text_result("opened"))]);
    let script = ScriptedServer::new(move |message| match method(message) {
        "server/discover" => vec![Step::End],
        "notifications/initialized" => Vec::new(),
        _ => older.steps(message),
    });
    assert_eq!(call(&script.servers()).await, done("opened"));
    assert_eq!(script.starts(), 2);
}

#[tokio::test]
async fn a_version_that_is_not_spoken_is_refused() {
    let server = ScriptedServer::new(|message| match method(message) {
        "server/discover" => vec![error(message, -32601, "unknown")],
        _ => vec![answer(
            message,
            json!({"protocolVersion": "2024-11-05", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}),
        )],
    });
    let reason = "it speaks version 2024-11-05 of the protocol, but 2025-06-18 to 2026-07-28 are supported";
    let want = McpError::Start { server: "box".to_owned(), reason: reason.to_owned() };
    assert_eq!(server.servers().list_tools("box").await, Err(want));
}

#[tokio::test]
async fn a_call_ends_as_the_server_says() {
    for (case, steps, want) in [
        ("text", answer as fn(&Value, Value) -> Step, done("opened")),
        ("error", |message, _| error(message, -32602, "no such\ndoor"), failed("no such\\u{a}door (code -32602)")),
        (
            "error of the tool",
            |message, _| answer(message, json!({"content": [], "isError": true})),
            CallOutcome::Done { content: vec![], is_error: true, structured: None },
        ),
        (
            "structured",
            |message, _| answer(message, json!({"structuredContent": {"open": true}})),
            CallOutcome::Done {
                content: vec![MessageBlock::from_text("{\"open\":true}")],
                is_error: false,
                structured: Some(json!({"open": true})),
            },
        ),
        (
            "structured null",
            |message, _| answer(message, json!({"structuredContent": null})),
            CallOutcome::Done { content: vec![], is_error: false, structured: None },
        ),
        (
            "structured null of an error",
            |message, _| answer(message, json!({"structuredContent": null, "isError": true})),
            CallOutcome::Done { content: vec![], is_error: true, structured: None },
        ),
        (
            "nothing",
            |message, _| answer(message, json!({})),
            failed("the answer is no result of a tool: it has neither content nor structuredContent"),
        ),
        (
            "empty",
            |message, _| answer(message, json!({"content": []})),
            CallOutcome::Done { content: vec![], is_error: false, structured: None },
        ),
        (
            "another form",
            |message, _| answer(message, json!({"doors": 1})),
            failed("the answer is no result of a tool"),
        ),
        (
            "input",
            |message, _| {
                answer(message, json!({"resultType": "input_required", "inputRequests": {}, "requestState": "x"}))
            },
            in_doubt("the call was not finished: the server wanted input more than 8 times"),
        ),
    ] as [(&str, fn(&Value, Value) -> Step, CallOutcome); 10]
    {
        let server = calling(move |message| vec![steps(message, text_result("opened"))]);
        assert_eq!(call(&server.servers()).await, want, "{case}");
    }
}

#[tokio::test]
async fn a_server_gets_nothing_that_it_requests() {
    let request = |id: u32, method: &str, params: Value| {
        Step::Send(json!({"jsonrpc": "2.0", "id": format!("s{id}"), "method": method, "params": params}))
    };
    let answers = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let call_id = std::sync::Arc::new(std::sync::Mutex::new(Value::Null));
    let server = ScriptedServer::older(json!([tool("open")]), move |message| match method(message) {
        "tools/call" => {
            *call_id.lock().unwrap() = message.clone();
            let sampling =
                json!({"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 9});
            let form = json!({"message": "Password?", "requestedSchema": {"type": "object", "properties": {}}});
            vec![
                request(1, "sampling/createMessage", sampling),
                request(2, "elicitation/create", form),
                request(3, "roots/list", json!({})),
            ]
        }
        "answer" if answers.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 2 => {
            vec![answer(&call_id.lock().unwrap(), text_result("opened"))]
        }
        _ => Vec::new(),
    });
    assert_eq!(call(&server.servers()).await, done("opened"));
    let mut answers = server.seen_answers();
    answers.sort_by_key(|answer| answer["id"].to_string());
    let text = "sampling is refused: this client gives servers no access to its models";
    assert_eq!(answers[0]["error"]["message"], text);
    assert_eq!(answers[1]["result"], json!({"action": "cancel"}));
    assert_eq!(answers[2]["result"], json!({"roots": []}));
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_ends_at_its_limit_and_the_server_hears_of_it() {
    let server = calling(|_| Vec::new());
    let servers = server.servers();
    assert_eq!(call(&servers).await, in_doubt("no answer within 300 s"));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(server.seen_methods().last().unwrap(), "notifications/cancelled");
    assert_eq!(server.starts(), 1);
}

#[tokio::test]
async fn a_cancelled_call_is_in_doubt_once_it_was_sent() {
    let cancel = CancellationToken::new();
    let server = calling({
        let cancel = cancel.clone();
        move |_| {
            cancel.cancel();
            Vec::new()
        }
    });
    let servers = server.servers();
    let outcome = servers.call_tool("box", "open", Map::new(), cancel.clone(), ProgressSink::default()).await;
    assert_eq!(outcome, in_doubt("the call was cancelled"));
    let outcome = servers.call_tool("box", "open", Map::new(), cancel, ProgressSink::default()).await;
    assert_eq!(outcome, not_begun("MCP server box: open was not called: the call was cancelled"));
}

#[tokio::test]
async fn an_unknown_server_is_named() {
    let servers = calling(|_| Vec::new()).servers();
    let outcome = servers.call_tool("bin", "open", Map::new(), CancellationToken::new(), ProgressSink::default()).await;
    assert_eq!(outcome, not_begun("MCP server not configured: bin"));
}

#[tokio::test]
async fn closing_ends_a_connection_and_the_next_call_opens_another() {
    let server = calling(|message| vec![answer(message, text_result("opened"))]);
    let servers = server.servers();
    assert_eq!(call(&servers).await, done("opened"));
    servers.close().await;
    assert_eq!(call(&servers).await, done("opened"));
    assert_eq!(server.starts(), 2);
}
