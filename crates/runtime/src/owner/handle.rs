//! What others hold of an owner.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use countersign_core::engine::{self, Command, Engine, Refusal, Scope};
use countersign_store::{AnyLog, Log as _};
use tokio::{sync::oneshot, task::JoinHandle};

use super::inbox::{Inbox, Item, Lane, Source};
use crate::{
    deliver::{Contents, Live, LiveKind, Ring, Subscriber},
    meters::Meters,
};

/// What a command came to, and where in the order of releases that stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// What it came to.
    pub outcome: engine::Reply,
    /// The number of the first frame that was released behind it.
    pub position: u64,
}

/// Why a command had no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The engine refused it.
    #[error(transparent)]
    Refusal(#[from] Refusal),
    /// The log could not record it. Nothing has happened.
    #[error(transparent)]
    NotRecorded(#[from] NotRecorded),
    /// The log broke off while it was recorded, and cannot say what became of it. It may have happened.
    #[error("it is not known whether this was recorded: {0}")]
    Unsure(Arc<str>),
    /// What follows from it is too long for a record. Nothing has happened.
    #[error("this is too long to be recorded")]
    TooLarge,
    /// What it is about lies in the log, and the log cannot be read. Nothing has happened.
    #[error("the log cannot be read: {0}")]
    Unreadable(Arc<str>),
    /// Deciding it went wrong inside. Nothing has happened.
    #[error("internal error: this command could not be decided")]
    Panicked,
    /// The owner has ended.
    #[error("the session is closed")]
    Closed,
}

/// The log could not record it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not recorded: {0}")]
pub struct NotRecorded(pub Arc<str>);

pub(crate) type Replied = Result<Reply, Refused>;

/// A handle to an owner. The owner ends when [`Handle::close`] was called.
#[derive(Clone)]
pub struct Handle {
    pub(super) inbox: Arc<Inbox>,
    pub(super) ring: Arc<Ring>,
    pub(super) contents: Contents,
    pub(super) log: AnyLog,
    /// Whether the owner starts nothing of what is owed yet.
    pub(super) is_held: Arc<AtomicBool>,
    pub(super) task: Arc<tokio::sync::Mutex<Option<JoinHandle<()>>>>,
    pub(super) meters: Arc<Meters>,
}

impl Handle {
    /// A new line of commands.
    pub fn source(&self, lane: Lane) -> Source {
        self.inbox.source(lane)
    }

    /// Has the log made with the next fact, whatever that is: a client that opens a session finds it again after a crash. Without
    /// this, the facts that every process records at its start wait in memory until one of another kind comes.
    pub fn record_all(&self) {
        self.inbox.record_all();
    }

    /// Follows what is released from now on.
    pub async fn subscribe(&self) -> Option<Subscriber> {
        let ring = Arc::clone(&self.ring);
        let (tx, rx) = oneshot::channel();
        let read: super::Read = Box::new(move |engine| {
            let lsn = engine.state().head();
            Box::new(move |_| {
                let _ = tx.send(ring.subscribe(lsn));
            })
        });
        self.source(Lane::Request).put(Item::Read(None, read)).await.then_some(())?;
        rx.await.ok()
    }

    /// Starts the work that [`Handle::open_held`] held back. Does nothing where work was started already.
    pub async fn start_work(&self) {
        if self.is_held.swap(false, Ordering::AcqRel) {
            // The owner sees to what is owed behind each batch.
            self.source(Lane::Request).read(|_| ()).await;
        }
    }

    /// Content outside the owner.
    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// The log itself, for reading.
    pub fn log(&self) -> &AnyLog {
        &self.log
    }

    /// The figures of this owner, from its opening.
    pub fn meters(&self) -> &Arc<Meters> {
        &self.meters
    }

    /// How many commands and questions wait for the owner.
    pub fn waiting(&self) -> usize {
        self.inbox.waiting()
    }

    /// Stops taking commands, cancels what is in flight, records what comes back of it, and waits for the end.
    ///
    /// What was decided and not done stays owed: the next process finds it.
    pub async fn close(&self) {
        self.inbox.close();
        if let Some(task) = self.task.lock().await.take() {
            let _ = task.await;
        }
    }

    /// Gives the log up, so that another may own it. To be called after [`Handle::close`], and when nobody follows it any more.
    pub async fn close_log(&self) {
        self.log.close().await;
    }
}

impl Source {
    /// Asks for something and waits for what it comes to.
    ///
    /// A dropped future loses only the reply: the command is decided all the same once it is in the line.
    ///
    /// # Errors
    /// [`Refused`], with nothing changed in each case but [`Refused::Unsure`].
    pub async fn ask(&self, command: Command) -> Result<Reply, Refused> {
        let (tx, rx) = oneshot::channel();
        if !self.put(Item::Command(Box::new(command), Some(tx))).await {
            return Err(Refused::Closed);
        }
        rx.await.unwrap_or(Err(Refused::Closed))
    }

    /// Tells of something, without waiting for what it comes to.
    pub async fn tell(&self, command: Command) {
        self.put(Item::Command(Box::new(command), None)).await;
    }

    /// Asks for something; what it comes to arrives later. The command is in the line when this returns.
    pub async fn send(&self, command: Command) -> oneshot::Receiver<Result<Reply, Refused>> {
        let (tx, rx) = oneshot::channel();
        // If the owner has ended the sender is dropped with the item, and the receiver says so.
        self.put(Item::Command(Box::new(command), Some(tx))).await;
        rx
    }

    /// Asks for something if there is room in the line; `None` means that the line is full.
    pub fn try_send(&self, command: Command) -> Option<oneshot::Receiver<Result<Reply, Refused>>> {
        let (tx, rx) = oneshot::channel();
        self.try_put(Item::Command(Box::new(command), Some(tx))).then_some(rx)
    }

    /// Reads the state in the order of this line. What was read leaves only after everything that it shows is durable.
    pub async fn read<T: Send + 'static>(&self, read: impl FnOnce(&Engine) -> T + Send + 'static) -> Option<(T, u64)> {
        self.read_scope(None, read).await
    }

    /// The same, with `scope` at hand: it is fetched from the log where it was let go of.
    pub async fn read_of<T: Send + 'static>(
        &self,
        scope: Scope,
        read: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> Option<(T, u64)> {
        self.read_scope(Some(scope), read).await
    }

    async fn read_scope<T: Send + 'static>(
        &self,
        scope: Option<Scope>,
        read: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> Option<(T, u64)> {
        let (tx, rx) = oneshot::channel();
        let read: super::Read = Box::new(move |engine| {
            let value = read(engine);
            Box::new(move |position| {
                let _ = tx.send((value, position));
            })
        });
        self.put(Item::Read(scope, read)).await.then_some(())?;
        rx.await.ok()
    }

    /// Releases a frame that skips the log, behind everything that this line brought before.
    ///
    /// A call's progress is left out while the line is full: the next one holds all of its output, and a tool must not
    /// wait for a log that cannot be written.
    pub async fn live(&self, live: Live) {
        if matches!(live.kind, LiveKind::CallProgress { .. }) {
            self.try_put(Item::Live(live));
        } else {
            self.put(Item::Live(live)).await;
        }
    }
}
