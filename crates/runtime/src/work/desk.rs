//! Keeps what is in flight in step with what is owed.

use std::{collections::BTreeMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use countersign_core::{
    Work,
    call::{self, Progress},
    engine::{Command, Engine},
    message::StopReason,
    owed,
    run::{self, Answer, Failure},
    session::{self, Compacted},
};
use futures_util::FutureExt;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::{Host, call::CallWork, compact::CompactWork, conversation, turn::TurnWork};
use crate::{deliver::Contents, owner::Source};

struct InFlight {
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

/// Starts what is owed and not in flight, cancels what is in flight and no longer owed.
pub(crate) struct Desk {
    host: Arc<dyn Host>,
    results: Source,
    contents: Contents,
    merge: Duration,
    in_flight: BTreeMap<Work, InFlight>,
}

impl Desk {
    pub(crate) fn new(host: Arc<dyn Host>, results: Source, contents: Contents, merge: Duration) -> Self {
        Self { host, results, contents, merge, in_flight: BTreeMap::new() }
    }

    /// Whether nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Tells everything in flight to stop. Each piece still says what became of it.
    pub(crate) fn cancel_all(&mut self) {
        for work in self.in_flight.values() {
            work.cancel.cancel();
        }
    }

    pub(crate) fn reconcile(&mut self, engine: &Engine) {
        let owed = owed(engine.state());
        // A piece that is still owed stays known even when its task has ended: its result is on the way, and starting it again could run it twice.
        self.in_flight.retain(|work, in_flight| {
            let is_owed = owed.binary_search(work).is_ok();
            if !is_owed {
                in_flight.cancel.cancel();
            }
            is_owed || !in_flight.task.is_finished()
        });
        for work in owed {
            if !self.in_flight.contains_key(&work)
                && let Some(in_flight) = self.start(engine, &work)
            {
                self.in_flight.insert(work, in_flight);
            }
        }
    }

    fn start(&self, engine: &Engine, work: &Work) -> Option<InFlight> {
        let cancel = CancellationToken::new();
        let state = engine.state();
        let (host, contents, results) = (Arc::clone(&self.host), self.contents.clone(), self.results.clone());
        let token = cancel.clone();
        let task = match work {
            Work::Turn { run, epoch } => {
                let run = state.run(*run)?;
                let session = state.session(run.session())?;
                let work = TurnWork {
                    run: run.id(),
                    epoch: *epoch,
                    session: session.id().clone(),
                    cwd: session.cwd().to_owned(),
                    settings: session.settings().clone(),
                    pieces: conversation::outline(session),
                    merge: self.merge,
                };
                let broke = Command::Run(run::Command::Answered {
                    run: run.id(),
                    epoch: *epoch,
                    answer: Box::new(broken_answer(session.settings())),
                });
                tokio::spawn(ends(results.clone(), broke, async move {
                    work.work(&*host, &contents, &results, token).await
                }))
            }
            Work::Call(call) => {
                let call = state.call(*call)?;
                let session = state.session(call.session())?;
                let work = CallWork {
                    call: call.id(),
                    session: session.id().clone(),
                    cwd: session.cwd().to_owned(),
                    executor: call.executor().clone(),
                    content: call.content(),
                    arguments: call.arguments(),
                };
                let broke = Command::Call(call::Command::Ended { call: call.id(), progress: Progress::Broke });
                tokio::spawn(ends(results.clone(), broke, async move {
                    work.work(&*host, &contents, &results, token).await
                }))
            }
            Work::Compact { session, epoch } => {
                let session = state.session(session)?;
                let work = CompactWork::of(session, *epoch)?;
                let outcome = Compacted::Failed { message: "the summary broke off".into() };
                let broke =
                    Command::Session(session.id().clone(), session::Command::Compacted { epoch: *epoch, outcome });
                tokio::spawn(ends(results.clone(), broke, async move { work.work(&*host, &contents, token).await }))
            }
        };
        Some(InFlight { cancel, task })
    }
}

/// Runs a piece of work to its command. A panic ends in a command too.
async fn ends(results: Source, broke: Command, work: impl Future<Output = Command>) {
    let command = AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
        error!("a task panicked");
        broke
    });
    results.tell(command).await;
}

fn broken_answer(settings: &session::Settings) -> Answer {
    let failure = Failure { retryable: false, overflow: false, after: None };
    conversation::failed_answer(settings, "internal error: the request broke off", failure, StopReason::Error)
}
