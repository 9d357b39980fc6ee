//! One life of the gateway: its actors, and the faults.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use countersign_agent_dir::AgentProduct;
use countersign_config as config;
use countersign_config::{ConfigFlags, logging::LogLevels};
use countersign_gateway as gateway;
use countersign_gateway::{Platform, ServeError, control::FILE};
use countersign_runtime::{
    Clock,
    store::{DiskState, Log as _, LogFault, MemoryLog, Partition, UncertainOutcome},
};
use futures_util::FutureExt as _;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use crate::{
    agents::{self, SimulatedAgent},
    browsers,
    fixture::{HistoryFixture, MessageOutcome},
    hosts::SimulatedHost,
    model,
    peers::{self, SimulatedClient, SimulatedNode},
    people, service,
};

/// Most actions in one life.
const STEPS: u64 = 40;
/// Longest wait for an expected event, in seconds of the runtime.
const PATIENCE: u32 = 4_000;
const RULES: &str = "
defaults: [ { pattern: '*', action: ask } ]
rules: [ { pattern: 'turn(free_*', action: allow } ]
";
const TOOLS: &str = r#"
tools:
  turn: { signature: "{thing}", args: { thing: { required: true } }, request: { method: POST, path: "/turn/{thing}" } }
"#;

/// Runs a gateway until it is stopped or dies. The last one lets everything come to rest. Returns true if it ended normally.
pub(crate) fn run(log: &MemoryLog, world: &HistoryFixture, is_last: bool) -> bool {
    let survives = block_on_paused(async {
        let (tell, opened) = oneshot::channel();
        let gateway = start(log.clone(), world, tell).await;
        let Ok(log) = opened.await else { panic!("no record: {:?}", gateway.serving.await) };
        let crashed = log.clone();
        let living = Box::pin(live(log, world, gateway, is_last));
        tokio::select! {
            survives = living => survives,
            () = crashed.wait_for_crash() => false,
        }
    });
    world.with_ledger(|ledger| {
        ledger.figures.lives += 1;
        ledger.figures.deaths += u64::from(!survives);
    });
    world.check();
    survives
}

/// Runs a future on a runtime of its own, whose time only moves explicitly. Its tasks end with it.
pub(crate) fn block_on_paused<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    // Time stands still as long as a thread is busy for this runtime; otherwise it would advance whenever all tasks wait for a socket.
    let (release, held) = std::sync::mpsc::channel::<()>();
    let done = runtime.block_on(async {
        tokio::task::spawn_blocking(move || held.recv());
        work.await
    });
    drop(release);
    drop(runtime);
    done
}

pub(crate) struct RunningGateway {
    pub(crate) serving: JoinHandle<Result<(), ServeError>>,
    pub(crate) ready: oneshot::Receiver<String>,
    pub(crate) end: oneshot::Sender<()>,
    clock: Clock,
}

/// Writes all files that a gateway reads, and starts one.
pub(crate) async fn start(log: MemoryLog, world: &HistoryFixture, tell: oneshot::Sender<MemoryLog>) -> RunningGateway {
    let (service, model) = (service::start(world.clone()).await, model::start(world.clone()).await);
    write(&world.folder("permissions.yaml"), RULES);
    write(&world.folder("tools.yaml"), TOOLS);
    write(&world.folder("config.yaml"), &settings(service, model));
    for agent in ["agent", "gjc"] {
        let folder = world.folder(agent);
        write(&folder.join("models.yml"), &models(model));
        write(&folder.join("permissions.yaml"), "rules: [ { pattern: '*', action: ask } ]\n");
    }
    log.set_disk(DiskState::Works);
    let clock = Clock::starting_at(world.with_ledger(|ledger| ledger.now));
    let chance = world.clone();
    let platform = Platform {
        program: PathBuf::from("/bin/false"),
        record: Box::new(move |_, views| {
            let log = log.restart_with(views);
            let _ = tell.send(log.clone());
            Ok(log.into())
        }),
        clock: clock.clone(),
        entropy: Arc::new(move || chance.bytes()),
    };
    let loaded = config::load_config(Some(&world.folder("config.yaml")), &ConfigFlags::default(), &|_| None).unwrap();
    let (tell_ready, ready) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    let (never, reload) = mpsc::channel(1);
    let serving = async move {
        let _never = never;
        let ready = |realm: &gateway::GatewayRealm| drop(tell_ready.send(realm.url().to_owned()));
        let levels = LogLevels::new(|_| Ok("info".to_owned()));
        gateway::serve(loaded.config, platform, |_, _| {}, ready, reload, levels, ended.map(drop)).await
    };
    RunningGateway { serving: tokio::spawn(serving), ready, end, clock }
}

pub(crate) fn write(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

fn settings(service: SocketAddr, model: SocketAddr) -> String {
    format!(
        "gateway: {{ host: 127.0.0.1, port: 0 }}
storage: {{ type: sqlite, path: data/countersign.db }}
sandbox: {{ mode: off }}
agents_dir: agents
agent: {{ token: {} }}
clients: {{ token: {} }}
rate_limit: {{ max_requests_per_minute: 1000000 }}
services:
  desk: {{ url: \"http://{service}\", auth: {{ type: bearer, token: secret }}, tools: tools.yaml }}
model: {{ provider: local, id: small }}
providers:
  local:
    api: openai-completions
    base_url: http://{model}/v1
    api_key: key
    models: [ {{ id: small, context_window: 1000000, max_tokens: 4096 }} ]
",
        agents::TOKEN,
        peers::TOKEN
    )
}

/// Returns the models of a host's agent directory.
fn models(model: SocketAddr) -> String {
    let cost = "{ input: 1, output: 2, cacheRead: 0, cacheWrite: 0 }";
    format!(
        "providers:
  local:
    baseUrl: http://{model}/v1
    apiKey: key
    api: openai-completions
    models: [ {{ id: small, reasoning: false, input: [text], cost: {cost}, contextWindow: 1000000, maxTokens: 4096 }} ]
"
    )
}

/// All actors around the gateway.
struct HistoryActors {
    world: HistoryFixture,
    address: SocketAddr,
    socket: PathBuf,
    agent: SimulatedAgent,
    client: SimulatedClient,
    node: SimulatedNode,
    hosts: [SimulatedHost; 2],
    following: JoinHandle<()>,
}

impl HistoryActors {
    fn new(world: &HistoryFixture, address: SocketAddr) -> Self {
        Self {
            address,
            socket: world.folder("data").join(FILE),
            agent: SimulatedAgent::new(world.clone(), address),
            client: SimulatedClient::new(world.clone(), address),
            node: SimulatedNode::new(world.clone(), address),
            hosts: [AgentProduct::Omp, AgentProduct::Gjc].map(|product| SimulatedHost::new(world.clone(), product)),
            following: tokio::spawn(people::follow(world.clone(), address)),
            world: world.clone(),
        }
    }

    /// Lets one of them act.
    async fn act(&mut self) {
        match self.world.below(16) {
            0..4 => self.agent.ask().await,
            4 => self.client.say().await,
            5 | 6 => self.client.call().await,
            7 => self.client.answer(if self.world.chance(70) { "yes" } else { "no" }).await,
            8..10 => browsers::say(&self.world, self.address).await,
            10 | 11 => self.hosts[0].say().await,
            12 | 13 => self.hosts[1].say().await,
            14 => self.node.ensure_connected().await,
            _ => match self.world.below(5) {
                0 => self.agent.disconnect(),
                1 => self.client.disconnect(),
                2 => self.node.disconnect(),
                3 => self.hosts[0].disconnect(),
                _ => self.hosts[1].disconnect(),
            },
        }
    }

    /// Answers some of the pending gates.
    async fn answer(&mut self, percent: u64) {
        for gate in people::waiting_gates(self.address).await.unwrap_or_default() {
            if self.world.chance(percent) {
                people::answer(&self.world, self.address, &self.socket, &gate).await;
            }
        }
    }

    /// Reconnects all actors, and the follower.
    async fn reconnect_all(&mut self) {
        self.node.ensure_connected().await;
        for host in &mut self.hosts {
            host.ensure_connected().await;
        }
        if self.following.is_finished() {
            self.following = tokio::spawn(people::follow(self.world.clone(), self.address));
        }
    }
}

async fn live(log: MemoryLog, world: &HistoryFixture, gateway: RunningGateway, is_last: bool) -> bool {
    let RunningGateway { serving, ready, end, clock } = gateway;
    let Some(Ok(address)) = wait_for(ready).await else { return false };
    let address = address.rsplit('/').next().unwrap().parse().unwrap();
    let mut crowd = HistoryActors::new(world, address);
    crowd.node.ensure_connected().await;
    // Faults that were planted before may still happen in the last one.
    let steps = if is_last { 0 } else { world.below(STEPS) };
    for _ in 0..steps {
        // A step that has no effect for so long is abandoned.
        wait_for(step(&log, world, &clock, &mut crowd)).await;
        settle().await;
        world.with_ledger(|ledger| ledger.now = clock.now());
    }
    log.set_disk(DiskState::Works);
    if is_last {
        come_to_rest(&log, world, &mut crowd).await;
        // A crash that was planted before: this life ends by it, and unrecorded commands are in no log.
        if log.wait_for_crash().now_or_never().is_some() {
            return false;
        }
    } else if world.chance(60) {
        // Killed at this point.
        return false;
    }
    let _ = end.send(());
    let ended = wait_for(serving).await;
    assert!(matches!(ended, Some(Ok(Ok(())))), "it did not end as it should: {ended:?}");
    true
}

async fn step(log: &MemoryLog, world: &HistoryFixture, clock: &Clock, crowd: &mut HistoryActors) {
    match world.below(20) {
        0..10 => crowd.act().await,
        10..14 => crowd.answer(60).await,
        14 => {
            let ahead = i64::try_from(world.below(7_200_000)).unwrap() - 3_600_000;
            clock.set_ahead(ahead);
        }
        15 => {
            world.with_ledger(|ledger| ledger.figures.faults += 1);
            log.fail_after(usize::try_from(world.below(4)).unwrap(), fault(world));
        }
        16 => log.set_disk(if world.chance(40) { DiskState::Full } else { DiskState::Works }),
        _ => advance_time([1, 60, 1_000, 15_000][usize::try_from(world.below(4)).unwrap()]).await,
    }
}

fn fault(world: &HistoryFixture) -> LogFault {
    let became = if world.chance(50) { UncertainOutcome::Written } else { UncertainOutcome::Lost };
    match world.below(6) {
        0 => LogFault::Full,
        1 => LogFault::Io,
        2 | 3 => LogFault::Uncertain(became),
        4 => LogFault::CrashBefore,
        _ => LogFault::CrashAfter,
    }
}

/// Waits until no session works, no gate is pending, and every actor has its answers.
async fn come_to_rest(log: &MemoryLog, world: &HistoryFixture, crowd: &mut HistoryActors) {
    world.with_ledger(|ledger| ledger.is_calm = true);
    let (mut quiet, mut has_spoken) = (0, false);
    for _ in 0..1_000 {
        let round = async {
            crowd.reconnect_all().await;
            crowd.answer(100).await;
            let is_told = crowd.agent.retry_unanswered().await;
            is_told && people::is_at_rest(crowd.address).await == Some(true)
        };
        let is_quiet = wait_for(round).await == Some(true);
        advance_time(5_000).await;
        quiet = if is_quiet && crowd.client.is_answered() && crowd.hosts.iter().all(SimulatedHost::is_answered) {
            quiet + 1
        } else {
            0
        };
        if log.wait_for_crash().now_or_never().is_some() {
            return;
        }
        // Work that ends after a rest, such as a retry or a dead connection that is detected, has had its time.
        if quiet >= 6 && !has_spoken {
            // A message that was queued when a process ended precedes the next one of its host.
            for host in &mut crowd.hosts {
                wait_for(host.say()).await;
            }
            (quiet, has_spoken) = (0, true);
        }
        if quiet >= 6 {
            return compare_doors(log, world, crowd).await;
        }
    }
    let waiting = people::waiting_gates(crowd.address).await;
    let requests = world.with_ledger(|ledger| ledger.requests.clone());
    let open: Vec<_> = requests.iter().filter(|(_, outcome)| outcome.is_none()).collect();
    let hosts = crowd.hosts.each_ref().map(SimulatedHost::is_answered);
    let (client, at_work) = (crowd.client.is_answered(), people::at_work(crowd.address).await);
    let agent = wait_for(crowd.agent.retry_unanswered()).await;
    panic!(
        "it does not come to rest: {waiting:?}, {open:?}, hosts {hosts:?}, client {client}, agent {agent:?}, {at_work:?}"
    );
}

/// Reports whether each adapter shows its messages, and the follower has every fact.
async fn compare_doors(log: &MemoryLog, world: &HistoryFixture, crowd: &mut HistoryActors) {
    let head = log.head(Partition::ZERO).await.unwrap().lsn.0;
    let has_all = || world.with_ledger(|ledger| ledger.seen.keys().next_back().copied().unwrap_or(0)) >= head;
    for host in &crowd.hosts {
        host.request_messages();
    }
    for _ in 0..100 {
        if has_all() && crowd.hosts.iter().all(|host| host.user_messages().is_some()) {
            break;
        }
        advance_time(1_000).await;
        crowd.reconnect_all().await;
    }
    assert!(has_all(), "the follower does not come to {head}");
    let mut shown: Vec<(&str, Vec<String>)> = Vec::new();
    for (door, host) in ["omp", "gjc"].into_iter().zip(&crowd.hosts) {
        shown.push((door, host.user_messages().expect("a host is shown its session")));
    }
    let chats = world.with_ledger(|ledger| ledger.chats.clone());
    let mut in_chats = Vec::new();
    for chat in chats {
        // A session without messages has no record.
        in_chats.extend(browsers::user_messages(crowd.address, &chat).await.unwrap_or_default());
    }
    shown.push(("browser", in_chats));
    let messages = world.with_ledger(|ledger| ledger.messages.clone());
    for (text, outcome) in messages {
        let Some((_, texts)) = shown.iter().find(|(door, _)| text.starts_with(door)) else { continue };
        let times = texts.iter().filter(|shown| **shown == format!("{text}.")).count();
        let holds = match outcome {
            MessageOutcome::Taken => times == 1,
            MessageOutcome::Refused => times == 0,
            MessageOutcome::Nothing => times <= 1,
        };
        if !holds {
            world.report_violation(format!("{text} was told as {outcome:?} and is shown {times} times"));
        }
    }
}

/// Waits for a future while time passes slowly. `None` if it does not complete.
pub(crate) async fn wait_for<T>(waited_for: impl Future<Output = T>) -> Option<T> {
    tokio::pin!(waited_for);
    for _ in 0..PATIENCE {
        let beat = async {
            settle().await;
            tokio::time::advance(Duration::from_secs(1)).await;
        };
        tokio::select! {
            biased;
            came = &mut waited_for => return Some(came),
            () = beat => {}
        }
    }
    None
}

/// Lets time pass, with room in between for its effects.
pub(crate) async fn advance_time(milliseconds: u64) {
    let mut left = milliseconds;
    while left > 0 {
        let next = left.min(1_000);
        left -= next;
        tokio::time::advance(Duration::from_millis(next)).await;
        settle().await;
    }
}

/// Lets all tasks run as far as they can without time passing.
pub(crate) async fn settle() {
    for _ in 0..4 {
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
        // The other threads of this runtime, which handle files, have a moment too.
        let _ = tokio::task::spawn_blocking(|| ()).await;
    }
}
