//! The thread that writes the journal: whatever waits goes into one transaction, and whoever waits is told behind it.
//!
//! It must not lose what is only told. Where the disk refuses, whoever asks hears so at once; what has happened is kept and
//! written as soon as the disk takes it.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use countersign_protocol::gsv::{node::ExecEvent, tool::ToolResultParams};
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    JournalError, Waiting,
    table::{Known, Noting, Table},
};

/// How many orders go into one transaction.
const BATCH: usize = 256;
/// How long after the disk refused it is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// How often what is old is forgotten.
const PRUNED: Duration = Duration::from_secs(600);

type Reply<T> = oneshot::Sender<Result<T, JournalError>>;

/// What is to be written or found. How many wait is bounded by the calls and commands that there may be at once.
pub(super) enum Order {
    Begin { call: String, tool: String, reply: Reply<Known> },
    Resume { call: String, reply: Reply<Known> },
    End { outcome: ToolResultParams, reply: Reply<()> },
    Received { call: String },
    Happened { event: Box<ExecEvent> },
    Next { reply: Reply<Option<Waiting>> },
    Taken { seq: i64, reply: Reply<()> },
    Flush { reply: Reply<()> },
}

impl Order {
    /// Whether it tells of something that has happened already, which must not be lost.
    const fn is_told(&self) -> bool {
        match self {
            Self::End { .. } | Self::Received { .. } | Self::Happened { .. } => true,
            Self::Begin { .. } | Self::Resume { .. } | Self::Next { .. } | Self::Taken { .. } | Self::Flush { .. } => {
                false
            }
        }
    }

    fn refuse(self, error: &JournalError) {
        let error = error.clone();
        // Whoever asked may have gone.
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

/// What an order came to.
enum Came {
    Known(Known),
    Next(Result<Option<Waiting>, JournalError>),
    Written,
}

/// Writes until nobody has anything to write any more.
pub(super) fn run(
    mut table: Table,
    mut orders: mpsc::UnboundedReceiver<Order>,
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
        let changes = batch.iter().any(|order| matches!(order, Order::Happened { .. } | Order::Received { .. }));
        let mut is_known = false;
        let came = loop {
            let error = match write(&mut table, &batch) {
                Ok(came) => break came,
                Err(error) => error,
            };
            let error = JournalError(format!("cannot be written: {error}"));
            if !std::mem::replace(&mut is_known, true) {
                tracing::error!(%error, "what happens is kept in memory until it can");
            }
            let (kept, refused): (Vec<_>, Vec<_>) = batch.into_iter().partition(Order::is_told);
            refused.into_iter().for_each(|order| order.refuse(&error));
            batch = kept;
            if batch.is_empty() {
                break Vec::new();
            }
            thread::sleep(AGAIN);
            while let Ok(order) = orders.try_recv() {
                batch.push(order);
            }
        };
        if let Ok(count) = table.waiting() {
            waiting.store(count, Ordering::Relaxed);
        }
        if changes || is_known {
            changed.send_modify(|version| *version += 1);
        }
        // Behind that: whoever waited until all is written sees what changed with it.
        for (order, came) in batch.into_iter().zip(came) {
            tell(order, came);
        }
        if pruned.elapsed() >= PRUNED {
            pruned = Instant::now();
            if let Err(error) = table.at_once(|noting| noting.prune()) {
                tracing::warn!(%error, "the journal forgets nothing for now");
            }
        }
    }
}

/// Writes a batch as one transaction: what came of each. On failure nothing of it is written.
fn write(table: &mut Table, batch: &[Order]) -> rusqlite::Result<Vec<Came>> {
    let writes = |order: &Order| !matches!(order, Order::Next { .. } | Order::Flush { .. });
    let mut came: Vec<Came> = if batch.iter().any(writes) {
        table.at_once(|noting| batch.iter().map(|order| note(noting, order)).collect())?
    } else {
        batch.iter().map(|_| Came::Written).collect()
    };
    // Looked for behind the rest: what was written with it is there, and stays so whatever comes of looking.
    for (order, came) in batch.iter().zip(&mut came) {
        if matches!(order, Order::Next { .. }) {
            *came = Came::Next(table.next().map_err(|error| JournalError(format!("cannot be read: {error}"))));
        }
    }
    Ok(came)
}

fn note(noting: &Noting<'_>, order: &Order) -> rusqlite::Result<Came> {
    match order {
        Order::Begin { call, tool, .. } => return noting.begin(call, tool).map(Came::Known),
        Order::Resume { call, .. } => return noting.resume(call).map(Came::Known),
        Order::End { outcome, .. } => noting.end(outcome)?,
        Order::Received { call } => noting.received(call)?,
        Order::Happened { event } => noting.happened(event)?,
        Order::Taken { seq, .. } => noting.taken(*seq)?,
        Order::Next { .. } | Order::Flush { .. } => {}
    }
    Ok(Came::Written)
}

fn tell(order: Order, came: Came) {
    match (order, came) {
        (Order::Begin { reply, .. } | Order::Resume { reply, .. }, Came::Known(known)) => drop(reply.send(Ok(known))),
        (Order::Next { reply }, Came::Next(next)) => drop(reply.send(next)),
        (Order::End { reply, .. } | Order::Taken { reply, .. } | Order::Flush { reply }, Came::Written) => {
            drop(reply.send(Ok(())));
        }
        // Nobody waits for what is only told.
        (_, Came::Known(_) | Came::Next(_) | Came::Written) => {}
    }
}
