//! Outcomes on their way to clients, and the record of those that arrived.
//!
//! MCP, hooks and proxies have no receipt: an outcome counts as delivered once its connection has taken all of it, or for a hook over
//! HTTP once its reply is made.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use countersign_core::{
    call,
    engine::Command,
    id::{CallId, SessionId},
};
use countersign_runtime::{CommandSource, OwnerError};
use parking_lot::Mutex;
use tokio::{sync::mpsc, time::sleep};
use tokio_util::sync::CancellationToken;

/// Most deliveries that are recorded at once.
const LARGEST_BATCH: usize = 4096;
/// Time in which deliveries are collected before they are recorded. After a crash in it, the same call repeated gets the outcome again.
const RECORD_DELAY: Duration = Duration::from_millis(20);

/// Outcomes that are being delivered, or were delivered and are not recorded so yet.
pub(crate) struct Receipts {
    taken: Arc<Mutex<HashMap<CallId, TakenOutcome>>>,
    recorder: mpsc::UnboundedSender<(SessionId, CallId)>,
}

/// Deliveries of one outcome: several clients may have waited for it.
#[derive(Clone, Copy, Debug, Default)]
struct TakenOutcome {
    under_way: u32,
    is_delivered: bool,
}

/// Sharing of an outcome among identical calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutcomeSharing {
    /// All that wait get it: the gateway has run the action once.
    All,
    /// One call gets it: the client acts on it, once.
    One,
}

impl Receipts {
    /// Starts to record deliveries with `source`, until this value is dropped.
    pub(crate) fn start(source: CommandSource) -> Arc<Self> {
        let (recorder, mut delivered) = mpsc::unbounded_channel::<(SessionId, CallId)>();
        let taken: Arc<Mutex<HashMap<CallId, TakenOutcome>>> = Arc::default();
        let recorded = Arc::clone(&taken);
        tokio::spawn(async move {
            let mut batch = Vec::new();
            while delivered.recv_many(&mut batch, LARGEST_BATCH).await > 0 {
                // The record of a delivery must not keep the next call of the same client waiting for the disk.
                sleep(RECORD_DELAY).await;
                while batch.len() < LARGEST_BATCH
                    && let Ok(next) = delivered.try_recv()
                {
                    batch.push(next);
                }
                let mut by_session: BTreeMap<SessionId, Vec<CallId>> = BTreeMap::new();
                for (session, call) in batch.drain(..) {
                    by_session.entry(session).or_default().push(call);
                }
                for (session, calls) in by_session {
                    let received = call::Command::Received { session, calls: calls.clone() };
                    if source.send_command(Command::Call(received)).await.is_err() {
                        // They stay taken in this process. The next process delivers them once more.
                        continue;
                    }
                    let mut recorded = recorded.lock();
                    for call in calls {
                        recorded.remove(&call);
                    }
                }
            }
        });
        Arc::new(Self { taken, recorder })
    }

    /// Reports whether a client has got the outcome of a call, or is getting it.
    pub(crate) fn is_taken(&self, call: CallId) -> bool {
        self.taken.lock().contains_key(&call)
    }

    /// Begins the delivery of an outcome. `None` if another call has it and it is not shared.
    pub(crate) fn begin_delivery(
        self: &Arc<Self>,
        session: &SessionId,
        call: CallId,
        sharing: OutcomeSharing,
    ) -> Option<Receipt> {
        let mut taken = self.taken.lock();
        if sharing == OutcomeSharing::One && taken.contains_key(&call) {
            return None;
        }
        taken.entry(call).or_default().under_way += 1;
        drop(taken);
        Some(Receipt {
            receipts: Arc::clone(self),
            session: session.clone(),
            call,
            is_confirmed: false,
            is_recorded: false,
        })
    }

    /// Records an outcome that no client will ask for as delivered.
    pub(crate) fn discard(self: &Arc<Self>, session: &SessionId, call: CallId) {
        if let Some(receipt) = self.begin_delivery(session, call, OutcomeSharing::One) {
            receipt.confirm();
        }
    }

    fn end_delivery(&self, session: &SessionId, call: CallId, is_delivered: bool, is_recorded: bool) {
        let mut taken = self.taken.lock();
        let Some(outcome) = taken.get_mut(&call) else { return };
        outcome.under_way = outcome.under_way.saturating_sub(1);
        let is_first = is_delivered && !outcome.is_delivered;
        outcome.is_delivered |= is_delivered;
        if outcome.under_way == 0 && (is_recorded || !outcome.is_delivered) {
            taken.remove(&call);
        }
        drop(taken);
        if is_first && !is_recorded {
            let _ = self.recorder.send((session.clone(), call));
        }
    }
}

/// Delivery of one outcome. Dropped without [`Receipt::confirm`], the outcome stays for the same call repeated.
pub struct Receipt {
    receipts: Arc<Receipts>,
    session: SessionId,
    call: CallId,
    is_confirmed: bool,
    is_recorded: bool,
}

impl Receipt {
    /// Records the outcome as delivered before it is: after a crash nobody gets it a second time, and perhaps nobody gets it.
    ///
    /// # Errors
    /// The reason why it could not be recorded. The outcome stays for the same call repeated.
    pub(crate) async fn record(mut self, source: &CommandSource) -> Result<Self, OwnerError> {
        let received = call::Command::Received { session: self.session.clone(), calls: vec![self.call] };
        source.send_command(Command::Call(received)).await?;
        self.is_recorded = true;
        Ok(self)
    }

    fn confirm(mut self) {
        self.is_confirmed = true;
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        self.receipts.end_delivery(&self.session, self.call, self.is_confirmed, self.is_recorded);
    }
}

/// Reply to one request of a client, on its way.
#[derive(Clone, Default)]
pub struct Delivery {
    receipt: Arc<Mutex<Option<Receipt>>>,
    /// Cancelled once the connection has taken the reply, or cannot take it any more.
    over: CancellationToken,
}

impl Delivery {
    /// Attaches the outcome that the reply has. If the client has gone, the outcome is released at once.
    pub fn attach(&self, receipt: Receipt) {
        let mut attached = self.receipt.lock();
        if !self.over.is_cancelled() {
            *attached = Some(receipt);
        }
    }

    /// Records that the connection has taken the whole reply.
    pub fn confirm(&self) {
        if let Some(receipt) = self.end() {
            receipt.confirm();
        }
    }

    /// Records that the reply cannot be delivered any more, and ends the wait of its call.
    pub fn abandon(&self) {
        drop(self.end());
    }

    /// Reports whether the reply was taken, or cannot be delivered any more.
    pub fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Waits until the reply was taken, or cannot be delivered any more.
    pub(crate) async fn wait_over(&self) {
        self.over.cancelled().await;
    }

    fn end(&self) -> Option<Receipt> {
        let mut attached = self.receipt.lock();
        self.over.cancel();
        attached.take()
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::id::{CallId, SessionId};
    use tokio::sync::mpsc;
    use uuid::Uuid;

    use super::{Arc, Delivery, OutcomeSharing, Receipts};

    fn receipts() -> (Arc<Receipts>, mpsc::UnboundedReceiver<(SessionId, CallId)>) {
        let (recorder, recorded) = mpsc::unbounded_channel();
        (Arc::new(Receipts { taken: Arc::default(), recorder }), recorded)
    }

    #[test]
    fn an_outcome_is_recorded_once_however_many_clients_get_it() {
        let (receipts, mut recorded) = receipts();
        let (session, call) = (SessionId::new("mcp:a"), CallId::new(Uuid::from_u128(1)));
        let deliveries = [Delivery::default(), Delivery::default()];
        for delivery in &deliveries {
            delivery.attach(receipts.begin_delivery(&session, call, OutcomeSharing::All).unwrap());
        }
        assert!(receipts.is_taken(call));
        deliveries.iter().for_each(Delivery::confirm);
        assert_eq!((recorded.try_recv().ok(), recorded.try_recv().ok()), (Some((session, call)), None));
        assert!(receipts.is_taken(call), "until that is recorded");
    }

    #[test]
    fn an_outcome_whose_client_has_gone_is_free_again() {
        let (receipts, mut recorded) = receipts();
        let (session, call) = (SessionId::new("mcp:a"), CallId::new(Uuid::from_u128(1)));
        for goes_first in [false, true] {
            let delivery = Delivery::default();
            if goes_first {
                delivery.abandon();
            }
            delivery.attach(receipts.begin_delivery(&session, call, OutcomeSharing::One).unwrap());
            delivery.abandon();
            delivery.confirm();
            assert!(!receipts.is_taken(call) && recorded.try_recv().is_err());
        }
    }

    #[test]
    fn a_decision_goes_to_one_call() {
        let (receipts, _recorded) = receipts();
        let (session, call) = (SessionId::new("mcp:a"), CallId::new(Uuid::from_u128(1)));
        let first = receipts.begin_delivery(&session, call, OutcomeSharing::One);
        assert!(receipts.begin_delivery(&session, call, OutcomeSharing::One).is_none());
        drop(first);
        assert!(receipts.begin_delivery(&session, call, OutcomeSharing::One).is_some());
    }
}
