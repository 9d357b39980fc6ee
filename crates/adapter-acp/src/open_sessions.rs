//! The sessions that one editor has open.

use std::collections::BTreeMap;

use countersign_acp_protocol::RequestId;
use countersign_core::id::SessionId;
use tokio::{sync::mpsc, task::JoinHandle};

use crate::{feed_command::FeedCommand, session_feed::SessionFeed, session_snapshot::SessionSnapshot};

/// Most commands that wait for a feed.
const WAITING: usize = 64;
/// Most sessions that one editor has open.
pub(crate) const MOST_OPEN: usize = 64;

struct OpenSession {
    commands: mpsc::Sender<FeedCommand>,
    task: JoinHandle<()>,
}

/// Open sessions of one connection. Dropping it leaves them: their work continues.
#[derive(Default)]
pub(crate) struct OpenSessions(BTreeMap<SessionId, OpenSession>);

impl OpenSessions {
    /// Starts a feed.
    pub(crate) fn insert(&mut self, session: SessionId, feed: SessionFeed, snapshot: SessionSnapshot) {
        let (commands, received) = mpsc::channel(WAITING);
        let task = tokio::spawn(feed.run(snapshot, commands.downgrade(), received));
        self.0.insert(session, OpenSession { commands, task });
    }

    /// Reports whether there is room for one more.
    pub(crate) fn has_room(&self) -> bool {
        self.0.len() < MOST_OPEN
    }

    /// Reports whether a session is open.
    pub(crate) fn contains(&self, session: &SessionId) -> bool {
        self.0.contains_key(session)
    }

    /// Hands a command to the feed of a session. False if it is not open.
    pub(crate) async fn send(&self, session: &SessionId, command: FeedCommand) -> bool {
        match self.0.get(session) {
            Some(open) => open.commands.send(command).await.is_ok(),
            None => false,
        }
    }

    /// Stops the work of one request, wherever it is.
    pub(crate) async fn cancel_request(&self, request: &RequestId) {
        for open in self.0.values() {
            let _ = open.commands.send(FeedCommand::CancelRequest(request.clone())).await;
        }
    }

    /// Leaves a session, and waits until its last lines were sent. False if it is not open.
    pub(crate) async fn remove(&mut self, session: &SessionId) -> bool {
        let Some(OpenSession { commands, task }) = self.0.remove(session) else { return false };
        drop(commands);
        let _ = task.await;
        true
    }

    /// Leaves all of them at once.
    pub(crate) fn abort_all(&mut self) {
        for open in std::mem::take(&mut self.0).into_values() {
            open.task.abort();
        }
    }
}

impl Drop for OpenSessions {
    fn drop(&mut self) {
        self.abort_all();
    }
}
