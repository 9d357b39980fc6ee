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
    FrameRing, OwnerHandle, ReleasedItem, RingFrame, RingGap, RingLimit, RingReader,
    store::{Log as _, LogReadError, Partition, StoredRecord},
};
use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::frame::{self, View};

/// How much is held at most.
const LIMIT: RingLimit = RingLimit { frames: 8192, bytes: 8 << 20 };
/// How many records are read at once.
const PAGE: usize = 128;

/// Everything that happens, in one view. Nothing is made while nobody follows.
pub(crate) struct Feed {
    handle: OwnerHandle,
    view: View,
    ring: Mutex<Weak<Ring>>,
}

impl Feed {
    pub(crate) fn new(handle: OwnerHandle, view: View) -> Self {
        Self { handle, view, ring: Mutex::default() }
    }

    /// Follows from behind `after`; with what is said while it is said if `live`.
    pub(crate) fn follow(&self, after: Lsn, live: bool) -> Follower {
        let mut known = self.ring.lock();
        let ring = known.upgrade().filter(|ring| !ring.frames.head().is_over).unwrap_or_else(|| {
            let gone = CancellationToken::new();
            let ring = Arc::new(Ring::new(gone.clone().drop_guard()));
            let weak = Arc::downgrade(&ring);
            tokio::spawn(fill(self.handle.clone(), self.view, weak, gone));
            ring
        });
        *known = Arc::downgrade(&ring);
        drop(known);
        if live {
            ring.lively.fetch_add(1, Ordering::Relaxed);
        }
        let (handle, view, frames) = (self.handle.clone(), self.view, ring.frames.new_reader());
        Follower { handle, view, ring, frames, live, lsn: after, is_behind: true, page: VecDeque::new() }
    }
}

struct Ring {
    /// The first frame ever is empty: it marks the record behind which the others begin.
    frames: FrameRing<Frame>,
    /// How many of those who follow want to hear what is said while it is said.
    lively: AtomicUsize,
    _gone: DropGuard,
}

#[derive(Clone, Debug)]
struct Frame {
    /// None for what is not in the record.
    lsn: Option<Lsn>,
    /// The last record before it, or its own if it marks where the frames begin.
    before: Lsn,
    bytes: Bytes,
}

impl RingFrame for Frame {
    fn byte_size(&self) -> usize {
        self.bytes.len()
    }
}

impl Ring {
    fn new(gone: DropGuard) -> Self {
        Self { frames: FrameRing::new(LIMIT, 0), lively: AtomicUsize::new(0), _gone: gone }
    }

    /// Marks the record behind which the frames begin.
    fn begin(&self, last: Lsn) {
        self.push(Frame { lsn: Some(last), before: last, bytes: Bytes::new() });
    }

    fn push(&self, frame: Frame) {
        self.frames.push(frame);
        self.frames.publish();
    }
}

/// The place behind the record `lsn`, if everything behind it is or will be in the ring.
fn place(frames: &RingReader<Frame>, lsn: Lsn) -> Option<u64> {
    frames.with_frames(|held| {
        let (first, oldest) = held.front()?;
        if lsn < oldest.before {
            return None;
        }
        let before = held.iter().rev().find(|(_, frame)| frame.lsn.is_some_and(|held| held <= lsn));
        Some(before.map_or(*first, |(number, _)| number + 1))
    })
}

/// Fills a ring until nobody follows or the owner ends.
async fn fill(handle: OwnerHandle, view: View, ring: Weak<Ring>, gone: CancellationToken) {
    let filled = tokio::select! {
        () = gone.cancelled() => return,
        filled = pour(&handle, view, &ring) => filled,
    };
    if let Err(error) = filled {
        tracing::warn!(%error, "those who follow events are sent away: the record cannot be read");
    }
    if let Some(ring) = ring.upgrade() {
        ring.frames.end();
    }
}

async fn pour(handle: &OwnerHandle, view: View, ring: &Weak<Ring>) -> Result<(), LogReadError> {
    // Not the facts alone: live frames are events as well.
    let Some(mut subscriber) = handle.subscribe().await else { return Ok(()) };
    // What was written since the subscription comes once more below, and is passed over there.
    let mut last = handle.log().head(Partition::ZERO).await?.lsn;
    let Some(begun) = ring.upgrade() else { return Ok(()) };
    begun.begin(last);
    drop(begun);
    let mut page = VecDeque::<StoredRecord>::new();
    while let Some(released) = subscriber.next().await {
        match released {
            ReleasedItem::Live(live) => {
                let Some(ring) = ring.upgrade() else { return Ok(()) };
                if ring.lively.load(Ordering::Relaxed) > 0 {
                    ring.push(Frame { lsn: None, before: last, bytes: frame::live(&live) });
                }
            }
            ReleasedItem::Fact(recorded) => {
                // The record is what has the chain; and the first facts of all are written behind those that follow them.
                while last < recorded.meta.lsn {
                    if page.is_empty() {
                        page = handle.log().read_records(Partition::ZERO, last, PAGE).await?.into();
                    }
                    let Some(stored) = page.pop_front() else { break };
                    let bytes = frame::fact(handle.log(), &stored, view).await?;
                    let before = std::mem::replace(&mut last, stored.lsn);
                    let Some(ring) = ring.upgrade() else { return Ok(()) };
                    ring.push(Frame { lsn: Some(last), before, bytes });
                }
            }
        }
    }
    Ok(())
}

/// Somebody who follows: a place, and nothing that is anybody else's.
pub(crate) struct Follower {
    handle: OwnerHandle,
    view: View,
    ring: Arc<Ring>,
    frames: RingReader<Frame>,
    live: bool,
    /// The last record that was handed out.
    lsn: Lsn,
    /// Whether the record is read instead of the ring.
    is_behind: bool,
    page: VecDeque<StoredRecord>,
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
            if self.is_behind {
                self.frames.mark_known();
                if let Some(place) = place(&self.frames, self.lsn) {
                    self.frames.seek(place);
                    self.is_behind = false;
                    continue;
                }
                let page = self.handle.log().read_records(Partition::ZERO, self.lsn, PAGE).await;
                self.page = self.told(page)?.into();
                if self.page.is_empty() && !self.frames.wait_for_change().await {
                    return None;
                }
                continue;
            }
            match self.frames.next().await {
                Ok(Some(Frame { lsn, bytes, .. })) => match lsn {
                    Some(lsn) if lsn <= self.lsn => {}
                    Some(lsn) => {
                        self.lsn = lsn;
                        return Some(bytes);
                    }
                    None if self.live => return Some(bytes),
                    None => {}
                },
                Ok(None) => return None,
                Err(RingGap { .. }) => self.is_behind = true,
            }
        }
    }

    fn told<T>(&self, read: Result<T, LogReadError>) -> Option<T> {
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
