use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use countersign_runtime::tools::{GatewaySecrets, secrets::Redactor};
use rmcp::model::{ClientJsonRpcMessage, NumberOrString, ProgressToken, ServerJsonRpcMessage};
use serde_json::{Value, json};

use super::{ConnectionMonitor, ProgressSink, ToolProgress};
use crate::{options::McpLimits, secret_texts::SecretTexts};

fn monitor() -> Arc<ConnectionMonitor> {
    let limits = McpLimits { messages_per_second: 3, noise_lines: 1, ..McpLimits::default() };
    Arc::new(ConnectionMonitor::new(
        limits,
        SecretTexts::new(Redactor::for_secrets(["s3cret-value"], "[hidden]"), GatewaySecrets::default()),
    ))
}

fn request(id: i64) -> ClientJsonRpcMessage {
    serde_json::from_value(json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"})).unwrap()
}

fn server(message: Value) -> ServerJsonRpcMessage {
    serde_json::from_value(message).unwrap()
}

fn answer(id: impl Into<Value>) -> ServerJsonRpcMessage {
    server(json!({"jsonrpc": "2.0", "id": id.into(), "result": {}}))
}

fn changed() -> ServerJsonRpcMessage {
    server(json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
}

#[tokio::test]
async fn only_an_answer_to_an_open_request_passes() {
    let monitor = monitor();
    for id in [0, 1] {
        monitor.note_request(&request(id));
    }
    for (case, message, want) in
        [("open", answer(0), true), ("again", answer(0), false), ("as a text", answer("1"), true)]
    {
        assert_eq!(monitor.admit_message(message).is_some(), want, "{case}");
        assert!(!monitor.is_closed(), "{case}");
    }
    assert!(monitor.admit_message(answer(7)).is_none());
    assert_eq!(monitor.close_reason(), "it answered a request that was never sent (id 7)");
}

#[tokio::test(start_paused = true)]
async fn more_messages_than_allowed_in_a_second_end_the_connection() {
    let monitor = monitor();
    for _ in 0..3 {
        assert!(monitor.admit_message(changed()).is_some());
    }
    tokio::time::advance(Duration::from_secs(1)).await;
    for _ in 0..3 {
        assert!(monitor.admit_message(changed()).is_some());
    }
    assert!(monitor.admit_message(changed()).is_none());
    assert_eq!(monitor.close_reason(), "it sent more than 3 messages in a second");
}

#[tokio::test]
async fn lines_that_are_no_messages_are_tolerated_and_shown_without_secrets() {
    let monitor = monitor();
    monitor.note_noise("started with s3cret-value\u{1b}[0m");
    assert!(!monitor.is_closed());
    let want = r#"no answer; it wrote a line that is no message: "started with [hidden]\\u{1b}[0m""#;
    assert_eq!(monitor.explain("no answer".to_owned()), want);
    monitor.note_noise("more");
    assert!(monitor.is_closed());
}

#[tokio::test]
async fn a_withdrawn_request_never_begins_and_a_begun_one_is_in_doubt() {
    let monitor = monitor();
    monitor.note_request(&request(0));
    assert!(!monitor.withdraw(0));
    assert!(!monitor.begin_request(0));
    monitor.note_request(&request(1));
    assert!(monitor.begin_request(1));
    assert!(monitor.withdraw(1));
    // Given up before it was handed to the transport.
    assert!(!monitor.withdraw(2));
    monitor.note_request(&request(2));
    assert!(!monitor.begin_request(2));
}

#[tokio::test]
async fn progress_reaches_the_call_that_it_names_while_it_runs() {
    let monitor = monitor();
    let got = Arc::new(Mutex::new(Vec::new()));
    let sink = ProgressSink::new({
        let got = Arc::clone(&got);
        move |progress| got.lock().unwrap().push(progress)
    });
    let guard = monitor.watch_progress(&ProgressToken(NumberOrString::Number(4)), sink);
    let progress = |token: i64| {
        let params = json!({"progressToken": token, "progress": 1, "total": 2, "message": "half\n"});
        server(json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))
    };
    assert!(monitor.admit_message(progress(4)).is_none());
    assert!(monitor.admit_message(progress(5)).is_none());
    drop(guard);
    assert!(monitor.admit_message(progress(4)).is_none());
    let want = ToolProgress { progress: 1.0, total: Some(2.0), message: Some("half".to_owned()) };
    assert_eq!(*got.lock().unwrap(), [want]);
}
