//! An owner with a scripted model and one session.

use std::{path::Path, sync::Arc, time::Duration};

use countersign_core::{
    engine::{ActiveRules, Command, ResumeMode},
    gate::{self, ApprovalScope, GateReply},
    id::{GateId, PeerId, PrincipalId, SessionId},
    policy::{self, DefaultPolicy, PathContext},
    schedule,
    session::{self, MessageContent, ModelRef, Settings, WhenBusy},
    tool::{CallConcurrency, RepeatMode, ShellInput, ToolEffect, ToolSpec},
};
use countersign_runtime::{
    self as runtime, Clock, CommandSource, DueFiring, OwnerHandle, OwnerOptions, PeerRegistry, ResolvedModel,
    RunEnvironment, SilentRetries,
    models::{self, LanguageModel, demo, scripted::ScriptedModel},
    store::{AnyLog, MemoryLog},
    system_entropy,
    tools::{self, AgentTool, CallFailure, CallRoute, PeerRoute, ToolRegistry},
};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

/// The tool that the peer `p` does.
pub(crate) const FAR: &str = "far";

struct FarTool(ToolSpec);

impl AgentTool for FarTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn route_call(&self, _: &mut Map<String, Value>) -> Result<CallRoute, CallFailure> {
        Ok(CallRoute::Peer(PeerRoute {
            peer: PeerId::new("p"),
            class: policy::Class::HostToolInvoke,
            shell: ShellInput::Nothing,
        }))
    }

    fn run<'a>(
        &'a self,
        _: Map<String, Value>,
        _: &'a tools::ToolContext,
    ) -> BoxFuture<'a, Result<tools::CallOutput, CallFailure>> {
        Box::pin(async { Err(CallFailure::NotBegun("it is not done here".to_owned())) })
    }
}

fn far() -> Arc<dyn AgentTool> {
    Arc::new(FarTool(ToolSpec {
        name: FAR.to_owned(),
        description: String::new(),
        schema: json!({ "type": "object" }),
        concurrency: CallConcurrency::Shared,
        repeat: RepeatMode::Once,
        effect: ToolEffect::Changes,
        signature: &[],
    }))
}

struct TestEnvironment {
    model: Arc<dyn LanguageModel>,
    peers: PeerRegistry,
    sees_to: FiringHandler,
    /// Tools in addition to the usual ones.
    more: Vec<Arc<dyn AgentTool>>,
    attempts: RetrySettings,
}

/// Failures to repeat, with their settings.
#[derive(Clone, Copy)]
pub(crate) struct RetrySettings {
    pub(crate) repeats: fn(&models::ModelFailure) -> bool,
    pub(crate) silent: SilentRetries,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self { repeats: |failure| failure.kind.is_retryable(), silent: SilentRetries::default() }
    }
}

impl TestEnvironment {
    fn for_model(model: &ScriptedModel) -> Self {
        Self {
            model: Arc::new(model.clone()),
            peers: PeerRegistry::default(),
            sees_to: nothing,
            more: vec![far()],
            attempts: RetrySettings::default(),
        }
    }
}

/// Handler of firings.
type FiringHandler = fn(&DueFiring) -> schedule::Command;

impl RunEnvironment for TestEnvironment {
    fn resolve_model(&self, _: &ModelRef) -> Result<ResolvedModel, String> {
        Ok(ResolvedModel { entry: Arc::new(demo::model_entry()), key: None, model: Arc::clone(&self.model) })
    }

    fn tool_registry(&self, _: &SessionId) -> Arc<ToolRegistry> {
        Arc::new(ToolRegistry::from_tools(
            ToolRegistry::standard().tools().cloned().chain(self.more.iter().cloned()).collect(),
        ))
    }

    fn fire_job<'a>(&'a self, fired: &'a DueFiring) -> BoxFuture<'a, schedule::Command> {
        Box::pin(async move { (self.sees_to)(fired) })
    }

    fn peer_registry(&self) -> PeerRegistry {
        self.peers.clone()
    }

    fn may_retry(&self, failure: &models::ModelFailure) -> bool {
        (self.attempts.repeats)(failure)
    }

    fn silent_retries(&self) -> SilentRetries {
        self.attempts.silent
    }

    fn system_prompt(&self, _: &SessionId, _: &str, _: &[&ToolSpec]) -> String {
        String::new()
    }

    fn tool_context(&self, _: &SessionId, cwd: &str) -> tools::ToolContext {
        let launcher = tools::exec::ExecLauncher::new(Path::new("/bin/false"));
        let environment = tools::CommandEnvironment::clean_with([]);
        tools::ToolContext::new(
            cwd.into(),
            tools::AllowedRoots::whole_filesystem([]),
            environment,
            tools::SessionShell::new(launcher),
        )
    }
}

pub(crate) async fn open(
    log: impl Into<AnyLog>,
    model: &ScriptedModel,
    posture: DefaultPolicy,
    resume: ResumeMode,
) -> OwnerHandle {
    open_idle(log, model, posture, resume, None).await
}

/// Opens an owner whose peers come over `peers`.
pub(crate) async fn open_with(
    peers: PeerRegistry,
    log: impl Into<AnyLog>,
    model: &ScriptedModel,
    posture: DefaultPolicy,
    resume: ResumeMode,
) -> OwnerHandle {
    open_environment(
        Clock::system(),
        log.into(),
        TestEnvironment { peers, ..TestEnvironment::for_model(model) },
        posture,
        resume,
        None,
    )
    .await
}

/// Opens an owner that lets go of sessions after they were `idle` for so long.
pub(crate) async fn open_idle(
    log: impl Into<AnyLog>,
    model: &ScriptedModel,
    posture: DefaultPolicy,
    resume: ResumeMode,
    idle: Option<Duration>,
) -> OwnerHandle {
    open_at(Clock::system(), log, model, posture, resume, idle).await
}

/// Opens an owner whose time comes from `clock`.
pub(crate) async fn open_at(
    clock: Clock,
    log: impl Into<AnyLog>,
    model: &ScriptedModel,
    posture: DefaultPolicy,
    resume: ResumeMode,
    idle: Option<Duration>,
) -> OwnerHandle {
    open_environment(clock, log.into(), TestEnvironment::for_model(model), posture, resume, idle).await
}

/// Handles no firing: there is none.
fn nothing(fired: &DueFiring) -> schedule::Command {
    fired.failed_command("nothing is planned")
}

/// Opens an owner whose time comes from `clock`, with a handler of firings.
pub(crate) async fn open_seeing_to(
    sees_to: FiringHandler,
    clock: Clock,
    log: impl Into<AnyLog>,
    model: &ScriptedModel,
    posture: DefaultPolicy,
    resume: ResumeMode,
) -> OwnerHandle {
    open_environment(
        clock,
        log.into(),
        TestEnvironment { sees_to, ..TestEnvironment::for_model(model) },
        posture,
        resume,
        None,
    )
    .await
}

/// Opens an owner whose requests are repeated as `attempts` says.
pub(crate) async fn open_trying(
    attempts: RetrySettings,
    clock: Clock,
    model: &ScriptedModel,
    posture: DefaultPolicy,
) -> OwnerHandle {
    let room = TestEnvironment { attempts, ..TestEnvironment::for_model(model) };
    open_environment(clock, MemoryLog::new().into(), room, posture, ResumeMode::Go, None).await
}

async fn open_environment(
    clock: Clock,
    log: AnyLog,
    room: TestEnvironment,
    posture: DefaultPolicy,
    resume: ResumeMode,
    idle: Option<Duration>,
) -> OwnerHandle {
    let host = Arc::new(room);
    let merge = Duration::from_millis(50);
    let options = OwnerOptions {
        rules: rules(posture),
        resume,
        clock,
        entropy: system_entropy(),
        environment: host,
        merge,
        idle,
    };
    OwnerHandle::open(log, options).await.unwrap()
}

/// Opens an owner that starts no owed work yet.
pub(crate) async fn open_held(log: MemoryLog, model: &ScriptedModel) -> OwnerHandle {
    let options = OwnerOptions {
        rules: rules(DefaultPolicy::Gateway),
        resume: ResumeMode::Go,
        clock: Clock::system(),
        entropy: system_entropy(),
        environment: Arc::new(TestEnvironment::for_model(model)),
        merge: Duration::from_millis(50),
        idle: None,
    };
    OwnerHandle::open_held(log.into(), options).await.unwrap()
}

/// Opens an owner of any model and tools, with dice of its own. If its log fails it is opened again.
pub(crate) async fn open_for_history(
    log: MemoryLog,
    model: Arc<dyn LanguageModel>,
    more: Vec<Arc<dyn AgentTool>>,
    clock: Clock,
    dice: runtime::Entropy,
    resume: ResumeMode,
) -> OwnerHandle {
    let host = Arc::new(TestEnvironment {
        model,
        peers: PeerRegistry::default(),
        sees_to: nothing,
        more,
        attempts: RetrySettings::default(),
    });
    loop {
        let rules = rules(DefaultPolicy::Gateway);
        let (clock, dice, host, merge) =
            (clock.clone(), Arc::clone(&dice), Arc::clone(&host), Duration::from_millis(50));
        let options = OwnerOptions { rules, resume, clock, entropy: dice, environment: host, merge, idle: None };
        if let Ok(owner) = OwnerHandle::open(log.clone().into(), options).await {
            return owner;
        }
    }
}

pub(crate) fn name() -> SessionId {
    SessionId::new("s")
}

pub(crate) fn to_session(command: session::Command) -> Command {
    Command::Session(name(), command)
}

/// Rules without a line of a file.
pub(crate) fn rules(posture: DefaultPolicy) -> ActiveRules {
    ActiveRules {
        compiled: policy::compile_rules(Vec::new()).unwrap(),
        default_policy: posture,
        path_context: PathContext::default(),
        people: gate::IdentityMap::default(),
    }
}

pub(crate) async fn begin(owner: &OwnerHandle, cwd: &Path) -> CommandSource {
    begin_with(owner, cwd, Settings::default().peer_timeout).await
}

/// Begins a session that waits so long for peers.
pub(crate) async fn begin_with(owner: &OwnerHandle, cwd: &Path, peer_timeout: Duration) -> CommandSource {
    let model =
        ModelRef { provider: "demo".into(), id: "demo".into(), context_window: 200_000, max_tokens: 4096, price: None };
    let settings = Box::new(Settings { model: Some(model), peer_timeout, ..Settings::default() });
    let requests = owner.source(runtime::InboxLane::Request);
    let cwd = cwd.display().to_string();
    let opened = session::Command::Open { cwd, name: None, parent: None, door: None, settings };
    requests.send_command(to_session(opened)).await.unwrap();
    requests
}

pub(crate) fn prompt() -> Command {
    let message =
        MessageContent { content: r#"{"role":"user","content":[{"type":"text","text":"hi"}]}"#.into(), tokens: 1 };
    to_session(session::Command::Prompt { message, with: Vec::new(), when_busy: WhenBusy::FollowUp })
}

pub(crate) fn allow(gate: GateId) -> Command {
    let by = PrincipalId::new("host");
    Command::Gate(gate::Command::Answer { gate, answer: GateReply::Allow(ApprovalScope::Once), by, key: None })
}

/// Asks until `what` gives something. Each look waits for the owner, so this is no sleep.
pub(crate) async fn eventually<T: Send + 'static>(
    owner: &OwnerHandle,
    what: impl Fn(&countersign_core::engine::Engine) -> Option<T> + Clone + Send + 'static,
) -> T {
    let requests = owner.source(runtime::InboxLane::Request);
    let look = async {
        loop {
            if let Some((Some(found), _)) = requests.read_state(what.clone()).await {
                return found;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), look).await.expect("it does not come about")
}

pub(crate) async fn pending(owner: &OwnerHandle) -> GateId {
    eventually(owner, |engine| engine.state().pending_gates().next().map(|gate| gate.id())).await
}

pub(crate) async fn at_rest(owner: &OwnerHandle) {
    eventually(owner, |engine| engine.state().session(&name()).filter(|session| session.is_at_rest()).map(|_| ()))
        .await;
}
