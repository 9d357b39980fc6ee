//! Routes the ends of calls, and of gates, to the requests that wait for them.

use std::{collections::HashMap, sync::Arc};

use countersign_core::{
    call::{self, CallEnd},
    engine::{Event, RecordedFact},
    gate,
    id::{CallId, GateId},
};
use countersign_runtime::OwnerHandle;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use crate::delivery::{Delivery, OutcomeSharing};

/// Outcome of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallOutcome {
    pub call: CallId,
    /// Gate that decided it, if a person did.
    pub gate: Option<GateId>,
    pub end: CallEnd,
    /// Result as JSON text, or the reason why there is none.
    pub content: Arc<str>,
}

impl CallOutcome {
    /// Reports whether the call was allowed, and done by whoever does it.
    pub fn is_done(&self) -> bool {
        self.end == CallEnd::Done { error: false }
    }

    /// Returns the reason why it was not done, for the agent.
    pub fn reason(&self) -> &str {
        if self.content.trim().is_empty() { plain_reason(self.end) } else { &self.content }
    }
}

/// Returns the text for a missing reason.
const fn plain_reason(end: CallEnd) -> &'static str {
    match end {
        CallEnd::Done { .. } => "Failed",
        CallEnd::Failed => "Not run",
        CallEnd::Denied => "Denied by policy",
        CallEnd::Refused => "Denied by user",
        CallEnd::Expired => "Approval timed out",
        CallEnd::Limited => "Too many pending approvals",
        CallEnd::Skipped | CallEnd::Cancelled => "Not run",
        CallEnd::Unknown => "Outcome unknown",
    }
}

/// Requests that wait.
#[derive(Default)]
pub(crate) struct OutcomeRouter(Mutex<RouterState>);

#[derive(Default)]
struct RouterState {
    calls: HashMap<CallId, WaitedCall>,
    gates: HashMap<GateId, Vec<oneshot::Sender<()>>>,
}

/// Call for which requests wait, in the order of their arrival.
#[derive(Default)]
struct WaitedCall {
    gate: Option<GateId>,
    waiting: Vec<WaitingRequest>,
}

/// Request that waits for the outcome of a call.
struct WaitingRequest {
    sharing: OutcomeSharing,
    delivery: Delivery,
    outcome: oneshot::Sender<CallOutcome>,
}

impl WaitingRequest {
    /// Sends the outcome. False if the client has gone, also if its request does not know that yet.
    fn send(self, outcome: &CallOutcome) -> bool {
        !self.delivery.is_over() && self.outcome.send(outcome.clone()).is_ok()
    }
}

/// Fact that somebody may wait for.
enum RoutedFact {
    Ended(CallId, CallEnd, Arc<str>),
    Gated(CallId, GateId),
    Resolved(GateId),
}

impl OutcomeRouter {
    /// Follows the releases of an owner, for as long as it has any. When it can no longer be followed, `closing` is set:
    /// no request would be answered any more.
    pub(crate) async fn follow_facts(handle: &OwnerHandle, closing: watch::Sender<bool>) -> Option<Arc<Self>> {
        let router = Arc::new(Self::default());
        let mut facts = handle.follow_facts(routed_fact).await?;
        let follower = Arc::clone(&router);
        tokio::spawn(async move {
            while let Some(fact) = facts.next().await {
                match fact {
                    RoutedFact::Ended(call, end, content) => follower.route_outcome(call, end, &content),
                    RoutedFact::Gated(call, gate) => follower.note_gate(call, gate),
                    RoutedFact::Resolved(gate) => follower.route_resolution(gate),
                }
            }
            closing.send_replace(true);
        });
        Some(router)
    }

    /// Waits for the outcome of a call. The sender is dropped if another identical call gets it.
    pub(crate) fn wait_for_call(
        &self,
        call: CallId,
        sharing: OutcomeSharing,
        delivery: &Delivery,
    ) -> oneshot::Receiver<CallOutcome> {
        let (sender, outcome) = oneshot::channel();
        let mut state = self.0.lock();
        let waited = state.calls.entry(call).or_default();
        waited.waiting.retain(|waiting| !waiting.outcome.is_closed());
        waited.waiting.push(WaitingRequest { sharing, delivery: delivery.clone(), outcome: sender });
        outcome
    }

    /// Waits for the resolution of a gate.
    pub(crate) fn wait_for_gate(&self, gate: GateId) -> oneshot::Receiver<()> {
        let (sender, resolved) = oneshot::channel();
        let mut state = self.0.lock();
        let waiting = state.gates.entry(gate).or_default();
        waiting.retain(|waiting| !waiting.is_closed());
        waiting.push(sender);
        resolved
    }

    /// Forgets the waits of requests that are gone.
    pub(crate) fn forget_closed(&self, call: CallId) {
        let mut state = self.0.lock();
        let Some(waited) = state.calls.get_mut(&call) else { return };
        waited.waiting.retain(|waiting| !waiting.outcome.is_closed());
        if waited.waiting.is_empty() {
            state.calls.remove(&call);
        }
    }

    /// Forgets the waits for a gate of requests that are gone.
    pub(crate) fn forget_closed_gate(&self, gate: GateId) {
        let mut state = self.0.lock();
        let Some(waiting) = state.gates.get_mut(&gate) else { return };
        waiting.retain(|waiting| !waiting.is_closed());
        if waiting.is_empty() {
            state.gates.remove(&gate);
        }
    }

    /// Notes the gate that decides a call.
    pub(crate) fn note_gate(&self, call: CallId, gate: GateId) {
        if let Some(waited) = self.0.lock().calls.get_mut(&call) {
            waited.gate = Some(gate);
        }
    }

    /// Returns the gate for which a call waits.
    pub(crate) fn gate_of(&self, call: CallId) -> Option<GateId> {
        self.0.lock().calls.get(&call).and_then(|waited| waited.gate)
    }

    /// Returns the number of requests that wait for a call.
    #[cfg(test)]
    pub(crate) fn count_waiting(&self, call: CallId) -> usize {
        self.0.lock().calls.get(&call).map_or(0, |waited| waited.waiting.len())
    }

    fn route_outcome(&self, call: CallId, end: CallEnd, content: &Arc<str>) {
        let Some(WaitedCall { gate, mut waiting }) = self.0.lock().calls.remove(&call) else { return };
        let outcome = CallOutcome { call, gate, end, content: Arc::clone(content) };
        // What a person decided once is acted on once, by the call that came last: an earlier one may be of a lost connection.
        if gate.is_some() && waiting.iter().any(|waiting| waiting.sharing == OutcomeSharing::One) {
            while let Some(last) = waiting.pop() {
                if last.send(&outcome) {
                    return;
                }
            }
            return;
        }
        for waiting in waiting {
            // The same call repeated finds it in the state.
            let _ = waiting.send(&outcome);
        }
    }

    fn route_resolution(&self, gate: GateId) {
        for waiting in self.0.lock().gates.remove(&gate).unwrap_or_default() {
            let _ = waiting.send(());
        }
    }
}

/// Returns a fact that a request may wait for.
fn routed_fact(recorded: &Arc<RecordedFact>) -> Option<RoutedFact> {
    match &recorded.fact.event {
        Event::Call(call::Event::Ended { call, end, entry: None }) => {
            Some(RoutedFact::Ended(*call, *end, recorded.fact.content.clone().unwrap_or_default()))
        }
        Event::Gate(gate::Event::Opened { gate, call: Some(call), run: None, .. }) => {
            Some(RoutedFact::Gated(*call, *gate))
        }
        Event::Gate(gate::Event::Resolved { gate, .. }) => Some(RoutedFact::Resolved(*gate)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::{
        call::CallEnd,
        id::{CallId, GateId},
    };
    use uuid::Uuid;

    use super::{Delivery, OutcomeRouter, OutcomeSharing};

    const DONE: CallEnd = CallEnd::Done { error: false };

    fn call() -> CallId {
        CallId::new(Uuid::from_u128(1))
    }

    #[test]
    fn all_identical_calls_get_the_outcome_of_one_action() {
        let router = OutcomeRouter::default();
        let mut waits = [0; 2].map(|_| router.wait_for_call(call(), OutcomeSharing::All, &Delivery::default()));
        router.note_gate(call(), GateId::new(Uuid::from_u128(2)));
        router.route_outcome(call(), DONE, &"[]".into());
        assert!(waits.iter_mut().all(|wait| wait.try_recv().is_ok_and(|outcome| outcome.gate.is_some())));
    }

    #[test]
    fn a_persons_decision_goes_to_the_last_of_identical_calls() {
        let router = OutcomeRouter::default();
        let mut waits = [0; 3].map(|_| router.wait_for_call(call(), OutcomeSharing::One, &Delivery::default()));
        router.note_gate(call(), GateId::new(Uuid::from_u128(2)));
        waits[2].close();
        router.route_outcome(call(), DONE, &"".into());
        assert_eq!(waits.each_mut().map(|wait| wait.try_recv().is_ok()), [false, true, false]);
    }

    #[test]
    fn a_persons_decision_passes_a_call_that_is_abandoned_and_does_not_know_it_yet() {
        let router = OutcomeRouter::default();
        let deliveries = [Delivery::default(), Delivery::default()];
        let mut waits =
            deliveries.each_ref().map(|delivery| router.wait_for_call(call(), OutcomeSharing::One, delivery));
        router.note_gate(call(), GateId::new(Uuid::from_u128(2)));
        deliveries[1].abandon();
        router.route_outcome(call(), DONE, &"".into());
        assert_eq!(waits.each_mut().map(|wait| wait.try_recv().is_ok()), [true, false]);
    }

    #[test]
    fn what_rules_allow_goes_to_every_identical_call() {
        let router = OutcomeRouter::default();
        let mut waits = [0; 2].map(|_| router.wait_for_call(call(), OutcomeSharing::One, &Delivery::default()));
        router.route_outcome(call(), DONE, &"".into());
        assert_eq!(waits.each_mut().map(|wait| wait.try_recv().is_ok()), [true, true]);
    }

    #[test]
    fn requests_that_are_gone_leave_nothing() {
        let router = OutcomeRouter::default();
        drop(router.wait_for_call(call(), OutcomeSharing::All, &Delivery::default()));
        router.forget_closed(call());
        assert!(router.0.lock().calls.is_empty());
    }
}
