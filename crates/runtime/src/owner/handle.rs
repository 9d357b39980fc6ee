//! Handle of an owner for the rest of the program.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use countersign_core::engine::RecordedFact;
use countersign_store::{AnyLog, Log as _};
use tokio::{sync::oneshot, task::JoinHandle};

use crate::{
    deliver::{ContentCache, FactFollower, ReleaseRing, Subscriber},
    inbox::{CommandSource, EngineRead, Inbox, InboxItem, InboxLane},
    metrics::RuntimeMetrics,
};

/// A handle to an owner. The owner ends when [`OwnerHandle::close`] was called.
///
/// # Example
///
/// ```
/// # use std::{path::Path, sync::Arc, time::Duration};
/// # use countersign_core::{gate::IdentityMap, id::SessionId, policy::{CompiledRules, DefaultPolicy, PathContext}};
/// # use countersign_core::{session::{self, ModelRef}, tool::ToolSpec};
/// # use countersign_runtime::{Clock, ResolvedModel, RunEnvironment, system_entropy};
/// # use countersign_runtime::tools::{AllowedRoots, CommandEnvironment, SessionShell};
/// # use countersign_runtime::tools::{ToolContext, ToolRegistry, exec::ExecLauncher};
/// use countersign_core::engine::{ActiveRules, Command, EngineReply, ResumeMode};
/// use countersign_runtime::{InboxLane, OwnerHandle, OwnerOptions, store::MemoryLog};
///
/// # struct Idle;
/// # impl RunEnvironment for Idle {
/// #     fn resolve_model(&self, _: &ModelRef) -> Result<ResolvedModel, String> { Err("there is none".to_owned()) }
/// #     fn tool_registry(&self, _: &SessionId) -> Arc<ToolRegistry> { Arc::new(ToolRegistry::standard()) }
/// #     fn system_prompt(&self, _: &SessionId, _: &str, _: &[&ToolSpec]) -> String { String::new() }
/// #     fn tool_context(&self, _: &SessionId, cwd: &str) -> ToolContext {
/// #         let shell = SessionShell::new(ExecLauncher::new(Path::new("/bin/false")));
/// #         ToolContext::new(cwd.into(), AllowedRoots::whole_filesystem([]), CommandEnvironment::clean_with([]), shell)
/// #     }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let rules = ActiveRules {
/// #     compiled: CompiledRules::default(),
/// #     default_policy: DefaultPolicy::Gateway,
/// #     path_context: PathContext::default(),
/// #     people: IdentityMap::default(),
/// # };
/// let options = OwnerOptions {
///     rules,
///     resume: ResumeMode::Go,
///     clock: Clock::system(),
///     entropy: system_entropy(),
///     environment: Arc::new(Idle),
///     merge: Duration::ZERO,
///     idle: None,
/// };
/// let owner = OwnerHandle::open(MemoryLog::new().into(), options).await?;
/// let source = owner.source(InboxLane::Request);
///
/// let (cwd, settings) = ("/home/ana".to_owned(), Box::default());
/// let open = session::Command::Open { cwd, name: None, parent: None, door: None, settings };
/// let reply = source.send_command(Command::Session(SessionId::new("s1"), open)).await?;
/// assert_eq!(reply.outcome, EngineReply::Done);
///
/// let sessions = source.read_state(|engine| engine.state().sessions().count()).await;
/// assert_eq!(sessions.map(|(count, _)| count), Some(1));
/// owner.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct OwnerHandle {
    pub(super) inbox: Arc<Inbox>,
    pub(super) ring: Arc<ReleaseRing>,
    pub(super) contents: ContentCache,
    pub(super) log: AnyLog,
    /// True if the owner starts no owed work yet.
    pub(super) is_held: Arc<AtomicBool>,
    pub(super) task: Arc<tokio::sync::Mutex<Option<JoinHandle<()>>>>,
    pub(super) meters: Arc<RuntimeMetrics>,
}

impl OwnerHandle {
    /// Makes a line of commands.
    pub fn source(&self, lane: InboxLane) -> CommandSource {
        self.inbox.source(lane)
    }

    /// Makes the log with the next fact, whatever that is: a client that opens a session finds it again after a crash. Without
    /// this, the facts that every process records at its start wait in memory until one of another kind comes.
    pub fn record_all(&self) {
        self.inbox.record_all();
    }

    /// Follows everything that is released, from now on.
    pub async fn subscribe(&self) -> Option<Subscriber> {
        let ring = Arc::clone(&self.ring);
        let (tx, rx) = oneshot::channel();
        let read: EngineRead = Box::new(move |engine| {
            let lsn = engine.state().head_lsn();
            Box::new(move |_| {
                let _ = tx.send(ring.subscribe(lsn));
            })
        });
        self.source(InboxLane::Request).enqueue_item(InboxItem::Read(None, read)).await.then_some(())?;
        rx.await.ok()
    }

    /// Follows the facts of which `select` makes something, from now on. `None` if the owner takes nothing any more.
    ///
    /// The owner calls `select` too, for each fact that it releases, to wake the follower only for those that it follows: it must be
    /// quick, wait for nothing and give the same each time. One that remembers facts needs [`OwnerHandle::follow_all_facts`].
    pub async fn follow_facts<T>(
        &self,
        select: impl Fn(&Arc<RecordedFact>) -> Option<T> + Send + Sync + 'static,
    ) -> Option<FactFollower<T>> {
        Some(FactFollower::new(self.subscribe().await?, select))
    }

    /// Follows the facts of which `select` makes something, from now on, and calls it once for each fact in their order. Each commit
    /// wakes the follower. `None` if the owner takes nothing any more.
    pub async fn follow_all_facts<T>(
        &self,
        select: impl FnMut(&Arc<RecordedFact>) -> Option<T> + Send + 'static,
    ) -> Option<FactFollower<T>> {
        Some(FactFollower::with_memory(self.subscribe().await?, select))
    }

    /// Starts the work that [`OwnerHandle::open_held`] held back. Does nothing if work was started already.
    pub async fn start_work(&self) {
        if self.is_held.swap(false, Ordering::AcqRel) {
            // The owner starts owed work after each batch.
            self.source(InboxLane::Request).read_state(|_| ()).await;
        }
    }

    /// Returns the content outside the owner.
    pub fn contents(&self) -> &ContentCache {
        &self.contents
    }

    /// Returns the log itself, for reading.
    pub fn log(&self) -> &AnyLog {
        &self.log
    }

    /// Returns the figures of this owner, from its opening.
    pub fn metrics(&self) -> &Arc<RuntimeMetrics> {
        &self.meters
    }

    /// Returns the number of commands and reads queued for the owner.
    pub fn queued_count(&self) -> usize {
        self.inbox.queued_count()
    }

    /// Stops taking commands, cancels the work in flight, records its results, and waits for the end.
    ///
    /// Work that was decided and not done stays owed: the next process finds it.
    pub async fn close(&self) {
        self.inbox.close();
        if let Some(task) = self.task.lock().await.take() {
            let _ = task.await;
        }
    }

    /// Gives the log up, so that another may own it. To be called after [`OwnerHandle::close`], and when no follower is left.
    pub async fn close_log(&self) {
        self.log.close().await;
    }
}

/// Tells everybody that the owner has ended, however it did.
pub(super) struct EndGuard {
    pub(super) inbox: Arc<Inbox>,
    pub(super) ring: Arc<ReleaseRing>,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.inbox.end();
        self.ring.end();
    }
}
