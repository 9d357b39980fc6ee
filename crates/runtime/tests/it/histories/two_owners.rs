//! One log that several owners take over from each other, while earlier ones live on and do not know it: each continues
//! with its runs, and people continue to send prompts to it and answer its gates.

use std::time::Duration;

use countersign_core::{id::Lsn, policy::DefaultPolicy};
use countersign_runtime::{
    Clock, CommandSource, InboxLane, OwnerHandle,
    store::{AnyLog, DiskState, Log as _, LogFault, MemoryLog, Partition, UncertainOutcome},
};

use super::{
    life::{self, BEGIN, SimulatedWorld},
    witness::HistoryChecker,
};
use crate::fixture::{begin, name, rules};

/// Number of things that happen in one history.
const STEPS: u64 = 60;

/// A process with an owner, on one log with all others.
struct OwnerNode {
    owner: OwnerHandle,
    requests: CommandSource,
    answers: CommandSource,
}

impl OwnerNode {
    /// Starts a process that takes the log over from its owner.
    async fn start(log: &MemoryLog, world: &SimulatedWorld, witness: &mut HistoryChecker) -> Self {
        log.set_disk(DiskState::Works);
        let log = log.restart();
        witness.listen();
        witness.sees_takeover(head(&log).await);
        let owner = life::open(&log, world, Clock::starting_at(BEGIN)).await;
        let (requests, answers) = (owner.source(InboxLane::Request), owner.source(InboxLane::Result));
        if requests
            .read_state(|engine| engine.state().session(&name()).is_none())
            .await
            .is_some_and(|(is_new, _)| is_new)
        {
            begin(&owner, &std::env::temp_dir()).await;
        }
        witness.follows_too(owner.subscribe().await.unwrap());
        Self { owner, requests, answers }
    }

    async fn has_ended(&self) -> bool {
        self.requests.read_state(|_| ()).await.is_none()
    }
}

async fn head(log: &MemoryLog) -> Lsn {
    log.head(Partition::ZERO).await.unwrap().lsn
}

/// Plays one history from its beginning to its rest.
pub(crate) fn live(seed: u64) -> HistoryChecker {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (log, world, mut witness) = (MemoryLog::new(), SimulatedWorld::new(seed), HistoryChecker::default());
    runtime.block_on(play(&log, &world, &mut witness));
    drop(runtime);
    witness.examine(&log.restart(), &world);
    witness
}

async fn play(log: &MemoryLog, world: &SimulatedWorld, witness: &mut HistoryChecker) {
    tokio::spawn(mend(log.clone()));
    let mut nodes = vec![OwnerNode::start(log, world, witness).await];
    for _ in 0..STEPS {
        step(log, world, witness, &mut nodes).await;
        witness.listen();
    }
    log.set_disk(DiskState::Works);
    let owner = nodes.pop().unwrap();
    for node in &nodes {
        stops(world, witness, node).await;
    }
    life::rest(world, witness, &owner.requests, &owner.answers).await;
    let state = owner.requests.read_state(|engine| engine.state().clone()).await.unwrap().0;
    let again =
        countersign_runtime::inspect_log(&AnyLog::from(log.clone()), rules(DefaultPolicy::Gateway)).await.unwrap();
    assert!(*again.state() == state || head(log).await == Lsn(0), "a replay gives another state");
    for node in nodes.iter().chain([&owner]) {
        node.owner.close().await;
    }
    witness.listen();
    witness.stops_following();
}

async fn step(log: &MemoryLog, world: &SimulatedWorld, witness: &mut HistoryChecker, nodes: &mut Vec<OwnerNode>) {
    match world.below(20) {
        0 | 1 => nodes.push(OwnerNode::start(log, world, witness).await),
        2 | 3 => log.fail_after(usize::try_from(world.below(3)).unwrap(), fault(world)),
        4 => log.set_disk(if world.chance(50) { DiskState::Full } else { DiskState::Works }),
        5..10 => {
            let millis = [1, 60, 1_000, 20_000][usize::try_from(world.below(4)).unwrap()];
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
        choice => {
            // The owner of the log gets most requests.
            let among = if world.chance(60) { 1 } else { nodes.len() as u64 };
            let node = &nodes[nodes.len() - 1 - usize::try_from(world.below(among)).unwrap()];
            if choice < 15 {
                life::speak(world, witness, &node.requests).await;
            } else {
                life::answer(world, witness, &node.requests, &node.answers).await;
            }
        }
    }
}

/// Replaces a broken disk after a while. Before that, the outcome of the last append is unknown.
async fn mend(log: MemoryLog) {
    loop {
        tokio::time::sleep(Duration::from_secs(30)).await;
        if log.disk() == DiskState::Broken {
            log.set_disk(DiskState::Works);
        }
    }
}

/// Returns a fault of a log that does not end the process.
fn fault(world: &SimulatedWorld) -> LogFault {
    let outcome = if world.chance(50) { UncertainOutcome::Written } else { UncertainOutcome::Lost };
    match world.below(5) {
        0 => LogFault::Full,
        1 => LogFault::Io,
        2 => LogFault::Breaks(outcome),
        _ => LogFault::Uncertain(outcome),
    }
}

/// Checks that an owner that was taken over ends as soon as it has something to record.
async fn stops(world: &SimulatedWorld, witness: &mut HistoryChecker, node: &OwnerNode) {
    for _ in 0..10 {
        if node.has_ended().await {
            witness.figures.fenced += 1;
            return;
        }
        life::speak(world, witness, &node.requests).await;
        witness.listen();
        // One that could not write before tries again after a second.
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    panic!("an owner that was taken over goes on");
}
