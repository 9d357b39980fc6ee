use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use serde_json::{Value, json};

use super::{call, calling, done, failed, in_doubt};
use crate::{
    error::McpError,
    options::McpLimits,
    scripted_server::{ScriptedServer, Step, answer, text_result},
    server_activity::ServerActivity,
    tool_call::CallOutcome,
};

type Steps = fn(&Value) -> Vec<Step>;

fn limits() -> McpLimits {
    McpLimits { message: 10_000, text: 100, messages_per_second: 20, noise_lines: 3, ..McpLimits::default() }
}

fn raw(text: impl Into<Vec<u8>>) -> Step {
    Step::Write(text.into())
}

fn flood() -> String {
    let notice = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}});
    (notice.to_string() + "\n").repeat(50)
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_with_a_reason_whatever_the_server_sends() {
    let cases: [(&str, Steps, CallOutcome); 10] = [
        (
            "broken JSON",
            |_| vec![raw("{\"jsonrpc\": \"2.0\", \u{1b}\n")],
            in_doubt(r#"it sent a message that is not valid JSON: "{\"jsonrpc\": \"2.0\", \\u{1b}""#),
        ),
        (
            "not UTF-8",
            |_| vec![raw(b"{\"\xff\": 1}\n".to_vec())],
            in_doubt("it sent a message that is not valid JSON: \"{\\\"\u{fffd}\\\": 1}\""),
        ),
        (
            "wrong id",
            |_| vec![Step::Send(json!({"jsonrpc": "2.0", "id": 99, "result": {}}))],
            in_doubt("it answered a request that was never sent (id 99)"),
        ),
        (
            "id of another kind",
            |_| vec![Step::Send(json!({"jsonrpc": "2.0", "id": "x\n", "result": {}}))],
            in_doubt("it answered a request that was never sent (id x)"),
        ),
        ("flood", |_| vec![raw(flood())], in_doubt("it sent more than 20 messages in a second")),
        (
            "noise",
            |_| vec![raw("loading\n".repeat(5))],
            in_doubt(
                "it wrote more than 3 lines to its output that are no messages, such as \"loading\"; it wrote a line that is no message: \"loading\"",
            ),
        ),
        ("death", |_| vec![Step::End], in_doubt("it closed its output")),
        ("death in a line", |_| vec![raw("{\"jsonrpc\":"), Step::End], in_doubt("it closed its output")),
        (
            "a huge line that is no answer",
            |_| vec![raw("x".repeat(20_000))],
            in_doubt("it sent a message of more than 10000 bytes"),
        ),
        (
            "an answer of another form",
            |message| vec![Step::Send(json!({"jsonrpc": "2.0", "id": message["id"], "error": "no"}))],
            in_doubt("the answer has not the form of a JSON-RPC answer"),
        ),
    ];
    for (case, steps, want) in cases {
        let server = calling(steps);
        assert_eq!(call(&server.servers_with(limits())).await, want, "{case}");
    }
}

#[tokio::test]
async fn the_outcome_is_unknown_if_the_answer_cannot_be_read_and_the_connection_stays() {
    for unreadable in [
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"\ud800"}]}}"#,
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[]},"error":null}"#,
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[]},"error":{"code":-1,"message":"bad"}}"#,
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[]},"result":{"content":[]}}"#,
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[],"structuredContent":{"a":1e999}}}"#,
        r#"{"jsonrpc":"2.0","id":ID,"error":"no"}"#,
        r#"{"jsonrpc":"2.0","id":ID,"error":{"code":99999999999,"message":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":ID}"#,
        r#"{"jsonrpc":"1.0","id":ID,"result":{"content":[]}}"#,
        r#"{"id":ID,"result":{"content":[]}}"#,
    ] {
        let count = AtomicUsize::new(0);
        let server = calling(move |message| match count.fetch_add(1, Ordering::SeqCst) {
            0 => vec![raw(unreadable.replace("ID", &message["id"].to_string()) + "\n")],
            _ => vec![answer(message, text_result("opened"))],
        });
        let servers = server.servers();
        let want = in_doubt("the answer has not the form of a JSON-RPC answer");
        assert_eq!(call(&servers).await, want, "{unreadable}");
        assert_eq!((call(&servers).await, server.starts()), (done("opened"), 1), "{unreadable}");
    }
}

#[tokio::test]
async fn an_answer_that_is_too_large_fails_its_call_alone() {
    let count = AtomicUsize::new(0);
    let server = calling(move |message| {
        let length = if count.fetch_add(1, Ordering::SeqCst) == 0 { 20_000 } else { 8 };
        vec![answer(message, text_result(&"x".repeat(length)))]
    });
    let servers = server.servers_with(limits());
    assert_eq!(call(&servers).await, failed("the answer is larger than 10000 bytes (code -32603)"));
    assert_eq!(call(&servers).await, done("xxxxxxxx"));
    assert_eq!(server.starts(), 1);
}

#[tokio::test]
async fn a_few_lines_of_noise_and_a_long_text_are_tolerated() {
    let server =
        calling(|message| vec![raw("starting up\n[INFO] ready\n\n"), answer(message, text_result(&"x".repeat(150)))]);
    let CallOutcome::Done { content, .. } = call(&server.servers_with(limits())).await else { panic!() };
    let texts: Vec<&str> = content.iter().filter_map(|block| block.as_text()).collect();
    assert_eq!(texts, ["x".repeat(100).as_str(), "[cut: 50 more bytes of text]"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_died_is_started_again_after_pauses_that_double() {
    let server = calling(|_| vec![Step::End]);
    let servers = server.servers();
    let died = || in_doubt("it closed its output");
    for starts in 1..=3 {
        // The first pauses are short enough to be waited for.
        assert_eq!(call(&servers).await, died());
        assert_eq!(server.starts(), starts);
    }
    let CallOutcome::NotBegun { text } = call(&servers).await else { panic!() };
    assert!(text.starts_with("MCP server box is not running: it closed its output; the next start"), "{text}");
    assert_eq!(server.starts(), 3);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(call(&servers).await, died());
    assert_eq!(server.starts(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_start_is_reported_and_then_rests() {
    let server = ScriptedServer::new(|_| vec![Step::End]);
    let servers = server.servers();
    for _ in 0..3 {
        let reason = "it closed its output".to_owned();
        let want = McpError::Start { server: "box".to_owned(), reason };
        assert_eq!(servers.list_tools("box").await, Err(want));
    }
    let starts = server.starts();
    assert!(matches!(servers.list_tools("box").await, Err(McpError::Resting { .. })));
    assert_eq!(server.starts(), starts);
    assert!(matches!(call(&servers).await, CallOutcome::NotBegun { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_nothing_ends_at_the_limit_of_a_start() {
    let server = ScriptedServer::new(|_| Vec::new());
    let reason = "no answer to the handshake within 60 s".to_owned();
    let want = McpError::Start { server: "box".to_owned(), reason };
    assert_eq!(server.servers().list_tools("box").await, Err(want));
}

#[tokio::test(start_paused = true)]
async fn the_activity_of_a_server_is_seen_without_starting_it() {
    let server = calling(|_| vec![Step::End]);
    let servers = server.servers();
    assert_eq!(servers.activity("box"), Some(ServerActivity::Idle));
    assert_eq!((servers.activity("other"), server.starts()), (None, 0));
    let listing = servers.list_tools("box").await.unwrap();
    let connected = ServerActivity::Connected {
        protocol: "2025-06-18".to_owned(),
        program: Some("scripted 1".to_owned()),
        since: Duration::ZERO,
        listing: Some(listing),
    };
    assert_eq!(servers.activity("box"), Some(connected));
    for _ in 0..3 {
        call(&servers).await;
    }
    let failed = |retry_in| ServerActivity::Failed { reason: "it closed its output".to_owned(), retry_in };
    assert_eq!(servers.activity("box"), Some(failed(Duration::ZERO)), "nobody needed it since");
    call(&servers).await;
    assert!(matches!(servers.activity("box"), Some(ServerActivity::Failed { retry_in, .. }) if !retry_in.is_zero()));
    // A person who ends it need not wait for its pause.
    servers.disconnect("box").await;
    assert_eq!(servers.activity("box"), Some(ServerActivity::Idle));
    assert!(servers.list_tools("box").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_starts_is_busy() {
    let server = ScriptedServer::new(|_| Vec::new());
    let servers = server.servers();
    let listing = servers.list_tools("box");
    tokio::pin!(listing);
    tokio::select! {
        biased;
        _ = &mut listing => panic!("it answers nothing"),
        () = tokio::task::yield_now() => {}
    }
    assert_eq!(servers.activity("box"), Some(ServerActivity::Busy));
}

#[tokio::test]
async fn an_answer_that_is_no_result_of_a_tool_is_never_a_success() {
    for result in [
        json!({}),
        json!({"resultType": "complete"}),
        json!({"foo": 1}),
        json!({"_meta": {"a": 1}}),
        json!({"content": null}),
        json!({"resultType": "other", "content": [{"type": "text", "text": "x"}]}),
        json!({"resultType": "complete", "contnet": [{"type": "text", "text": "x"}], "is_error": true}),
        json!({"tools": []}),
        json!("opened"),
        json!(null),
    ] {
        let given = result.clone();
        let server = calling(move |message| vec![answer(message, given.clone())]);
        let outcome = call(&server.servers()).await;
        let is_success = matches!(outcome, CallOutcome::Done { .. } | CallOutcome::NotBegun { .. });
        assert!(!is_success, "{result}: {outcome:?}");
    }
}
