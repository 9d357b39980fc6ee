use std::{future::pending, sync::Arc};

use futures_util::future::BoxFuture;
use serde_json::{Map, json};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{McpServers, call, done, in_doubt, not_begun};
use crate::{
    connection_monitor::ProgressSink,
    error::McpError,
    options::McpLimits,
    questions::{QuestionAnswer, QuestionAsker, ServerQuestion},
    scripted_server::{ScriptedServer, answer, method, text_result, tool},
};

const WITHDRAWN: &str = "MCP server box was not used: its approval was withdrawn or renewed meanwhile";

fn answering() -> ScriptedServer {
    super::calling(|message| vec![answer(message, text_result("opened"))])
}

/// A server whose start does not end.
fn starting(started: &Arc<Notify>) -> ScriptedServer {
    let started = Arc::clone(started);
    ScriptedServer::new(move |_| {
        started.notify_one();
        Vec::new()
    })
}

#[tokio::test]
async fn a_permission_ends_with_its_withdrawal() {
    let server = answering();
    let servers = server.servers();
    let before = servers.until_withdrawn();
    assert_eq!(call(&before).await, done("opened"));
    servers.withdraw("box");
    servers.disconnect("box").await;
    assert_eq!(call(&before).await, not_begun(WITHDRAWN));
    let withdrawn = || McpError::Withdrawn { server: "box".to_owned() };
    assert_eq!(before.list_tools("box").await, Err(withdrawn()));
    assert_eq!(before.list_resources("box").await, Err(withdrawn()));
    assert_eq!(before.read_resource("box", "note://all").await, Err(withdrawn()));
    assert_eq!(server.starts(), 1);
    assert_eq!(call(&servers.until_withdrawn()).await, done("opened"));
}

#[tokio::test(start_paused = true)]
async fn a_start_under_way_ends_with_a_withdrawal_or_a_stop() {
    for (is_withdrawn, want) in [(true, WITHDRAWN), (false, "MCP server box was not used: it was stopped meanwhile")] {
        let started = Arc::new(Notify::new());
        let server = starting(&started);
        let servers = server.servers();
        let permitted = servers.until_withdrawn();
        let calls = [permitted.clone(), permitted].map(|servers| tokio::spawn(async move { call(&servers).await }));
        started.notified().await;
        let begun = Instant::now();
        if is_withdrawn {
            servers.withdraw("box");
        }
        servers.disconnect("box").await;
        for call in calls {
            assert_eq!(call.await.unwrap(), not_begun(want));
        }
        assert_eq!((begun.elapsed().as_secs(), server.starts()), (0, 1));
    }
}

/// A person who does not answer before the question is withdrawn.
#[derive(Debug, Default)]
struct SlowPerson {
    begun: Notify,
    withdrawn: Notify,
}

impl QuestionAsker for SlowPerson {
    fn is_ready(&self) -> bool {
        true
    }

    fn ask(&self, _: ServerQuestion, cancel: CancellationToken) -> BoxFuture<'_, QuestionAnswer> {
        self.begun.notify_one();
        Box::pin(async move {
            tokio::select! {
                () = pending::<()>() => QuestionAnswer::Declined,
                () = cancel.cancelled() => {
                    self.withdrawn.notify_one();
                    QuestionAnswer::Unanswered { reason: "withdrawn".to_owned() }
                }
            }
        })
    }
}

#[tokio::test]
async fn a_call_whose_server_waits_for_input_does_not_go_on_after_a_withdrawal() {
    let form = json!({
        "method": "elicitation/create",
        "params": {"mode": "form", "message": "Who?", "requestedSchema": {"type": "object", "properties": {}}},
    });
    let wanted = json!({"resultType": "input_required", "inputRequests": {"who": form}, "requestState": "s"});
    let server = ScriptedServer::newer(json!([tool("open")]), move |message| match method(message) {
        "tools/call" => vec![answer(message, wanted.clone())],
        _ => Vec::new(),
    });
    let person = Arc::new(SlowPerson::default());
    let servers: McpServers = server.servers_for(McpLimits::default(), Some(Arc::clone(&person) as _));
    let permitted = servers.until_withdrawn();
    let running = tokio::spawn(async move {
        permitted.call_tool("box", "open", Map::new(), CancellationToken::new(), ProgressSink::default()).await
    });
    person.begun.notified().await;
    servers.withdraw("box");
    let want = in_doubt(&format!("the call was not finished: {WITHDRAWN}"));
    assert_eq!(running.await.unwrap(), want);
    person.withdrawn.notified().await;
    assert_eq!((server.seen_requests("tools/call").len(), server.starts()), (1, 1));
}
