//! Queue of lines to one side, which a task of its own writes.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    sync::{Notify, mpsc},
};

/// Number of queued bytes from which on nothing is read from the other side.
const ENOUGH: usize = 1 << 20;

/// Count of bytes that are not written yet.
#[derive(Debug, Default)]
struct QueuedBytes {
    count: AtomicUsize,
    written: Notify,
}

/// Sending side of a queue. Dropping it closes the stream after the last line.
#[derive(Debug)]
pub(crate) struct ByteQueue {
    lines: mpsc::UnboundedSender<Vec<u8>>,
    queued: Arc<QueuedBytes>,
}

impl ByteQueue {
    /// Starts to write to a stream. The task ends when the queue is dropped and empty, or the stream fails.
    pub(crate) fn start(
        mut stream: impl AsyncWrite + Unpin + Send + 'static,
    ) -> (Self, tokio::task::JoinHandle<std::io::Result<()>>) {
        let (lines, mut received) = mpsc::unbounded_channel::<Vec<u8>>();
        let queued = Arc::new(QueuedBytes::default());
        let counted = Arc::clone(&queued);
        let writing = tokio::spawn(async move {
            while let Some(line) = received.recv().await {
                stream.write_all(&line).await?;
                // One flush for lines that came together.
                if received.is_empty() {
                    stream.flush().await?;
                }
                counted.count.fetch_sub(line.len(), Ordering::Relaxed);
                counted.written.notify_one();
            }
            stream.shutdown().await
        });
        (Self { lines, queued }, writing)
    }

    /// Adds a line. Nothing happens if the stream has failed, which its task reports.
    pub(crate) fn send(&self, line: Vec<u8>) {
        self.queued.count.fetch_add(line.len(), Ordering::Relaxed);
        let _ = self.lines.send(line);
    }

    /// Becomes ready as soon as the other side may be read again.
    pub(crate) async fn has_room(&self) {
        while self.queued.count.load(Ordering::Relaxed) >= ENOUGH {
            self.queued.written.notified().await;
        }
    }
}
