use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Map, Value, json};

use super::{call, done};
use crate::{
    options::McpLimits,
    resources::{ListedEntries, PromptText, ServerPrompt, ServerResource},
    scripted_server::{ScriptedServer, Step, answer, method, text_result, tool},
};

/// A server whose answer to a request for the page at a cursor is `page`.
fn paged(page: impl Fn(Option<&str>) -> Value + Send + Sync + 'static) -> ScriptedServer {
    let older = ScriptedServer::older(json!([]), |_| Vec::new());
    ScriptedServer::new(move |message| match method(message) {
        "tools/list" => vec![answer(message, page(message["params"]["cursor"].as_str()))],
        _ => older.steps(message),
    })
}

async fn names(server: &ScriptedServer, limits: McpLimits) -> Result<Vec<String>, String> {
    let listing = server.servers_with(limits).list_tools("box").await.map_err(|error| error.to_string())?;
    Ok(listing.tools.iter().map(|tool| tool.name.clone()).collect())
}

#[tokio::test]
async fn pages_are_followed_to_their_end() {
    let server = paged(|cursor| match cursor {
        None => json!({"tools": [tool("a")], "nextCursor": "2"}),
        Some("2") => json!({"tools": [], "nextCursor": "3"}),
        Some(_) => json!({"tools": [tool("b")]}),
    });
    assert_eq!(names(&server, McpLimits::default()).await.unwrap(), ["a", "b"]);
}

#[tokio::test]
async fn a_list_beyond_the_limits_is_an_error() {
    let endless = || {
        let count = AtomicUsize::new(0);
        paged(move |_| {
            let at = count.fetch_add(1, Ordering::SeqCst);
            json!({"tools": [tool(&format!("t{at}"))], "nextCursor": at.to_string()})
        })
    };
    let limits = McpLimits { pages: 3, entries: 100, ..McpLimits::default() };
    for (server, limits, want) in [
        (endless(), limits, "MCP server box lists too much: more than 3 pages"),
        (endless(), McpLimits { entries: 2, ..limits }, "MCP server box lists too much: more than 2 entries"),
        (endless(), McpLimits { listing: 150, ..limits }, "MCP server box lists too much: more than 150 bytes"),
        (
            paged(|_| json!({"tools": [], "nextCursor": "same"})),
            limits,
            "MCP server box sent an invalid answer to tools/list: a cursor of its pages comes twice",
        ),
        (
            paged(|_| json!({"doors": []})),
            limits,
            "MCP server box sent an invalid answer to tools/list: it has no list \"tools\"",
        ),
    ] {
        assert_eq!(names(&server, limits).await.unwrap_err(), want);
    }
}

#[tokio::test]
async fn one_malformed_tool_does_not_hide_the_others() {
    let server = paged(|_| json!({"tools": [tool("a"), {"name": "b", "inputSchema": "none"}, 7, tool("a c")]}));
    let listing = server.servers().list_tools("box").await.unwrap();
    assert_eq!(listing.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["a"]);
    let problems: Vec<&str> = listing.problems.iter().map(|problem| problem.tool.as_str()).collect();
    assert_eq!(problems, ["b", "", "a c"]);
}

#[tokio::test]
async fn tools_are_listed_again_only_when_the_server_says_that_they_changed() {
    let lists = Arc::new(AtomicUsize::new(0));
    let older = ScriptedServer::older(json!([]), |_| Vec::new());
    let server = ScriptedServer::new(move |message| match method(message) {
        "tools/list" => {
            let at = lists.fetch_add(1, Ordering::SeqCst);
            vec![answer(message, json!({"tools": [tool(&format!("v{at}"))]}))]
        }
        "tools/call" => vec![
            Step::Send(json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})),
            answer(message, text_result("opened")),
        ],
        _ => older.steps(message),
    });
    let servers = server.servers();
    for want in ["v0", "v0"] {
        assert_eq!(servers.list_tools("box").await.unwrap().tools[0].name, want);
    }
    assert_eq!(call(&servers).await, done("opened"));
    for want in ["v1", "v1"] {
        assert_eq!(servers.list_tools("box").await.unwrap().tools[0].name, want);
    }
}

#[tokio::test]
async fn a_newer_server_is_subscribed_to_for_notices_of_changed_tools() {
    let server = ScriptedServer::new(|message| match method(message) {
        "server/discover" => {
            let capabilities = json!({"tools": {"listChanged": true}});
            let result = json!({
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": capabilities,
                "ttlMs": 0,
                "cacheScope": "private",
            });
            vec![answer(message, result)]
        }
        "tools/list" => vec![answer(message, json!({"tools": [tool("open")]}))],
        "tools/call" => vec![answer(message, text_result("opened"))],
        _ => Vec::new(),
    });
    let servers = server.servers();
    servers.list_tools("box").await.unwrap();
    assert_eq!(call(&servers).await, done("opened"));
    assert!(server.seen_methods().contains(&"subscriptions/listen".to_owned()), "{:?}", server.seen_methods());
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_ends_is_begun_again() {
    let newer = ScriptedServer::newer(json!([tool("open")]), |_| Vec::new());
    let server = ScriptedServer::new(move |message| match method(message) {
        "server/discover" => {
            let mut steps = newer.steps(message);
            if let Some(Step::Send(discovered)) = steps.first_mut() {
                discovered["result"]["capabilities"] = json!({"tools": {"listChanged": true}});
            }
            steps
        }
        "subscriptions/listen" => {
            let meta = json!({"io.modelcontextprotocol/subscriptionId": message["id"]});
            let params = json!({"_meta": meta, "notifications": {"toolsListChanged": true}});
            let taken = json!({
                "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params,
            });
            vec![Step::Send(taken), answer(message, json!({"resultType": "complete", "_meta": meta}))]
        }
        _ => newer.steps(message),
    });
    let servers = server.servers();
    servers.list_tools("box").await.unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(server.seen_requests("subscriptions/listen").len() > 1);
}

#[tokio::test]
async fn resources_and_prompts_are_listed_and_read() {
    let server = ScriptedServer::older(json!([]), |message| match method(message) {
        "resources/list" => vec![answer(message, json!({"resources": [{"uri": "file:///a", "name": "a"}]}))],
        "resources/read" => vec![answer(message, json!({"contents": [{"uri": "file:///a", "text": "hello"}]}))],
        "prompts/list" => {
            let prompt = json!({"name": "greet", "arguments": [{"name": "who", "required": true}]});
            vec![answer(message, json!({"prompts": [prompt]}))]
        }
        "prompts/get" => {
            let text = format!("Greet {}.", message["params"]["arguments"]["who"].as_str().unwrap());
            let messages = json!([{"role": "user", "content": {"type": "text", "text": text}}]);
            vec![answer(message, json!({"messages": messages}))]
        }
        _ => Vec::new(),
    });
    let servers = server.servers();
    let resources = servers.list_resources("box").await.unwrap();
    let want = ServerResource { uri: "file:///a".to_owned(), name: "a".to_owned(), description: None, mime_type: None };
    assert_eq!(resources, ListedEntries { entries: vec![want], problems: Vec::new() });
    let read = servers.read_resource("box", "file:///a").await.unwrap();
    assert_eq!(read[0].as_text(), Some("[resource file:///a]\nhello"));
    let prompts: Vec<ServerPrompt> = servers.list_prompts("box").await.unwrap().entries;
    assert!(prompts[0].name == "greet" && prompts[0].arguments[0].required);
    let arguments = Map::from_iter([("who".to_owned(), json!("Ana"))]);
    let messages: Vec<PromptText> = servers.get_prompt("box", "greet", arguments).await.unwrap();
    assert_eq!(messages[0].content[0].as_text(), Some("Greet Ana."));
}

#[tokio::test]
async fn a_list_that_the_server_does_not_have_is_empty_and_not_requested() {
    let server = ScriptedServer::newer(json!([]), |_| Vec::new());
    let servers = server.servers();
    let problems = Vec::new;
    assert_eq!(servers.list_resources("box").await, Ok(ListedEntries { entries: Vec::new(), problems: problems() }));
    assert_eq!(servers.list_prompts("box").await, Ok(ListedEntries { entries: Vec::new(), problems: problems() }));
    assert_eq!(server.seen_methods(), ["server/discover"]);
}
