//! One line of commands to an owner, as others hold it.

use std::sync::Arc;

use countersign_core::engine::{Command, Engine, ResidencyScope};
use tokio::{
    sync::{Semaphore, oneshot},
    time::Instant,
};

use super::{EngineRead, Inbox, InboxItem, InboxLane, OwnerError, OwnerReply, QueuedItem};
use crate::deliver::{LiveKind, LiveUpdate};

/// One bounded line of commands to an owner. A clone is another hand on the same line.
#[derive(Clone)]
pub struct CommandSource {
    pub(super) inbox: Arc<Inbox>,
    pub(super) id: u64,
    pub(super) lane: InboxLane,
    pub(super) room: Arc<Semaphore>,
}

impl CommandSource {
    /// Puts an item into the line, waiting for room. False if the owner has ended.
    pub(crate) async fn enqueue_item(&self, item: InboxItem) -> bool {
        let Ok(permit) = Arc::clone(&self.room).acquire_owned().await else { return false };
        self.inbox.enqueue_item(QueuedItem {
            item,
            source: self.id,
            lane: self.lane,
            queued_at: Instant::now(),
            permit: Some(permit),
        })
    }

    /// Puts an item into the line if there is room.
    pub(crate) fn try_enqueue_item(&self, item: InboxItem) -> bool {
        let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() else { return false };
        self.inbox.enqueue_item(QueuedItem {
            item,
            source: self.id,
            lane: self.lane,
            queued_at: Instant::now(),
            permit: Some(permit),
        })
    }

    /// Sends a command and waits for its outcome.
    ///
    /// A dropped future loses only the reply: the command is decided all the same once it is in the line.
    ///
    /// # Errors
    /// [`OwnerError`], with nothing changed in each case but [`OwnerError::Unsure`].
    pub async fn send_command(&self, command: Command) -> Result<OwnerReply, OwnerError> {
        let (tx, rx) = oneshot::channel();
        if !self.enqueue_item(InboxItem::Command(Box::new(command), Some(tx))).await {
            return Err(OwnerError::Closed);
        }
        rx.await.unwrap_or(Err(OwnerError::Closed))
    }

    /// Posts a command, without waiting for its outcome.
    pub async fn post_command(&self, command: Command) {
        self.enqueue_item(InboxItem::Command(Box::new(command), None)).await;
    }

    /// Submits a command; its outcome arrives later. The command is in the line when this returns.
    pub async fn submit_command(&self, command: Command) -> oneshot::Receiver<Result<OwnerReply, OwnerError>> {
        let (tx, rx) = oneshot::channel();
        // If the owner has ended the sender is dropped with the item, and the receiver says so.
        self.enqueue_item(InboxItem::Command(Box::new(command), Some(tx))).await;
        rx
    }

    /// Asks for something if there is room in the line; `None` means that the line is full.
    pub fn try_submit_command(&self, command: Command) -> Option<oneshot::Receiver<Result<OwnerReply, OwnerError>>> {
        let (tx, rx) = oneshot::channel();
        self.try_enqueue_item(InboxItem::Command(Box::new(command), Some(tx))).then_some(rx)
    }

    /// Reads the state in the order of this line. The result leaves only after everything that it shows is durable.
    pub async fn read_state<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> Option<(T, u64)> {
        self.read_scope(None, read).await
    }

    /// Does the same with `scope` in memory: it is fetched from the log if it was let go of.
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
        let read: EngineRead = Box::new(move |engine| {
            let value = read(engine);
            Box::new(move |position| {
                let _ = tx.send((value, position));
            })
        });
        self.enqueue_item(InboxItem::Read(scope, read)).await.then_some(())?;
        rx.await.ok()
    }

    /// Releases a frame that skips the log, after all earlier items of this line.
    ///
    /// A call's progress is left out while the line is full: the next one holds all of its output, and a tool must not
    /// wait for a log that cannot be written.
    pub async fn send_live(&self, live: LiveUpdate) {
        if matches!(live.kind, LiveKind::CallProgress { .. }) {
            self.try_enqueue_item(InboxItem::Live(live));
        } else {
            self.enqueue_item(InboxItem::Live(live)).await;
        }
    }
}
