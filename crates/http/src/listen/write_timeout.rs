//! A connection that is given up when its client takes nothing of its response, or when its node has lost the realm in the middle of a
//! stream.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

/// Reports whether the node holds the lease of the realm.
type LeaseCheck = Box<dyn Fn() -> bool + Send + Sync>;

/// Deadline of a connection whose client takes nothing, and the condition of its writes.
#[derive(Clone)]
pub(super) struct WriteDeadline {
    limit: Duration,
    is_endless: Arc<AtomicBool>,
    holds_lease: Arc<OnceLock<LeaseCheck>>,
}

impl WriteDeadline {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, is_endless: Arc::default(), holds_lease: Arc::default() }
    }

    /// Ends the connection at the first write without the lease: a stream or WebSocket must not show the realm as it was before another
    /// node took it.
    pub(super) fn write_only_while(&self, holds_lease: impl Fn() -> bool + Send + Sync + 'static) {
        // The first check is as good as any other: a connection has one realm.
        let _ = self.holds_lease.set(Box::new(holds_lease));
    }

    fn check_lease(&self) -> io::Result<()> {
        match self.holds_lease.get() {
            Some(holds_lease) if !holds_lease() => {
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the node has lost the realm"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Leaves the timeout to the caller: an adapter that knows better what it sends.
    pub(super) fn hand_over(&self) {
        self.is_endless.store(true, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for WriteDeadline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteDeadline").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// A connection whose writes end in an error when nothing of them was taken for so long.
#[derive(Debug)]
pub(super) struct WriteTimeout<S> {
    stream: S,
    patience: WriteDeadline,
    /// Runs while the client takes nothing. Most connections never need one.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    pub(super) fn new(stream: S, patience: WriteDeadline) -> Self {
        Self { stream, patience, timer: None }
    }

    /// Returns the result of an attempt to write, or a timeout if none succeeded for too long.
    fn apply_timeout<T>(&mut self, context: &mut Context<'_>, attempt: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if attempt.is_ready() || self.patience.is_endless.load(Ordering::Relaxed) {
            self.timer = None;
            return attempt;
        }
        let limit = self.patience.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + limit)));
        std::task::ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read what is sent to it")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.patience.check_lease()?;
        let attempt = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.apply_timeout(context, attempt)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.patience.check_lease()?;
        let attempt = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.apply_timeout(context, attempt)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let attempt = Pin::new(&mut self.stream).poll_flush(context);
        self.apply_timeout(context, attempt)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let attempt = Pin::new(&mut self.stream).poll_shutdown(context);
        self.apply_timeout(context, attempt)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
        time::Duration,
    };

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::{WriteDeadline, WriteTimeout};

    #[tokio::test]
    async fn a_stream_of_a_node_without_its_lease_ends_before_its_next_byte() {
        let (mut client, server) = duplex(64);
        let patience = WriteDeadline::new(Duration::from_secs(1));
        let mut server = WriteTimeout::new(server, patience.clone());
        let held = Arc::new(AtomicBool::new(true));
        let shown = Arc::clone(&held);
        patience.write_only_while(move || shown.load(Ordering::Relaxed));
        server.write_all(b"before").await.unwrap();
        held.store(false, Ordering::Relaxed);
        assert_eq!(server.write_all(b"after").await.unwrap_err().kind(), std::io::ErrorKind::ConnectionAborted);
        drop(server);
        let mut seen = String::new();
        client.read_to_string(&mut seen).await.unwrap();
        assert_eq!(seen, "before");
    }
}
