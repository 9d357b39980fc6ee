//! What waits to be sent to one connection.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::extract::ws::Utf8Bytes;
use countersign_protocol::gsv::close;
use tokio::sync::{mpsc, oneshot};

/// How much may wait for a connection that does not read, in bytes.
const MOST: usize = 128 << 20;

/// What is sent.
#[derive(Debug)]
pub(super) enum Post {
    /// A frame.
    Frame(Utf8Bytes),
    /// A question that the other end answers behind everything that was sent before: whoever waits is told when it has.
    Proof(oneshot::Sender<()>),
    /// The end, with its code and reason.
    Close(u16, String),
}

/// Where frames for a connection are put. Whoever puts one never waits.
#[derive(Clone)]
pub(super) struct Outbox {
    posts: mpsc::UnboundedSender<Post>,
    waiting: Arc<AtomicUsize>,
}

/// The connection's end of it.
pub(super) struct Posts {
    posts: mpsc::UnboundedReceiver<Post>,
    waiting: Arc<AtomicUsize>,
}

/// Makes both ends.
pub(super) fn outbox() -> (Outbox, Posts) {
    let (tx, rx) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    (Outbox { posts: tx, waiting: Arc::clone(&waiting) }, Posts { posts: rx, waiting })
}

impl Outbox {
    /// Puts a frame behind what waits. A connection for which too much does is closed: it does not read. False if it is
    /// gone, or goes.
    pub(super) fn send(&self, frame: Utf8Bytes) -> bool {
        let length = frame.as_str().len();
        if self.waiting.fetch_add(length, Ordering::Relaxed) + length > MOST {
            self.close(close::TRY_AGAIN, "too much waits to be read");
            return false;
        }
        self.posts.send(Post::Frame(frame)).is_ok()
    }

    /// Waits until the other end has everything that was put here before. False if the connection goes first.
    pub(super) async fn proof(&self) -> bool {
        let (proof, proved) = oneshot::channel();
        self.posts.send(Post::Proof(proof)).is_ok() && proved.await.is_ok()
    }

    /// Closes the connection behind what waits.
    pub(super) fn close(&self, code: u16, reason: &str) {
        // One that is gone needs no end.
        let _ = self.posts.send(Post::Close(code, reason.to_owned()));
    }
}

impl Posts {
    /// The next of them. The connection itself holds the other end, so there is always another.
    pub(super) async fn next(&mut self) -> Option<Post> {
        let post = self.posts.recv().await?;
        if let Post::Frame(frame) = &post {
            self.waiting.fetch_sub(frame.as_str().len(), Ordering::Relaxed);
        }
        Some(post)
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, Post, outbox};

    #[tokio::test]
    async fn whoever_does_not_read_is_closed_and_costs_no_more() {
        let (outbox, mut posts) = outbox();
        let frame = "x".repeat(MOST / 2);
        assert!(outbox.send(frame.as_str().into()) && outbox.send(frame.as_str().into()));
        assert!(!outbox.send("one more".into()));
        for _ in 0..2 {
            assert!(matches!(posts.next().await, Some(Post::Frame(_))));
        }
        let end = posts.next().await;
        assert!(matches!(&end, Some(Post::Close(1013, why)) if why == "too much waits to be read"), "{end:?}");
    }
}
