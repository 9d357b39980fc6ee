//! Work that follows the log of a session in addition to the adapter, for as long as the session is open.
//!
//! It must not know what is followed, nor what for.

use std::{future::Future, path::Path, sync::Arc};

use countersign_core::{engine::RecordedFact, id::SessionId};
use countersign_runtime::{Clock, CommandSource, ContentCache, FactFollower};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Function that starts a follower of a session that works in a folder. None if the session needs none.
pub(crate) type StartFollower = fn(SessionId, &Path, LogReaders) -> Option<LogFollower>;

/// Access of a follower to the log of its session.
pub struct LogReaders {
    /// Source of the engine's state.
    pub source: CommandSource,
    /// Source of contents.
    pub contents: ContentCache,
    /// Follows the facts of the session from before the first read on.
    pub facts: FactFollower<Arc<RecordedFact>>,
    /// Current time.
    pub clock: Clock,
}

/// Task that follows a log until it is dropped.
#[derive(Debug)]
pub struct LogFollower {
    task: tokio::task::JoinHandle<()>,
    ends: DropGuard,
}

impl LogFollower {
    /// Spawns what `follow` makes. It has to end once its token is cancelled.
    pub fn spawn<F>(follow: impl FnOnce(CancellationToken) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let ends = CancellationToken::new();
        Self { task: tokio::spawn(follow(ends.clone())), ends: ends.drop_guard() }
    }

    /// Has it take in what was released, and waits for its end.
    pub(super) async fn wait_finished(self) {
        drop(self.ends);
        let _ = self.task.await;
    }
}
