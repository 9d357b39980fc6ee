//! A connection that is given up when its client takes nothing of its response.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

/// Deadline of a connection whose client takes nothing.
#[derive(Clone, Debug)]
pub(super) struct WriteDeadline {
    limit: Duration,
    is_endless: Arc<AtomicBool>,
}

impl WriteDeadline {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, is_endless: Arc::default() }
    }

    /// Leaves the timeout to the caller: an adapter that knows better what it sends.
    pub(super) fn hand_over(&self) {
        self.is_endless.store(true, Ordering::Relaxed);
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
        let attempt = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.apply_timeout(context, attempt)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
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
