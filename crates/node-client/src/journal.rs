//! Notes of a node about its calls, so that none of them runs twice and no result is lost: a call before it begins, its end before
//! it is reported, and the outcomes of commands in the background until the gateway has taken them.
//!
//! It must not know how calls are done or sent. One thread writes; all waiting orders go into one transaction.

mod table;
mod writer;

use std::{
    fmt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use countersign_protocol::gsv::{node::ExecEvent, tool::ToolResultParams};
use tokio::sync::{mpsc, oneshot, watch};

use table::JournalTable;
pub(crate) use table::JournaledCall;
use writer::JournalOrder;

/// The journal. Clones share it.
#[derive(Clone)]
pub(crate) struct JournalHandle {
    orders: mpsc::UnboundedSender<JournalOrder>,
    waiting: Arc<AtomicUsize>,
    changed: watch::Receiver<u64>,
    id: u64,
}

/// An event that the gateway has not taken.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WaitingEvent {
    /// Its place in the order.
    pub(crate) seq: i64,
    /// The event.
    pub(crate) event: ExecEvent,
    /// True if the gateway has taken the result of the call that began the command, or there is none to take.
    pub(crate) is_announced: bool,
}

/// Remains of a process that did not end in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InterruptedWork {
    /// Calls that had begun. What became of them is unknown.
    pub(crate) calls: usize,
    /// Commands in the background, which ended with it.
    pub(crate) commands: usize,
}

/// Why something was not noted or not found.
#[derive(Clone, Debug)]
pub(crate) struct JournalError(pub(crate) String);

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the journal {}", self.0)
    }
}

impl std::error::Error for JournalError {}

impl JournalHandle {
    /// Opens or makes the journal at `path`, and settles what another process left in it.
    pub(crate) fn open(path: &Path) -> Result<(Self, InterruptedWork), JournalError> {
        let refused = |error: rusqlite::Error| JournalError(format!("{} cannot be opened: {error}", path.display()));
        let mut table = JournalTable::open(path).map_err(refused)?;
        let id = table.id().map_err(refused)?;
        let broken = table.settle_interrupted().map_err(refused)?;
        let waiting = Arc::new(AtomicUsize::new(table.waiting_count().map_err(refused)?));
        let (orders, given) = mpsc::unbounded_channel();
        let (change, changed) = watch::channel(0);
        let count = Arc::clone(&waiting);
        let writing = move || writer::run(table, given, &count, &change);
        let started = std::thread::Builder::new().name("journal".to_owned()).spawn(writing);
        started.map_err(|error| JournalError(format!("cannot start its thread: {error}")))?;
        Ok((Self { orders, waiting, changed, id }, broken))
    }

    async fn send_order<T>(
        &self,
        order: impl FnOnce(oneshot::Sender<Result<T, JournalError>>) -> JournalOrder,
    ) -> Result<T, JournalError> {
        let gone = || JournalError("is closed".to_owned());
        let (reply, replied) = oneshot::channel();
        self.orders.send(order(reply)).map_err(|_| gone())?;
        replied.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Notes that a call is about to begin, and says what is known of it. Only one that is [new](JournaledCall::New) may begin.
    pub(crate) async fn begin_call(&self, call: &str, tool: &str) -> Result<JournaledCall, JournalError> {
        self.send_order(|reply| JournalOrder::Begin { call: call.to_owned(), tool: tool.to_owned(), reply }).await
    }

    /// Says what is known of a call that the gateway asks about. One that is not known is noted, and never begins.
    pub(crate) async fn resume_call(&self, call: &str) -> Result<JournaledCall, JournalError> {
        self.send_order(|reply| JournalOrder::Resume { call: call.to_owned(), reply }).await
    }

    /// Notes the end of a call, however long that takes: it is not reported before.
    pub(crate) async fn end_call(&self, outcome: ToolResultParams) -> Result<(), JournalError> {
        self.send_order(|reply| JournalOrder::End { outcome, reply }).await
    }

    /// Notes that the gateway has taken the result of a call.
    pub(crate) fn mark_received(&self, call: String) {
        let _ = self.orders.send(JournalOrder::Received { call });
    }

    /// Notes an event, after all earlier notes.
    pub(crate) fn record_event(&self, event: ExecEvent) {
        let _ = self.orders.send(JournalOrder::Happened { event: Box::new(event) });
    }

    /// Returns the oldest event that the gateway has not taken.
    pub(crate) async fn next_event(&self) -> Result<Option<WaitingEvent>, JournalError> {
        self.send_order(|reply| JournalOrder::Next { reply }).await
    }

    /// Notes that the gateway has taken an event.
    pub(crate) async fn mark_taken(&self, seq: i64) -> Result<(), JournalError> {
        self.send_order(|reply| JournalOrder::Taken { seq, reply }).await
    }

    /// Returns the id that tells this journal from every other.
    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// Returns the number of events that wait for the gateway.
    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Changes whenever an event may be there that could not be sent before.
    pub(crate) fn watch_changes(&self) -> watch::Receiver<u64> {
        self.changed.clone()
    }

    /// Waits until everything that was noted is on the disk.
    pub(crate) async fn flush(&self) {
        // If it is closed, there is nothing to wait for.
        let _ = self.send_order(|reply| JournalOrder::Flush { reply }).await;
    }
}

#[cfg(test)]
mod tests;
