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
            Ok(missed) => {
                self.caught_up = missed;
                self.behind = Some(self.cursor);
                self.cursor = first;
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

    /// The facts behind the last that was handed out and before `upto`.
    async fn missed(&self, upto: Option<Lsn>) -> Result<VecDeque<Released>, ReadError> {
        let mut missed = VecDeque::new();
        let mut after = self.lsn;
        loop {
            let page = self.log.read(Partition::ZERO, after, PAGE).await?;
            let lsns: Vec<Lsn> = page.iter().map(|stored| stored.lsn).collect();
            let contents = self.contents.get(&lsns).await?;
            let is_last = page.len() < PAGE;
            for (stored, content) in page.into_iter().zip(contents) {
                if upto.is_some_and(|upto| stored.lsn >= upto) {
                    return Ok(missed);
                }
                after = stored.lsn;
                if let Ok(event) = Event::decode(&stored.kind, stored.version, &stored.facts) {
                    let meta = Meta { lsn: stored.lsn, at: stored.at, session: stored.session.clone() };
                    let fact = Fact { event, session: stored.session, content };
                    missed.push_back(Released::Fact(Arc::new(Recorded { meta, fact })));
                }
            }
            if is_last {
                return Ok(missed);
            }
        }
    }
}
