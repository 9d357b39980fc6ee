//! The ring: the latest released items, held once for all followers. A follower is a cursor; a late one reads the log.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use countersign_core::{
    engine::{Event, Fact, FactMeta, RecordedFact},
    id::Lsn,
};
use countersign_store::{AnyLog, Log as _, LogReadError, Partition};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::warn;

use super::{
    contents::ContentCache,
    frame_ring::{FrameRing, RingFrame, RingGap, RingLimit, RingReader},
    live::LiveUpdate,
};

/// Size limit of the ring.
const LIMIT: RingLimit = RingLimit { frames: 16_384, bytes: 16 << 20 };
/// Frames, and bytes of frames, after which each follower is woken, whatever it waits for: far from what the ring holds, so that no
/// follower has to read the log only because it slept.
const WAKE_ALL: RingLimit = RingLimit { frames: LIMIT.frames / 8, bytes: LIMIT.bytes / 8 };
/// Wait of a follower before it retries a failed read.
const RETRY: Duration = Duration::from_millis(500);
/// Records that a late follower reads at a time.
const PAGE: usize = 256;
/// Approximate size of such a page, in bytes.
const PAGE_BYTES: usize = 1 << 20;

/// One thing that was released.
#[derive(Clone, Debug)]
pub enum ReleasedItem {
    /// A committed fact with its content.
    Fact(Arc<RecordedFact>),
    /// A frame that is not in the log.
    Live(Arc<LiveUpdate>),
}

impl RingFrame for ReleasedItem {
    fn byte_size(&self) -> usize {
        match self {
            Self::Fact(recorded) => 256 + recorded.fact.content.as_ref().map_or(0, |content| content.len()),
            Self::Live(live) => 256 + live.byte_size(),
        }
    }
}

/// Reports whether an item is a reason to wake a follower.
type WakeFilter = Box<dyn Fn(&ReleasedItem) -> bool + Send + Sync>;

/// Signal that wakes one follower.
#[derive(Default)]
struct FollowerSignal {
    wake: Notify,
    /// Absent if every item is a reason.
    filter: OnceLock<WakeFilter>,
}

impl fmt::Debug for FollowerSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FollowerSignal").field("is_filtered", &self.filter.get().is_some()).finish_non_exhaustive()
    }
}

/// The followers, and the items that they were not woken for yet.
#[derive(Debug, Default)]
struct Followers {
    signals: Vec<Weak<FollowerSignal>>,
    /// Items that were pushed and are not published.
    unpublished: Vec<ReleasedItem>,
    /// Frames and bytes since all followers were woken.
    frames: usize,
    bytes: usize,
}

/// Ring of the items that the owner releases.
///
/// A commit is of interest to few of the followers, and each wake-up costs a switch of threads. A follower is therefore woken only for
/// items that its filter accepts, and it then gets all others before them in order.
#[derive(Debug)]
pub(crate) struct ReleaseRing {
    frames: FrameRing<ReleasedItem>,
    followers: Mutex<Followers>,
    log: AnyLog,
    contents: ContentCache,
}

impl ReleaseRing {
    pub(crate) fn new(log: AnyLog, contents: ContentCache) -> Self {
        Self { frames: FrameRing::new(LIMIT, 0), followers: Mutex::default(), log, contents }
    }

    /// Appends a frame without waking a follower yet.
    pub(crate) fn push(&self, released: ReleasedItem) {
        self.followers.lock().unpublished.push(released.clone());
        self.frames.push(released);
    }

    /// Returns the number after that of the last pushed frame.
    pub(crate) fn pushed_count(&self) -> u64 {
        self.frames.next()
    }

    /// Shows the pushed frames to all followers, and wakes those that wait for one of them.
    pub(crate) fn publish(&self) {
        self.frames.publish();
        let mut followers = self.followers.lock();
        let published = std::mem::take(&mut followers.unpublished);
        followers.frames += published.len();
        followers.bytes += published.iter().map(RingFrame::byte_size).sum::<usize>();
        let wakes_all = followers.frames >= WAKE_ALL.frames || followers.bytes >= WAKE_ALL.bytes;
        if wakes_all {
            (followers.frames, followers.bytes) = (0, 0);
        }
        followers.wake(|filter| wakes_all || published.iter().any(filter));
    }

    /// Tells all followers that nothing more comes.
    pub(crate) fn end(&self) {
        self.frames.end();
        self.followers.lock().wake(|_| true);
    }

    /// Follows from the next frame on.
    pub(crate) fn subscribe(&self, lsn: Lsn) -> Subscriber {
        let signal = Arc::new(FollowerSignal::default());
        self.followers.lock().signals.push(Arc::downgrade(&signal));
        Subscriber {
            // Facts of the batch that is being released come before a subscription made in it.
            frames: self.frames.new_reader(),
            signal,
            log: self.log.clone(),
            contents: self.contents.clone(),
            behind: None,
            lsn,
            caught_up: VecDeque::new(),
            is_broken: false,
        }
    }
}

impl Followers {
    /// Wakes the followers without a filter and those whose filter `is_wanted` accepts, and forgets those that are gone.
    fn wake(&mut self, is_wanted: impl Fn(&WakeFilter) -> bool) {
        self.signals.retain(|signal| {
            let Some(signal) = signal.upgrade() else { return false };
            if signal.filter.get().is_none_or(&is_wanted) {
                signal.wake.notify_one();
            }
            true
        });
    }
}

impl Drop for ReleaseRing {
    fn drop(&mut self) {
        self.end();
    }
}

/// A cursor into what an owner releases. It costs the owner nothing and never misses a fact.
#[derive(Debug)]
pub struct Subscriber {
    frames: RingReader<ReleasedItem>,
    signal: Arc<FollowerSignal>,
    log: AnyLog,
    contents: ContentCache,
    /// The last fact that was handed out.
    lsn: Lsn,
    caught_up: VecDeque<ReleasedItem>,
    /// The number that the cursor had before it caught up, until everything that was missed is handed out.
    behind: Option<u64>,
    is_broken: bool,
}

impl Subscriber {
    /// Lets [`Subscriber::next`] wait until an item is released that `filter` accepts. It then returns all items since the last in
    /// their order, those that `filter` did not accept as well. A second call changes nothing.
    ///
    /// The owner calls `filter` for each item while it releases it: it must be quick, wait for nothing and be the same each time.
    pub fn wake_for(&self, filter: impl Fn(&ReleasedItem) -> bool + Send + Sync + 'static) {
        let _ = self.signal.filter.set(Box::new(filter));
    }

    /// Returns the number of the next frame.
    pub fn position(&self) -> u64 {
        let cursor = self.frames.cursor();
        if self.caught_up.is_empty() { cursor } else { self.behind.unwrap_or(cursor) }
    }

    /// Returns the next frame, or `None` once the owner has ended and everything was handed out.
    ///
    /// A follower that is too late for the ring gets the facts that it missed from the log; live frames that it missed are gone.
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<ReleasedItem> {
        loop {
            if let Some(released) = self.caught_up.pop_front() {
                return Some(self.mark_delivered(released));
            }
            // Read before the frames: all of them are published before the end.
            let is_over = self.frames.is_over();
            match self.frames.try_next() {
                Ok(Some(released)) if self.is_known(&released) => {}
                Ok(Some(released)) => return Some(self.mark_delivered(released)),
                Ok(None) if is_over => return None,
                Ok(None) => self.signal.wake.notified().await,
                Err(RingGap { .. }) if self.is_broken => return None,
                Err(RingGap { first }) => self.catch_up(first).await,
            }
        }
    }

    /// Returns the next frame, if there is one at hand.
    pub fn try_next(&mut self) -> Option<ReleasedItem> {
        if let Some(released) = self.caught_up.pop_front() {
            return Some(self.mark_delivered(released));
        }
        loop {
            match self.frames.try_next() {
                Ok(Some(released)) if self.is_known(&released) => {}
                Ok(Some(released)) => return Some(self.mark_delivered(released)),
                Ok(None) | Err(RingGap { .. }) => return None,
            }
        }
    }

    /// Returns how many frames it holds itself.
    #[cfg(test)]
    pub(super) fn caught_up(&self) -> usize {
        self.caught_up.len()
    }

    /// Reports whether it was handed out already, from the log.
    fn is_known(&self, released: &ReleasedItem) -> bool {
        matches!(released, ReleasedItem::Fact(recorded) if recorded.meta.lsn <= self.lsn)
    }

    fn mark_delivered(&mut self, released: ReleasedItem) -> ReleasedItem {
        if let ReleasedItem::Fact(recorded) = &released {
            self.lsn = recorded.meta.lsn;
        }
        released
    }

    /// Reads the facts that are no longer held from the log, up to the first one that is. If the log cannot be read now, it is tried
    /// again: nothing is passed over.
    async fn catch_up(&mut self, first: u64) {
        let (first, upto) = self.frames.with_frames(|held| {
            let fact = held.iter().find_map(|(_, released)| match released {
                ReleasedItem::Fact(recorded) => Some(recorded.meta.lsn),
                ReleasedItem::Live(_) => None,
            });
            (held.front().map_or(first, |(number, _)| *number), fact)
        });
        match self.read_missed(upto).await {
            Ok(MissedFacts { facts, is_all }) => {
                self.caught_up = facts;
                // If there is more, the cursor stays before the frames held, so that the next page is read when this one is
                // handed out: all of it may be more than fits into memory.
                self.behind = is_all.then_some(self.frames.cursor());
                if is_all {
                    self.frames.seek(first);
                }
            }
            Err(error @ (LogReadError::Closed | LogReadError::Corrupt(_) | LogReadError::Content(_))) => {
                warn!(%error, "a subscriber cannot read the facts that it missed; it stops");
                self.is_broken = true;
            }
            Err(error) => {
                warn!(%error, "a subscriber cannot read the facts that it missed; retrying");
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    /// Reads the first page of the facts after the last that was handed out and before `upto`.
    async fn read_missed(&mut self, upto: Option<Lsn>) -> Result<MissedFacts, LogReadError> {
        let mut facts = VecDeque::new();
        let page = self.log.read_records(Partition::ZERO, self.lsn, PAGE).await?;
        let mut is_all = page.len() < PAGE;
        let mut bytes = 0;
        for stored in page {
            if upto.is_some_and(|upto| stored.lsn >= upto) {
                is_all = true;
                break;
            }
            if bytes > PAGE_BYTES {
                is_all = false;
                break;
            }
            let content = self.contents.get(&[stored.lsn]).await?.pop().flatten();
            if let Ok(event) = Event::decode(&stored.kind, stored.version, &stored.facts) {
                let meta = FactMeta { lsn: stored.lsn, at: stored.at, session: stored.session.clone() };
                let fact = Fact { event, session: stored.session, content };
                let released = ReleasedItem::Fact(Arc::new(RecordedFact { meta, fact }));
                bytes += released.byte_size();
                facts.push_back(released);
            } else if facts.is_empty() {
                // It is not handed out, and without this the same page would be read again.
                self.lsn = stored.lsn;
            }
        }
        Ok(MissedFacts { facts, is_all })
    }
}

/// Facts that a late follower read at once.
struct MissedFacts {
    facts: VecDeque<ReleasedItem>,
    /// True if that is all that it missed.
    is_all: bool,
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        sync::atomic::{AtomicUsize, Ordering},
        task::{Context, Wake, Waker},
    };

    use countersign_core::{
        engine::{ActiveRules, Command, DecisionContext, Engine},
        gate::IdentityMap,
        id::{EntryId, IdGenerator, SessionId},
        policy::{CompiledRules, DefaultPolicy, PathContext},
        session::{self, ImportedEntry, MessageContent, SessionEntryKind, Settings},
        time::Millis,
    };
    use countersign_store::{Batch, MemoryLog};
    use futures_util::FutureExt as _;

    use super::*;
    use crate::encode_record;

    /// Returns forty entries of 600 kB.
    fn long_history() -> Vec<RecordedFact> {
        let rules = ActiveRules {
            compiled: CompiledRules::default(),
            default_policy: DefaultPolicy::Gateway,
            path_context: PathContext::default(),
            people: IdentityMap::default(),
        };
        let message = MessageContent { content: "x".repeat(600_000).into(), tokens: 1 };
        let entry = |at: u32| {
            let id = EntryId::new(format!("e{at}"));
            ImportedEntry { id, parent: None, kind: SessionEntryKind::User, message: message.clone(), made_at: None }
        };
        let import = session::Command::Import { entries: (0..40).map(entry).collect(), leaf: None };
        let settings = Box::new(Settings::default());
        let open = session::Command::Open { cwd: "/".to_owned(), name: None, parent: None, door: None, settings };
        let mut engine = Engine::new(rules);
        let mut context = DecisionContext { now: Millis(1), fresh: IdGenerator::new([1; 16]) };
        let commands = [open, import].map(|command| Command::Session(SessionId::new("s"), command));
        commands.into_iter().flat_map(|command| engine.handle_command(command, &mut context).unwrap().0).collect()
    }

    fn fact(lsn: u64) -> ReleasedItem {
        let (meta, event) = (FactMeta { lsn: Lsn(lsn), at: Millis(lsn), session: None }, Event::Booted);
        ReleasedItem::Fact(Arc::new(RecordedFact { meta, fact: Fact { event, session: None, content: None } }))
    }

    fn lsn_of(released: &ReleasedItem) -> u64 {
        match released {
            ReleasedItem::Fact(recorded) => recorded.meta.lsn.0,
            ReleasedItem::Live(_) => 0,
        }
    }

    #[derive(Default)]
    struct WakeCounter(AtomicUsize);

    impl Wake for WakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn release(ring: &ReleaseRing, lsns: impl Iterator<Item = u64>) {
        lsns.for_each(|lsn| ring.push(fact(lsn)));
        ring.publish();
    }

    fn empty_ring() -> ReleaseRing {
        let log = MemoryLog::new();
        ReleaseRing::new(log.clone().into(), ContentCache::new(log.into()))
    }

    #[tokio::test]
    async fn a_follower_sleeps_until_an_item_that_it_waits_for_and_then_gets_those_before_too() {
        let ring = empty_ring();
        let (mut tenth, mut each) = (ring.subscribe(Lsn(0)), ring.subscribe(Lsn(0)));
        tenth.wake_for(|released| lsn_of(released).is_multiple_of(10));
        let wakes = [Arc::new(WakeCounter::default()), Arc::new(WakeCounter::default())];
        let counts = || wakes.each_ref().map(|wakes| wakes.0.load(Ordering::Relaxed));
        {
            let (mut tenth, mut each) = (pin!(tenth.next()), pin!(each.next()));
            let wakers = wakes.each_ref().map(|wakes| Waker::from(Arc::clone(wakes)));
            assert!(tenth.as_mut().poll(&mut Context::from_waker(&wakers[0])).is_pending());
            assert!(each.as_mut().poll(&mut Context::from_waker(&wakers[1])).is_pending());
            release(&ring, 1..=9);
            assert_eq!(counts(), [0, 1]);
            release(&ring, 10..=12);
            assert_eq!(counts(), [1, 1], "the second was woken and did not look yet");
        }
        ring.end();
        for follower in [&mut tenth, &mut each] {
            let mut seen = Vec::new();
            while let Some(released) = follower.next().await {
                seen.push(lsn_of(&released));
            }
            assert_eq!(seen, (1..=12).collect::<Vec<_>>());
        }
    }

    #[tokio::test]
    async fn a_follower_that_waits_for_nothing_stays_within_the_ring() {
        for count in [10, 1_000, 100_000] {
            // The log is empty: what the ring does not hold any more would be lost.
            let ring = empty_ring();
            let mut follower = ring.subscribe(Lsn(0));
            follower.wake_for(|_| false);
            let mut seen = Vec::new();
            for lsn in 1..=count {
                release(&ring, std::iter::once(lsn));
                if let Some(Some(first)) = follower.next().now_or_never() {
                    seen.push(lsn_of(&first));
                    seen.extend(std::iter::from_fn(|| follower.try_next()).map(|released| lsn_of(&released)));
                }
            }
            ring.end();
            while let Some(released) = follower.next().await {
                seen.push(lsn_of(&released));
            }
            assert!(seen.into_iter().eq(1..=count), "of {count}");
        }
    }

    #[tokio::test]
    async fn a_follower_reads_what_it_missed_page_by_page() {
        let log = MemoryLog::new();
        let facts = long_history();
        let epoch = log.take_over(Partition::ZERO).await.unwrap();
        log.append(Partition::ZERO, epoch, Lsn(0), Batch(facts.iter().map(encode_record).collect())).await.unwrap();
        let ring = ReleaseRing::new(log.clone().into(), ContentCache::new(log.into()));
        let mut follower = ring.subscribe(Lsn(0));
        for recorded in &facts {
            ring.push(ReleasedItem::Fact(Arc::new(recorded.clone())));
        }
        ring.end();
        let mut seen = Vec::new();
        while let Some(ReleasedItem::Fact(recorded)) = follower.next().await {
            let held: usize = follower.caught_up.iter().map(ReleasedItem::byte_size).sum();
            assert!(held < 3 << 20, "{held} bytes");
            seen.push(recorded.meta.lsn);
        }
        assert_eq!(seen, facts.iter().map(|recorded| recorded.meta.lsn).collect::<Vec<_>>());
    }
}
