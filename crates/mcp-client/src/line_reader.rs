//! Lines of a stream, of which none is held in memory beyond a limit.
//!
//! It must not know what a line means.

use std::{io, time::Duration};

use bytes::{Buf as _, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    time::Instant,
};

/// Beginning kept of a line that is too long, in bytes.
const HEAD: usize = 1024;
/// Most bytes taken from the stream at once.
const CHUNK: usize = 64 << 10;
/// Span in which read bytes are counted.
const SECOND: Duration = Duration::from_secs(1);

/// One read of a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LineRead {
    /// A line without its end.
    Line(BytesMut),
    /// The beginning of a line that is longer than the limit. Its rest is skipped.
    TooLong(Vec<u8>),
    /// The stream has ended. A last line without an end is none.
    End,
}

/// Reader of the lines of a stream.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    stream: R,
    limit: usize,
    buffer: BytesMut,
    /// Bytes of the buffer that hold no line end.
    scanned: usize,
    /// True while the rest of a line that was too long is skipped.
    is_skipping: bool,
    pace: Option<ReadPace>,
}

/// Most bytes that are read within a second. The writer waits meanwhile.
#[derive(Debug)]
struct ReadPace {
    most: usize,
    since: Instant,
    read: usize,
}

impl ReadPace {
    /// Counts bytes that were read, and waits for the next second if they are too many.
    ///
    /// *Cancellation*: the bytes stay counted.
    async fn count(&mut self, bytes: usize) {
        self.read += bytes;
        let next = self.since + SECOND;
        if self.read >= self.most {
            tokio::time::sleep_until(next).await;
        }
        if Instant::now() >= next {
            (self.since, self.read) = (Instant::now(), 0);
        }
    }
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(crate) fn new(stream: R, limit: usize) -> Self {
        Self { stream, limit, buffer: BytesMut::new(), scanned: 0, is_skipping: false, pace: None }
    }

    /// Reads at most so many bytes within a second.
    pub(crate) fn with_pace(self, most: usize) -> Self {
        Self { pace: Some(ReadPace { most, since: Instant::now(), read: 0 }), ..self }
    }

    /// Waits for the next line.
    ///
    /// *Cancellation*: nothing is lost.
    ///
    /// # Errors
    /// Errors of the stream.
    pub(crate) async fn next(&mut self) -> io::Result<LineRead> {
        loop {
            if let Some(read) = self.take_line() {
                return Ok(read);
            }
            self.buffer.reserve(CHUNK.min(self.limit + 1));
            let read = self.stream.read_buf(&mut self.buffer).await?;
            if read == 0 {
                return Ok(LineRead::End);
            }
            if let Some(pace) = &mut self.pace {
                pace.count(read).await;
            }
        }
    }

    /// Takes a whole line, or the beginning of one that is too long, out of the buffer.
    fn take_line(&mut self) -> Option<LineRead> {
        loop {
            let end = memchr::memchr(b'\n', &self.buffer[self.scanned..]).map(|at| self.scanned + at);
            if self.is_skipping {
                match end {
                    Some(end) => {
                        self.buffer.advance(end + 1);
                        self.is_skipping = false;
                        continue;
                    }
                    None => {
                        self.buffer.clear();
                        return None;
                    }
                }
            }
            match end {
                Some(end) if end <= self.limit => {
                    let line = self.buffer.split_to(end);
                    self.buffer.advance(1);
                    self.scanned = 0;
                    if self.buffer.is_empty() {
                        // The memory of a large line goes with it.
                        self.buffer = BytesMut::new();
                    }
                    return Some(LineRead::Line(line));
                }
                None if self.buffer.len() <= self.limit => {
                    self.scanned = self.buffer.len();
                    return None;
                }
                Some(_) | None => {
                    let length = end.unwrap_or(self.buffer.len());
                    let head = self.buffer[..length.min(HEAD)].to_vec();
                    self.scanned = 0;
                    self.is_skipping = true;
                    return Some(LineRead::TooLong(head));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LineRead, LineReader};

    async fn lines(text: &[u8], limit: usize) -> Vec<String> {
        let mut reader = LineReader::new(text, limit);
        let mut found = Vec::new();
        loop {
            match reader.next().await.unwrap() {
                LineRead::Line(line) => found.push(String::from_utf8(line.to_vec()).unwrap()),
                LineRead::TooLong(head) => found.push(format!("long {}", head.len())),
                LineRead::End => return found,
            }
        }
    }

    #[tokio::test]
    async fn lines_come_whole_and_long_ones_are_skipped() {
        let long = "x".repeat(5000) + "\nafter\n";
        for (case, text, limit, want) in [
            ("plain", "a\n\nbc\r\n", 9, vec!["a", "", "bc\r"]),
            ("without an end", "a\nb", 9, vec!["a"]),
            ("at the limit", "abc\nabcd\ne\n", 3, vec!["abc", "long 4", "e"]),
            ("longer than the head", long.as_str(), 2000, vec!["long 1024", "after"]),
        ] {
            assert_eq!(lines(text.as_bytes(), limit).await, want, "{case}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_paced_reader_leaves_a_flood_to_its_writer() {
        let flood = vec![b'x'; 1 << 20];
        let mut reader = LineReader::new(&flood[..], 100).with_pace(64 << 10);
        let begun = tokio::time::Instant::now();
        assert!(matches!(reader.next().await.unwrap(), LineRead::TooLong(_)));
        assert_eq!(reader.next().await.unwrap(), LineRead::End);
        assert!((15..=17).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn an_endless_line_takes_no_memory() {
        let (endless, mut writer) = tokio::io::duplex(64 << 10);
        let mut reader = LineReader::new(endless, 100_000);
        let writing = tokio::spawn(async move {
            for _ in 0..1000 {
                tokio::io::AsyncWriteExt::write_all(&mut writer, &[b'x'; 32 << 10]).await.unwrap();
            }
        });
        assert!(matches!(reader.next().await.unwrap(), LineRead::TooLong(_)));
        assert_eq!(reader.next().await.unwrap(), LineRead::End);
        assert!(reader.buffer.capacity() < 1 << 20, "{}", reader.buffer.capacity());
        writing.await.unwrap();
    }
}
