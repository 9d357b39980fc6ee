//! Runs one call: joins the same call that is open or undelivered, or requests a new one, and waits for the outcome.
//!
//! Clients give up after a limit of their own and call again. The state of the engine, which survives a crash, says which request
//! that is: each has a key made of the call and a number.

use std::{sync::Arc, time::Duration};

use countersign_core::{
    call::{self, AgentRequest, CallEnd},
    engine::{Command, Engine, EngineReply, ResidencyScope},
    id::{CallId, GateId, Lsn, SessionId},
    session::KeyedRequest,
    tool::ToolEffect,
};
use countersign_runtime::{CommandSource, OwnerError};
use tokio::{
    sync::watch,
    time::{Instant, interval_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    decisions::{is_decision, key_prefix, run_prefix},
    delivery::{Delivery, OutcomeSharing},
    foreign_calls::ForeignCalls,
    outcome_router::CallOutcome,
    requester::Requester,
};

/// Interval of progress notifications.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
/// Most attempts to find or open the request of a call, if other clients take the outcomes meanwhile.
const ATTEMPTS: usize = 16;

/// Reason why a call has no outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallProblem {
    /// Too many calls in the last minute.
    RateLimited,
    /// Another identical call got the decision.
    Superseded,
    /// The client cancelled, or has gone. The request stays, and waits at this gate if a person decides.
    Cancelled(Option<GateId>),
    /// Refusal before policy, with the reason.
    Refused(String),
    /// The gateway is closing.
    Closing,
}

impl std::fmt::Display for CallProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::RateLimited => f.write_str("Rate limit exceeded"),
            Self::Superseded => {
                f.write_str("Another identical call got this decision. Call again to request a new one")
            }
            Self::Cancelled(_) => f.write_str("Cancelled by the client; the request stays pending"),
            Self::Refused(reason) => f.write_str(reason),
            Self::Closing => f.write_str("The gateway is closing; the request stays pending"),
        }
    }
}

/// Receiver of the progress of a call.
pub trait ProgressSink {
    /// Reports that a call waits, for `gate` if a person decides: at once if that is known, and again in intervals.
    fn report_wait(&mut self, gate: Option<GateId>) -> impl Future<Output = ()> + Send;
}

/// Call of a client.
pub struct ForeignCall<'a, P> {
    pub calls: &'a ForeignCalls,
    pub requester: &'a Requester,
    pub request: AgentRequest,
    pub sharing: OutcomeSharing,
    pub delivery: &'a Delivery,
    pub progress: P,
    pub cancel: CancellationToken,
}

/// Request of the same call, as the engine has it.
#[derive(Clone, Debug, PartialEq)]
enum KnownRequest {
    /// It is open, or its outcome was not delivered.
    Known(CallId),
    /// There is none. The number makes a key that no request has. Undelivered `readings` are out of date.
    None { number: u64, readings: Vec<CallId> },
}

/// State of a request.
enum RequestState {
    Open {
        gate: Option<GateId>,
    },
    Over {
        end: CallEnd,
        lsn: Lsn,
        gate: Option<GateId>,
    },
    /// Another client has got its outcome.
    Delivered {
        end: CallEnd,
        lsn: Lsn,
        gate: Option<GateId>,
    },
    Forgotten,
}

impl<P: ProgressSink> ForeignCall<'_, P> {
    /// Runs the call. It ends when it is cancelled, and when its delivery is over: the request stays.
    pub async fn run(mut self) -> Result<CallOutcome, CallProblem> {
        if !self.requester.window.lock().try_count(self.calls.clock.now()) {
            return Err(CallProblem::RateLimited);
        }
        let source = self.calls.requests.clone();
        self.requester.open_session(&source, &self.calls.limits).await.map_err(|refused| problem_of(&refused))?;
        let prefix = key_prefix(&self.request);
        for _ in 0..ATTEMPTS {
            let call = match self.find_known(&source, &prefix).await? {
                KnownRequest::Known(call) => call,
                KnownRequest::None { number, readings } => {
                    readings.into_iter().for_each(|call| self.calls.receipts.discard(&self.requester.session, call));
                    self.submit_request(&source, format!("{prefix}{number}")).await?
                }
            };
            let outcome = self.wait_for_outcome(&source, call).await?;
            self.check_denials(&outcome).await?;
            // The outcome stays for the same call repeated: recorded as delivered, a decision would be lost.
            if self.delivery.is_over() {
                return Err(CallProblem::Cancelled(outcome.gate));
            }
            // What rules decided, each identical call may act on.
            let sharing = if outcome.gate.is_some() { self.sharing } else { OutcomeSharing::All };
            if let Some(receipt) = self.calls.receipts.begin_delivery(&self.requester.session, outcome.call, sharing) {
                // What a person decided once is acted on once, also after a crash.
                let receipt = match sharing {
                    OutcomeSharing::One => receipt.record(&source).await.map_err(|refused| problem_of(&refused))?,
                    OutcomeSharing::All => receipt,
                };
                self.delivery.attach(receipt);
                return Ok(outcome);
            }
        }
        Err(CallProblem::Superseded)
    }

    /// Checks that nothing forbids now what a person allowed before: rules and denials may have changed since.
    async fn check_denials(&self, outcome: &CallOutcome) -> Result<(), CallProblem> {
        if outcome.gate.is_none() || !outcome.is_done() || !is_decision(&self.request) {
            return Ok(());
        }
        match self.calls.denial_now(self.requester, &self.request).await? {
            None => Ok(()),
            Some(reason) => Err(CallProblem::Refused(reason)),
        }
    }

    async fn find_known(&self, source: &CommandSource, prefix: &str) -> Result<KnownRequest, CallProblem> {
        let (session, prefix) = (self.requester.session.clone(), prefix.to_owned());
        // The gateway has done nothing for what it only decided, so the rules of now decide it anew.
        let effect = if is_decision(&self.request) { ToolEffect::Reads } else { self.request.effect };
        let receipts = Arc::clone(&self.calls.receipts);
        let read = source.read_of(ResidencyScope::Session(session.clone()), move |engine| {
            find_same(engine, &session, &prefix, effect, |call| receipts.is_taken(call))
        });
        read.await.map(|(known, _)| known).ok_or(CallProblem::Closing)
    }

    /// Requests the call. Identical calls of the same moment have the same key, and get the same request.
    async fn submit_request(&self, source: &CommandSource, key: String) -> Result<CallId, CallProblem> {
        let request = AgentRequest { key: Some(key), ..self.request.clone() };
        let command = Command::Call(call::Command::Request(Box::new(request)));
        match source.send_command(command).await.map(|reply| reply.outcome) {
            Ok(EngineReply::Requested { call, .. }) => Ok(call),
            Ok(_) => Err(CallProblem::Refused("Internal error".to_owned())),
            Err(refused) => Err(problem_of(&refused)),
        }
    }

    async fn wait_for_outcome(&mut self, source: &CommandSource, call: CallId) -> Result<CallOutcome, CallProblem> {
        // Before the look at the state, so that no end is missed between.
        let mut routed = self.calls.outcomes.wait_for_call(call, self.sharing, self.delivery);
        match self.read_request(source, call).await? {
            RequestState::Delivered { gate: Some(_), .. } if self.sharing == OutcomeSharing::One => {
                drop(routed);
                self.calls.outcomes.forget_closed(call);
                return Err(CallProblem::Superseded);
            }
            RequestState::Over { end, lsn, gate } | RequestState::Delivered { end, lsn, gate } => {
                drop(routed);
                self.calls.outcomes.forget_closed(call);
                // Without its text the outcome is not delivered: the same call repeated gets it.
                let contents = self.calls.handle.contents().get(&[lsn]).await;
                let mut texts = contents.map_err(|error| CallProblem::Refused(error.to_string()))?;
                return Ok(CallOutcome { call, gate, end, content: texts.pop().flatten().unwrap_or_default() });
            }
            RequestState::Forgotten => {
                drop(routed);
                self.calls.outcomes.forget_closed(call);
                return Err(CallProblem::Refused("The outcome of this call is no longer known".to_owned()));
            }
            RequestState::Open { gate } => {
                if let Some(gate) = gate {
                    self.calls.outcomes.note_gate(call, gate);
                    self.progress.report_wait(Some(gate)).await;
                }
            }
        }
        let mut ticks = interval_at(Instant::now() + PROGRESS_INTERVAL, PROGRESS_INTERVAL);
        let mut closing = self.calls.closing.subscribe();
        let problem = loop {
            tokio::select! {
                // A call without a client takes no outcome. Of an outcome and a cancellation at the same time, the outcome counts.
                biased;
                () = self.delivery.wait_over() => break CallProblem::Cancelled(self.calls.outcomes.gate_of(call)),
                outcome = &mut routed => match outcome {
                    Ok(outcome) => return Ok(outcome),
                    Err(_) => break CallProblem::Superseded,
                },
                () = self.cancel.cancelled() => break CallProblem::Cancelled(self.calls.outcomes.gate_of(call)),
                () = wait_for_close(&mut closing) => break CallProblem::Closing,
                _ = ticks.tick() => {
                    let gate = self.calls.outcomes.gate_of(call);
                    self.progress.report_wait(gate).await;
                }
            }
        };
        drop(routed);
        self.calls.outcomes.forget_closed(call);
        Err(problem)
    }

    async fn read_request(&self, source: &CommandSource, call: CallId) -> Result<RequestState, CallProblem> {
        let session = self.requester.session.clone();
        let read = source
            .read_of(ResidencyScope::Session(session.clone()), move |engine| request_state(engine, &session, call));
        read.await.map(|(state, _)| state).ok_or(CallProblem::Closing)
    }
}

/// Opens a further session of a requester.
///
/// # Errors
/// The reason why it could not be opened.
pub async fn open_session_for(
    calls: &ForeignCalls,
    requester: &Requester,
    session: &SessionId,
) -> Result<(), CallProblem> {
    let opened = requester.open_as(&calls.requests, &calls.limits, session, session.as_str()).await;
    opened.map_err(|refused| problem_of(&refused))
}

impl ForeignCalls {
    /// Returns the reason for which rules, the floor or a denial forbid a request now, whatever was decided about it before.
    ///
    /// # Errors
    /// [`CallProblem::Closing`] if the gateway ends.
    pub async fn denial_now(
        &self,
        requester: &Requester,
        request: &AgentRequest,
    ) -> Result<Option<String>, CallProblem> {
        let (request, now) = (request.clone(), self.clock.now());
        let scope = ResidencyScope::Session(requester.session.clone());
        let read = self.requests.read_of(scope, move |engine| engine.denial_now(request, now));
        read.await.map(|(denied, _)| denied).ok_or(CallProblem::Closing)
    }

    /// Returns the requests that allowed a call that ran, as far as the record has them.
    ///
    /// # Errors
    /// The reason why the session of the requester could not be opened or read.
    pub async fn allowed_requests(
        &self,
        requester: &Requester,
        request: &AgentRequest,
    ) -> Result<Vec<CallId>, CallProblem> {
        requester.open_session(&self.requests, &self.limits).await.map_err(|refused| problem_of(&refused))?;
        let (session, prefix) = (requester.session.clone(), run_prefix(request));
        let scope = ResidencyScope::Session(session.clone());
        let read = self.requests.read_of(scope, move |engine| {
            let requests = engine.state().session(&session).and_then(|session| session.agent_requests());
            let is_allowed = |keyed: &&KeyedRequest| matches!(keyed.over, Some((CallEnd::Done { error: false }, _)));
            let keyed = requests.into_iter().flat_map(|requests| requests.requests_with_prefix(&prefix));
            keyed.filter(is_allowed).map(|keyed| keyed.call).collect()
        });
        read.await.map(|(allowed, _)| allowed).ok_or(CallProblem::Closing)
    }
}

async fn wait_for_close(closing: &mut watch::Receiver<bool>) {
    // Its sender lives as long as the call.
    let _ = closing.wait_for(|closing| *closing).await;
}

/// Finds the newest request of a call that is open, or whose outcome no client has got.
fn find_same(
    engine: &Engine,
    session: &SessionId,
    prefix: &str,
    effect: ToolEffect,
    is_taken: impl Fn(CallId) -> bool,
) -> KnownRequest {
    let requests = engine.state().session(session).and_then(|session| session.agent_requests());
    let Some(requests) = requests else { return KnownRequest::None { number: 0, readings: Vec::new() } };
    let is_same = |key: &Option<String>| key.as_deref().is_some_and(|key| key.starts_with(prefix));
    if let Some((call, _)) = requests.open_requests().iter().rev().find(|(_, request)| is_same(&request.key)) {
        return KnownRequest::Known(*call);
    }
    let undelivered = requests.results().iter().rev();
    let undelivered = undelivered.filter(|(call, result)| is_same(&result.request.key) && !is_taken(**call));
    // To read again does no harm, and the client wants what is so now. A decision of an approver is never lost.
    let (readings, kept): (Vec<_>, Vec<_>) =
        undelivered.partition(|(_, result)| effect == ToolEffect::Reads && result.request.gate.is_none());
    if let Some((call, _)) = kept.first() {
        return KnownRequest::Known(**call);
    }
    KnownRequest::None {
        number: unused_number(|number| requests.keyed_request(&format!("{prefix}{number}")).is_some()),
        readings: readings.into_iter().map(|(call, _)| *call).collect(),
    }
}

/// Returns a number that is not used. Used ones are mostly in a row, which begins at 0 until its beginning is forgotten.
fn unused_number(is_used: impl Fn(u64) -> bool) -> u64 {
    let (mut used, mut step) = (None, 1);
    // Longer and longer steps, and then back to the end of the row: a call that is repeated for days looks at a few only.
    while is_used(used.map_or(0, |used: u64| used + step)) {
        used = Some(used.map_or(0, |used| used + step));
        step *= 2;
    }
    let Some(mut used) = used else { return 0 };
    while step > 1 {
        step /= 2;
        if is_used(used + step) {
            used += step;
        }
    }
    used + 1
}

fn request_state(engine: &Engine, session: &SessionId, call: CallId) -> RequestState {
    let requests = engine.state().session(session).and_then(|session| session.agent_requests());
    let Some(requests) = requests else { return RequestState::Forgotten };
    let gate = requests.gate_of(call);
    if requests.open_requests().contains_key(&call) {
        return RequestState::Open { gate };
    }
    if let Some(result) = requests.results().get(&call) {
        return RequestState::Over { end: result.end, lsn: result.lsn, gate };
    }
    // Another client has got it since this one found the request open.
    match requests.keyed_requests().find(|keyed| keyed.call == call).and_then(|keyed| keyed.over) {
        Some((end, lsn)) => RequestState::Delivered { end, lsn, gate },
        None => RequestState::Forgotten,
    }
}

fn problem_of(refused: &OwnerError) -> CallProblem {
    match refused {
        OwnerError::Closed => CallProblem::Closing,
        refused => CallProblem::Refused(refused.to_string()),
    }
}

#[cfg(test)]
mod tests {
    mod delivery;

    use std::{cell::Cell, collections::BTreeSet};

    use super::unused_number;

    #[test]
    fn the_number_of_a_new_key_is_found_in_a_few_steps() {
        for (used, want) in [(0..0, 0), (0..1, 1), (0..2, 2), (0..3, 3), (0..4096, 4096), (5..9, 0)] {
            let (all, looks) = (used.clone().collect::<BTreeSet<u64>>(), Cell::new(0));
            let is_used = |number| {
                looks.set(looks.get() + 1);
                all.contains(&number)
            };
            assert_eq!(unused_number(is_used), want, "{used:?}");
            assert!(looks.get() <= 26, "{used:?}: {}", looks.get());
        }
    }

    #[test]
    fn a_row_with_a_gap_has_an_unused_number_too() {
        let used: BTreeSet<u64> = (0..7).chain(9..40).collect();
        assert!(!used.contains(&unused_number(|number| used.contains(&number))));
    }
}
