//! A ring of the latest frames, each under a number, bounded by count and by bytes.
//!
//! It must not know the content of a frame, nor where an older one can be read.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use parking_lot::RwLock;
use tokio::sync::watch;

/// A frame that a ring holds. Clones are cheap: each reader gets one.
pub trait RingFrame: Clone {
    /// Returns about how many bytes it takes.
    fn byte_size(&self) -> usize;
}

impl RingFrame for Bytes {
    fn byte_size(&self) -> usize {
        self.len()
    }
}

/// Size limit of a ring. The latest frame is held however large it is.
#[derive(Clone, Copy, Debug)]
pub struct RingLimit {
    /// The number of frames.
    pub frames: usize,
    /// The bytes of all frames.
    pub bytes: usize,
}

/// The end of a ring, as far as it was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingHead {
    /// The number after that of the latest frame.
    pub next: u64,
    /// True if no frame comes any more.
    pub is_over: bool,
}

/// Gap between a cursor and the frames held: frames were dropped, or the cursor lies past the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the frames at this cursor are not held; the oldest that is held has number {first}")]
pub struct RingGap {
    /// The number of the oldest frame that is held, or of the next if none is.
    pub first: u64,
}

#[derive(Debug)]
struct FrameBuffer<F> {
    /// The lowest cursor that misses nothing.
    oldest: u64,
    /// The number after that of the latest frame.
    next: u64,
    /// Each with its number; they ascend.
    held: VecDeque<(u64, F)>,
    bytes: usize,
}

/// The latest frames, for any number of readers.
///
/// A cursor is the lowest number that its reader has not read. Readers cost the writer nothing; a reader whose next frame was dropped
/// gets a [`RingGap`].
///
/// # Example
///
/// ```
/// use bytes::Bytes;
/// use countersign_runtime::{FrameRing, RingGap, RingLimit};
///
/// let ring = FrameRing::new(RingLimit { frames: 2, bytes: 1024 }, 0);
/// let (mut prompt, mut late) = (ring.new_reader(), ring.new_reader());
///
/// ring.push(Bytes::from_static(b"one"));
/// ring.publish();
/// assert_eq!(prompt.try_next()?, Some(Bytes::from_static(b"one")));
/// assert_eq!(prompt.try_next()?, None);
///
/// // The ring holds two frames. The reader that has not read the first gets a gap, and continues with the second.
/// ring.push(Bytes::from_static(b"two"));
/// ring.push(Bytes::from_static(b"three"));
/// ring.publish();
/// assert_eq!(late.try_next(), Err(RingGap { first: 1 }));
/// late.seek(1);
/// assert_eq!(late.try_next()?, Some(Bytes::from_static(b"two")));
/// # Ok::<(), RingGap>(())
/// ```
#[derive(Debug)]
pub struct FrameRing<F> {
    limit: RingLimit,
    frames: Arc<RwLock<FrameBuffer<F>>>,
    head: watch::Sender<RingHead>,
}

impl<F: RingFrame> FrameRing<F> {
    /// Returns an empty ring whose first frame gets the number `next`.
    pub fn new(limit: RingLimit, next: u64) -> Self {
        let frames = FrameBuffer { oldest: next, next, held: VecDeque::new(), bytes: 0 };
        let head = watch::Sender::new(RingHead { next, is_over: false });
        Self { limit, frames: Arc::new(RwLock::new(frames)), head }
    }

    /// Adds a frame without waking readers, which [`FrameRing::publish`] does.
    pub fn push(&self, frame: F) -> u64 {
        self.push_with(|_| frame)
    }

    /// Adds a frame that is made of its number, which is returned. No other frame comes between.
    pub fn push_with(&self, make: impl FnOnce(u64) -> F) -> u64 {
        let mut frames = self.frames.write();
        let number = frames.next;
        frames.push(number, make(number), self.limit);
        number
    }

    /// Adds a frame that has a number already, which must be larger than those before it.
    pub fn push_numbered(&self, number: u64, frame: F) {
        self.frames.write().push(number, frame, self.limit);
    }

    /// Wakes the readers if frames were added.
    pub fn publish(&self) {
        let next = self.next();
        self.head.send_if_modified(|head| std::mem::replace(&mut head.next, next) != next);
    }

    /// Publishes the added frames and marks the ring as over.
    pub fn end(&self) {
        self.publish();
        self.head.send_modify(|head| head.is_over = true);
    }

    /// Returns the number of the next frame, counting those that are not published.
    pub fn next(&self) -> u64 {
        self.frames.read().next
    }

    /// Returns the lowest cursor that misses nothing.
    pub fn oldest_number(&self) -> u64 {
        self.frames.read().oldest
    }

    /// Returns the published end.
    pub fn head(&self) -> RingHead {
        *self.head.borrow()
    }

    /// Returns at most `most` frames from `cursor` on, with their numbers.
    ///
    /// # Errors
    /// [`RingGap`] if a frame at or after `cursor` was dropped, or `cursor` lies past the end.
    pub fn read_page(&self, cursor: u64, most: usize) -> Result<Vec<(u64, F)>, RingGap> {
        let frames = self.frames.read();
        let index = frames.index(cursor)?;
        Ok(frames.held.iter().skip(index).take(most).cloned().collect())
    }

    /// Calls `read` with the held frames, the oldest first. Nothing is added meanwhile.
    pub fn with_frames<T>(&self, read: impl FnOnce(&VecDeque<(u64, F)>) -> T) -> T {
        read(&self.frames.read().held)
    }

    /// Waits until a frame at `cursor` or after it is published, or until the ring is over.
    ///
    /// Dropping the future loses nothing.
    pub async fn wait_until_reached(&self, cursor: u64) {
        // The sender is this ring's, so it cannot be gone.
        let _ = self.head.subscribe().wait_for(|head| head.next > cursor || head.is_over).await;
    }

    /// Waits until the ring is over.
    ///
    /// Dropping the future loses nothing.
    pub async fn wait_until_ended(&self) {
        // The sender is this ring's, so it cannot be gone.
        let _ = self.head.subscribe().wait_for(|head| head.is_over).await;
    }

    /// Returns a reader of the frames added from now on.
    pub fn new_reader(&self) -> RingReader<F> {
        RingReader { frames: Arc::clone(&self.frames), head: self.head.subscribe(), cursor: self.next() }
    }
}

impl<F: RingFrame> FrameBuffer<F> {
    fn push(&mut self, number: u64, frame: F, limit: RingLimit) {
        self.bytes += frame.byte_size();
        self.held.push_back((number, frame));
        self.next = number + 1;
        while self.held.len() > limit.frames || self.bytes > limit.bytes && self.held.len() > 1 {
            let Some((number, frame)) = self.held.pop_front() else { return };
            self.bytes -= frame.byte_size();
            self.oldest = number + 1;
        }
    }

    /// Returns the index of the first frame at `cursor` or after it.
    fn index(&self, cursor: u64) -> Result<usize, RingGap> {
        let first = self.held.front().map_or(self.next, |(number, _)| *number);
        if cursor < self.oldest || cursor > self.next {
            return Err(RingGap { first });
        }
        // If no number was left out, this is the position.
        let index = usize::try_from(cursor.saturating_sub(first)).unwrap_or(usize::MAX);
        if self.held.get(index).is_some_and(|(number, _)| *number == cursor) {
            return Ok(index);
        }
        Ok(self.held.partition_point(|(number, _)| *number < cursor))
    }
}

/// A cursor into a ring.
#[derive(Debug)]
pub struct RingReader<F> {
    frames: Arc<RwLock<FrameBuffer<F>>>,
    head: watch::Receiver<RingHead>,
    cursor: u64,
}

impl<F: RingFrame> RingReader<F> {
    /// Returns the lowest number that was not read.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Continues at `cursor`.
    pub fn seek(&mut self, cursor: u64) {
        self.cursor = cursor;
    }

    /// Returns the next frame if one is published.
    ///
    /// # Errors
    /// [`RingGap`] if it is not held any more; the cursor stays.
    pub fn try_next(&mut self) -> Result<Option<F>, RingGap> {
        if self.cursor >= self.head.borrow_and_update().next {
            return Ok(None);
        }
        let frames = self.frames.read();
        let index = frames.index(self.cursor)?;
        let Some((number, frame)) = frames.held.get(index) else { return Ok(None) };
        self.cursor = number + 1;
        Ok(Some(frame.clone()))
    }

    /// Returns the next frame once it is published, or `None` once the ring is over and everything was read.
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`RingGap`] if it is not held any more; the cursor stays.
    pub async fn next(&mut self) -> Result<Option<F>, RingGap> {
        loop {
            if let Some(frame) = self.try_next()? {
                return Ok(Some(frame));
            }
            if self.head.borrow().is_over || self.head.changed().await.is_err() {
                // The frames published last may still be there.
                return self.try_next();
            }
        }
    }

    /// Reports whether no frame is published any more.
    pub fn is_over(&self) -> bool {
        self.head.borrow().is_over
    }

    /// Takes the published end as known, so that [`RingReader::wait_for_change`] waits for another.
    pub fn mark_known(&mut self) {
        self.head.mark_unchanged();
    }

    /// Waits until something is published that was not known. False if the ring is over.
    ///
    /// Dropping the future loses nothing.
    pub async fn wait_for_change(&mut self) -> bool {
        !self.head.borrow().is_over && self.head.changed().await.is_ok()
    }

    /// Calls `read` with the held frames, the oldest first. Nothing is added meanwhile.
    pub fn with_frames<T>(&self, read: impl FnOnce(&VecDeque<(u64, F)>) -> T) -> T {
        read(&self.frames.read().held)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const LIMIT: RingLimit = RingLimit { frames: 4, bytes: 100 };

    fn push(ring: &FrameRing<Bytes>, count: u64) {
        for _ in 0..count {
            ring.push_with(|number| Bytes::from(number.to_string()));
        }
        ring.publish();
    }

    fn numbers(ring: &FrameRing<Bytes>, cursor: u64) -> Result<Vec<u64>, RingGap> {
        Ok(ring.read_page(cursor, usize::MAX)?.into_iter().map(|(number, _)| number).collect())
    }

    #[test]
    fn a_cursor_gets_the_frames_after_it_or_a_notice_that_they_are_gone() {
        let ring = FrameRing::new(LIMIT, 1);
        assert_eq!((numbers(&ring, 1), numbers(&ring, 0)), (Ok(vec![]), Err(RingGap { first: 1 })));
        push(&ring, 6);
        for (cursor, want) in [
            (0, Err(RingGap { first: 3 })),
            (2, Err(RingGap { first: 3 })),
            (3, Ok(vec![3, 4, 5, 6])),
            (6, Ok(vec![6])),
            (7, Ok(vec![])),
            (8, Err(RingGap { first: 3 })),
            (u64::MAX, Err(RingGap { first: 3 })),
        ] {
            assert_eq!(numbers(&ring, cursor), want, "{cursor}");
        }
    }

    #[test]
    fn numbers_that_were_left_out_are_no_loss() {
        let ring = FrameRing::new(LIMIT, 41);
        for number in [41, 60, 61, 70, 80] {
            ring.push_numbered(number, Bytes::from_static(b"x"));
        }
        for (cursor, want) in [
            (41, Err(RingGap { first: 60 })),
            (42, Ok(vec![60, 61, 70, 80])),
            (61, Ok(vec![61, 70, 80])),
            (62, Ok(vec![70, 80])),
            (81, Ok(vec![])),
        ] {
            assert_eq!(numbers(&ring, cursor), want, "{cursor}");
        }
    }

    #[test]
    fn what_is_held_is_bounded_by_count_and_bytes_however_much_is_pushed() {
        let limit = RingLimit { frames: 1_000, bytes: 50_000 };
        for (count, size) in [(10, 10), (1_000, 100), (100_000, 100), (100_000, 1), (10, 200_000)] {
            let ring = FrameRing::new(limit, 0);
            let mut slow = ring.new_reader();
            for _ in 0..count {
                ring.push(Bytes::from(vec![b'x'; size]));
            }
            ring.publish();
            let (held, bytes) =
                ring.with_frames(|held| (held.len(), held.iter().map(|(_, frame)| frame.len()).sum::<usize>()));
            assert!(held <= limit.frames && (bytes <= limit.bytes || held == 1), "{count} of {size}: {held}, {bytes}");
            assert_eq!((ring.next(), ring.oldest_number()), (count, count - held as u64), "{count} of {size}");
            let first = slow.try_next();
            if count > held as u64 {
                assert_eq!(first, Err(RingGap { first: count - held as u64 }), "{count} of {size}");
            } else {
                assert!(matches!(first, Ok(Some(_))), "{count} of {size}");
            }
        }
    }

    #[test]
    fn a_reader_sees_what_was_published_and_nothing_else() {
        let ring = FrameRing::new(LIMIT, 0);
        let mut reader = ring.new_reader();
        ring.push(Bytes::from_static(b"a"));
        assert_eq!(reader.next().now_or_never(), None);
        ring.publish();
        assert_eq!(reader.next().now_or_never(), Some(Ok(Some(Bytes::from_static(b"a")))));
        assert_eq!(reader.next().now_or_never(), None);
    }

    #[test]
    fn the_end_comes_after_all_frames_and_wakes_everybody() {
        let ring = FrameRing::new(LIMIT, 0);
        let (mut reader, ended) = (ring.new_reader(), ring.wait_until_ended());
        ring.push(Bytes::from_static(b"a"));
        ring.end();
        assert_eq!(reader.next().now_or_never(), Some(Ok(Some(Bytes::from_static(b"a")))));
        assert_eq!(reader.next().now_or_never(), Some(Ok(None)));
        assert!(ended.now_or_never().is_some() && ring.wait_until_reached(9).now_or_never().is_some());
        assert_eq!(reader.wait_for_change().now_or_never(), Some(false));
    }

    #[test]
    fn a_ring_that_is_dropped_ends_its_readers() {
        let ring = FrameRing::new(LIMIT, 0);
        let mut reader = ring.new_reader();
        push(&ring, 1);
        drop(ring);
        assert!(matches!(reader.next().now_or_never(), Some(Ok(Some(_)))));
        assert_eq!(reader.next().now_or_never(), Some(Ok(None)));
    }
}
