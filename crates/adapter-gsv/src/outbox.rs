//! Queue of outbound frames of one connection.

use std::{collections::VecDeque, sync::Arc};

use axum::extract::ws::Utf8Bytes;
use countersign_protocol::gsv::close;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

/// Most bytes that may wait for a connection that does not read.
const MOST: usize = 128 << 20;
/// Most bytes that may wait for room: answers that the connection requested, and reads one after the other.
const MOST_IN_TURN: usize = 512 << 20;
/// Capacity of the queue that is kept after the frames were sent.
const KEPT: usize = 16;

/// Close reason of a connection whose queue is too long.
const UNREAD: &str = "too much waits to be read";

/// Outbound item.
#[derive(Debug)]
pub(super) enum OutboxItem {
    /// Frame.
    Frame(Utf8Bytes),
    /// Ping that the other end answers after everything that was sent before: the waiter is notified of the answer.
    Proof(oneshot::Sender<()>),
    /// End, with its code and reason.
    Close(u16, String),
}

/// State that both ends share. Empty queues allocate nothing: most connections are idle most of the time.
#[derive(Default)]
struct OutboxShared {
    line: Mutex<OutboxQueue>,
    arrived: Notify,
    /// Notified when an item was taken.
    room: Notify,
    /// Notified when the receiver is gone.
    over: Notify,
}

#[derive(Default)]
struct OutboxQueue {
    posts: VecDeque<OutboxItem>,
    /// Size of the queued frames together, in bytes.
    bytes: usize,
    /// Size of the frames that wait for room, in bytes.
    in_turn: usize,
    /// True if the receiver is gone.
    is_over: bool,
}

/// Frame that waits for room, until this is dropped.
struct RoomWait<'a> {
    line: &'a Mutex<OutboxQueue>,
    size: usize,
}

impl Drop for RoomWait<'_> {
    fn drop(&mut self) {
        self.line.lock().in_turn -= self.size;
    }
}

/// Sender of frames to a connection. Sending never waits.
#[derive(Clone)]
pub(super) struct ConnectionOutbox(Arc<OutboxShared>);

/// Receiver, which the connection holds.
pub(super) struct OutboxReceiver(Arc<OutboxShared>);

/// Creates both ends.
pub(super) fn new_outbox() -> (ConnectionOutbox, OutboxReceiver) {
    let shared = Arc::new(OutboxShared::default());
    (ConnectionOutbox(Arc::clone(&shared)), OutboxReceiver(shared))
}

impl ConnectionOutbox {
    /// Queues a frame. A connection whose queue is too long is closed: it does not read. Returns false if it is
    /// gone or closing.
    pub(super) fn send_frame(&self, frame: Utf8Bytes) -> bool {
        self.put_item(|line| {
            let bytes = line.bytes + frame.as_str().len();
            if bytes > MOST {
                line.push_close(close::TRY_AGAIN, UNREAD);
                return false;
            }
            line.bytes = bytes;
            line.posts.push_back(OutboxItem::Frame(frame));
            true
        })
    }

    /// Does the same, and waits for room: a peer that requested much reads one answer after the other. If too much waits
    /// for that, the connection is closed. Returns false if it closes first.
    pub(super) async fn send_in_turn(&self, frame: Utf8Bytes) -> bool {
        let size = frame.as_str().len();
        let mut turn: Option<RoomWait<'_>> = None;
        loop {
            let mut room = std::pin::pin!(self.0.room.notified());
            // Items taken from here on are noticed.
            room.as_mut().enable();
            let has_room = {
                let mut line = self.0.line.lock();
                let has_room = line.is_over || line.bytes == 0 || line.bytes + size <= MOST / 2;
                if !has_room && turn.is_none() {
                    if line.in_turn + size > MOST_IN_TURN {
                        line.push_close(close::TRY_AGAIN, UNREAD);
                        drop(line);
                        self.0.arrived.notify_one();
                        self.0.room.notify_waiters();
                        return false;
                    }
                    line.in_turn += size;
                    turn = Some(RoomWait { line: &self.0.line, size });
                }
                has_room
            };
            if has_room {
                drop(turn);
                return self.send_frame(frame);
            }
            room.await;
        }
    }

    /// Waits until the receiver is gone.
    pub(super) async fn wait_closed(&self) {
        let mut over = std::pin::pin!(self.0.over.notified());
        over.as_mut().enable();
        if self.is_read() {
            over.await;
        }
    }

    /// Waits until the other end has everything that was queued before. Returns false if the connection closes first.
    pub(super) async fn prove_delivery(&self) -> bool {
        let (proof, proved) = oneshot::channel();
        let is_put = self.put_item(|line| {
            line.posts.push_back(OutboxItem::Proof(proof));
            true
        });
        is_put && proved.await.is_ok()
    }

    /// Closes the connection after the queued items.
    pub(super) fn close(&self, code: u16, reason: &str) {
        self.put_item(|line| {
            line.push_close(code, reason);
            true
        });
    }

    /// Marks the receiver as gone.
    pub(super) fn shut_down(&self) {
        {
            let mut line = self.0.line.lock();
            line.is_over = true;
            // Dropping the queue notifies waiters for a proof.
            line.posts.clear();
        }
        self.0.over.notify_waiters();
        self.0.room.notify_waiters();
    }

    /// Reports whether the receiver exists.
    pub(super) fn is_read(&self) -> bool {
        !self.0.line.lock().is_over
    }

    /// Queues an item if the connection is open. A closed one needs no end.
    fn put_item(&self, put: impl FnOnce(&mut OutboxQueue) -> bool) -> bool {
        let is_put = {
            let mut line = self.0.line.lock();
            !line.is_over && put(&mut line)
        };
        self.0.arrived.notify_one();
        is_put
    }
}

impl OutboxReceiver {
    /// Returns the next item. Cancelling it loses nothing.
    pub(super) async fn next(&mut self) -> OutboxItem {
        loop {
            let taken = self.0.line.lock().take_item();
            if let Some(post) = taken {
                self.0.room.notify_waiters();
                return post;
            }
            self.0.arrived.notified().await;
        }
    }
}

impl OutboxQueue {
    /// Queues the end of the connection, after which it takes nothing more.
    fn push_close(&mut self, code: u16, reason: &str) {
        self.posts.push_back(OutboxItem::Close(code, reason.to_owned()));
        self.is_over = true;
    }

    fn take_item(&mut self) -> Option<OutboxItem> {
        let post = self.posts.pop_front()?;
        if let OutboxItem::Frame(frame) = &post {
            self.bytes -= frame.as_str().len();
        }
        if self.posts.is_empty() && self.posts.capacity() > KEPT {
            // A large capacity is not kept for the next time.
            self.posts = VecDeque::new();
        }
        Some(post)
    }
}

impl Drop for OutboxReceiver {
    fn drop(&mut self) {
        ConnectionOutbox(Arc::clone(&self.0)).shut_down();
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, MOST_IN_TURN, OutboxItem, Utf8Bytes, new_outbox};

    #[tokio::test]
    async fn a_peer_that_does_not_read_is_closed_and_costs_no_more() {
        let (outbox, mut posts) = new_outbox();
        let frame = "x".repeat(MOST / 2);
        assert!(outbox.send_frame(frame.as_str().into()) && outbox.send_frame(frame.as_str().into()));
        assert!(!outbox.send_frame("one more".into()));
        for _ in 0..2 {
            assert!(matches!(posts.next().await, OutboxItem::Frame(_)));
        }
        let end = posts.next().await;
        assert!(matches!(&end, OutboxItem::Close(1013, why) if why == "too much waits to be read"), "{end:?}");
    }

    #[tokio::test]
    async fn what_waits_for_room_is_bounded_too() {
        let (outbox, mut posts) = new_outbox();
        let frame = Utf8Bytes::from("x".repeat(MOST / 2));
        assert!(outbox.send_in_turn(frame.clone()).await);
        let mut first = Box::pin(outbox.send_in_turn(frame.clone()));
        let mut second = Box::pin(outbox.send_in_turn(frame.clone()));
        assert!(futures_util::poll!(&mut first).is_pending() && futures_util::poll!(&mut second).is_pending());
        drop(second);
        assert!(matches!(posts.next().await, OutboxItem::Frame(_)));
        assert!(first.await, "what was given up counts no more");
        let mut waiting: Vec<_> =
            (0..MOST_IN_TURN / frame.as_str().len()).map(|_| Box::pin(outbox.send_in_turn(frame.clone()))).collect();
        for next in &mut waiting {
            assert!(futures_util::poll!(next).is_pending());
        }
        assert!(!outbox.send_in_turn("one more".into()).await);
        for next in waiting {
            assert!(!next.await);
        }
        assert!(matches!(posts.next().await, OutboxItem::Frame(_)));
        let end = posts.next().await;
        assert!(matches!(&end, OutboxItem::Close(1013, why) if why == "too much waits to be read"), "{end:?}");
    }

    #[tokio::test]
    async fn a_frame_wakes_a_waiting_reader_and_a_closed_outbox_is_reported() {
        let (outbox, mut posts) = new_outbox();
        let mut next = Box::pin(posts.next());
        assert!(futures_util::poll!(&mut next).is_pending());
        assert!(outbox.send_frame("one".into()));
        assert!(matches!(next.await, OutboxItem::Frame(frame) if frame.as_str() == "one"));
        // A cancelled wait takes no item.
        let mut given_up = Box::pin(posts.next());
        assert!(futures_util::poll!(&mut given_up).is_pending());
        assert!(outbox.send_frame("two".into()));
        drop(given_up);
        assert!(matches!(posts.next().await, OutboxItem::Frame(frame) if frame.as_str() == "two"));
        let mut proof = std::pin::pin!(outbox.prove_delivery());
        assert!(futures_util::poll!(&mut proof).is_pending());
        drop(posts);
        assert!(!proof.await, "whoever waits hears that the connection is gone");
        assert!(!outbox.send_frame("late".into()) && !outbox.prove_delivery().await);
    }

    #[tokio::test]
    async fn a_waiting_sender_continues_when_there_is_room_or_no_reader() {
        let (outbox, mut posts) = new_outbox();
        let large = "x".repeat(MOST / 2 + 1);
        assert!(outbox.send_in_turn(large.as_str().into()).await, "one may be as large as it is");
        let mut next = Box::pin(outbox.send_in_turn(large.as_str().into()));
        let mut last = Box::pin(outbox.send_in_turn("last".into()));
        assert!(futures_util::poll!(&mut next).is_pending() && futures_util::poll!(&mut last).is_pending());
        assert!(matches!(posts.next().await, OutboxItem::Frame(_)));
        assert!(next.await);
        let mut gone = std::pin::pin!(outbox.wait_closed());
        assert!(futures_util::poll!(&mut last).is_pending() && futures_util::poll!(&mut gone).is_pending());
        drop(posts);
        assert!(!last.await);
        gone.await;
    }
}
