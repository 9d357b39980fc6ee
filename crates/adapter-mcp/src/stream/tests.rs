use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use countersign_core::{
    call::CallDetails,
    engine::{ActiveRules, Command, ResumeMode},
    gate::{self, ApprovalScope, Gate, GateReply, IdentityMap},
    id::{GateId, PrincipalId, SessionId},
    policy::{CompiledRules, DefaultPolicy, PathContext},
    session::ModelRef,
    time::Millis,
    tool::ToolSpec,
};
use countersign_foreign_calls::{CallLimits, ForeignCalls};
use countersign_runtime::{
    Clock, CommandSource, InboxLane, OwnerHandle, OwnerOptions, ResolvedModel, RunEnvironment, ServiceOutcome,
    store::MemoryLog,
    system_entropy,
    tools::{self, GatewaySecrets, ToolRegistry},
};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use tokio::{
    io::{
        AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, duplex, split,
    },
    sync::watch,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    adapter::{McpAdapter, McpSettings},
    further_tools::{FurtherTool, FurtherTools},
};

/// Gateway whose further tools answer with a number that counts.
struct FakeGateway {
    served: AtomicUsize,
}

impl RunEnvironment for FakeGateway {
    fn resolve_model(&self, _: &ModelRef) -> Result<ResolvedModel, String> {
        Err("there is no model".to_owned())
    }

    fn tool_registry(&self, _: &SessionId) -> Arc<ToolRegistry> {
        Arc::new(ToolRegistry::standard())
    }

    fn system_prompt(&self, _: &SessionId, _: &str, _: &[&ToolSpec]) -> String {
        String::new()
    }

    fn call_service<'a>(&'a self, _: &'a CallDetails, _: CancellationToken) -> BoxFuture<'a, ServiceOutcome> {
        let number = self.served.fetch_add(1, Ordering::SeqCst) + 1;
        Box::pin(async move { ServiceOutcome::Done(number.to_string()) })
    }

    fn tool_context(&self, _: &SessionId, cwd: &str) -> tools::ToolContext {
        let launcher = tools::exec::ExecLauncher::new(Path::new("/bin/false"));
        let environment = tools::CommandEnvironment::clean_with([]);
        let (roots, shell) = (tools::AllowedRoots::whole_filesystem([]), tools::SessionShell::new(launcher));
        tools::ToolContext::new(cwd.into(), roots, environment, shell)
    }
}

/// One tool, whose name has the version in it.
struct OneTool(watch::Sender<u64>);

impl FurtherTools for OneTool {
    fn tools(&self) -> Vec<FurtherTool> {
        let name = format!("mcp__desk__v{}", *self.0.borrow());
        vec![FurtherTool { name, description: String::new(), schema: Map::new(), service: "mcp:desk".into() }]
    }

    fn missing_reason(&self, tool: &str) -> Option<String> {
        tool.starts_with("mcp__desk__").then(|| "MCP server desk is not approved".to_owned())
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

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

struct Fixture {
    adapter: Arc<McpAdapter>,
    tool: Arc<OneTool>,
    source: CommandSource,
}

impl Fixture {
    async fn open() -> Self {
        let rules = ActiveRules {
            compiled: CompiledRules::default(),
            default_policy: DefaultPolicy::Gateway,
            path_context: PathContext::default(),
            people: IdentityMap::default(),
        };
        let clock = Clock::starting_at(Millis(1_000));
        let options = OwnerOptions {
            rules,
            resume: ResumeMode::Go,
            clock: clock.clone(),
            entropy: system_entropy(),
            environment: Arc::new(FakeGateway { served: AtomicUsize::new(0) }),
            merge: Duration::ZERO,
            idle: None,
        };
        let owner = OwnerHandle::open(MemoryLog::new().into(), options).await.unwrap();
        let tool = Arc::new(OneTool(watch::Sender::new(1)));
        let hour = Duration::from_secs(3600);
        let settings = McpSettings {
            listed: Vec::new(),
            tools: Arc::default(),
            secrets: GatewaySecrets::default(),
            further: Some(tool.clone()),
            own_header: None,
        };
        let source = owner.source(InboxLane::Request);
        let limits = CallLimits { per_minute: 60, pending: 10, approval_timeout: hour, question_timeout: hour };
        let calls = Arc::new(ForeignCalls::open(owner, clock, limits).await.unwrap());
        Self { adapter: McpAdapter::new(calls, settings), tool, source }
    }

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

    async fn pending_gates(&self) -> Vec<GateId> {
        self.source.read_state(|engine| engine.state().pending_gates().map(Gate::id).collect()).await.unwrap().0
    }

    async fn allow(&self, gate: GateId) {
        let answer = GateReply::Allow(ApprovalScope::Once);
        let command = gate::Command::Answer { gate, answer, by: PrincipalId::new("ana"), key: None };
        self.source.send_command(Command::Gate(command)).await.unwrap();
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
