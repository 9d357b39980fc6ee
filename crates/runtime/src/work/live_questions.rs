//! Questions that calls ask people while they work, and the answers on their way back: a gate each, as durable as any other.
//!
//! It must not decide anything. A process that ends takes the calls with it, and the next one withdraws their questions.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use countersign_core::{
    call::Command as CallCommand,
    engine::{Command, CommandError, Engine},
    gate::GateResolution,
    id::{CallId, GateId},
};
use countersign_tools::{HostAccessAnswer, HostApprover};
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use crate::inbox::{CommandSource, OwnerError};

/// The gates whose answers a call in this process waits for.
#[derive(Clone, Debug, Default)]
pub(super) struct LiveQuestions(Arc<Mutex<QuestionWaiters>>);

type QuestionWaiters = BTreeMap<GateId, oneshot::Sender<ResolvedAnswer>>;

/// Resolution of a gate, and the reason that was given with it.
type ResolvedAnswer = (GateResolution, Option<Arc<str>>);

/// A call that may ask.
#[derive(Clone)]
pub(super) struct GateAsker {
    questions: LiveQuestions,
    call: CallId,
    results: CommandSource,
}

/// Forgets a gate when its call no longer waits for it.
struct WaiterGuard<'a> {
    questions: &'a LiveQuestions,
    gate: GateId,
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        self.questions.lock_waiters().remove(&self.gate);
    }
}

impl LiveQuestions {
    /// Returns the same, for one call.
    pub(super) fn for_call(self, call: CallId, results: CommandSource) -> GateAsker {
        GateAsker { questions: self, call, results }
    }

    /// Delivers decisions to the calls that wait for them. To be called with the recorded state.
    pub(super) fn deliver_answers(&self, engine: &Engine) {
        let mut waiters = self.lock_waiters();
        if waiters.is_empty() {
            return;
        }
        let resolved = |gate: &GateId| {
            let resolution = engine.state().gate(*gate)?.resolution().cloned()?;
            Some((resolution, engine.admitted().answer_text(*gate).cloned()))
        };
        let over: Vec<(GateId, ResolvedAnswer)> =
            waiters.keys().filter_map(|gate| Some((*gate, resolved(gate)?))).collect();
        for (gate, answer) in over {
            if let Some(waiting) = waiters.remove(&gate) {
                let _ = waiting.send(answer);
            }
        }
    }

    fn lock_waiters(&self) -> MutexGuard<'_, QuestionWaiters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns an id that has not been used.
fn new_gate_id() -> Option<GateId> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).ok()?;
    GateId::parse(&format!("{:032x}", u128::from_be_bytes(bits)))
}

impl HostApprover for GateAsker {
    fn approve_host(&self, host: Arc<str>) -> BoxFuture<'_, HostAccessAnswer> {
        Box::pin(async move {
            let Some(gate) = new_gate_id() else {
                return HostAccessAnswer::No("nobody can be asked: the system has no randomness".to_owned());
            };
            let (tx, answer) = oneshot::channel();
            self.questions.lock_waiters().insert(gate, tx);
            let _waiting = WaiterGuard { questions: &self.questions, gate };
            let reach = CallCommand::Reach { call: self.call, gate, host };
            match self.results.send_command(Command::Call(reach)).await {
                Ok(_) => {}
                Err(OwnerError::Refusal(CommandError::Denied(why))) => return HostAccessAnswer::No(why),
                Err(error) => return HostAccessAnswer::No(format!("nobody was asked: {error}")),
            }
            match answer.await {
                Ok((GateResolution::Allowed { .. } | GateResolution::Granted, _)) => HostAccessAnswer::Yes,
                Ok((GateResolution::Denied | GateResolution::Declined | GateResolution::Answered, reason)) => {
                    // In one line, whatever the text.
                    let reason = reason.filter(|reason| !reason.trim().is_empty());
                    let saying = reason.map_or_else(String::new, |reason| format!(", saying {reason:?}"));
                    HostAccessAnswer::No(format!(
                        "a person refused it{saying}; do not try it again, in this way or another"
                    ))
                }
                Ok((GateResolution::Expired, _)) => {
                    HostAccessAnswer::No("a person was asked, and nobody answered in time".to_owned())
                }
                Ok((GateResolution::Withdrawn, _)) | Err(_) => {
                    HostAccessAnswer::No("a person was asked, and the question was withdrawn".to_owned())
                }
            }
        })
    }
}
