//! Pending input of the owner: one bounded queue a source. Nothing overtakes within a source.

mod reply;
mod size;
mod source;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use countersign_core::{
    engine::{Command, Engine, Event, FactMeta, ResidencyScope},
    gate,
};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot},
    time::Instant,
};

pub(crate) use reply::ReplyResult;
pub use reply::{NotRecorded, OwnerError, OwnerReply};
pub use source::CommandSource;

use crate::deliver::LiveUpdate;

/// Most items that one source may have queued.
const DEPTH: usize = 256;

/// Reads the state of a decided engine, in the order of its source.
pub(crate) type EngineRead = Box<dyn FnOnce(&Engine) -> Box<dyn FnOnce(u64) + Send> + Send>;

/// Lane of an item, in the order in which lanes are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboxLane {
    /// Answers, results and time.
    Result,
    /// Requests.
    Request,
}

/// One thing that waits.
pub(crate) enum InboxItem {
    /// A command, and the receiver of its reply.
    Command(Box<Command>, Option<oneshot::Sender<ReplyResult>>),
    /// A read of the state, and the content that it needs in memory.
    Read(Option<ResidencyScope>, EngineRead),
    /// Records read from the log for content that was not in memory, or the reason why they cannot be read.
    Fetched(ResidencyScope, Result<Vec<(Event, FactMeta)>, Arc<str>>),
    /// A frame that skips the log, but not the line.
    Live(LiveUpdate),
}

impl InboxItem {
    fn byte_size(&self) -> usize {
        match self {
            Self::Command(command, _) => size::size_of(command),
            Self::Fetched(_, records) => records.as_ref().map_or(0, |records| records.len() * 64),
            Self::Read(..) | Self::Live(_) => 64,
        }
    }

    /// Reports whether it is a person's answer, for which there is a deadline.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self, Self::Command(command, _) if matches!(**command, Command::Gate(gate::Command::Answer { .. } | gate::Command::AnswerAs { .. })))
    }

    /// Reports whether it is about jobs planned by the wall clock.
    pub(crate) fn is_about_jobs(&self) -> bool {
        matches!(self, Self::Command(command, _) if matches!(**command, Command::Schedule(_)))
    }

    fn expects_reply(&self) -> bool {
        matches!(self, Self::Command(_, Some(_)))
    }

    fn is_read(&self) -> bool {
        matches!(self, Self::Read(..) | Self::Fetched(..))
    }
}

pub(crate) struct QueuedItem {
    pub(crate) item: InboxItem,
    pub(crate) source: u64,
    pub(crate) lane: InboxLane,
    /// Time at which it was put into the queue.
    pub(crate) queued_at: Instant,
    /// Held until the item is settled, which is what bounds the source.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

#[derive(Default)]
struct InboxQueues {
    by_source: BTreeMap<u64, VecDeque<QueuedItem>>,
    /// Sources whose head is in that lane, in the order in which they became so.
    results: VecDeque<u64>,
    requests: VecDeque<u64>,
    closed: bool,
    ended: bool,
    next_source: u64,
}

impl InboxQueues {
    fn line_up(&mut self, source: u64) {
        match self.by_source.get(&source).and_then(VecDeque::front).map(|waiting| waiting.lane) {
            Some(InboxLane::Result) => self.results.push_back(source),
            Some(InboxLane::Request) => self.requests.push_back(source),
            None => {
                self.by_source.remove(&source);
            }
        }
    }
}

/// Pending items of one owner.
#[derive(Default)]
pub(crate) struct Inbox {
    queues: Mutex<InboxQueues>,
    arrived: Notify,
    /// True if every fact is worth a log.
    records_all: AtomicBool,
}

impl Inbox {
    /// Makes the owner record every fact that follows from later items.
    pub(crate) fn record_all(&self) {
        self.records_all.store(true, Ordering::Release);
    }

    /// Reports whether every fact is worth a log.
    pub(crate) fn records_all(&self) -> bool {
        self.records_all.load(Ordering::Acquire)
    }

    /// Adds a source. It is gone when it and its queued items are gone.
    pub(crate) fn source(self: &Arc<Self>, lane: InboxLane) -> CommandSource {
        let mut queues = self.queues.lock();
        queues.next_source += 1;
        CommandSource { inbox: Arc::clone(self), id: queues.next_source, lane, room: Arc::new(Semaphore::new(DEPTH)) }
    }

    /// Takes up to `most` items and about `bytes` bytes: results first, but at least a quarter requests if there are any.
    pub(crate) fn take_batch(&self, most: usize, bytes: usize) -> Vec<QueuedItem> {
        let mut queues = self.queues.lock();
        let mut taken = Vec::new();
        let mut size = 0;
        while taken.len() < most && size < bytes {
            let owed_to_requests = taken.len() % 4 == 3;
            let source = if owed_to_requests {
                queues.requests.pop_front().or_else(|| queues.results.pop_front())
            } else {
                queues.results.pop_front().or_else(|| queues.requests.pop_front())
            };
            let Some(source) = source else { break };
            if let Some(waiting) = queues.by_source.get_mut(&source).and_then(VecDeque::pop_front) {
                size += waiting.item.byte_size();
                taken.push(waiting);
            }
            queues.line_up(source);
        }
        taken
    }

    /// Takes every item that can be served while nothing can be recorded. One-way items, results above all, stay in their
    /// line: served past it, a request is refused and a read sees the recorded state, and for neither it matters.
    pub(crate) fn take_served(&self) -> Vec<QueuedItem> {
        self.take_all(|item| item.expects_reply() || item.is_read())
    }

    /// Takes every command whose sender waits for a reply, past the items before it.
    pub(crate) fn take_expecting_reply(&self) -> Vec<QueuedItem> {
        self.take_all(InboxItem::expects_reply)
    }

    fn take_all(&self, is_selected: impl Fn(&InboxItem) -> bool) -> Vec<QueuedItem> {
        let mut queues = self.queues.lock();
        let mut taken = Vec::new();
        for queue in queues.by_source.values_mut() {
            let (served, left) = std::mem::take(queue).into_iter().partition(|waiting| is_selected(&waiting.item));
            *queue = left;
            taken.extend::<VecDeque<QueuedItem>>(served);
        }
        queues.results.clear();
        queues.requests.clear();
        let sources: Vec<u64> = queues.by_source.keys().copied().collect();
        for source in sources {
            queues.line_up(source);
        }
        taken
    }

    /// Puts items back to the heads of their sources, in the order in which they were taken.
    pub(crate) fn put_back(&self, items: Vec<QueuedItem>) {
        let mut queues = self.queues.lock();
        for waiting in items.into_iter().rev() {
            let source = waiting.source;
            queues.results.retain(|id| *id != source);
            queues.requests.retain(|id| *id != source);
            queues.by_source.entry(source).or_default().push_front(waiting);
            queues.line_up(source);
        }
    }

    pub(crate) async fn wait_for_item(&self) {
        self.arrived.notified().await;
    }

    pub(crate) fn is_empty(&self) -> bool {
        let queues = self.queues.lock();
        queues.results.is_empty() && queues.requests.is_empty()
    }

    /// Returns the number of items queued in all lines together.
    pub(crate) fn queued_count(&self) -> usize {
        self.queues.lock().by_source.values().map(VecDeque::len).sum()
    }

    /// Takes no more requests.
    pub(crate) fn close(&self) {
        self.queues.lock().closed = true;
        self.arrived.notify_one();
    }

    /// Takes nothing at all any more, and drops the queued items: their senders get a broken line as the reply.
    pub(crate) fn end(&self) {
        let mut queues = self.queues.lock();
        queues.closed = true;
        queues.ended = true;
        queues.by_source.clear();
        queues.results.clear();
        queues.requests.clear();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.queues.lock().closed
    }

    fn enqueue_item(&self, waiting: QueuedItem) -> bool {
        let source = waiting.source;
        {
            let mut queues = self.queues.lock();
            // Work in flight may still report its outcome.
            if queues.ended || queues.closed && waiting.lane == InboxLane::Request {
                return false;
            }
            let queue = queues.by_source.entry(source).or_default();
            queue.push_back(waiting);
            if queue.len() == 1 {
                queues.line_up(source);
            }
        }
        self.arrived.notify_one();
        true
    }
}
