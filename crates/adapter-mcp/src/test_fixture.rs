//! Gateway in memory for tests of the connections.

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
use serde_json::Map;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    adapter::{McpAdapter, McpSettings},
    further_tools::{FurtherTool, FurtherTools},
};

/// Gateway whose further tools answer with a number that counts. The outcome of a call with the argument `lost` is unknown.
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

    fn call_service<'a>(&'a self, call: &'a CallDetails, _: CancellationToken) -> BoxFuture<'a, ServiceOutcome> {
        if call.arguments.contains_key("lost") {
            let why = "Outcome unknown: MCP server desk got the call of v1, but it closed its output";
            return Box::pin(async move { ServiceOutcome::InDoubt(why.to_owned()) });
        }
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
pub(super) struct OneTool(pub(super) watch::Sender<u64>);

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

/// Gateway with an adapter. Every call needs an approval.
pub(super) struct Fixture {
    pub(super) adapter: Arc<McpAdapter>,
    pub(super) tool: Arc<OneTool>,
    source: CommandSource,
}

impl Fixture {
    pub(super) async fn open() -> Self {
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

    pub(super) async fn pending_gates(&self) -> Vec<GateId> {
        self.source.read_state(|engine| engine.state().pending_gates().map(Gate::id).collect()).await.unwrap().0
    }

    pub(super) async fn allow(&self, gate: GateId) {
        let answer = GateReply::Allow(ApprovalScope::Once);
        let command = gate::Command::Answer { gate, answer, by: PrincipalId::new("ana"), key: None };
        self.source.send_command(Command::Gate(command)).await.unwrap();
    }
}
