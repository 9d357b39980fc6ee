//! One line of commands to an owner, as others hold it.

use std::sync::Arc;

use countersign_core::engine::{Command, Engine, ResidencyScope};
use tokio::{
    sync::{Semaphore, oneshot},
    time::Instant,
};

use super::{Inbox, Item, Lane, Read, Refused, Reply, Waiting};
use crate::deliver::{Live, LiveKind};

/// One bounded line of commands to an owner. A clone is another hand on the same line.
#[derive(Clone)]
pub struct Source {
    pub(super) inbox: Arc<Inbox>,
    pub(super) id: u64,
    pub(super) lane: Lane,
    pub(super) room: Arc<Semaphore>,
}

impl Source {
    /// Puts an item into the line, waiting for room. False if the owner has ended.
    pub(crate) async fn put(&self, item: Item) -> bool {
        let Ok(permit) = Arc::clone(&self.room).acquire_owned().await else { return false };
        self.inbox.put(Waiting { item, source: self.id, lane: self.lane, since: Instant::now(), permit: Some(permit) })
    }

    /// Puts an item into the line if there is room.
    pub(crate) fn try_put(&self, item: Item) -> bool {
        let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() else { return false };
        self.inbox.put(Waiting { item, source: self.id, lane: self.lane, since: Instant::now(), permit: Some(permit) })
    }

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
        scope: ResidencyScope,
        read: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> Option<(T, u64)> {
        self.read_scope(Some(scope), read).await
    }

    async fn read_scope<T: Send + 'static>(
        &self,
        scope: Option<ResidencyScope>,
        read: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> Option<(T, u64)> {
        let (tx, rx) = oneshot::channel();
        let read: Read = Box::new(move |engine| {
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
