//! Frames on their way out: a queue before the channel that the writing thread empties.
//!
//! It must not know the content of a frame. A host that does not read fills it; its writer first checks whether it is full.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::sync::mpsc::{Sender, error::TrySendError};

/// Maximum number of waiting frames before frames that can wait are held back.
const FRAMES: usize = 256;
/// Maximum number of waiting frames before input of the host is not taken either.
const DEAF: usize = 4 * FRAMES;
/// Number of bytes that may wait, for the first of the two limits; the second is four times that.
const BYTES: usize = 16 << 20;

/// The reader of frames has gone.
#[derive(Debug)]
pub(super) struct OutputClosed;

/// The frames that were not taken yet.
pub(super) struct FrameOutbox {
    frames: VecDeque<Bytes>,
    bytes: usize,
    output: Sender<Bytes>,
}

impl FrameOutbox {
    pub(super) fn new(output: Sender<Bytes>) -> Self {
        Self { frames: VecDeque::new(), bytes: 0, output }
    }

    /// Appends a frame to the others.
    pub(super) fn push(&mut self, frame: Bytes) {
        self.bytes += frame.len();
        self.frames.push_back(frame);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Reports whether so many frames wait that events are held back until some were taken.
    pub(super) fn is_full(&self) -> bool {
        self.frames.len() >= FRAMES || self.bytes >= BYTES
    }

    /// Reports whether so many frames wait that commands are not taken either.
    pub(super) fn is_overfull(&self) -> bool {
        self.frames.len() >= DEAF || self.bytes >= 4 * BYTES
    }

    /// Hands on as much as there is room for, without waiting.
    pub(super) fn push_out(&mut self) -> Result<(), OutputClosed> {
        while let Some(frame) = self.frames.pop_front() {
            let length = frame.len();
            match self.output.try_send(frame) {
                Ok(()) => self.bytes -= length,
                Err(TrySendError::Full(frame)) => {
                    self.frames.push_front(frame);
                    return Ok(());
                }
                Err(TrySendError::Closed(_)) => return Err(OutputClosed),
            }
        }
        Ok(())
    }

    /// Waits for room for a frame and hands it on. Dropping the future loses nothing.
    pub(super) async fn send_next(&mut self) -> Result<(), OutputClosed> {
        let permit = self.output.reserve().await.map_err(|_| OutputClosed)?;
        if let Some(frame) = self.frames.pop_front() {
            self.bytes -= frame.len();
            permit.send(frame);
        }
        Ok(())
    }

    /// Hands on everything, waiting for room.
    pub(super) async fn flush(&mut self) -> Result<(), OutputClosed> {
        while !self.is_empty() {
            self.send_next().await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tokio::sync::mpsc;

    use super::{DEAF, FRAMES, FrameOutbox};

    #[tokio::test]
    async fn frames_leave_in_order_and_wait_when_nobody_takes_them() {
        let (output, mut taken) = mpsc::channel(2);
        let mut outbox = FrameOutbox::new(output);
        for number in 0..DEAF {
            assert_eq!((outbox.is_full(), outbox.is_overfull()), (number >= FRAMES, false));
            outbox.push(Bytes::from(number.to_string()));
        }
        assert!(outbox.is_overfull());
        outbox.push_out().unwrap();
        for number in 0..DEAF {
            assert_eq!(taken.recv().await.unwrap(), number.to_string());
            outbox.push_out().unwrap();
        }
        assert!(outbox.is_empty() && outbox.bytes == 0);
        drop(taken);
        outbox.push(Bytes::new());
        assert!(outbox.push_out().is_err());
    }
}
