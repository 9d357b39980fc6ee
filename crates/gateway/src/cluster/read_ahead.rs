//! Stream of which the first bytes were read already.
//!
//! It must not know what they say.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use countersign_http::listen::PortStream;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// Most bytes that are read before a connection is relayed.
const MOST: usize = 4096;

/// Stream that gives its first bytes once more.
pub(super) struct ReadAhead {
    first: Vec<u8>,
    given: usize,
    stream: Box<dyn PortStream>,
}

impl ReadAhead {
    /// Reads the first bytes of a stream. They may be few, and are none at its end.
    pub(super) async fn read_first(mut stream: Box<dyn PortStream>) -> io::Result<Self> {
        let mut first = Vec::with_capacity(MOST);
        stream.read_buf(&mut first).await?;
        first.shrink_to_fit();
        Ok(Self { first, given: 0, stream })
    }

    /// Returns the bytes that were read.
    pub(super) fn first(&self) -> &[u8] {
        &self.first
    }
}

impl AsyncRead for ReadAhead {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let left = this.first.get(this.given..).unwrap_or_default();
        if left.is_empty() {
            return Pin::new(&mut this.stream).poll_read(context, buffer);
        }
        let count = left.len().min(buffer.remaining());
        buffer.put_slice(left.get(..count).unwrap_or_default());
        this.given += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ReadAhead {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::ReadAhead;

    #[tokio::test]
    async fn the_first_bytes_are_read_twice_and_all_others_once() {
        let (mut client, server) = duplex(64);
        client.write_all(b"GET / HTTP/1.1").await.unwrap();
        let mut stream = ReadAhead::read_first(Box::new(server)).await.unwrap();
        assert_eq!(stream.first(), b"GET / HTTP/1.1");
        client.write_all(b" and the rest").await.unwrap();
        drop(client);
        let mut small = [0; 4];
        stream.read_exact(&mut small).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert_eq!((&small, text.as_str()), (b"GET ", "/ HTTP/1.1 and the rest"));
    }
}
