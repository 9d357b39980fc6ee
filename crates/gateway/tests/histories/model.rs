//! Provider of the model: it calls the available tool once or twice, then ends its answer. Now and
//! then it is slow, breaks off, fails, hangs, or repeats a part.

use std::{net::SocketAddr, time::Duration};

use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use crate::{fixture::HistoryFixture, http};

/// Time for which a provider hangs before its connection breaks.
const HANGS: Duration = Duration::from_secs(900);
const DOWN: &str = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

/// Serves until its runtime ends.
pub(crate) async fn start(world: HistoryFixture) -> SocketAddr {
    http::serve(world, answer).await
}

async fn answer(mut stream: TcpStream, world: HistoryFixture) -> std::io::Result<()> {
    let Some(request) = http::request(&mut stream).await? else { return Ok(()) };
    let body: Value = serde_json::from_slice(&request.body)?;
    tokio::time::sleep(world.pause()).await;
    if world.fails(8) {
        return stream.write_all(DOWN.as_bytes()).await;
    }
    stream.write_all(STREAM.as_bytes()).await?;
    if world.fails(2) {
        tokio::time::sleep(HANGS).await;
        return Ok(());
    }
    if world.fails(6) {
        return stream.write_all(chunk(&json!({ "content": "half" }), None).as_bytes()).await;
    }
    let is_answer = body["messages"].as_array().and_then(|all| all.last()).is_some_and(|last| last["role"] == "tool");
    let tool = tool(&body).filter(|_| !is_answer || world.fails(15));
    let mut reply = String::new();
    match &tool {
        Some(tool) => {
            for index in 0..=world.below(2) {
                reply.push_str(&call(&world, tool, index));
            }
        }
        None => reply.push_str(&chunk(&json!({ "content": "done" }), None)),
    }
    reply.push_str(&chunk(&json!({}), Some(if tool.is_some() { "tool_calls" } else { "stop" })));
    reply.push_str("data: [DONE]\n\n");
    let (first, rest) = reply.split_at(reply.len() / 2);
    stream.write_all(first.as_bytes()).await?;
    tokio::time::sleep(world.pause()).await;
    stream.write_all(rest.as_bytes()).await?;
    // Its end comes once more.
    if world.fails(8) {
        stream.write_all(rest.as_bytes()).await?;
    }
    Ok(())
}

/// Returns the tool that the model uses: that of a node or a host, else one that writes a file.
fn tool(request: &Value) -> Option<String> {
    let tools = request["tools"].as_array()?.iter().filter_map(|tool| tool["function"]["name"].as_str());
    let names: Vec<&str> = tools.collect();
    let preferred = ["box__strike", "strike", "gsv__WriteFile", "write"];
    preferred.iter().find(|name| names.contains(name)).map(|name| (*name).to_owned())
}

fn call(world: &HistoryFixture, tool: &str, index: u64) -> String {
    let (kind, thing) = world.with_ledger(|ledger| match tool {
        "gsv__WriteFile" | "write" => ("path", ledger.next_name("file")),
        _ => ("thing", ledger.next_name(if tool == "strike" { "host" } else { "node" })),
    });
    let mut arguments = json!({ kind: thing, "_i": "a history" });
    if kind == "path" {
        arguments["content"] = thing.clone().into();
    }
    let function = json!({ "name": tool, "arguments": arguments.to_string() });
    chunk(
        &json!({ "tool_calls": [{ "index": index, "id": format!("c-{thing}"), "type": "function", "function": function }] }),
        None,
    )
}

fn chunk(delta: &Value, finish: Option<&str>) -> String {
    let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
    let chunk =
        json!({ "id": "h", "object": "chat.completion.chunk", "created": 0, "model": "small", "choices": [choice] });
    format!("data: {chunk}\n\n")
}
