use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use countersign_runtime::tools::{
    AgentTool as _, AllowedRoots, CallFailure, CallOutput, CommandEnvironment, SessionShell, ToolContext, UpdateSink,
    exec::ExecLauncher,
};
use serde_json::{Map, Value, json};

use super::McpTool;
use crate::scripted_server::{ScriptedServer, Step, answer, error, method, text_result, tool};

type Steps = fn(&Value) -> Vec<Step>;

fn context() -> ToolContext {
    let shell = SessionShell::new(ExecLauncher::new(Path::new("/bin/false")));
    ToolContext::new("/".into(), AllowedRoots::whole_filesystem([]), CommandEnvironment::default(), shell)
}

/// The tool `open` of a server, approved as it is offered now.
async fn approved(server: &ScriptedServer) -> McpTool {
    let servers = server.servers();
    let listing = servers.list_tools("box").await.unwrap();
    McpTool::new(servers, listing.get("open").unwrap().clone())
}

async fn run(tool: &McpTool) -> Result<CallOutput, CallFailure> {
    tool.run(Map::new(), &context()).await
}

#[tokio::test]
async fn an_approved_tool_counts_as_changing_something_whatever_its_hints_say() {
    let hinted = json!({
        "name": "open",
        "inputSchema": {"type": "object", "required": ["door"]},
        "annotations": {"readOnlyHint": true, "idempotentHint": true},
    });
    let tool = approved(&ScriptedServer::older(json!([hinted]), |_| Vec::new())).await;
    let spec = tool.spec();
    assert_eq!(spec.name, "mcp__box__open");
    assert_eq!(spec.effect, countersign_core::tool::ToolEffect::Changes);
    assert_eq!(spec.repeat, countersign_core::tool::RepeatMode::Once);
    let problem = "Invalid arguments for mcp__box__open:\n- door is required".to_owned();
    assert_eq!(tool.check_arguments(&json!({})), Err(CallFailure::Invalid(problem)));
    assert!(tool.check_arguments(&json!({"door": null, "other": 1})).is_ok());
}

#[tokio::test]
async fn a_call_ends_as_its_outcome() {
    let cases: [(Steps, Result<CallOutput, CallFailure>); 3] = [
        (|message| vec![answer(message, text_result("opened"))], Ok(CallOutput::from_text("opened"))),
        (
            |message| vec![error(message, 1, "locked")],
            Err(CallFailure::Failed("MCP server box: open failed: locked (code 1)".to_owned())),
        ),
        (
            |_| vec![Step::End],
            Err(CallFailure::InDoubt(
                "Outcome unknown: MCP server box got the call of open, but it closed its output".to_owned(),
            )),
        ),
    ];
    for (steps, want) in cases {
        let server = ScriptedServer::older(json!([tool("open")]), move |message| match method(message) {
            "tools/call" => steps(message),
            _ => Vec::new(),
        });
        assert_eq!(run(&approved(&server).await).await, want);
    }
}

#[tokio::test]
async fn a_tool_that_changed_or_went_is_not_called() {
    let lists = AtomicUsize::new(0);
    let older = ScriptedServer::older(json!([]), |_| Vec::new());
    let server = ScriptedServer::new(move |message| match method(message) {
        "tools/list" => {
            let mut listed = tool("open");
            let tools = match lists.fetch_add(1, Ordering::SeqCst) {
                0 => json!([listed]),
                1 => {
                    listed["description"] = json!("Opens every door.");
                    json!([listed])
                }
                _ => json!([]),
            };
            vec![answer(message, json!({"tools": tools}))]
        }
        "ping" | "notifications/initialized" => Vec::new(),
        _ => older.steps(message),
    });
    let tool = approved(&server).await;
    let changed = || tool.servers.server("box").unwrap();
    for want in [
        "MCP server box changed open since it was approved; an approver must approve it again",
        "MCP server box does not offer open any more",
    ] {
        changed().connection(None).await.unwrap().monitor().mark_tools_changed();
        assert_eq!(run(&tool).await, Err(CallFailure::NotBegun(want.to_owned())));
    }
    assert!(!server.seen_methods().contains(&"tools/call".to_owned()));
}

#[tokio::test]
async fn a_tool_that_changed_across_a_restart_is_not_called() {
    let lists = AtomicUsize::new(0);
    let older = ScriptedServer::older(json!([]), |_| Vec::new());
    let server = ScriptedServer::new(move |message| match method(message) {
        "tools/list" => {
            let mut listed = tool("open");
            listed["description"] = json!(format!("Version {}.", lists.fetch_add(1, Ordering::SeqCst)));
            vec![answer(message, json!({"tools": [listed]}))]
        }
        _ => older.steps(message),
    });
    let tool = approved(&server).await;
    tool.servers.close().await;
    let want = "MCP server box changed open since it was approved; an approver must approve it again".to_owned();
    assert_eq!(run(&tool).await, Err(CallFailure::NotBegun(want)));
    assert!(!server.seen_methods().contains(&"tools/call".to_owned()));
}

#[tokio::test]
async fn progress_is_shown_while_a_call_runs() {
    let server = ScriptedServer::older(json!([tool("open")]), |message| match method(message) {
        "tools/call" => {
            let token = &message["params"]["_meta"]["progressToken"];
            let params = json!({"progressToken": token, "progress": 1, "total": 4, "message": "turning"});
            let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
            vec![Step::Send(progress), answer(message, text_result("opened"))]
        }
        _ => Vec::new(),
    });
    let tool = approved(&server).await;
    let shown = Arc::new(Mutex::new(Vec::new()));
    let mut cx = context();
    cx.updates = UpdateSink::new({
        let shown = Arc::clone(&shown);
        move |output: CallOutput| shown.lock().unwrap().push(output)
    });
    tool.run(Map::new(), &cx).await.unwrap();
    assert_eq!(*shown.lock().unwrap(), [CallOutput::from_text("turning (1 of 4)")]);
}

#[tokio::test]
async fn a_stopped_call_is_not_sent() {
    let tool = approved(&ScriptedServer::older(json!([tool("open")]), |_| Vec::new())).await;
    let cx = context();
    cx.cancel.cancel();
    let want = "MCP server box: open was not called: the call was cancelled".to_owned();
    assert_eq!(tool.run(Map::new(), &cx).await, Err(CallFailure::NotBegun(want)));
}
