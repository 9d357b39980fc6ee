//! The ring: the latest released items, held once for all followers. A follower is a cursor; a late one reads the log.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use countersign_core::{
    engine::{Event, Fact, FactMeta, RecordedFact},
    id::Lsn,
};
use countersign_store::{AnyLog, Log as _, LogReadError, Partition};
use tracing::warn;

use super::{
    contents::ContentCache,
    frame_ring::{FrameRing, RingFrame, RingGap, RingLimit, RingReader},
    live::LiveUpdate,
};

/// Size limit of the ring.
const LIMIT: RingLimit = RingLimit { frames: 16_384, bytes: 16 << 20 };
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

/// Ring of the items that the owner releases.
#[derive(Debug)]
pub(crate) struct ReleaseRing {
    frames: FrameRing<ReleasedItem>,
    log: AnyLog,
    contents: ContentCache,
}

impl ReleaseRing {
    pub(crate) fn new(log: AnyLog, contents: ContentCache) -> Self {
        Self { frames: FrameRing::new(LIMIT, 0), log, contents }
    }

    /// Appends a frame without waking a follower yet.
    pub(crate) fn push(&self, released: ReleasedItem) {
        self.frames.push(released);
    }

    /// Returns the number after that of the last pushed frame.
    pub(crate) fn pushed_count(&self) -> u64 {
        self.frames.next()
    }

    /// Wakes all followers.
    pub(crate) fn publish(&self) {
        self.frames.publish();
    }

    /// Tells all followers that nothing more comes.
    pub(crate) fn end(&self) {
        self.frames.end();
    }

    /// Follows from the next frame on.
    pub(crate) fn subscribe(&self, lsn: Lsn) -> Subscriber {
        Subscriber {
            // Facts of the batch that is being released come before a subscription made in it.
            frames: self.frames.new_reader(),
            log: self.log.clone(),
            contents: self.contents.clone(),
            behind: None,
            lsn,
            caught_up: VecDeque::new(),
            is_broken: false,
        }
    }
}

/// A cursor into what an owner releases. It costs the owner nothing and never misses a fact.
#[derive(Debug)]
pub struct Subscriber {
    frames: RingReader<ReleasedItem>,
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
            match self.frames.next().await {
                Ok(Some(released)) if self.is_known(&released) => {}
                Ok(Some(released)) => return Some(self.mark_delivered(released)),
                Ok(None) => return None,
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
    use countersign_core::{
        engine::{ActiveRules, Command, DecisionContext, Engine},
        gate::IdentityMap,
        id::{EntryId, IdGenerator, SessionId},
        policy::{CompiledRules, DefaultPolicy, PathContext},
        session::{self, ImportedEntry, MessageContent, SessionEntryKind, Settings},
        time::Millis,
    };
    use countersign_store::{Batch, MemoryLog};

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
