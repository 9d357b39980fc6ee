//! One life of the process: an owner, a model and a tool that counts its calls, people, and faults.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use countersign_core::{
    engine::{Command, EngineReply as Outcome, ResumeMode},
    gate::{self, ApprovalScope, GateReply},
    id::{GateId, Lsn, PrincipalId},
    policy::DefaultPolicy,
    run,
    session::{self, MessageContent, WhenBusy},
    time::Millis,
    tool::{CallConcurrency, RepeatMode, ToolEffect, ToolSpec},
};
use countersign_runtime::{
    Clock, CommandSource, InboxLane, OwnerError, OwnerHandle,
    models::{
        FailureKind, LanguageModel, ModelEvent, ModelFailure, ModelRequest, RequestMessage,
        scripted::{ReplyStep, ScriptedModel, ScriptedReply},
    },
    store::{AnyLog, DiskState, Log as _, LogFault, MemoryLog, Partition, UncertainOutcome as Became},
    tools::{self, AgentTool},
};
use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::BoxStream};
use serde_json::{Map, Value, json};

use super::{
    SeededRandom,
    witness::{HistoryChecker, MessageAcceptance},
};
use crate::fixture::{self, begin, name, rules, to_session};

/// The tool that counts.
pub(crate) const STRIKE: &str = "strike";

/// Most things that happen in one life.
const STEPS: u64 = 25;
/// Time that a client waits, in the time of the runtime.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3600);
/// When histories begin.
pub(super) const BEGIN: Millis = Millis(1_700_000_000_000);

/// State that outlives the process.
#[derive(Clone)]
pub(crate) struct SimulatedWorld(Arc<Mutex<WorldState>>);

struct WorldState {
    random: SeededRandom,
    /// Number of times each thing was done.
    done: BTreeMap<u64, u32>,
    calls_requested: u64,
    messages_sent: u64,
}

impl SimulatedWorld {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(WorldState {
            random: SeededRandom(seed),
            done: BTreeMap::new(),
            calls_requested: 0,
            messages_sent: 0,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, WorldState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn below(&self, end: u64) -> u64 {
        self.lock().random.below(end)
    }

    pub(super) fn chance(&self, percent: u64) -> bool {
        self.lock().random.chance(percent)
    }

    /// Returns the number of times each thing was done.
    pub(crate) fn done(&self) -> BTreeMap<u64, u32> {
        self.lock().done.clone()
    }

    fn pause(&self) -> Duration {
        Duration::from_millis([0, 1, 40, 700, 5_000][usize::try_from(self.below(5)).unwrap()])
    }
}

/// Does a thing, then takes its time to say so.
struct StrikeTool(ToolSpec, SimulatedWorld);

impl AgentTool for StrikeTool {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn run<'a>(
        &'a self,
        arguments: Map<String, Value>,
        cx: &'a tools::ToolContext,
    ) -> BoxFuture<'a, Result<tools::CallOutput, tools::CallFailure>> {
        let thing = arguments["thing"].as_u64().unwrap();
        *self.1.lock().done.entry(thing).or_default() += 1;
        let pause = self.1.pause();
        async move {
            tokio::select! {
                () = tokio::time::sleep(pause) => Ok(tools::CallOutput::from_text(format!("did {thing}"))),
                () = cx.cancel.cancelled() => Err(tools::CallFailure::Cancelled("stopped".to_owned())),
            }
        }
        .boxed()
    }
}

fn strike(world: &SimulatedWorld) -> Arc<dyn AgentTool> {
    let schema = json!({
        "type": "object", "properties": { "thing": { "type": "integer" } }, "required": ["thing"],
        "additionalProperties": false,
    });
    let spec = ToolSpec {
        name: STRIKE.to_owned(),
        description: String::new(),
        schema,
        concurrency: CallConcurrency::Shared,
        repeat: RepeatMode::Once,
        effect: ToolEffect::Changes,
        signature: &["thing"],
    };
    Arc::new(StrikeTool(spec, world.clone()))
}

/// Calls a tool once or twice, then says that all is well; now and then it is slow, breaks off or fails.
struct RandomModel(SimulatedWorld);

impl LanguageModel for RandomModel {
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<ModelEvent, ModelFailure>> {
        let is_answer = matches!(request.messages.last(), Some(RequestMessage::ToolResult { .. }));
        let reply = match self.0.below(12) {
            0 => ScriptedReply::from_failure(ModelFailure::new(FailureKind::Server, "it failed")),
            1 => ScriptedReply::new()
                .add_text(["half"])
                .add_step(ReplyStep::Fail(ModelFailure::new(FailureKind::Network, "it broke off"))),
            2 if self.0.chance(30) => ScriptedReply::new().add_step(ReplyStep::Hang),
            _ if is_answer && !self.0.chance(20) => ScriptedReply::from_text("done"),
            _ => {
                let calls = 1 + self.0.below(2);
                let first = {
                    let mut outside = self.0.lock();
                    outside.calls_requested += calls;
                    outside.calls_requested - calls
                };
                (first..first + calls)
                    .fold(ScriptedReply::new(), |reply, thing| {
                        reply.add_call(&format!("c{thing}"), STRIKE, &json!({ "thing": thing }).to_string())
                    })
                    .end()
            }
        };
        let pause = self.0.pause();
        futures_util::stream::once(tokio::time::sleep(pause))
            .flat_map(move |()| ScriptedModel::new([reply.clone()]).stream(request.clone()))
            .boxed()
    }
}

/// Lives until it ends as it should or dies. The last one lets everything come to rest.
///
/// True if it ended as it should.
pub(crate) fn run(log: &MemoryLog, world: &SimulatedWorld, witness: &mut HistoryChecker, is_last: bool) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    // Everything that this life was about ends with its runtime.
    runtime.block_on(async {
        let living = Box::pin(live(log, world, witness, is_last));
        let survives = tokio::select! {
            () = living => true,
            () = log.wait_for_crash() => false,
        };
        witness.figures.deaths += u64::from(!survives);
        survives
    })
}

async fn live(log: &MemoryLog, world: &SimulatedWorld, witness: &mut HistoryChecker, is_last: bool) {
    log.set_disk(DiskState::Works);
    let clock = Clock::starting_at(BEGIN);
    let owner = open(log, world, clock.clone()).await;
    let requests = owner.source(InboxLane::Request);
    let answers = owner.source(InboxLane::Result);
    let folder = std::env::temp_dir();
    if requests.read_state(|engine| engine.state().session(&name()).is_none()).await.is_some_and(|(is_new, _)| is_new) {
        begin(&owner, &folder).await;
    }
    witness.follows(owner.subscribe().await.unwrap());
    // A fault planted before may still go wrong in the last one.
    let steps = if is_last { 0 } else { world.below(STEPS) };
    for _ in 0..steps {
        step(log, world, witness, &clock, &requests, &answers).await;
        witness.listen();
    }
    log.set_disk(DiskState::Works);
    if is_last {
        rest(world, witness, &requests, &answers).await;
        // A death that was planted before: this life ends by it, and facts that it had not recorded yet are in no log.
        if log.wait_for_crash().now_or_never().is_some() {
            std::future::pending::<()>().await;
        }
        let state = requests.read_state(|engine| engine.state().clone()).await.unwrap().0;
        let again =
            countersign_runtime::inspect_log(&AnyLog::from(log.clone()), rules(DefaultPolicy::Gateway)).await.unwrap();
        // A session without a prompt is not worth a log yet.
        let is_kept = log.head(Partition::ZERO).await.unwrap().lsn > Lsn(0);
        assert!(*again.state() == state || !is_kept, "a replay gives another state");
    }
    owner.close().await;
    witness.listen();
    witness.stops_following();
}

pub(super) async fn open(log: &MemoryLog, world: &SimulatedWorld, clock: Clock) -> OwnerHandle {
    let rolled = world.clone();
    let dice: countersign_runtime::Entropy = Arc::new(move || rolled.lock().random.bytes());
    let resume = if world.chance(50) { ResumeMode::Go } else { ResumeMode::Wait };
    let model: Arc<dyn LanguageModel> = Arc::new(RandomModel(world.clone()));
    fixture::open_for_history(log.clone(), model, vec![strike(world)], clock, dice, resume).await
}

async fn step(
    log: &MemoryLog,
    world: &SimulatedWorld,
    witness: &mut HistoryChecker,
    clock: &Clock,
    requests: &CommandSource,
    answers: &CommandSource,
) {
    match world.below(20) {
        0..5 => speak(world, witness, requests).await,
        5..10 => answer(world, witness, requests, answers).await,
        10 => {
            let aborted = requests.send_command(Command::Run(run::Command::Abort { session: name() })).await;
            witness.note(&aborted);
        }
        11 => {
            let ahead = i64::try_from(world.below(7_200_000)).unwrap() - 3_600_000;
            clock.set_ahead(ahead);
        }
        12..14 => log.fail_after(usize::try_from(world.below(3)).unwrap(), fault(world)),
        14 => log.set_disk(if world.chance(50) { DiskState::Full } else { DiskState::Works }),
        _ => {
            tokio::time::sleep(Duration::from_millis([1, 60, 1_000, 20_000][usize::try_from(world.below(4)).unwrap()]))
                .await
        }
    }
}

fn fault(world: &SimulatedWorld) -> LogFault {
    let became = if world.chance(50) { Became::Written } else { Became::Lost };
    match world.below(6) {
        0 => LogFault::Full,
        1 => LogFault::Io,
        2 | 3 => LogFault::Uncertain(became),
        4 => LogFault::CrashBefore,
        _ => LogFault::CrashAfter,
    }
}

/// Says something, now and then twice at once under the same key.
pub(super) async fn speak(world: &SimulatedWorld, witness: &mut HistoryChecker, requests: &CommandSource) {
    let number = {
        let mut outside = world.lock();
        outside.messages_sent += 1;
        outside.messages_sent
    };
    let text = format!("message {number}.");
    let content = json!({ "role": "user", "content": [{ "type": "text", "text": text }] }).to_string();
    let message = MessageContent { content: content.into(), tokens: 1 };
    let when_busy = if world.chance(50) { WhenBusy::FollowUp } else { WhenBusy::Steer };
    let prompt = to_session(session::Command::Prompt { message, with: Vec::new(), when_busy });
    witness.record_message(text.clone(), MessageAcceptance::Nothing);
    let reply =
        tokio::time::timeout(REPLY_TIMEOUT, requests.send_command(prompt)).await.expect("a request is answered");
    witness.note(&reply);
    witness.record_message(text, MessageAcceptance::from_reply(&reply));
}

/// Answers what waits, now and then twice, and from two people at once.
pub(super) async fn answer(
    world: &SimulatedWorld,
    witness: &mut HistoryChecker,
    requests: &CommandSource,
    answers: &CommandSource,
) {
    let pending = requests.read_state(|engine| engine.state().pending_gates().map(gate::Gate::id).collect::<Vec<_>>());
    let Some((pending, _)) = pending.await else { return };
    for gate in pending {
        let first = decide(gate, "ana", world.chance(70), &format!("k{}", world.below(1 << 40)));
        let mut sent = vec![first.clone()];
        if world.chance(20) {
            sent.push(first);
        }
        if world.chance(20) {
            sent.push(decide(gate, "ben", world.chance(50), "ben's"));
        }
        let mut replies = Vec::new();
        for command in sent {
            replies.push(answers.submit_command(command).await);
        }
        for reply in replies {
            let reply = tokio::time::timeout(REPLY_TIMEOUT, reply).await.expect("an answer is replied to");
            let Ok(reply) = reply else { continue };
            witness.note(&reply);
            if let Ok(Outcome::Resolved(resolution)) = reply.map(|reply| reply.outcome) {
                witness.answered(gate, resolution);
            }
        }
    }
}

fn decide(gate: GateId, by: &str, allows: bool, key: &str) -> Command {
    let answer = if allows { GateReply::Allow(ApprovalScope::Once) } else { GateReply::Deny { reason: None } };
    Command::Gate(gate::Command::Answer { gate, answer, by: PrincipalId::new(by), key: Some(key.to_owned()) })
}

/// Waits until no work runs and nothing is pending.
pub(super) async fn rest(
    world: &SimulatedWorld,
    witness: &mut HistoryChecker,
    requests: &CommandSource,
    answers: &CommandSource,
) {
    for _ in 0..2_000 {
        answer(world, witness, requests, answers).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        witness.listen();
        let is_at_rest = requests
            .read_state(|engine| {
                let session = engine.state().session(&name());
                session.is_none_or(session::Session::is_at_rest) && engine.state().pending_gates().next().is_none()
            })
            .await;
        if is_at_rest.is_some_and(|(is_at_rest, _)| is_at_rest) {
            return;
        }
        // A model that hangs is stopped by people.
        if world.chance(5) {
            let stopped: Result<_, OwnerError> =
                requests.send_command(Command::Run(run::Command::Abort { session: name() })).await;
            witness.note(&stopped);
        }
    }
    panic!("it does not come to rest");
}
