//! Keeps the work in flight in step with the owed work.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use countersign_core::{
    OwedWork,
    call::{self, CallProgress},
    engine::{Command, Engine},
    folder_of,
    id::{CallId, RunId},
    message::StopReason,
    owed_work,
    run::{self, ModelAnswer, ProviderFailure},
    session::{self, CompactionOutcome},
    stopping_work,
};
use futures_util::FutureExt;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::{
    DueFiring, EnvironmentFor, RunEnvironment, call::CallWork, compact::CompactWork, conversation,
    live_questions::LiveQuestions, silent_retries::BudgetMode, turn::TurnWork, wait::Stopwatch,
};
use crate::{deliver::ContentCache, inbox::CommandSource, metrics::RuntimeMetrics};

struct InFlight {
    cancel: CancellationToken,
    task: JoinHandle<()>,
    /// True if a service or a peer has it in hand: cancelled, its outcome is unknown.
    is_elsewhere: bool,
}

/// Work that is stopped when the owner closes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CloseScope {
    /// All work but that at a service or a peer, which may answer yet.
    AllButElsewhere,
    All,
}

/// Options of a [`Reconciler`].
pub(crate) struct ReconcilerOptions {
    /// Environment of work: models, tools, prompts.
    pub(crate) environment: Arc<dyn RunEnvironment>,
    /// Line for the results.
    pub(crate) results: CommandSource,
    pub(crate) contents: ContentCache,
    /// Time for which deltas of one block are gathered before they are released.
    pub(crate) merge: Duration,
    /// True if nothing is started yet.
    pub(crate) is_held: Arc<AtomicBool>,
    pub(crate) meters: Arc<RuntimeMetrics>,
}

/// Starts work that is owed and not in flight, cancels work in flight that is no longer owed.
pub(crate) struct Reconciler {
    environment: Arc<dyn RunEnvironment>,
    results: CommandSource,
    contents: ContentCache,
    merge: Duration,
    in_flight: BTreeMap<OwedWork, InFlight>,
    is_closing: bool,
    /// True if nothing is started yet.
    is_held: Arc<AtomicBool>,
    meters: Arc<RuntimeMetrics>,
    /// Questions that calls ask people while they work.
    questions: LiveQuestions,
    /// Calls whose work was begun in this process and whose turn is still open.
    known: BTreeSet<(CallId, u32)>,
}

impl Reconciler {
    pub(crate) fn new(options: ReconcilerOptions) -> Self {
        let ReconcilerOptions { environment, results, contents, merge, is_held, meters } = options;
        Self {
            environment,
            results,
            contents,
            merge,
            in_flight: BTreeMap::new(),
            is_closing: false,
            is_held,
            meters,
            questions: LiveQuestions::default(),
            known: BTreeSet::new(),
        }
    }

    /// Reports whether nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Returns the number of pieces of work in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Stops the work in flight, and any that is started from now on. Each piece still reports its outcome.
    pub(crate) fn close(&mut self, what: CloseScope) {
        self.is_closing = true;
        for work in self.in_flight.values().filter(|work| what == CloseScope::All || !work.is_elsewhere) {
            work.cancel.cancel();
        }
    }

    /// Ends everything in flight without waiting for its results.
    pub(crate) fn abandon(&mut self) {
        for (_, work) in std::mem::take(&mut self.in_flight) {
            work.cancel.cancel();
            work.task.abort();
        }
    }

    pub(crate) fn reconcile(&mut self, engine: &Engine) {
        if self.is_held.load(Ordering::Acquire) {
            return;
        }
        let owed = owed_work(engine.state());
        let to_stop = stopping_work(engine.state());
        self.questions.deliver_answers(engine);
        // A piece that is still owed stays known even when its task has ended: its result is on the way, and starting it again could
        // run it twice.
        self.in_flight.retain(|work, in_flight| {
            let is_owed = owed.binary_search(work).is_ok();
            let is_stopping = to_stop.binary_search(work).is_ok();
            if !is_owed {
                in_flight.cancel.cancel();
            }
            // A summary that a process which ends leaves to the next says nothing more.
            let is_over = in_flight.task.is_finished();
            let is_left = self.is_closing && !is_stopping && is_over && matches!(work, OwedWork::Compact { .. });
            (is_owed || is_stopping || !is_over) && !is_left
        });
        // Work that is to stop and was never begun, or was lost, has no task that would report it.
        for work in to_stop {
            if !self.in_flight.contains_key(&work)
                && let Some(in_flight) = self.end_work(engine, &work)
            {
                self.in_flight.insert(work, in_flight);
            }
        }
        for work in owed {
            let is_left = self.is_closing && matches!(work, OwedWork::Compact { .. });
            if !is_left
                && !self.in_flight.contains_key(&work)
                && let Some(in_flight) = self.start_work(engine, &work)
            {
                if let OwedWork::Call { call, start } = &work {
                    self.known.insert((*call, *start));
                }
                self.in_flight.insert(work, in_flight);
            }
        }
        self.known.retain(|(call, _)| engine.state().call(*call).is_some());
    }

    /// Reports the stop of a piece of work that has no task.
    fn end_work(&self, engine: &Engine, work: &OwedWork) -> Option<InFlight> {
        let state = engine.state();
        let command = match work {
            OwedWork::Turn { run, epoch } => {
                let session = state.session(state.run(*run)?.session())?;
                let answer = conversation::aborted_answer(session.settings());
                Command::Run(run::Command::Answered { run: *run, epoch: *epoch, answer: Box::new(answer) })
            }
            OwedWork::Call { call, start }
                if self.known.contains(&(*call, *start)) || state.call(*call).is_some_and(call::Call::is_asking) =>
            {
                Command::Call(call::Command::Ended { call: *call, progress: CallProgress::Broke })
            }
            OwedWork::Call { call, .. } => {
                let progress = CallProgress::NotBegun("Command aborted before it began".into());
                Command::Call(call::Command::Ended { call: *call, progress })
            }
            OwedWork::Compact { session, epoch } => Command::Session(
                session.clone(),
                session::Command::Compacted { epoch: *epoch, outcome: CompactionOutcome::Aborted },
            ),
            // A firing is not stopped: its run is.
            OwedWork::Fire { .. } => return None,
        };
        let results = self.results.clone();
        let task = tokio::spawn(async move { results.post_command(command).await });
        Some(InFlight { cancel: CancellationToken::new(), task, is_elsewhere: false })
    }

    fn start_work(&self, engine: &Engine, work: &OwedWork) -> Option<InFlight> {
        let cancel = CancellationToken::new();
        if self.is_closing {
            cancel.cancel();
        }
        let mut is_elsewhere = false;
        let state = engine.state();
        let (contents, results, meters) = (self.contents.clone(), self.results.clone(), Arc::clone(&self.meters));
        let host_of = |session: &session::Session, run: Option<RunId>| match session.hosted_state() {
            Some(_) => self.environment.hosted_environment(session.id()),
            None => match self.environment.environment_for(session.id(), run) {
                EnvironmentFor::Here => Some(Arc::clone(&self.environment)),
                EnvironmentFor::Other(host) => Some(host),
                EnvironmentFor::NotYet => None,
            },
        };
        let (token, acting) = (cancel.clone(), Arc::clone(&self.environment));
        let task = match work {
            OwedWork::Turn { run, epoch } => {
                let run = state.run(*run)?;
                let session = state.session(run.session())?;
                let host = host_of(session, Some(run.id()))?;
                let work = TurnWork {
                    run: run.id(),
                    epoch: *epoch,
                    session: session.id().clone(),
                    cwd: session.cwd().to_owned(),
                    folder: session.folder().to_owned(),
                    settings: run.effective_settings(session.settings()),
                    pieces: conversation::session_outline(session),
                    cap: run.token_cap(),
                    merge: self.merge,
                    budget: if session.unattended().is_some() { BudgetMode::Counted } else { BudgetMode::Unlimited },
                    time: Stopwatch::start_at(run.asked_at()),
                    meters: Arc::clone(&meters),
                };
                let broke = Command::Run(run::Command::Answered {
                    run: run.id(),
                    epoch: *epoch,
                    answer: Box::new(broken_answer(session.settings())),
                });
                tokio::spawn(run_and_report((results.clone(), meters, acting), broke, async move {
                    work.run_turn(&*host, &contents, &results, token).await
                }))
            }
            OwedWork::Call { call, .. } => {
                let call = state.call(*call)?;
                let session = state.session(call.session())?;
                let host = host_of(session, call.run())?;
                is_elsewhere = matches!(call.executor(), call::Executor::Service | call::Executor::Peer(_));
                let work = CallWork {
                    call: call.id(),
                    session: session.id().clone(),
                    cwd: session.cwd().to_owned(),
                    folder: session.folder().to_owned(),
                    place: folder_of(session, engine.admitted().call_content(call.id())?),
                    executor: call.executor().clone(),
                    content: call.content_lsn(),
                    arguments: call.arguments_digest(),
                    pins: call.pins_digest(),
                    is_approved: call.is_approved(),
                    start: call.start_count(),
                    line: call.peer_line(),
                    patience: session.settings().peer_timeout,
                    is_asking: call.is_asking(),
                    questions: self.questions.clone(),
                };
                let broke = Command::Call(call::Command::Ended { call: call.id(), progress: CallProgress::Broke });
                tokio::spawn(run_and_report((results.clone(), meters, acting), broke, async move {
                    work.run_call(&*host, &contents, &results, token).await
                }))
            }
            OwedWork::Compact { session, epoch } => {
                let session = state.session(session)?;
                let host = host_of(session, None)?;
                let work = CompactWork::for_session(session, *epoch, state.last_fact_at(), Arc::clone(&meters))?;
                let outcome = CompactionOutcome::Failed { message: "the summary broke off".into() };
                let broke =
                    Command::Session(session.id().clone(), session::Command::Compacted { epoch: *epoch, outcome });
                tokio::spawn(run_and_report((results.clone(), meters, acting), broke, async move {
                    work.run_compaction(&*host, &contents, token).await
                }))
            }
            OwedWork::Fire { firing, step } => {
                let (job, open) = state.schedule().firing(firing)?;
                let fired = DueFiring { job: job.clone(), firing: open.clone(), step: *step };
                let broke = Command::Schedule(fired.failed_command("internal error: seeing to it broke off"));
                let host = Arc::clone(&self.environment);
                tokio::spawn(async move {
                    let work = async move { Command::Schedule(host.fire_job(&fired).await) };
                    tokio::select! {
                        biased;
                        // The next process does it, or it is not needed any more.
                        () = token.cancelled() => {}
                        () = run_and_report((results, meters, acting), broke, work) => {}
                    }
                })
            }
        };
        Some(InFlight { cancel, task, is_elsewhere })
    }
}

/// Runs a piece of work to its command. A panic ends in a command too. A process that may not act any more begins nothing.
async fn run_and_report(
    (results, meters, acting): (CommandSource, Arc<RuntimeMetrics>, Arc<dyn RunEnvironment>),
    broke: Command,
    work: impl Future<Output = Command>,
) {
    if !acting.may_act() {
        warn!("a piece of work was not begun: this process does not own the record any more");
        return;
    }
    let command = AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
        meters.panics.add(1);
        error!("a task panicked");
        broke
    });
    results.post_command(command).await;
}

fn broken_answer(settings: &session::Settings) -> ModelAnswer {
    let failure = ProviderFailure { retryable: false, overflow: false, after: None };
    conversation::failed_answer(settings, "internal error: the request broke off", failure, StopReason::Error)
}
