//! One encoding for all followers: events are encoded once, and kept for a while in a ring. A slower follower reads
//! the record at its own pace.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use countersign_core::id::Lsn;
use countersign_http::read_failures::log_read_failure;
use countersign_runtime::{
    FrameRing, OwnerHandle, ReleasedItem, RingFrame, RingGap, RingLimit, RingReader,
    store::{Log as _, LogReadError, Partition, StoredRecord},
};
use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::frame::{self, ContentMode};

/// Largest size of the ring.
const LIMIT: RingLimit = RingLimit { frames: 8192, bytes: 8 << 20 };
/// Most records that are read at once.
const PAGE: usize = 128;

/// Every event, in one view. Nothing is encoded without followers.
pub(crate) struct EventFeed {
    handle: OwnerHandle,
    view: ContentMode,
    ring: Mutex<Weak<FeedRing>>,
}

impl EventFeed {
    pub(crate) fn new(handle: OwnerHandle, view: ContentMode) -> Self {
        Self { handle, view, ring: Mutex::default() }
    }

    /// Starts a follower after `after`; with live frames if `live`.
    pub(crate) fn start_follower(&self, after: Lsn, live: bool) -> EventFollower {
        let mut known = self.ring.lock();
        let ring = known.upgrade().filter(|ring| !ring.frames.head().is_over).unwrap_or_else(|| {
            let gone = CancellationToken::new();
            let ring = Arc::new(FeedRing::new(gone.clone().drop_guard()));
            let weak = Arc::downgrade(&ring);
            tokio::spawn(fill_ring(self.handle.clone(), self.view, weak, gone));
            ring
        });
        *known = Arc::downgrade(&ring);
        drop(known);
        if live {
            ring.live_readers.fetch_add(1, Ordering::Relaxed);
        }
        let (handle, view, frames) = (self.handle.clone(), self.view, ring.frames.new_reader());
        EventFollower { handle, view, ring, frames, live, lsn: after, is_behind: true, page: VecDeque::new() }
    }
}

struct FeedRing {
    /// Frames. The first one ever is empty: it marks the record after which the others begin.
    frames: FrameRing<FeedFrame>,
    /// Number of followers that get live frames.
    live_readers: AtomicUsize,
    _gone: DropGuard,
}

#[derive(Clone, Debug)]
struct FeedFrame {
    /// Position in the record. None for a live frame.
    lsn: Option<Lsn>,
    /// Last record before it, or its own if it marks the beginning of the frames.
    before: Lsn,
    bytes: Bytes,
}

impl RingFrame for FeedFrame {
    fn byte_size(&self) -> usize {
        self.bytes.len()
    }
}

impl FeedRing {
    fn new(gone: DropGuard) -> Self {
        Self { frames: FrameRing::new(LIMIT, 0), live_readers: AtomicUsize::new(0), _gone: gone }
    }

    /// Marks the record after which the frames begin.
    fn push_start(&self, last: Lsn) {
        self.push(FeedFrame { lsn: Some(last), before: last, bytes: Bytes::new() });
    }

    fn push(&self, frame: FeedFrame) {
        self.frames.push(frame);
        self.frames.publish();
    }
}

/// Returns the position after the record `lsn`, if everything after it is or will be in the ring.
fn find_frame(frames: &RingReader<FeedFrame>, lsn: Lsn) -> Option<u64> {
    frames.with_frames(|held| {
        let (first, oldest) = held.front()?;
        if lsn < oldest.before {
            return None;
        }
        let before = held.iter().rev().find(|(_, frame)| frame.lsn.is_some_and(|held| held <= lsn));
        Some(before.map_or(*first, |(number, _)| number + 1))
    })
}

/// Fills a ring until it has no followers or the owner ends.
async fn fill_ring(handle: OwnerHandle, view: ContentMode, ring: Weak<FeedRing>, gone: CancellationToken) {
    let filled = tokio::select! {
        () = gone.cancelled() => return,
        filled = copy_events(&handle, view, &ring) => filled,
    };
    if let Err(error) = filled {
        log_read_failure(&error, "closed all event streams");
    }
    if let Some(ring) = ring.upgrade() {
        ring.frames.end();
    }
}

async fn copy_events(handle: &OwnerHandle, view: ContentMode, ring: &Weak<FeedRing>) -> Result<(), LogReadError> {
    // Not the facts alone: live frames are events as well.
    let Some(mut subscriber) = handle.subscribe().await else { return Ok(()) };
    // Records that were written since the subscription come once more below, and are skipped there.
    let mut last = handle.log().head(Partition::ZERO).await?.lsn;
    let Some(begun) = ring.upgrade() else { return Ok(()) };
    begun.push_start(last);
    drop(begun);
    let mut page = VecDeque::<StoredRecord>::new();
    while let Some(released) = subscriber.next().await {
        match released {
            ReleasedItem::Live(live) => {
                let Some(ring) = ring.upgrade() else { return Ok(()) };
                if ring.live_readers.load(Ordering::Relaxed) > 0 {
                    ring.push(FeedFrame { lsn: None, before: last, bytes: frame::live_frame(&live) });
                }
            }
            ReleasedItem::Fact(recorded) => {
                // The record has the chain; and the first facts of all are written after those that follow them.
                while last < recorded.meta.lsn {
                    if page.is_empty() {
                        page = handle.log().read_records(Partition::ZERO, last, PAGE).await?.into();
                    }
                    let Some(stored) = page.pop_front() else { break };
                    let bytes = frame::fact_frame(handle.log(), &stored, view).await?;
                    let before = std::mem::replace(&mut last, stored.lsn);
                    let Some(ring) = ring.upgrade() else { return Ok(()) };
                    ring.push(FeedFrame { lsn: Some(last), before, bytes });
                }
            }
        }
    }
    Ok(())
}

/// Follower: a position, and no shared state.
pub(crate) struct EventFollower {
    handle: OwnerHandle,
    view: ContentMode,
    ring: Arc<FeedRing>,
    frames: RingReader<FeedFrame>,
    live: bool,
    /// Last record that was returned.
    lsn: Lsn,
    /// True if the record is read instead of the ring.
    is_behind: bool,
    page: VecDeque<StoredRecord>,
}

impl EventFollower {
    /// Returns the next event. `None` if no more can come: a client that reconnects continues from the last id.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(stored) = self.page.pop_front() {
                let bytes = self.log_failure(frame::fact_frame(self.handle.log(), &stored, self.view).await)?;
                self.lsn = stored.lsn;
                return Some(bytes);
            }
            if self.is_behind {
                self.frames.mark_known();
                if let Some(place) = find_frame(&self.frames, self.lsn) {
                    self.frames.seek(place);
                    self.is_behind = false;
                    continue;
                }
                let page = self.handle.log().read_records(Partition::ZERO, self.lsn, PAGE).await;
                self.page = self.log_failure(page)?.into();
                if self.page.is_empty() && !self.frames.wait_for_change().await {
                    return None;
                }
                continue;
            }
            match self.frames.next().await {
                Ok(Some(FeedFrame { lsn, bytes, .. })) => match lsn {
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

    fn log_failure<T>(&self, read: Result<T, LogReadError>) -> Option<T> {
        read.inspect_err(|error| log_read_failure(error, "closed an event stream")).ok()
    }
}

impl Drop for EventFollower {
    fn drop(&mut self) {
        if self.live {
            self.ring.live_readers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
