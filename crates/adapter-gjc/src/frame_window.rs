//! The last frames, each under its number: each reader has a position among them and takes the frames after it, so that the writer
//! waits for no reader.
//!
//! It must not know what a frame says, nor how it travels.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use countersign_runtime::{FrameRing, RingGap, RingLimit};
use futures_util::{Stream, stream};

/// Maximum number of bytes that are kept, whatever the number of frames. One frame is always kept.
const MOST_BYTES: usize = 64 << 20;
/// Maximum number of frames that are taken at once.
const AT_ONCE: usize = 64;

/// The last frames that were published.
pub(crate) struct FrameWindow(FrameRing<Bytes>);

/// Frames after a position.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WindowPage {
    /// The next frames, with their numbers.
    Frames(Vec<(u64, Bytes)>),
    /// Some of them are gone, or the place is none: what is kept begins with this number.
    Lost(u64),
}

impl FrameWindow {
    /// Keeps the last `most` frames. Numbers begin after `last`.
    pub(crate) fn new(most: usize, last: u64) -> Arc<Self> {
        let limit = RingLimit { frames: most, bytes: MOST_BYTES };
        Arc::new(Self(FrameRing::new(limit, last + 1)))
    }

    /// Appends a frame that is made from its number, and returns the number.
    pub(crate) fn push(&self, make: impl FnOnce(u64) -> Bytes) -> u64 {
        let number = self.0.push_with(make);
        self.0.publish();
        number
    }

    /// Appends a frame that has a number already, which must be larger than the last.
    pub(crate) fn push_numbered(&self, number: u64, frame: Bytes) {
        self.0.push_numbered(number, frame);
        self.0.publish();
    }

    /// Returns the number of the last frame.
    pub(crate) fn last_number(&self) -> u64 {
        self.0.head().next - 1
    }

    /// Reports whether no more frames come.
    pub(crate) fn is_over(&self) -> bool {
        self.0.head().is_over
    }

    /// Marks the end of the frames.
    pub(crate) fn end(&self) {
        self.0.end();
    }

    /// Returns frames after the one with the number `after`, a part of them at a time.
    pub(crate) fn frames_after(&self, after: u64) -> WindowPage {
        match self.0.read_page(after.saturating_add(1), AT_ONCE) {
            Ok(frames) => WindowPage::Frames(frames),
            Err(RingGap { first }) => WindowPage::Lost(first),
        }
    }

    /// Returns the place before the first frame that is kept.
    pub(crate) fn before_oldest(&self) -> u64 {
        self.0.oldest_number() - 1
    }

    /// Waits until nothing more comes.
    pub(crate) async fn wait_until_over(&self) {
        self.0.wait_until_ended().await;
    }

    /// Waits until there is a frame after `after`, or until no more frames come.
    pub(crate) async fn wait_for_frame(&self, after: u64) {
        self.0.wait_until_reached(after.saturating_add(1)).await;
    }

    /// Streams all frames after `after`, each with its number. Where frames are gone, the result of `lost` for the first kept frame
    /// comes first, under 0, which is the number of no frame. Dropping the stream loses nothing for other readers.
    pub(crate) fn follow_frames(
        self: Arc<Self>,
        after: u64,
        lost: impl Fn(u64) -> Bytes + Send + 'static,
    ) -> impl Stream<Item = (u64, Bytes)> + Send + 'static {
        let cursor = WindowCursor { window: self, after, taken: VecDeque::new(), lost };
        stream::unfold(cursor, |mut cursor| async move { Some((cursor.next().await?, cursor)) })
    }
}

/// A place among the frames.
struct WindowCursor<L> {
    window: Arc<FrameWindow>,
    after: u64,
    taken: VecDeque<(u64, Bytes)>,
    lost: L,
}

impl<L: Fn(u64) -> Bytes> WindowCursor<L> {
    async fn next(&mut self) -> Option<(u64, Bytes)> {
        loop {
            if let Some((number, frame)) = self.taken.pop_front() {
                self.after = number;
                return Some((number, frame));
            }
            match self.window.frames_after(self.after) {
                WindowPage::Lost(first) => {
                    self.after = first - 1;
                    return Some((0, (self.lost)(first)));
                }
                WindowPage::Frames(frames) if frames.is_empty() => {
                    if self.window.is_over() && self.window.last_number() <= self.after {
                        return None;
                    }
                    self.window.wait_for_frame(self.after).await;
                }
                WindowPage::Frames(frames) => self.taken = frames.into(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use futures_util::{FutureExt as _, StreamExt as _};

    use super::{AT_ONCE, FrameWindow, WindowPage};

    fn push_frames(window: &FrameWindow, count: u64) {
        for _ in 0..count {
            window.push(|number| Bytes::from(number.to_string()));
        }
    }

    /// Returns the frames that a reader at a position gets at once.
    fn frames_at_hand(window: &Arc<FrameWindow>, after: u64) -> Vec<String> {
        let frames = Arc::clone(window).follow_frames(after, |first| Bytes::from(format!("lost before {first}")));
        let mut frames = Box::pin(frames);
        let mut lines = Vec::new();
        while let Some(Some((_, frame))) = frames.next().now_or_never() {
            lines.push(String::from_utf8(frame.to_vec()).unwrap());
        }
        lines
    }

    #[test]
    fn a_returning_reader_gets_the_kept_frames_and_a_notice_about_lost_ones() {
        let window = FrameWindow::new(3, 0);
        assert_eq!(frames_at_hand(&window, 0), [""; 0]);
        push_frames(&window, 5);
        for (after, want) in [
            (0, &["lost before 3", "3", "4", "5"][..]),
            (1, &["lost before 3", "3", "4", "5"]),
            (2, &["3", "4", "5"]),
            (4, &["5"]),
            (5, &[]),
            (9, &["lost before 3", "3", "4", "5"]),
        ] {
            assert_eq!(frames_at_hand(&window, after), want, "{after}");
        }
    }

    #[test]
    fn numbers_go_on_behind_those_of_before() {
        let window = FrameWindow::new(3, 40);
        assert_eq!(frames_at_hand(&window, 40), [""; 0]);
        assert_eq!(frames_at_hand(&window, 12), ["lost before 41"]);
        push_frames(&window, 1);
        assert_eq!(window.last_number(), 41);
        window.push_numbered(60, Bytes::from_static(b"sixty"));
        assert_eq!(frames_at_hand(&window, 40), ["41", "sixty"]);
        assert_eq!(frames_at_hand(&window, 50), ["sixty"]);
    }

    #[test]
    fn few_large_frames_are_not_kept_longer_than_they_have_room() {
        let window = FrameWindow::new(1000, 0);
        for _ in 0..5 {
            window.push(|_| Bytes::from(vec![b'x'; 40 << 20]));
        }
        assert_eq!(window.frames_after(3), WindowPage::Lost(5));
        assert!(matches!(window.frames_after(4), WindowPage::Frames(frames) if frames.len() == 1));
    }

    #[tokio::test]
    async fn somebody_slow_slows_nobody_and_the_end_comes_behind_all_frames() {
        let window = FrameWindow::new(1000, 0);
        let count = 3 * AT_ONCE as u64;
        let slow = Arc::clone(&window).follow_frames(0, |_| Bytes::new());
        let quick = tokio::spawn(Arc::clone(&window).follow_frames(0, |_| Bytes::new()).count());
        push_frames(&window, count);
        window.end();
        assert_eq!(quick.await.unwrap() as u64, count);
        assert_eq!(slow.count().await as u64, count);
    }
}
