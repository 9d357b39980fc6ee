//! The thread that writes the journal: all waiting orders go into one transaction, and their senders are answered after it.
//!
//! It must not lose notes without a sender. If the disk refuses, senders get the error at once; notes of past events are kept and
//! written as soon as the disk takes them.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use countersign_protocol::gsv::{node::ExecEvent, tool::ToolResultParams};
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    JournalError, WaitingEvent,
    table::{JournalTable, JournalTransaction, JournaledCall},
};

/// Maximum number of orders in one transaction.
const BATCH: usize = 256;
/// Time before the next try after the disk refused.
const AGAIN: Duration = Duration::from_secs(1);
/// Time between two removals of old entries.
const PRUNED: Duration = Duration::from_secs(600);

type OrderReply<T> = oneshot::Sender<Result<T, JournalError>>;

/// Order to write or to look up. Their number is bounded by the calls and commands that there may be at once.
pub(super) enum JournalOrder {
    Begin { call: String, tool: String, reply: OrderReply<JournaledCall> },
    Resume { call: String, reply: OrderReply<JournaledCall> },
    End { outcome: ToolResultParams, reply: OrderReply<()> },
    Received { call: String },
    Happened { event: Box<ExecEvent> },
    Next { reply: OrderReply<Option<WaitingEvent>> },
    Taken { seq: i64, reply: OrderReply<()> },
    Flush { reply: OrderReply<()> },
}

impl JournalOrder {
    /// Reports whether it notes a past event, which must not be lost.
    const fn is_retried(&self) -> bool {
        match self {
            Self::End { .. } | Self::Received { .. } | Self::Happened { .. } => true,
            Self::Begin { .. } | Self::Resume { .. } | Self::Next { .. } | Self::Taken { .. } | Self::Flush { .. } => {
                false
            }
        }
    }

    fn refuse_with(self, error: &JournalError) {
        let error = error.clone();
        // The sender may have gone.
        match self {
            Self::Begin { reply, .. } | Self::Resume { reply, .. } => drop(reply.send(Err(error))),
            Self::End { reply, .. } | Self::Taken { reply, .. } | Self::Flush { reply } => {
                drop(reply.send(Err(error)));
            }
            Self::Next { reply } => drop(reply.send(Err(error))),
            Self::Received { .. } | Self::Happened { .. } => {}
        }
    }
}

/// Result of an order.
enum OrderResult {
    Known(JournaledCall),
    Next(Result<Option<WaitingEvent>, JournalError>),
    Written,
}

/// Writes until there are no more senders.
pub(super) fn run(
    mut table: JournalTable,
    mut orders: mpsc::UnboundedReceiver<JournalOrder>,
    waiting: &AtomicUsize,
    changed: &watch::Sender<u64>,
) {
    let mut pruned = Instant::now();
    while let Some(first) = orders.blocking_recv() {
        let mut batch = vec![first];
        while batch.len() < BATCH
            && let Ok(order) = orders.try_recv()
        {
            batch.push(order);
        }
        let changes =
            batch.iter().any(|order| matches!(order, JournalOrder::Happened { .. } | JournalOrder::Received { .. }));
        let mut is_known = false;
        let came = loop {
            let error = match write_batch(&mut table, &batch) {
                Ok(came) => break came,
                Err(error) => error,
            };
            let error = JournalError(format!("cannot be written: {error}"));
            if !std::mem::replace(&mut is_known, true) {
                tracing::error!(%error, "events are kept in memory until the journal can be written");
            }
            let (kept, refused): (Vec<_>, Vec<_>) = batch.into_iter().partition(JournalOrder::is_retried);
            refused.into_iter().for_each(|order| order.refuse_with(&error));
            batch = kept;
            if batch.is_empty() {
                break Vec::new();
            }
            thread::sleep(AGAIN);
            while let Ok(order) = orders.try_recv() {
                batch.push(order);
            }
        };
        if let Ok(count) = table.waiting_count() {
            waiting.store(count, Ordering::Relaxed);
        }
        if changes || is_known {
            changed.send_modify(|version| *version += 1);
        }
        // After that: a sender that waits until all is written sees what changed with it.
        for (order, came) in batch.into_iter().zip(came) {
            send_reply(order, came);
        }
        if pruned.elapsed() >= PRUNED {
            pruned = Instant::now();
            if let Err(error) = table.in_transaction(|noting| noting.prune_calls()) {
                tracing::warn!(%error, "cannot prune the journal; retrying later");
            }
        }
    }
}

/// Writes a batch as one transaction: what came of each. On failure nothing of it is written.
fn write_batch(table: &mut JournalTable, batch: &[JournalOrder]) -> rusqlite::Result<Vec<OrderResult>> {
    let writes = |order: &JournalOrder| !matches!(order, JournalOrder::Next { .. } | JournalOrder::Flush { .. });
    let mut came: Vec<OrderResult> = if batch.iter().any(writes) {
        table.in_transaction(|noting| batch.iter().map(|order| apply_order(noting, order)).collect())?
    } else {
        batch.iter().map(|_| OrderResult::Written).collect()
    };
    // Looked up after the rest: rows that were written with it are there, and stay so whatever the lookup gives.
    for (order, came) in batch.iter().zip(&mut came) {
        if matches!(order, JournalOrder::Next { .. }) {
            *came = OrderResult::Next(
                table.next_waiting().map_err(|error| JournalError(format!("cannot be read: {error}"))),
            );
        }
    }
    Ok(came)
}

fn apply_order(noting: &JournalTransaction<'_>, order: &JournalOrder) -> rusqlite::Result<OrderResult> {
    match order {
        JournalOrder::Begin { call, tool, .. } => return noting.begin_call(call, tool).map(OrderResult::Known),
        JournalOrder::Resume { call, .. } => return noting.resume_call(call).map(OrderResult::Known),
        JournalOrder::End { outcome, .. } => noting.end_call(outcome)?,
        JournalOrder::Received { call } => noting.mark_received(call)?,
        JournalOrder::Happened { event } => noting.insert_event(event)?,
        JournalOrder::Taken { seq, .. } => noting.delete_event(*seq)?,
        JournalOrder::Next { .. } | JournalOrder::Flush { .. } => {}
    }
    Ok(OrderResult::Written)
}

fn send_reply(order: JournalOrder, came: OrderResult) {
    match (order, came) {
        (JournalOrder::Begin { reply, .. } | JournalOrder::Resume { reply, .. }, OrderResult::Known(known)) => {
            drop(reply.send(Ok(known)))
        }
        (JournalOrder::Next { reply }, OrderResult::Next(next)) => drop(reply.send(next)),
        (
            JournalOrder::End { reply, .. } | JournalOrder::Taken { reply, .. } | JournalOrder::Flush { reply },
            OrderResult::Written,
        ) => {
            drop(reply.send(Ok(())));
        }
        // These have no sender that waits.
        (_, OrderResult::Known(_) | OrderResult::Next(_) | OrderResult::Written) => {}
    }
}
