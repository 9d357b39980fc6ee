use std::{sync::Arc, time::Duration};

use countersign_core::id::PrincipalId;
use serde_json::{Value, json};
use tokio::{
    io::{
        AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, duplex, split,
    },
    time::Instant,
};

use crate::test_fixture::Fixture;

struct Host {
    sender: WriteHalf<DuplexStream>,
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
}

impl Host {
    async fn send(&mut self, message: Value) {
        self.sender.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn next(&mut self) -> Value {
        serde_json::from_str(&self.lines.next_line().await.unwrap().unwrap()).unwrap()
    }
}

impl Fixture {
    fn connect(&self) -> Host {
        let (ours, theirs) = duplex(1 << 16);
        let (reader, writer) = split(ours);
        let adapter = Arc::clone(&self.adapter);
        tokio::spawn(async move {
            adapter.serve_stream(BufReader::new(reader), writer, &PrincipalId::new("mcp:local:1")).await;
        });
        let (lines, sender) = split(theirs);
        Host { sender, lines: BufReader::new(lines).lines() }
    }

    async fn connect_initialized(&self) -> Host {
        let mut host = self.connect();
        let client = json!({ "name": "test", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        host.send(json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello })).await;
        assert_eq!(host.next().await["id"], json!(0));
        host.send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        host
    }
}

fn call(id: u64, token: Option<&str>) -> Value {
    let mut params = json!({ "name": "mcp__desk__v1", "arguments": { "a": [1, "*"] } });
    if let Some(token) = token {
        params["_meta"] = json!({ "progressToken": token });
    }
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_reports_its_gate_at_once_and_every_ten_seconds() {
    let fixture = Fixture::open().await;
    let mut host = fixture.connect_initialized().await;
    let begun = Instant::now();
    host.send(call(1, Some("t"))).await;
    for count in 1..=3 {
        let progress = host.next().await;
        let gates = fixture.pending_gates().await;
        let message = format!("waits for approval: gate {}", gates[0]);
        let want = json!({ "progressToken": "t", "progress": f64::from(count), "message": message });
        assert_eq!((&progress["method"], &progress["params"]), (&json!("notifications/progress"), &want));
        assert_eq!(begun.elapsed().as_secs(), 10 * u64::try_from(count - 1).unwrap());
    }
    fixture.allow(fixture.pending_gates().await[0]).await;
    let reply = host.next().await;
    assert_eq!(reply["result"], json!({ "content": [{ "type": "text", "text": "1" }], "isError": false }));
}

#[tokio::test(start_paused = true)]
async fn identical_calls_that_wait_are_one_action() {
    let fixture = Fixture::open().await;
    let mut hosts = [fixture.connect_initialized().await, fixture.connect_initialized().await];
    for host in &mut hosts {
        host.send(call(1, Some("t"))).await;
        assert_eq!(host.next().await["method"], "notifications/progress");
    }
    let gates = fixture.pending_gates().await;
    assert_eq!(gates.len(), 1);
    fixture.allow(gates[0]).await;
    for host in &mut hosts {
        let mut reply = host.next().await;
        while reply.get("method").is_some() {
            reply = host.next().await;
        }
        assert_eq!(reply["result"]["content"][0]["text"], "1");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_of_tools_is_notified_in_both_generations() {
    let fixture = Fixture::open().await;
    let mut old = fixture.connect_initialized().await;
    let mut new = fixture.connect();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {}
    });
    let listen = json!({ "_meta": meta, "notifications": { "toolsListChanged": true } });
    new.send(json!({ "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": listen })).await;
    assert_eq!(new.next().await["method"], "notifications/subscriptions/acknowledged");
    old.send(json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" })).await;
    assert_eq!(old.next().await["id"], json!(1));
    tokio::time::sleep(Duration::from_millis(1)).await;
    fixture.tool.0.send_replace(2);
    for host in [&mut old, &mut new] {
        assert_eq!(host.next().await["method"], "notifications/tools/list_changed");
    }
    old.send(json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" })).await;
    let listed = old.next().await;
    assert_eq!(listed["result"]["tools"].as_array().unwrap().last().unwrap()["name"], "mcp__desk__v2");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reports_its_initialization_often_is_notified_once() {
    let fixture = Fixture::open().await;
    let mut host = fixture.connect_initialized().await;
    for _ in 0..3 {
        host.send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    }
    host.send(json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" })).await;
    assert_eq!(host.next().await["id"], json!(1));
    tokio::time::sleep(Duration::from_millis(1)).await;
    fixture.tool.0.send_replace(2);
    assert_eq!(host.next().await["method"], "notifications/tools/list_changed");
    tokio::time::sleep(Duration::from_millis(1)).await;
    host.send(json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" })).await;
    assert_eq!(host.next().await["id"], json!(2));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_tool_is_refused_with_the_reason_that_it_is_missing() {
    let fixture = Fixture::open().await;
    let mut host = fixture.connect_initialized().await;
    for (id, name, reason) in [(1, "mcp__desk__v9", ": MCP server desk is not approved"), (2, "mcp__dsk__v9", "")] {
        host.send(json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": name } })).await;
        let want = json!({ "code": -32602, "message": format!("Unknown tool: {name}{reason}") });
        assert_eq!(host.next().await["error"], want);
    }
    assert!(fixture.pending_gates().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_closes_decides_nothing() {
    let fixture = Fixture::open().await;
    let mut host = fixture.connect_initialized().await;
    host.send(call(1, Some("t"))).await;
    assert_eq!(host.next().await["method"], "notifications/progress");
    fixture.adapter.close();
    assert_eq!(
        host.lines.next_line().await.unwrap(),
        None,
        "`countersign mcp` repeats the call on its next connection"
    );
    assert_eq!(fixture.pending_gates().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn every_call_counts_in_the_limit_also_an_invalid_one() {
    let fixture = Fixture::open().await;
    let mut host = fixture.connect_initialized().await;
    let calls = [
        ("gate_status", json!({ "gate": "x" })),
        ("gate_wait", json!({})),
        ("request_approval", json!({ "action": 5 })),
        ("no_such_tool", json!({})),
    ];
    for id in 1..=60 {
        let (name, arguments) = calls[id % calls.len()].clone();
        let params = json!({ "name": name, "arguments": arguments });
        host.send(json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })).await;
        let reply = host.next().await;
        assert!(!reply.to_string().contains("Rate limit"), "{reply}");
    }
    for (id, (name, arguments)) in calls.into_iter().enumerate() {
        let params = json!({ "name": name, "arguments": arguments });
        host.send(json!({ "jsonrpc": "2.0", "id": id + 61, "method": "tools/call", "params": params })).await;
        let result = host.next().await["result"].clone();
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.ends_with("Rate limit exceeded"), "{name}: {result}");
        let is_error = name != "request_approval";
        assert_eq!(result["isError"], json!(is_error), "{name}: {result}");
    }
}

#[tokio::test(start_paused = true)]
async fn parameters_of_a_list_that_do_not_fit_are_refused() {
    let fixture = Fixture::open().await;
    let mut host = fixture.connect_initialized().await;
    for (id, cursor) in [json!(5), json!("x"), json!(["1000"]), json!("+1000")].into_iter().enumerate() {
        let params = json!({ "cursor": cursor });
        host.send(json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list", "params": params })).await;
        let reply = host.next().await;
        assert_eq!((&reply["error"]["code"], &reply["id"]), (&json!(-32602), &json!(id)), "{cursor}: {reply}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_names_the_server_and_the_reason() {
    let fixture = Fixture::open().await;
    let mut host = fixture.connect_initialized().await;
    let params = json!({ "name": "mcp__desk__v1", "arguments": { "lost": true }, "_meta": { "progressToken": "t" } });
    host.send(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })).await;
    assert_eq!(host.next().await["method"], "notifications/progress");
    fixture.allow(fixture.pending_gates().await[0]).await;
    let text = "Outcome unknown: MCP server desk got the call of v1, but it closed its output. It may or may not have taken \
        effect. It was not repeated.";
    assert_eq!(host.next().await["result"], json!({ "content": [{ "type": "text", "text": text }], "isError": true }));
}
