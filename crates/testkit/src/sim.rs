//! Drives the engine through random commands and crashes, and checks the invariants after every step.
//!
//! It is pure: the same seed gives the same run. It must not know a socket, a file or a clock; the owner around the engine is a small one
//! of its own, so that only the engine and the contract between the two are in question.

mod audit;
mod channels;
mod commands;
mod contracts;
mod hosts;
mod jobs;
mod messages;
mod owner;
mod rng;
mod rules;
mod sim_log;
mod world;

use std::{collections::BTreeSet, fmt};

use owner::{SimOwner, TraceMode};

/// Fault that is planted, once a run, to check that it is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedFault {
    /// A reply leaves before its facts are durable.
    ReplyBeforeAppend,
    /// A call that the last process had started is started again after a restart.
    StartTwice,
    /// A model request that is owed is not made.
    DropTurn,
    /// A gate that is resolved is resolved once more.
    SecondAnswer,
    /// A call runs with other arguments than the decided ones.
    OtherArguments,
    /// The result of a call is not reported.
    ForgetResult,
    /// One fact of a batch is left out of the log.
    LoseFact,
    /// A request gets a second reply.
    ReplyTwice,
    /// A call starts before the decision that let it through is durable.
    StartTooEarly,
    /// Only a part of a session that left memory is loaded again.
    FetchLess,
    /// Rules whose record failed stay in force.
    KeepRules,
    /// A refusal leaves although its cause was not recorded.
    RefuseForNothing,
    /// A call that a peer had when its connection broke is reported as not sent.
    SendAgain,
    /// A process gives a session whose host is away the rules of its own.
    RulesForHost,
    /// A session whose budget is used up gets more without an approval.
    MoreForNothing,
    /// A job fires twice for one time.
    FireTwice,
    /// A firing that is owed is not handled.
    DropFiring,
    /// A message of a chat network is taken twice.
    HearTwice,
}

impl PlantedFault {
    /// All faults.
    pub const ALL: [Self; 18] = [
        Self::ReplyBeforeAppend,
        Self::StartTwice,
        Self::DropTurn,
        Self::SecondAnswer,
        Self::OtherArguments,
        Self::ForgetResult,
        Self::LoseFact,
        Self::ReplyTwice,
        Self::StartTooEarly,
        Self::FetchLess,
        Self::KeepRules,
        Self::RefuseForNothing,
        Self::RulesForHost,
        Self::SendAgain,
        Self::MoreForNothing,
        Self::FireTwice,
        Self::DropFiring,
        Self::HearTwice,
    ];
}

/// Counts of a run, as a measure of coverage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimStats {
    /// Records in the log.
    pub facts: u64,
    /// Processes that died.
    pub crashes: u32,
    /// Appends that failed without a crash.
    pub failures: u32,
    /// Pieces of work that had an effect outside.
    pub effects: u32,
    /// Replies that left.
    pub replies: u32,
    /// Sessions and gates that were fetched back from the log.
    pub fetched: u32,
    /// Every kind of fact that was recorded.
    pub kinds: BTreeSet<String>,
}

impl SimStats {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: Self) {
        self.facts += other.facts;
        self.crashes += other.crashes;
        self.failures += other.failures;
        self.effects += other.effects;
        self.replies += other.replies;
        self.fetched += other.fetched;
        self.kinds.extend(other.kinds);
    }
}

/// Broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimFailure {
    /// Seed that gives the same run again.
    pub seed: u64,
    /// Step in which it was noticed.
    pub step: u32,
    /// Invariant.
    pub broken: String,
    /// Last events, oldest first.
    pub last: Vec<String>,
}

impl fmt::Display for SimFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} step {}: {}", self.seed, self.step, self.broken)?;
        self.last.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

/// Number of last events in a failure.
const TRACE_LENGTH: usize = 60;

/// Runs one seed for `steps` steps, then lets everything come to rest.
///
/// # Errors
/// The first broken invariant.
pub fn run(seed: u64, steps: u32, fault: Option<PlantedFault>) -> Result<SimStats, SimFailure> {
    // Writing everything down takes longer than all the rest: only a run that failed is traced, by running it again.
    run_with_trace(seed, steps, fault, TraceMode::Off).or_else(|_| run_with_trace(seed, steps, fault, TraceMode::On))
}

fn run_with_trace(
    seed: u64,
    steps: u32,
    fault: Option<PlantedFault>,
    trace_mode: TraceMode,
) -> Result<SimStats, SimFailure> {
    let mut owner = SimOwner::new(seed, fault, trace_mode);
    let mut step = 0;
    let outcome = owner.start_process().and_then(|()| {
        while step < steps {
            step += 1;
            owner.run_step()?;
        }
        owner.come_to_rest()
    });
    match outcome {
        Ok(()) => Ok(owner.collect_stats()),
        Err(broken) => {
            let last = owner.trace.split_off(owner.trace.len().saturating_sub(TRACE_LENGTH));
            Err(SimFailure { seed, step, broken, last })
        }
    }
}
