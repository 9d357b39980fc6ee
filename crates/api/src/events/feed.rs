//! One encoding for everybody who follows: events are made once, and held for a while in a ring. Whoever is behind it reads
//! the record at their own pace.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use countersign_core::id::Lsn;
use countersign_runtime::{
    Handle, Released,
    store::{Log as _, Partition, ReadError, Stored},
};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::frame::{self, View};

/// How many events are held at most.
const HELD: usize = 8192;
/// How many bytes they may have.
const BYTES: usize = 8 << 20;
/// How many records are read at once.
const PAGE: usize = 128;

/// Everything that happens, in one view. Nothing is made while nobody follows.
pub(crate) struct Feed {
    handle: Handle,
    view: View,
    ring: Mutex<Weak<Ring>>,
}

impl Feed {
    pub(crate) fn new(handle: Handle, view: View) -> Self {
        Self { handle, view, ring: Mutex::default() }
    }

    /// Follows from behind `after`; with what is said while it is said if `live`.
    pub(crate) fn follow(&self, after: Lsn, live: bool) -> Follower {
        let mut known = self.ring.lock();
        let ring = known.upgrade().filter(|ring| !ring.frames.read().is_over).unwrap_or_else(|| {
            let gone = CancellationToken::new();
            let ring = Arc::new(Ring {
                frames: RwLock::default(),
                pushed: watch::Sender::new(()),
                lively: AtomicUsize::new(0),
                _gone: gone.clone().drop_guard(),
            });
            let weak = Arc::downgrade(&ring);
            tokio::spawn(fill(self.handle.clone(), self.view, weak, gone));
            ring
        });
        *known = Arc::downgrade(&ring);
        drop(known);
        if live {
            ring.lively.fetch_add(1, Ordering::Relaxed);
        }
        let pushed = ring.pushed.subscribe();
        let (handle, view) = (self.handle.clone(), self.view);
        Follower { handle, view, ring, pushed, live, lsn: after, at: None, page: VecDeque::new() }
    }
}

struct Ring {
    frames: RwLock<Frames>,
    pushed: watch::Sender<()>,
    /// How many of those who follow want to hear what is said while it is said.
    lively: AtomicUsize,
    _gone: DropGuard,
}

#[derive(Default)]
struct Frames {
    /// The record before the first that is held; none before anything can be.
    base: Option<Lsn>,
    /// The number of the first frame.
    first: u64,
    held: VecDeque<Frame>,
    bytes: usize,
    is_over: bool,
}

struct Frame {
    /// None for what is not in the record.
    lsn: Option<Lsn>,
    bytes: Bytes,
}

/// What a ring has at a place.
enum At {
    Frame(Option<Lsn>, Bytes),
    /// It is held no longer.
    Gone,
    NotYet,
    Over,
}

impl Ring {
    fn change(&self, change: impl FnOnce(&mut Frames)) {
        change(&mut self.frames.write());
        self.pushed.send_modify(|()| {});
    }

    fn at(&self, place: u64) -> At {
        let frames = self.frames.read();
        let Some(index) = place.checked_sub(frames.first) else { return At::Gone };
        match usize::try_from(index).ok().and_then(|index| frames.held.get(index)) {
            Some(frame) => At::Frame(frame.lsn, frame.bytes.clone()),
            None if frames.is_over => At::Over,
            None => At::NotYet,
        }
    }

    /// The place behind the record `lsn`, if everything behind it is or will be here.
    fn place(&self, lsn: Lsn) -> Option<u64> {
        let frames = self.frames.read();
        if frames.base.is_none_or(|base| lsn < base) {
            return None;
        }
        let before = frames.held.iter().rposition(|frame| frame.lsn.is_some_and(|held| held <= lsn));
        Some(frames.first + before.map_or(0, |index| index as u64 + 1))
    }

    fn is_over(&self) -> bool {
        self.frames.read().is_over
    }
}

impl Frames {
    fn push(&mut self, lsn: Option<Lsn>, bytes: Bytes) {
        self.bytes += bytes.len();
        self.held.push_back(Frame { lsn, bytes });
        while self.held.len() > HELD || self.bytes > BYTES && self.held.len() > 1 {
            let Some(old) = self.held.pop_front() else { return };
            self.bytes -= old.bytes.len();
            self.first += 1;
            self.base = old.lsn.or(self.base);
        }
    }
}

/// Fills a ring until nobody follows or the owner ends.
async fn fill(handle: Handle, view: View, ring: Weak<Ring>, gone: CancellationToken) {
    let filled = tokio::select! {
        () = gone.cancelled() => return,
        filled = pour(&handle, view, &ring) => filled,
    };
    if let Err(error) = filled {
        tracing::warn!(%error, "those who follow events are sent away: the record cannot be read");
    }
    if let Some(ring) = ring.upgrade() {
        ring.change(|frames| frames.is_over = true);
    }
}

async fn pour(handle: &Handle, view: View, ring: &Weak<Ring>) -> Result<(), ReadError> {
    let Some(mut subscriber) = handle.subscribe().await else { return Ok(()) };
    // What was written since the subscription comes once more below, and is passed over there.
    let mut last = handle.log().head(Partition::ZERO).await?.lsn;
    let Some(begun) = ring.upgrade() else { return Ok(()) };
    begun.change(|frames| frames.base = Some(last));
    drop(begun);
    let mut page = VecDeque::<Stored>::new();
    while let Some(released) = subscriber.next().await {
        match released {
            Released::Live(live) => {
                let Some(ring) = ring.upgrade() else { return Ok(()) };
                if ring.lively.load(Ordering::Relaxed) > 0 {
                    let bytes = frame::live(&live);
                    ring.change(|frames| frames.push(None, bytes));
                }
            }
            Released::Fact(recorded) => {
                // The record is what has the chain; and the first facts of all are written behind those that follow them.
                while last < recorded.meta.lsn {
                    if page.is_empty() {
                        page = handle.log().read(Partition::ZERO, last, PAGE).await?.into();
                    }
                    let Some(stored) = page.pop_front() else { break };
                    let bytes = frame::fact(handle.log(), &stored, view).await?;
                    last = stored.lsn;
                    let Some(ring) = ring.upgrade() else { return Ok(()) };
                    ring.change(|frames| frames.push(Some(last), bytes));
                }
            }
        }
    }
    Ok(())
}

/// Somebody who follows: a place, and nothing that is anybody else's.
pub(crate) struct Follower {
    handle: Handle,
    view: View,
    ring: Arc<Ring>,
    pushed: watch::Receiver<()>,
    live: bool,
    /// The last record that was handed out.
    lsn: Lsn,
    /// The place in the ring; none while the record is read instead.
    at: Option<u64>,
    page: VecDeque<Stored>,
}

impl Follower {
    /// The next event. `None` where no more can come: whoever connects again goes on from the last id.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(stored) = self.page.pop_front() {
                let told = self.told(frame::fact(self.handle.log(), &stored, self.view).await)?;
                self.lsn = stored.lsn;
                return Some(told);
            }
            self.pushed.mark_unchanged();
            let Some(at) = self.at else {
                self.at = self.ring.place(self.lsn);
                if self.at.is_none() {
                    let page = self.handle.log().read(Partition::ZERO, self.lsn, PAGE).await;
                    self.page = self.told(page)?.into();
                    if self.page.is_empty() && (self.ring.is_over() || self.pushed.changed().await.is_err()) {
                        return None;
                    }
                }
                continue;
            };
            match self.ring.at(at) {
                At::Frame(lsn, bytes) => {
                    self.at = Some(at + 1);
                    match lsn {
                        Some(lsn) if lsn <= self.lsn => {}
                        Some(lsn) => {
                            self.lsn = lsn;
                            return Some(bytes);
                        }
                        None if self.live => return Some(bytes),
                        None => {}
                    }
                }
                At::Gone => self.at = None,
                At::Over => return None,
                At::NotYet => self.pushed.changed().await.ok()?,
            }
        }
    }

    fn told<T>(&self, read: Result<T, ReadError>) -> Option<T> {
        read.inspect_err(|error| tracing::warn!(%error, "somebody who follows events is sent away")).ok()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if self.live {
            self.ring.lively.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
