//! Routes the end of each request to the connection that waits for it.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use countersign_core::{
    call,
    engine::{Event, RecordedFact},
    id::CallId,
};
use countersign_runtime::OwnerHandle;
use parking_lot::Mutex;
use tokio::sync::{mpsc::UnboundedSender, watch};

use super::outcome::ToolCallOutcome;

/// Most ends that are kept for connections that do not wait yet.
const KEPT: usize = 4096;
/// Most bytes of their results together.
const KEPT_BYTES: usize = 16 << 20;

/// End on its way to a connection, with the client's id.
pub(super) type RoutedOutcome = (Arc<str>, ToolCallOutcome);

/// Connection that waits, and its client's id of the request.
type WaitingConnection = (Arc<str>, UnboundedSender<RoutedOutcome>);

/// Waiters and kept ends.
#[derive(Default)]
pub(super) struct OutcomeRouter(Mutex<RouterState>);

#[derive(Default)]
struct RouterState {
    waiting: HashMap<CallId, Vec<WaitingConnection>>,
    ended: HashMap<CallId, ToolCallOutcome>,
    order: VecDeque<CallId>,
    bytes: usize,
    /// True if an end was ever dropped.
    has_forgotten: bool,
}

impl OutcomeRouter {
    /// Follows the releases of an owner, for as long as it has any. When it can no longer be followed, `closing` is set:
    /// no request would be answered any more.
    pub(super) async fn follow_outcomes(handle: &OwnerHandle, closing: watch::Sender<bool>) -> Option<Arc<Self>> {
        let answers = Arc::new(Self::default());
        let mut ends = handle.follow_facts(end_of_request).await?;
        let follower = Arc::clone(&answers);
        tokio::spawn(async move {
            while let Some((call, end, content)) = ends.next().await {
                follower.record_outcome(call, end, content);
            }
            closing.send_replace(true);
        });
        Some(answers)
    }

    fn record_outcome(&self, call: CallId, end: call::CallEnd, content: Arc<str>) {
        let mut inner = self.0.lock();
        let outcome = ToolCallOutcome { call, gate: None, end, content };
        for (id, connection) in inner.waiting.remove(&call).unwrap_or_default() {
            // A connection that is gone requests its missed results when it comes back.
            let _ = connection.send((id, outcome.clone()));
        }
        // A connection that does not wait yet finds it here.
        inner.bytes += outcome.content.len();
        inner.order.push_back(call);
        inner.ended.insert(call, outcome);
        while inner.order.len() > KEPT || inner.bytes > KEPT_BYTES && inner.order.len() > 1 {
            let Some(oldest) = inner.order.pop_front() else { break };
            let size = inner.ended.remove(&oldest).map_or(0, |outcome| outcome.content.len());
            inner.bytes -= size;
            inner.has_forgotten = true;
        }
    }

    /// Routes the end of a call to the connection under the client's id, at once if it is over. Returns false if it may have
    /// ended so long ago that it was dropped: the caller has to read the state, and may [claim](Self::claim_wait) it.
    pub(super) fn wait_for_outcome(
        &self,
        call: CallId,
        id: Arc<str>,
        connection: &UnboundedSender<RoutedOutcome>,
    ) -> bool {
        let mut inner = self.0.lock();
        if let Some(outcome) = inner.ended.get(&call) {
            let _ = connection.send((id, outcome.clone()));
            return true;
        }
        inner.waiting.entry(call).or_default().push((id, connection.clone()));
        !inner.has_forgotten
    }

    /// Removes a connection's wait for a call under an id. Returns false if its end was routed meanwhile.
    pub(super) fn claim_wait(&self, call: CallId, id: &str, connection: &UnboundedSender<RoutedOutcome>) -> bool {
        let mut inner = self.0.lock();
        let Some(waiting) = inner.waiting.get_mut(&call) else { return false };
        let before = waiting.len();
        waiting.retain(|(under, of)| !of.same_channel(connection) || **under != *id);
        let claimed = waiting.len() < before;
        if waiting.is_empty() {
            inner.waiting.remove(&call);
        }
        claimed
    }

    /// Reports whether a connection waits for a call under any id.
    pub(super) fn is_waiting(&self, call: CallId, connection: &UnboundedSender<RoutedOutcome>) -> bool {
        let inner = self.0.lock();
        inner.waiting.get(&call).is_some_and(|waiting| waiting.iter().any(|(_, of)| of.same_channel(connection)))
    }

    /// Removes a connection, which waits for `calls` at most. The waits of others are not visited: many connections may end at once.
    pub(super) fn remove_connection(
        &self,
        calls: impl IntoIterator<Item = CallId>,
        connection: &UnboundedSender<RoutedOutcome>,
    ) {
        let mut inner = self.0.lock();
        for call in calls {
            let Some(waiting) = inner.waiting.get_mut(&call) else { continue };
            waiting.retain(|(_, of)| {
                #[cfg(test)]
                tests::VISITED.set(tests::VISITED.get() + 1);
                !of.same_channel(connection)
            });
            if waiting.is_empty() {
                inner.waiting.remove(&call);
            }
        }
    }
}

/// Returns the call that ended, if it belongs to no run, with its end and its result.
fn end_of_request(recorded: &Arc<RecordedFact>) -> Option<(CallId, call::CallEnd, Arc<str>)> {
    match &recorded.fact.event {
        Event::Call(call::Event::Ended { call, end, entry: None }) => {
            Some((*call, *end, recorded.fact.content.clone().unwrap_or_default()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use countersign_core::{call::CallEnd, id::CallId};
    use tokio::sync::mpsc::unbounded_channel;
    use uuid::Uuid;

    use super::{KEPT_BYTES, OutcomeRouter};

    thread_local! {
        /// Number of waits that removals visited.
        pub(super) static VISITED: Cell<usize> = const { Cell::new(0) };
    }

    const DONE: CallEnd = CallEnd::Done { error: false };

    fn call(number: u128) -> CallId {
        CallId::new(Uuid::from_u128(number))
    }

    #[test]
    fn an_end_reaches_everybody_who_waits_before_it_or_soon_after() {
        let (answers, (tx, mut rx)) = (OutcomeRouter::default(), unbounded_channel());
        assert!(answers.wait_for_outcome(call(1), "1".into(), &tx));
        answers.record_outcome(call(1), DONE, "[]".into());
        // The same request under its key once more, from an earlier frame.
        assert!(answers.wait_for_outcome(call(1), "2".into(), &tx));
        let delivered: Vec<String> = std::iter::from_fn(|| rx.try_recv().ok()).map(|(id, _)| id.to_string()).collect();
        assert_eq!(delivered, ["1", "2"]);
        assert!(!answers.claim_wait(call(1), "1", &tx), "what was told is told once");
    }

    #[test]
    fn an_outcome_too_long_to_keep_is_claimed_once() {
        let (answers, (tx, mut rx)) = (OutcomeRouter::default(), unbounded_channel());
        answers.record_outcome(call(1), DONE, "x".repeat(KEPT_BYTES).into());
        answers.record_outcome(call(2), DONE, "[]".into());
        assert!(!answers.wait_for_outcome(call(1), "1".into(), &tx), "it has to be looked for");
        assert!(answers.claim_wait(call(1), "1", &tx) && !answers.claim_wait(call(1), "1", &tx));
        answers.record_outcome(call(1), DONE, "[]".into());
        assert!(rx.try_recv().is_err(), "it was claimed");
    }

    #[test]
    fn a_wait_that_is_taken_back_leaves_those_under_other_ids() {
        let (answers, (tx, mut rx)) = (OutcomeRouter::default(), unbounded_channel());
        answers.wait_for_outcome(call(1), "1".into(), &tx);
        answers.wait_for_outcome(call(1), "9".into(), &tx);
        assert!(answers.claim_wait(call(1), "1", &tx) && answers.is_waiting(call(1), &tx));
        answers.record_outcome(call(1), DONE, "[]".into());
        let delivered: Vec<String> = std::iter::from_fn(|| rx.try_recv().ok()).map(|(id, _)| id.to_string()).collect();
        assert_eq!((delivered, answers.is_waiting(call(1), &tx)), (vec!["9".to_owned()], false));
    }

    #[test]
    fn a_connection_that_is_gone_waits_for_nothing() {
        let (answers, (tx, mut rx)) = (OutcomeRouter::default(), unbounded_channel());
        answers.wait_for_outcome(call(1), "1".into(), &tx);
        answers.remove_connection([call(1)], &tx);
        answers.record_outcome(call(1), DONE, "[]".into());
        assert!(rx.try_recv().is_err());
    }

    #[test]
    fn a_connection_that_leaves_visits_its_own_waits_however_many_others_wait() {
        for others in [10, 1_000, 100_000] {
            let (answers, (tx, _rx)) = (OutcomeRouter::default(), unbounded_channel());
            let (other, _kept) = unbounded_channel();
            for number in 0..others {
                answers.wait_for_outcome(call(number), "1".into(), &other);
            }
            answers.wait_for_outcome(call(7), "2".into(), &tx);
            VISITED.set(0);
            answers.remove_connection([call(7), call(others)], &tx);
            assert_eq!(VISITED.get(), 2, "with {others} others");
            assert!(answers.is_waiting(call(7), &other) && !answers.is_waiting(call(7), &tx));
        }
    }
}
