use std::{collections::BTreeMap, sync::Arc, time::Duration};

use countersign_core::{message::MessageBlock, tool::ToolEffect};
use countersign_runtime::tools::CallFailure;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::reading_tools;
use crate::{
    connection_monitor::ProgressSink,
    offered_tool::OfferedTool,
    options::McpLimits,
    scripted_server::{ScriptedServer, Step, answer, error, method},
    tool_call::CallOutcome,
    tool_caller::ToolCaller,
};

/// A server with resources and prompts, and with limits that are easy to reach.
fn library() -> ScriptedServer {
    ScriptedServer::older(json!([]), |message| match method(message) {
        "resources/list" => {
            let described = json!({"uri": "file:///a", "name": "a", "description": "x\u{202e}y\u{1b}[2J"});
            vec![answer(message, json!({"resources": [described, {"uri": "file:///b", "name": "b"}]}))]
        }
        "resources/read" => read_resource(message),
        "prompts/list" => {
            let prompt = json!({"name": "greet", "arguments": [{"name": "who", "required": true}]});
            vec![answer(message, json!({"prompts": [prompt]}))]
        }
        "prompts/get" => {
            let text = format!("Greet {}.", message["params"]["arguments"]["who"].as_str().unwrap_or("nobody"));
            let message_by = |role: &str, text: &str| json!({"role": role, "content": {"type": "text", "text": text}});
            vec![answer(message, json!({"messages": [message_by("user", &text), message_by("assistant", "Hello.")]}))]
        }
        _ => Vec::new(),
    })
}

fn read_resource(message: &Value) -> Vec<Step> {
    let uri = message["params"]["uri"].as_str().unwrap();
    let contents = match uri {
        "file:///long" => json!({"uri": uri, "text": "x".repeat(900)}),
        "file:///blob" => json!({"uri": uri, "mimeType": "application/pdf", "blob": "aGFsbG8="}),
        "file:///none" => return vec![error(message, -32002, "no such resource")],
        _ => json!({"uri": uri, "text": "hello"}),
    };
    vec![answer(message, json!({"contents": [contents]}))]
}

fn tools(server: &ScriptedServer) -> Vec<Arc<dyn OfferedTool>> {
    let servers = server.servers_with(McpLimits { text: 400, ..McpLimits::default() });
    reading_tools(&BTreeMap::from([("box".to_owned(), servers)]))
}

async fn call(tools: &[Arc<dyn OfferedTool>], name: &str, arguments: Value) -> Result<String, String> {
    let tool = tools.iter().find(|tool| tool.spec().name == name).unwrap();
    let arguments = tool.check_arguments(&arguments).map_err(|refused| refused.to_string())?;
    match tool.call(&ToolCaller::default(), arguments, CancellationToken::new(), ProgressSink::default()).await {
        CallOutcome::Done { content, .. } => {
            let texts: Vec<&str> = content.iter().filter_map(MessageBlock::as_text).collect();
            Ok(texts.join("|"))
        }
        CallOutcome::Failed { text } | CallOutcome::NotBegun { text } | CallOutcome::InDoubt { text } => Err(text),
    }
}

#[tokio::test]
async fn resources_and_prompts_are_read_within_limits() {
    let server = library();
    let tools = tools(&server);
    let arguments = json!({"server": "box"});
    let listed = call(&tools, "mcp_list_resources", arguments.clone()).await.unwrap();
    let want = r#"{"uri":"file:///a","name":"a","description":"x\u{202e}y\u001b[2J"}
{"uri":"file:///b","name":"b"}"#;
    assert_eq!(listed, want);
    let listed = call(&tools, "mcp_list_prompts", arguments).await.unwrap();
    assert_eq!(listed, r#"{"name":"greet","arguments":[{"name":"who","required":true}]}"#);
    for (uri, want) in [
        ("file:///a", Ok("[resource file:///a]\nhello".to_owned())),
        ("file:///blob", Ok("[resource file:///blob: application/pdf, 8 bytes of base64, not shown]".to_owned())),
        ("file:///long", Ok(format!("[resource file:///long]\n{}|[cut: 524 more bytes of text]", "x".repeat(376)))),
        ("file:///none", Err("MCP server box refused resources/read: no such resource (code -32002)".to_owned())),
    ] {
        let read = call(&tools, "mcp_read_resource", json!({"server": "box", "uri": uri})).await;
        assert_eq!(read, want, "{uri}");
    }
    let arguments = json!({"server": "box", "prompt": "greet", "arguments": {"who": "Ana"}});
    let prompt = call(&tools, "mcp_get_prompt", arguments).await.unwrap();
    assert_eq!(prompt, "[message of the user]|Greet Ana.|[message of the assistant]|Hello.");
}

#[tokio::test]
async fn only_approved_servers_are_read_and_rules_can_name_what() {
    assert!(reading_tools(&BTreeMap::new()).is_empty());
    let server = library();
    let tools = tools(&server);
    let read = tools.iter().find(|tool| tool.spec().name == "mcp_read_resource").unwrap();
    let refused = read.check_arguments(&json!({"server": "other", "uri": "file:///a"})).unwrap_err();
    let problem = "Invalid arguments for mcp_read_resource:\n- server must be one of \"box\"";
    assert_eq!(refused, CallFailure::Invalid(problem.to_owned()));
    let arguments = json!({"uri": "file:///a", "server": "box"});
    assert_eq!(read.spec().signature_of(arguments.as_object().unwrap()), "mcp_read_resource(box, file:///a)");
    assert_eq!(read.spec().effect, ToolEffect::Changes);
    assert!(server.seen_methods().is_empty(), "nothing was started");
}

#[tokio::test]
async fn a_resource_has_one_spelling_before_rules_see_it() {
    let server = library();
    let tools = tools(&server);
    for (uri, problem) in [
        ("file:///srv/../a", "uri has dot segments; its normal form is file:///a"),
        ("file:///srv/%2e%2e/a", "uri has dot segments; its normal form is file:///a"),
        ("FILE:///a", "uri is not in its normal form, which is file:///a"),
    ] {
        let read = call(&tools, "mcp_read_resource", json!({"server": "box", "uri": uri})).await;
        assert_eq!(read, Err(format!("Invalid arguments for mcp_read_resource:\n- {problem}")), "{uri}");
    }
    assert!(server.seen_methods().is_empty(), "nothing was sent");
}

#[tokio::test]
async fn a_malformed_entry_is_named_and_does_not_hide_the_others() {
    let server = ScriptedServer::older(json!([]), |message| match method(message) {
        "resources/list" => {
            let entries = json!([{"uri": "u", "name": "n"}, 5, {"uri": 7, "name": "n"}, {"name": "n"}]);
            vec![answer(message, json!({"resources": entries}))]
        }
        "prompts/list" => vec![answer(message, json!({"prompts": [{"title": "n"}]}))],
        _ => Vec::new(),
    });
    let tools = tools(&server);
    let listed = call(&tools, "mcp_list_resources", json!({"server": "box"})).await.unwrap();
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 4, "{listed}");
    for (line, want) in lines.iter().zip([
        "[left out: entry 2 of resources: invalid type: integer",
        "[left out: entry 3 of resources: invalid type: integer",
        "[left out: entry 4 of resources: missing field `uri`",
        r#"{"uri":"u","name":"n"}"#,
    ]) {
        assert!(line.starts_with(want), "{line}");
    }
    let listed = call(&tools, "mcp_list_prompts", json!({"server": "box"})).await.unwrap();
    assert_eq!(listed, "[left out: entry 1 of prompts: missing field `name`]");
}

#[tokio::test]
async fn a_prompt_gets_texts_only() {
    let server = library();
    let arguments = json!({"server": "box", "prompt": "greet", "arguments": {"x": 1, "y": {"z": [1]}}});
    let refused = call(&tools(&server), "mcp_get_prompt", arguments).await.unwrap_err();
    let problems = "- arguments.x must be of type string\n- arguments.y must be of type string";
    assert_eq!(refused, format!("Invalid arguments for mcp_get_prompt:\n{problems}"));
    assert!(server.seen_methods().is_empty(), "nothing was sent");
}

#[tokio::test]
async fn a_stopped_reading_ends() {
    let server = library();
    let tools = tools(&server);
    let stopped = CancellationToken::new();
    stopped.cancel();
    let arguments = json!({"server": "box"}).as_object().unwrap().clone();
    let outcome = tools[0].call(&ToolCaller::default(), arguments, stopped, ProgressSink::default()).await;
    let text = "mcp_list_resources was stopped before its end".to_owned();
    assert_eq!(outcome, CallOutcome::Failed { text });
}

#[tokio::test(start_paused = true)]
async fn a_server_hears_that_a_reading_was_stopped() {
    for (name, request, arguments) in [
        ("mcp_read_resource", "resources/read", json!({"server": "box", "uri": "file:///a"})),
        ("mcp_get_prompt", "prompts/get", json!({"server": "box", "prompt": "greet"})),
        ("mcp_list_resources", "resources/list", json!({"server": "box"})),
        ("mcp_list_prompts", "prompts/list", json!({"server": "box"})),
    ] {
        let stopped = CancellationToken::new();
        let stop = stopped.clone();
        let server = ScriptedServer::older(json!([]), move |message| {
            if method(message) == request {
                stop.cancel();
            }
            Vec::new()
        });
        let (tools, caller) = (tools(&server), ToolCaller::default());
        let tool = tools.iter().find(|tool| tool.spec().name == name).unwrap();
        let arguments = arguments.as_object().unwrap().clone();
        let outcome = tool.call(&caller, arguments, stopped, ProgressSink::default()).await;
        let is_list = request.ends_with("/list");
        assert!(matches!(outcome, CallOutcome::InDoubt { .. }) != is_list, "{name}: {outcome:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
        let cancelled = server.seen_requests("notifications/cancelled");
        assert_eq!(cancelled.len(), 1, "{name}");
        let want = json!({"requestId": server.seen_requests(request)[0]["id"], "reason": "the request was stopped"});
        assert_eq!(cancelled[0]["params"], want, "{name}");
    }
}

#[tokio::test]
async fn the_outcome_of_a_reading_whose_answer_is_lost_is_unknown_and_a_lost_list_has_failed() {
    for (name, arguments, is_unknown) in [
        ("mcp_read_resource", json!({"server": "box", "uri": "file:///a"}), true),
        ("mcp_get_prompt", json!({"server": "box", "prompt": "greet"}), true),
        ("mcp_list_resources", json!({"server": "box"}), false),
        ("mcp_list_prompts", json!({"server": "box"}), false),
    ] {
        let server = ScriptedServer::older(json!([]), |message| match method(message) {
            "notifications/initialized" => Vec::new(),
            _ => vec![Step::End],
        });
        let (tools, caller) = (tools(&server), ToolCaller::default());
        let tool = tools.iter().find(|tool| tool.spec().name == name).unwrap();
        let arguments = arguments.as_object().unwrap().clone();
        match tool.call(&caller, arguments, CancellationToken::new(), ProgressSink::default()).await {
            CallOutcome::InDoubt { text } if is_unknown => {
                assert!(text.starts_with("Outcome unknown: MCP server box did not answer "), "{text}");
            }
            CallOutcome::Failed { text } if !is_unknown => {
                assert!(text.starts_with("MCP server box did not answer "), "{text}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}
