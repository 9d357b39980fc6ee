//! One life of the gateway: everybody around it, and what goes wrong.

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
    agents::{self, Agent},
    browsers,
    hosts::Host,
    model,
    outside::{Told, World},
    peers::{self, Client, Node},
    people, service,
};

/// How many things happen in one life at most.
const STEPS: u64 = 40;
/// How many seconds of the runtime whoever asked waits for what has to come.
const PATIENCE: u32 = 4_000;
const RULES: &str = "
defaults: [ { pattern: '*', action: ask } ]
rules: [ { pattern: 'turn(free_*', action: allow } ]
";
const TOOLS: &str = r#"
tools:
  turn: { signature: "{thing}", args: { thing: { required: true } }, request: { method: POST, path: "/turn/{thing}" } }
"#;

/// Lives until it is asked to end or dies. The last one lets everything come to rest. True if it ended as it should.
pub(crate) fn run(log: &MemoryLog, world: &World, is_last: bool) -> bool {
    let survives = within(async {
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
    world.with(|ledger| {
        ledger.figures.lives += 1;
        ledger.figures.deaths += u64::from(!survives);
    });
    world.check();
    survives
}

/// Does something on a runtime of its own, whose time stands still but for what moves it. Whatever it began ends with it.
pub(crate) fn within<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    // Time stands still as long as a thread is busy for this runtime; otherwise it would run on whenever everybody waits for a socket.
    let (release, held) = std::sync::mpsc::channel::<()>();
    let done = runtime.block_on(async {
        tokio::task::spawn_blocking(move || held.recv());
        work.await
    });
    drop(release);
    drop(runtime);
    done
}

pub(crate) struct Gateway {
    pub(crate) serving: JoinHandle<Result<(), ServeError>>,
    pub(crate) ready: oneshot::Receiver<String>,
    pub(crate) end: oneshot::Sender<()>,
    clock: Clock,
}

/// Writes down everything that a gateway reads, and starts one.
pub(crate) async fn start(log: MemoryLog, world: &World, tell: oneshot::Sender<MemoryLog>) -> Gateway {
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
    let clock = Clock::starting_at(world.with(|ledger| ledger.now));
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
        let ready = |address: &str| drop(tell_ready.send(address.to_owned()));
        let levels = LogLevels::new(|_| Ok("info".to_owned()));
        gateway::serve(loaded.config, platform, |_| {}, ready, reload, levels, ended.map(drop)).await
    };
    Gateway { serving: tokio::spawn(serving), ready, end, clock }
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

/// The models of a host's agent directory.
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

/// Everybody around the gateway.
struct Crowd {
    world: World,
    address: SocketAddr,
    socket: PathBuf,
    agent: Agent,
    client: Client,
    node: Node,
    hosts: [Host; 2],
    following: JoinHandle<()>,
}

impl Crowd {
    fn new(world: &World, address: SocketAddr) -> Self {
        Self {
            address,
            socket: world.folder("data").join(FILE),
            agent: Agent::new(world.clone(), address),
            client: Client::new(world.clone(), address),
            node: Node::new(world.clone(), address),
            hosts: [AgentProduct::Omp, AgentProduct::Gjc].map(|product| Host::new(world.clone(), product)),
            following: tokio::spawn(people::follow(world.clone(), address)),
            world: world.clone(),
        }
    }

    /// One of them does something.
    async fn act(&mut self) {
        match self.world.below(16) {
            0..4 => self.agent.ask().await,
            4 => self.client.say().await,
            5 | 6 => self.client.call().await,
            7 => self.client.answer(if self.world.chance(70) { "yes" } else { "no" }).await,
            8..10 => browsers::say(&self.world, self.address).await,
            10 | 11 => self.hosts[0].say().await,
            12 | 13 => self.hosts[1].say().await,
            14 => self.node.come().await,
            _ => match self.world.below(5) {
                0 => self.agent.leave(),
                1 => self.client.leave(),
                2 => self.node.leave(),
                3 => self.hosts[0].leave(),
                _ => self.hosts[1].leave(),
            },
        }
    }

    /// Some of what waits is answered.
    async fn answer(&mut self, percent: u64) {
        for gate in people::waiting(self.address).await.unwrap_or_default() {
            if self.world.chance(percent) {
                people::answer(&self.world, self.address, &self.socket, &gate).await;
            }
        }
    }

    /// Whoever is away comes back, and follows on.
    async fn gather(&mut self) {
        self.node.come().await;
        for host in &mut self.hosts {
            host.come().await;
        }
        if self.following.is_finished() {
            self.following = tokio::spawn(people::follow(self.world.clone(), self.address));
        }
    }
}

async fn live(log: MemoryLog, world: &World, gateway: Gateway, is_last: bool) -> bool {
    let Gateway { serving, ready, end, clock } = gateway;
    let Some(Ok(address)) = patient(ready).await else { return false };
    let address = address.rsplit('/').next().unwrap().parse().unwrap();
    let mut crowd = Crowd::new(world, address);
    crowd.node.come().await;
    // What was planted before may still go wrong in the last one.
    let steps = if is_last { 0 } else { world.below(STEPS) };
    for _ in 0..steps {
        // A step that comes to nothing for so long is left where it is.
        patient(step(&log, world, &clock, &mut crowd)).await;
        settle().await;
        world.with(|ledger| ledger.now = clock.now());
    }
    log.set_disk(DiskState::Works);
    if is_last {
        rest(&log, world, &mut crowd).await;
        // A death that was planted before: this life ends by it, and what it had not recorded yet is in no log.
        if log.wait_for_crash().now_or_never().is_some() {
            return false;
        }
    } else if world.chance(60) {
        // Killed where it stands.
        return false;
    }
    let _ = end.send(());
    let ended = patient(serving).await;
    assert!(matches!(ended, Some(Ok(Ok(())))), "it did not end as it should: {ended:?}");
    true
}

async fn step(log: &MemoryLog, world: &World, clock: &Clock, crowd: &mut Crowd) {
    match world.below(20) {
        0..10 => crowd.act().await,
        10..14 => crowd.answer(60).await,
        14 => {
            let ahead = i64::try_from(world.below(7_200_000)).unwrap() - 3_600_000;
            clock.set_ahead(ahead);
        }
        15 => {
            world.with(|ledger| ledger.figures.faults += 1);
            log.fail_after(usize::try_from(world.below(4)).unwrap(), fault(world));
        }
        16 => log.set_disk(if world.chance(40) { DiskState::Full } else { DiskState::Works }),
        _ => pass([1, 60, 1_000, 15_000][usize::try_from(world.below(4)).unwrap()]).await,
    }
}

fn fault(world: &World) -> LogFault {
    let became = if world.chance(50) { UncertainOutcome::Written } else { UncertainOutcome::Lost };
    match world.below(6) {
        0 => LogFault::Full,
        1 => LogFault::Io,
        2 | 3 => LogFault::Uncertain(became),
        4 => LogFault::CrashBefore,
        _ => LogFault::CrashAfter,
    }
}

/// Until nothing works, nothing waits, and everybody has been told everything.
async fn rest(log: &MemoryLog, world: &World, crowd: &mut Crowd) {
    world.with(|ledger| ledger.is_calm = true);
    let (mut quiet, mut has_spoken) = (0, false);
    for _ in 0..1_000 {
        let round = async {
            crowd.gather().await;
            crowd.answer(100).await;
            let is_told = crowd.agent.insist().await;
            is_told && people::is_at_rest(crowd.address).await == Some(true)
        };
        let is_quiet = patient(round).await == Some(true);
        pass(5_000).await;
        quiet = if is_quiet && crowd.client.is_answered() && crowd.hosts.iter().all(Host::is_answered) {
            quiet + 1
        } else {
            0
        };
        if log.wait_for_crash().now_or_never().is_some() {
            return;
        }
        // What ends behind a rest, such as a retry or a line that is found dead, has had its time.
        if quiet >= 6 && !has_spoken {
            // What was queued when a process ended is said before whatever its host says next.
            for host in &mut crowd.hosts {
                patient(host.say()).await;
            }
            (quiet, has_spoken) = (0, true);
        }
        if quiet >= 6 {
            return compare(log, world, crowd).await;
        }
    }
    let waiting = people::waiting(crowd.address).await;
    let asked = world.with(|ledger| ledger.asked.clone());
    let open: Vec<_> = asked.iter().filter(|(_, told)| told.is_none()).collect();
    let hosts = crowd.hosts.each_ref().map(Host::is_answered);
    let (client, at_work) = (crowd.client.is_answered(), people::at_work(crowd.address).await);
    let agent = patient(crowd.agent.insist()).await;
    panic!(
        "it does not come to rest: {waiting:?}, {open:?}, hosts {hosts:?}, client {client}, agent {agent:?}, {at_work:?}"
    );
}

/// Whether each door shows what was said at it, and the follower has everything.
async fn compare(log: &MemoryLog, world: &World, crowd: &mut Crowd) {
    let head = log.head(Partition::ZERO).await.unwrap().lsn.0;
    let has_all = || world.with(|ledger| ledger.seen.keys().next_back().copied().unwrap_or(0)) >= head;
    for host in &crowd.hosts {
        host.look();
    }
    for _ in 0..100 {
        if has_all() && crowd.hosts.iter().all(|host| host.spoken().is_some()) {
            break;
        }
        pass(1_000).await;
        crowd.gather().await;
    }
    assert!(has_all(), "the follower does not come to {head}");
    let mut shown: Vec<(&str, Vec<String>)> = Vec::new();
    for (door, host) in ["omp", "gjc"].into_iter().zip(&crowd.hosts) {
        shown.push((door, host.spoken().expect("a host is shown its session")));
    }
    let chats = world.with(|ledger| ledger.chats.clone());
    let mut in_chats = Vec::new();
    for chat in chats {
        // One in which nobody spoke is worth no record.
        in_chats.extend(browsers::spoken(crowd.address, &chat).await.unwrap_or_default());
    }
    shown.push(("browser", in_chats));
    let said = world.with(|ledger| ledger.said.clone());
    for (text, told) in said {
        let Some((_, texts)) = shown.iter().find(|(door, _)| text.starts_with(door)) else { continue };
        let times = texts.iter().filter(|shown| **shown == format!("{text}.")).count();
        let holds = match told {
            Told::Taken => times == 1,
            Told::Refused => times == 0,
            Told::Nothing => times <= 1,
        };
        if !holds {
            world.wrong(format!("{text} was told as {told:?} and is shown {times} times"));
        }
    }
}

/// Waits for something while time passes slowly. `None` if it does not come.
pub(crate) async fn patient<T>(waited_for: impl Future<Output = T>) -> Option<T> {
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

/// Lets time pass, with room in between for what it brings about.
pub(crate) async fn pass(milliseconds: u64) {
    let mut left = milliseconds;
    while left > 0 {
        let next = left.min(1_000);
        left -= next;
        tokio::time::advance(Duration::from_millis(next)).await;
        settle().await;
    }
}

/// Lets everybody do what they can do without time passing.
pub(crate) async fn settle() {
    for _ in 0..4 {
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
        // The other threads of this runtime, which look after files, have a moment too.
        let _ = tokio::task::spawn_blocking(|| ()).await;
    }
}
