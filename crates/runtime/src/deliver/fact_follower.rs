//! A follower of some facts of an owner, in the order of the log.
//!
//! It must not know the use of a fact by its caller.

use std::{fmt, sync::Arc};

use countersign_core::engine::RecordedFact;

use super::ring::{ReleasedItem, Subscriber};

/// Makes something of the facts that are followed, and nothing of others.
type FactSelector<T> = Box<dyn FnMut(&Arc<RecordedFact>) -> Option<T> + Send>;

/// Follows the facts that `select` maps to a value.
///
/// *Start*: the fact after the one that was the last when the follower was made. Facts that a later read of the state shows
/// already may therefore come as well. *Loss*: none. A follower that is later than the facts held by the owner reads the log, and waits
/// where the log cannot be read. *End*: the owner has ended and everything was handed out, or the log is damaged, which is logged.
/// *Cancellation*: dropping a future of this type loses no fact; dropping the follower ends it.
///
/// Use [`Subscriber`] for live frames or positions.
///
/// # Example
///
/// ```
/// # use std::{path::Path, sync::Arc, time::Duration};
/// # use countersign_core::{gate::IdentityMap, id::SessionId, policy::{CompiledRules, DefaultPolicy, PathContext}};
/// # use countersign_core::{engine::{ActiveRules, ResumeMode}, session::ModelRef, tool::ToolSpec};
/// # use countersign_runtime::{Clock, OwnerHandle, OwnerOptions, ResolvedModel, RunEnvironment, system_entropy};
/// # use countersign_runtime::{store::MemoryLog, tools::{AllowedRoots, CommandEnvironment, SessionShell}};
/// # use countersign_runtime::tools::{ToolContext, ToolRegistry, exec::ExecLauncher};
/// use countersign_core::{engine::{Command, Event}, session};
/// use countersign_runtime::InboxLane;
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
/// # let (resume, clock, entropy) = (ResumeMode::Go, Clock::system(), system_entropy());
/// # let (environment, merge, idle) = (Arc::new(Idle), Duration::ZERO, None);
/// # let options = OwnerOptions { rules, resume, clock, entropy, environment, merge, idle };
/// # let owner = OwnerHandle::open(MemoryLog::new().into(), options).await?;
/// let mut opened = owner
///     .follow_facts(|recorded| match &recorded.fact.event {
///         Event::Session(session::Event::Opened { .. }) => recorded.meta.session.clone(),
///         _ => None,
///     })
///     .await
///     .ok_or("the owner has ended")?;
///
/// let (cwd, settings) = ("/home/ana".to_owned(), Box::default());
/// let open = session::Command::Open { cwd, name: None, parent: None, door: None, settings };
/// owner.source(InboxLane::Request).send_command(Command::Session(SessionId::new("s1"), open)).await?;
/// assert_eq!(opened.next().await, Some(SessionId::new("s1")));
///
/// // An owner that ends hands out its last facts first.
/// owner.close().await;
/// assert_eq!(opened.next().await, None);
/// # Ok(())
/// # }
/// ```
pub struct FactFollower<T> {
    subscriber: Subscriber,
    select: FactSelector<T>,
}

impl<T> FactFollower<T> {
    /// Returns a follower that is woken only for facts of which `select` makes something.
    pub(crate) fn new(
        subscriber: Subscriber,
        select: impl Fn(&Arc<RecordedFact>) -> Option<T> + Send + Sync + 'static,
    ) -> Self {
        let select = Arc::new(select);
        let filter = Arc::clone(&select);
        subscriber.wake_for(move |released| match released {
            ReleasedItem::Fact(recorded) => filter(recorded).is_some(),
            ReleasedItem::Live(_) => false,
        });
        Self { subscriber, select: Box::new(move |recorded| select(recorded)) }
    }

    /// Returns a follower whose `select` is called once for each fact, in order, and may remember those before.
    pub(crate) fn with_memory(
        subscriber: Subscriber,
        select: impl FnMut(&Arc<RecordedFact>) -> Option<T> + Send + 'static,
    ) -> Self {
        Self { subscriber, select: Box::new(select) }
    }

    /// Returns the value made from the next fact, or `None` at the end.
    pub async fn next(&mut self) -> Option<T> {
        loop {
            let released = self.subscriber.next().await?;
            if let Some(selected) = self.select_fact(&released) {
                return Some(selected);
            }
        }
    }

    /// Returns the value made from the next fact if that is at hand.
    pub fn try_next(&mut self) -> Option<T> {
        loop {
            let released = self.subscriber.try_next()?;
            if let Some(selected) = self.select_fact(&released) {
                return Some(selected);
            }
        }
    }

    /// Returns the values made from the next fact and those at hand after it, at most `most` in all. `None` at the end.
    pub async fn next_batch(&mut self, most: usize) -> Option<Vec<T>> {
        let mut batch = vec![self.next().await?];
        while batch.len() < most
            && let Some(selected) = self.try_next()
        {
            batch.push(selected);
        }
        Some(batch)
    }

    fn select_fact(&mut self, released: &ReleasedItem) -> Option<T> {
        match released {
            ReleasedItem::Fact(recorded) => (self.select)(recorded),
            ReleasedItem::Live(_) => None,
        }
    }
}

impl<T> fmt::Debug for FactFollower<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FactFollower").field("subscriber", &self.subscriber).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::{
        engine::{Event, Fact, FactMeta},
        id::Lsn,
        time::Millis,
    };
    use countersign_store::{Batch, Log as _, MemoryLog, Partition};
    use futures_util::FutureExt as _;

    use super::*;
    use crate::{
        deliver::{ContentCache, ReleaseRing},
        encode_record,
    };

    /// Most facts that a late follower holds.
    const PAGE: usize = 256;

    fn facts(count: u64) -> Vec<RecordedFact> {
        let recorded = |lsn| RecordedFact {
            meta: FactMeta { lsn: Lsn(lsn), at: Millis(lsn), session: None },
            fact: Fact { event: Event::Booted, session: None, content: None },
        };
        (1..=count).map(recorded).collect()
    }

    /// Returns a ring over a log that has these facts, and a follower of the even ones from the first on.
    async fn recorded(facts: &[RecordedFact]) -> (ReleaseRing, FactFollower<u64>) {
        let log = MemoryLog::new();
        let epoch = log.take_over(Partition::ZERO).await.unwrap();
        log.append(Partition::ZERO, epoch, Lsn(0), Batch(facts.iter().map(encode_record).collect())).await.unwrap();
        let ring = ReleaseRing::new(log.clone().into(), ContentCache::new(log.into()));
        let even = |recorded: &Arc<RecordedFact>| Some(recorded.meta.lsn.0).filter(|lsn| lsn % 2 == 0);
        let follower = FactFollower::new(ring.subscribe(Lsn(0)), even);
        (ring, follower)
    }

    fn release(ring: &ReleaseRing, facts: Vec<RecordedFact>) {
        facts.into_iter().for_each(|recorded| ring.push(ReleasedItem::Fact(Arc::new(recorded))));
        ring.publish();
    }

    #[tokio::test]
    async fn a_follower_that_fell_behind_gets_every_fact_once_and_holds_a_page() {
        for count in [10, 1_000, 100_000] {
            let facts = facts(count);
            let (ring, mut follower) = recorded(&facts).await;
            release(&ring, facts);
            ring.end();
            let mut seen = Vec::new();
            while let Some(lsn) = follower.next().await {
                assert!(follower.subscriber.caught_up() <= PAGE, "of {count}");
                seen.push(lsn);
            }
            assert!(seen.into_iter().eq((2..=count).step_by(2)), "of {count}");
        }
    }

    #[tokio::test]
    async fn a_future_that_is_dropped_loses_no_fact_and_the_end_comes_last() {
        let facts = facts(5);
        let (ring, mut follower) = recorded(&facts).await;
        assert_eq!(follower.next().now_or_never(), None);
        let mut facts = facts.into_iter();
        release(&ring, facts.by_ref().take(1).collect());
        assert_eq!(follower.next().now_or_never(), None, "it is not followed");
        release(&ring, facts.by_ref().take(1).collect());
        assert_eq!(follower.next().now_or_never(), Some(Some(2)));
        release(&ring, facts.collect());
        ring.end();
        assert_eq!(follower.next().now_or_never(), Some(Some(4)));
        assert_eq!(follower.next().now_or_never(), Some(None));
    }

    #[tokio::test]
    async fn a_batch_has_the_facts_at_hand_up_to_its_limit() {
        let facts = facts(9);
        let (ring, mut follower) = recorded(&facts).await;
        assert_eq!(follower.next_batch(3).now_or_never(), None);
        release(&ring, facts);
        assert_eq!(follower.next_batch(3).now_or_never(), Some(Some(vec![2, 4, 6])));
        assert_eq!(follower.next_batch(3).now_or_never(), Some(Some(vec![8])));
        assert_eq!(follower.try_next(), None);
        ring.end();
        assert_eq!(follower.next_batch(3).now_or_never(), Some(None));
    }
}
