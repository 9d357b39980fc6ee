//! The ring: what was released lately, held once for all followers. A follower is a cursor; one that falls behind reads the log.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use countersign_core::{
    engine::{Event, Fact, Meta, Recorded},
    id::Lsn,
};
use countersign_store::{AnyLog, Log as _, Partition, ReadError};
use parking_lot::RwLock;
use tokio::sync::watch;
use tracing::warn;

use super::{contents::Contents, live::Live};

/// How many frames are held at most.
const FRAMES: usize = 16_384;
/// How many bytes of content they hold at most.
const BYTES: usize = 16 << 20;
/// How long a follower waits before it reads again what it could not read.
const RETRY: Duration = Duration::from_millis(500);
/// How many records a follower that is behind reads at a time.
const PAGE: usize = 256;
/// How many bytes, about.
const PAGE_BYTES: usize = 1 << 20;

/// One thing that was released.
#[derive(Clone, Debug)]
pub enum Released {
    /// A committed fact with its content.
    Fact(Arc<Recorded>),
    /// A frame that is not in the log.
    Live(Arc<Live>),
}

impl Released {
    fn bytes(&self) -> usize {
        match self {
            Self::Fact(recorded) => 256 + recorded.fact.content.as_ref().map_or(0, |content| content.len()),
            Self::Live(live) => 256 + live.bytes(),
        }
    }
}

/// How far the ring has come.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    /// The number of the next frame.
    next: u64,
    /// Whether none will come.
    is_over: bool,
}

#[derive(Debug, Default)]
struct Frames {
    /// The number of the first frame that is held.
    first: u64,
    held: VecDeque<Released>,
    bytes: usize,
}

/// Where the owner puts what it releases.
#[derive(Debug)]
pub(crate) struct Ring {
    frames: Arc<RwLock<Frames>>,
    head: watch::Sender<Head>,
    log: AnyLog,
    contents: Contents,
}

impl Ring {
    pub(crate) fn new(log: AnyLog, contents: Contents) -> Self {
        Self { frames: Arc::default(), head: watch::Sender::new(Head::default()), log, contents }
    }

    /// Puts frames behind the others, without waking anybody yet.
    pub(crate) fn push(&self, released: Released) {
        let mut frames = self.frames.write();
        frames.bytes += released.bytes();
        frames.held.push_back(released);
        while frames.held.len() > FRAMES || frames.bytes > BYTES && frames.held.len() > 1 {
            if let Some(old) = frames.held.pop_front() {
                frames.bytes -= old.bytes();
                frames.first += 1;
            }
        }
    }

    /// The number behind the last frame that was pushed.
    pub(crate) fn pushed(&self) -> u64 {
        let frames = self.frames.read();
        frames.first + frames.held.len() as u64
    }

    /// Wakes whoever follows.
    pub(crate) fn publish(&self) {
        let pushed = self.pushed();
        self.head.send_if_modified(|head| std::mem::replace(&mut head.next, pushed) != pushed);
    }

    /// Tells whoever follows that nothing more comes.
    pub(crate) fn end(&self) {
        self.publish();
        self.head.send_modify(|head| head.is_over = true);
    }

    /// Follows from the next frame on.
    pub(crate) fn subscribe(&self, lsn: Lsn) -> Subscriber {
        Subscriber {
            frames: Arc::clone(&self.frames),
            head: self.head.subscribe(),
            log: self.log.clone(),
            contents: self.contents.clone(),
            // Facts of the batch that is being released stand before whoever asks in it.
            cursor: self.pushed(),
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
    frames: Arc<RwLock<Frames>>,
    head: watch::Receiver<Head>,
    log: AnyLog,
    contents: Contents,
    cursor: u64,
    /// The last fact that was handed out.
    lsn: Lsn,
    caught_up: VecDeque<Released>,
    /// The number that the cursor had before it caught up, until everything that was missed is handed out.
    behind: Option<u64>,
    is_broken: bool,
}

impl Subscriber {
    /// The number of the next frame.
    pub fn position(&self) -> u64 {
        if self.caught_up.is_empty() { self.cursor } else { self.behind.unwrap_or(self.cursor) }
    }

    /// The next frame, or `None` once the owner has ended and everything was handed out.
    ///
    /// A follower that fell behind the ring gets the facts that it missed from the log; live frames that it missed are gone.
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Released> {
        loop {
            if let Some(released) = self.caught_up.pop_front() {
                return Some(self.handed(released));
            }
            if let Some(released) = self.held() {
                match released {
                    Ok(released) if self.is_known(&released) => {}
                    Ok(released) => return Some(self.handed(released)),
                    Err(_) if self.is_broken => return None,
                    Err(first) => self.catch_up(first).await,
                }
                continue;
            }
            if self.head.borrow().is_over || self.head.changed().await.is_err() {
                // The owner has ended; what it pushed last may still be there.
                match self.held() {
                    Some(Ok(released)) if self.is_known(&released) => {}
                    Some(Ok(released)) => return Some(self.handed(released)),
                    Some(Err(_)) if self.is_broken => return None,
                    Some(Err(first)) => self.catch_up(first).await,
                    None => return None,
                }
            }
        }
    }

    /// The next frame, if there is one at hand.
    pub fn try_next(&mut self) -> Option<Released> {
        if let Some(released) = self.caught_up.pop_front() {
            return Some(self.handed(released));
        }
        loop {
            match self.held() {
                Some(Ok(released)) if self.is_known(&released) => {}
                Some(Ok(released)) => return Some(self.handed(released)),
                Some(Err(_)) | None => return None,
            }
        }
    }

    /// Whether it was handed out already, from the log.
    fn is_known(&self, released: &Released) -> bool {
        matches!(released, Released::Fact(recorded) if recorded.meta.lsn <= self.lsn)
    }

    fn handed(&mut self, released: Released) -> Released {
        if let Released::Fact(recorded) = &released {
            self.lsn = recorded.meta.lsn;
        }
        released
    }

    /// The frame at the cursor; an error with the first number that is held, if the cursor's is gone.
    fn held(&mut self) -> Option<Result<Released, u64>> {
        let published = self.head.borrow_and_update().next;
        if self.cursor >= published {
            return None;
        }
        let frames = self.frames.read();
        if self.cursor < frames.first {
            return Some(Err(frames.first));
        }
        let at = usize::try_from(self.cursor - frames.first).ok()?;
        let released = frames.held.get(at).cloned()?;
        self.cursor += 1;
        Some(Ok(released))
    }

    /// Reads from the log what is no longer held, up to the first fact that is. If the log cannot be read now, it is tried again: nothing is passed over.
    async fn catch_up(&mut self, first: u64) {
        let (first, upto) = {
            let frames = self.frames.read();
            let held = frames.held.iter().find_map(|released| match released {
                Released::Fact(recorded) => Some(recorded.meta.lsn),
                Released::Live(_) => None,
            });
            (frames.first.max(first), held)
        };
        match self.missed(upto).await {
            Ok(Missed { facts, is_all }) => {
                self.caught_up = facts;
                // Where there is more, the cursor stays behind what is held, so that the next page is read when this one is
                // handed out: all of it may be more than fits into memory.
                self.behind = is_all.then_some(self.cursor);
                if is_all {
                    self.cursor = first;
                }
            }
            Err(error @ (ReadError::Closed | ReadError::Corrupt(_) | ReadError::Content(_))) => {
                warn!(%error, "a follower cannot read what it missed; it ends");
                self.is_broken = true;
            }
            Err(error) => {
                warn!(%error, "a follower cannot read what it missed; it tries again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    /// The first page of the facts behind the last that was handed out and before `upto`.
    async fn missed(&mut self, upto: Option<Lsn>) -> Result<Missed, ReadError> {
        let mut facts = VecDeque::new();
        let page = self.log.read(Partition::ZERO, self.lsn, PAGE).await?;
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
                let meta = Meta { lsn: stored.lsn, at: stored.at, session: stored.session.clone() };
                let fact = Fact { event, session: stored.session, content };
                let released = Released::Fact(Arc::new(Recorded { meta, fact }));
                bytes += released.bytes();
                facts.push_back(released);
            } else if facts.is_empty() {
                // Nobody is handed it, and without this the same page would be read again.
                self.lsn = stored.lsn;
            }
        }
        Ok(Missed { facts, is_all })
    }
}

/// What a follower that is behind read at once.
struct Missed {
    facts: VecDeque<Released>,
    /// Whether that is all that it missed.
    is_all: bool,
}

#[cfg(test)]
mod tests {
    use countersign_core::{
        engine::{Command, Context, Engine, Rules},
        gate::People,
        id::{EntryId, Fresh, SessionId},
        policy::{Compiled, Posture, Surroundings},
        session::{self, Imported, Kind, Said, Settings},
        time::Millis,
    };
    use countersign_store::{Batch, MemoryLog};

    use super::*;
    use crate::record;

    /// Forty entries of 600 kB.
    fn long_history() -> Vec<Recorded> {
        let rules = Rules {
            compiled: Compiled::default(),
            posture: Posture::Gateway,
            surroundings: Surroundings::default(),
            people: People::default(),
        };
        let said = Said { content: "x".repeat(600_000).into(), tokens: 1 };
        let entry = |at: u32| {
            let id = EntryId::new(format!("e{at}"));
            Imported { id, parent: None, kind: Kind::User, said: said.clone(), made_at: None }
        };
        let import = session::Command::Import { entries: (0..40).map(entry).collect(), leaf: None };
        let settings = Box::new(Settings::default());
        let open = session::Command::Open { cwd: "/".to_owned(), name: None, parent: None, door: None, settings };
        let mut engine = Engine::new(rules);
        let mut context = Context { now: Millis(1), fresh: Fresh::new([1; 16]) };
        let commands = [open, import].map(|command| Command::Session(SessionId::new("s"), command));
        commands.into_iter().flat_map(|command| engine.handle(command, &mut context).unwrap().0).collect()
    }

    #[tokio::test]
    async fn a_follower_reads_what_it_missed_page_by_page() {
        let log = MemoryLog::new();
        let facts = long_history();
        let epoch = log.take_over(Partition::ZERO).await.unwrap();
        log.append(Partition::ZERO, epoch, Lsn(0), Batch(facts.iter().map(record).collect())).await.unwrap();
        let ring = Ring::new(log.clone().into(), Contents::new(log.into()));
        let mut follower = ring.subscribe(Lsn(0));
        for recorded in &facts {
            ring.push(Released::Fact(Arc::new(recorded.clone())));
        }
        ring.end();
        let mut seen = Vec::new();
        while let Some(Released::Fact(recorded)) = follower.next().await {
            let held: usize = follower.caught_up.iter().map(Released::bytes).sum();
            assert!(held < 3 << 20, "{held} bytes");
            seen.push(recorded.meta.lsn);
        }
        assert_eq!(seen, facts.iter().map(|recorded| recorded.meta.lsn).collect::<Vec<_>>());
    }
}
