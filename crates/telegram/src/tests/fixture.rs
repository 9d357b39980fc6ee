//! A gateway with one agent, one service that counts its calls, and a chat.

use std::{
    collections::VecDeque,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use countersign_core::{
    call::{self, CallDetails},
    engine::{ActiveRules, Command, EngineReply, ResumeMode},
    gate::{self, Gate, GateReply},
    id::{CallId, PrincipalId, SessionId},
    message::StoredMessage,
    policy::{self, DefaultPolicy, PathContext},
    session::{self, ModelRef, Settings as Set},
    time::Millis,
    tool::{RepeatMode, ToolEffect, ToolSpec},
};
use countersign_runtime::{
    Clock, CommandSource, InboxLane, OwnerHandle, OwnerOptions, ResolvedModel, RunEnvironment, ServiceOutcome,
    models::{self, LanguageModel},
    store::MemoryLog,
    system_entropy,
    tools::{self, ToolRegistry},
};
use futures_util::{
    StreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    super::{TelegramMessenger, TelegramSettings},
    fake_api::FakeBotApi,
};

/// The group of the cards, and a user in it who may answer.
pub(super) const CHAT: i64 = -100_500;
pub(super) const ANA: i64 = 111;
pub(super) const BEN: i64 = 112;
pub(super) const STRANGER: i64 = 999;

/// A service that follows its calls, or the test's script.
#[derive(Clone)]
pub(super) struct FakeRunHost {
    pub(super) served: Arc<AtomicUsize>,
    pub(super) says: Arc<Mutex<ServiceOutcome>>,
    /// Time that it takes. Virtual time.
    pub(super) takes: Arc<Mutex<Duration>>,
    /// The rules of the next process.
    pub(super) rules: Arc<Mutex<ActiveRules>>,
    /// Next answers of the model; without it there is none.
    pub(super) plays: Arc<Mutex<VecDeque<Vec<models::ModelEvent>>>>,
}

impl LanguageModel for FakeRunHost {
    fn stream(&self, _: models::ModelRequest) -> BoxStream<'static, Result<models::ModelEvent, models::ModelFailure>> {
        let events = self.plays.lock().pop_front().unwrap_or_default();
        stream::iter(events.into_iter().chain([models::ModelEvent::Stop(models::FinishReason::Stop)]).map(Ok)).boxed()
    }
}

impl RunEnvironment for FakeRunHost {
    fn resolve_model(&self, _: &ModelRef) -> Result<ResolvedModel, String> {
        if self.plays.lock().is_empty() {
            return Err("there is no model".to_owned());
        }
        Ok(ResolvedModel { entry: Arc::new(models::demo::model_entry()), key: None, model: Arc::new(self.clone()) })
    }

    fn tool_registry(&self, _: &SessionId) -> Arc<ToolRegistry> {
        Arc::new(ToolRegistry::standard())
    }

    fn system_prompt(&self, _: &SessionId, _: &str, _: &[&ToolSpec]) -> String {
        String::new()
    }

    fn call_service<'a>(&'a self, _: &'a CallDetails, _: CancellationToken) -> BoxFuture<'a, ServiceOutcome> {
        self.served.fetch_add(1, Ordering::SeqCst);
        let outcome = self.says.lock().clone();
        let takes = *self.takes.lock();
        Box::pin(async move {
            tokio::time::sleep(takes).await;
            outcome
        })
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

/// One process: its owner and its messenger.
pub(super) struct MessengerFixture {
    pub(super) api: FakeBotApi,
    pub(super) house: FakeRunHost,
    pub(super) log: MemoryLog,
    pub(super) owner: OwnerHandle,
    pub(super) source: CommandSource,
    pub(super) telegram: Option<TelegramMessenger>,
    /// True if the agent is there.
    pub(super) present: Arc<AtomicBool>,
    /// The topic that cards go to.
    pub(super) topic: Option<i64>,
    request_count: u32,
}

pub(super) fn session() -> SessionId {
    SessionId::new("agent:kitchen")
}

/// Rules that let people decide everything.
pub(super) fn rules() -> ActiveRules {
    ActiveRules {
        compiled: policy::compile_rules(Vec::new()).unwrap(),
        default_policy: DefaultPolicy::Gateway,
        path_context: PathContext::default(),
        people: gate::IdentityMap::default(),
    }
}

async fn open(log: &MemoryLog, house: &FakeRunHost) -> OwnerHandle {
    let rules = house.rules.lock().clone();
    let options = OwnerOptions {
        rules,
        resume: ResumeMode::Go,
        clock: Clock::starting_at(Millis(1_800_000_000_000)),
        entropy: system_entropy(),
        environment: Arc::new(house.clone()),
        merge: Duration::ZERO,
        idle: None,
    };
    OwnerHandle::open(log.clone().into(), options).await.unwrap()
}

impl MessengerFixture {
    pub(super) async fn new() -> Self {
        let mut stage = Self::quiet().await;
        stage.begin();
        stage
    }

    pub(super) async fn ruled(rules: ActiveRules) -> Self {
        let mut stage = Self::quiet_with(rules).await;
        stage.begin();
        stage
    }

    /// Makes a fixture without the messenger.
    pub(super) async fn quiet() -> Self {
        Self::quiet_with(rules()).await
    }

    async fn quiet_with(rules: ActiveRules) -> Self {
        let done = ServiceOutcome::Done("[]".to_owned());
        let rules = Arc::new(Mutex::new(rules));
        let (served, takes, plays) = (Arc::default(), Arc::default(), Arc::default());
        let house = FakeRunHost { served, says: Arc::new(Mutex::new(done)), takes, rules, plays };
        let log = MemoryLog::new();
        let owner = open(&log, &house).await;
        let source = owner.source(InboxLane::Request);
        let command = session::Command::Open {
            cwd: "/".to_owned(),
            name: None,
            parent: None,
            door: None,
            settings: Box::new(Set { max_pending: 100, ..Set::default() }),
        };
        source.send_command(Command::Session(session(), command)).await.unwrap();
        let present = Arc::new(AtomicBool::new(true));
        Self {
            api: FakeBotApi::default(),
            house,
            log,
            owner,
            source,
            telegram: None,
            present,
            topic: None,
            request_count: 0,
        }
    }

    pub(super) fn begin(&mut self) {
        let present = Arc::clone(&self.present);
        let settings = TelegramSettings {
            presence: Arc::new(move |_| present.load(Ordering::SeqCst)),
            people: self.house.rules.lock().people.clone(),
            topic: self.topic,
            ..TelegramSettings::new("1:secret".to_owned().into(), CHAT, [ANA, BEN])
        };
        let clock = Clock::starting_at(Millis(1_800_000_000_000));
        self.telegram =
            Some(TelegramMessenger::with_transport(Arc::new(self.api.clone()), settings, self.owner.clone(), clock));
    }

    /// Ends the process, and puts another in its place.
    pub(super) async fn restart(&mut self) {
        self.telegram = None;
        self.log.crash();
        self.log = self.log.restart();
        self.api.with(|room| room.dead = false);
        self.owner = open(&self.log, &self.house).await;
        self.source = self.owner.source(InboxLane::Request);
        self.begin();
    }

    /// Requests a call about `entity` as the agent.
    pub(super) async fn ask(&mut self, entity: &str) -> CallId {
        self.ask_with(entity, json!({})).await
    }

    pub(super) async fn ask_with(&mut self, entity: &str, more: Value) -> CallId {
        self.request_count += 1;
        let mut arguments = json!({ "domain": "light", "service": "turn_on", "entity_id": entity });
        for (key, value) in more.as_object().into_iter().flatten() {
            arguments[key] = value.clone();
        }
        let request = call::AgentRequest {
            session: session(),
            principal: PrincipalId::new("kitchen-pi"),
            door: "agent-gate".into(),
            wire: self.request_count.to_string().into(),
            key: None,
            tool: "ha_call_service".into(),
            signatures: vec![format!("ha_call_service(light.turn_on, {entity})")],
            arguments: arguments.as_object().cloned().unwrap(),
            named: ["domain", "service", "entity_id"].map(str::to_owned).to_vec(),
            undeclared: more.get("mode").map(|_| "mode".to_owned()).into_iter().collect(),
            service: Some("house".into()),
            executor: call::RequestExecutor::Service,
            paths: Vec::new(),
            cwd: String::new(),
            leads_to: None,
            for_principals: Vec::new(),
            effect: ToolEffect::Changes,
            repeat: RepeatMode::Once,
        };
        let reply = self.source.send_command(Command::Call(call::Command::Request(Box::new(request)))).await.unwrap();
        let EngineReply::Requested { call, .. } = reply.outcome else { panic!("it is asked for") };
        call
    }

    /// Plays a run that calls a tool, and ends silently after it.
    pub(super) async fn run(&self, tool: &str, arguments: Value) {
        let call = models::MessagePart::ToolCall {
            id: "k1".to_owned(),
            name: tool.to_owned(),
            arguments: arguments.to_string(),
            signature: None,
        };
        let kind = models::PartKind::ToolCall { id: "k1".to_owned(), name: tool.to_owned() };
        let events = vec![
            models::ModelEvent::Start { response_id: None },
            models::ModelEvent::PartStart { index: 0, kind },
            models::ModelEvent::PartEnd { index: 0, part: call },
        ];
        self.house.plays.lock().extend([events, Vec::new()]);
        let message = StoredMessage::User(Default::default());
        let content = serde_json::to_string(&message).unwrap().into();
        let prompt = session::MessageContent { content, tokens: 1 };
        let (provider, id) = ("demo".to_owned(), "scripted".to_owned());
        let reference = ModelRef { provider, id, context_window: 128_000, max_tokens: 8_192, price: None };
        let model = session::Command::Set { setting: session::SessionSetting::Model(reference), entry: None };
        let when_busy = session::WhenBusy::Refuse;
        for command in [model, session::Command::Prompt { message: prompt, with: Vec::new(), when_busy }] {
            self.source.send_command(Command::Session(session(), command)).await.unwrap();
        }
    }

    /// Answers the oldest gate elsewhere.
    pub(super) async fn answer_elsewhere(&self, answer: GateReply, by: &str) {
        let pending = self.gates().await.into_iter().filter(Gate::is_pending);
        let gate = pending.min_by_key(Gate::content_lsn).unwrap().id();
        let answer = gate::Command::Answer { gate, answer, by: PrincipalId::new(by), key: None };
        self.source.send_command(Command::Gate(answer)).await.unwrap();
    }

    /// Returns all gates in memory.
    pub(super) async fn gates(&self) -> Vec<Gate> {
        let read = |engine: &countersign_core::engine::Engine| engine.state().all_gates().cloned().collect();
        self.source.read_state(read).await.unwrap().0
    }

    /// Waits until no more than `most` gates wait, or have cards that do not say how they ended.
    pub(super) async fn settled_but(&self, most: usize) {
        for _ in 0..10_000 {
            if self.gates().await.iter().filter(|gate| gate.is_pending() || gate.owes_update()).count() <= most {
                return;
            }
            tokio::task::yield_now().await;
            tokio::time::advance(Duration::from_millis(20)).await;
        }
        panic!("a card is not up to date: {:#?}", self.gates().await);
    }

    /// Waits until every card that was shown says how it ended and the record knows it.
    pub(super) async fn settled(&self) {
        for _ in 0..10_000 {
            if self.gates().await.iter().all(|gate| !gate.is_pending() && !gate.owes_update()) {
                return;
            }
            tokio::task::yield_now().await;
            // Virtual time: what waits for its turn gets it.
            tokio::time::advance(Duration::from_millis(20)).await;
        }
        panic!("a card is not up to date: {:#?}", self.gates().await);
    }

    pub(super) fn served(&self) -> usize {
        self.house.served.load(Ordering::SeqCst)
    }
}
