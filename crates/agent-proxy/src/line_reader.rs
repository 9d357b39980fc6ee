//! Lines of a stream, up to a limit.

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// Longest line, in bytes.
pub const LARGEST_LINE: usize = 32 << 20;
/// Number of bytes that are read at once.
const CHUNK: usize = 64 * 1024;

/// Part of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadLine {
    /// Line with its end. The last one of a stream may have none.
    Line(Vec<u8>),
    /// Line that was longer than the limit. Its bytes are gone.
    TooLong,
}

/// Reader of the lines of a stream.
pub(crate) struct LineReader<R> {
    reading: BufReader<R>,
    line: Vec<u8>,
    largest: usize,
    skips: bool,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(crate) fn new(reading: R, largest: usize) -> Self {
        Self { reading: BufReader::with_capacity(CHUNK, reading), line: Vec::new(), largest, skips: false }
    }

    /// Returns the next line, or none at the end. Dropping the future loses no byte.
    pub(crate) async fn next(&mut self) -> std::io::Result<Option<ReadLine>> {
        loop {
            let bytes = self.reading.fill_buf().await?;
            if bytes.is_empty() {
                let line = std::mem::take(&mut self.line);
                return Ok(match (std::mem::take(&mut self.skips), line.is_empty()) {
                    (true, _) => Some(ReadLine::TooLong),
                    (false, true) => None,
                    (false, false) => Some(ReadLine::Line(line)),
                });
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(bytes.len(), |end| end + 1);
            if !self.skips {
                self.line.extend_from_slice(&bytes[..taken]);
            }
            self.reading.consume(taken);
            if self.line.len() > self.largest {
                self.line = Vec::new();
                self.skips = true;
            }
            if end.is_some() {
                let line = std::mem::take(&mut self.line);
                return Ok(Some(if std::mem::take(&mut self.skips) {
                    ReadLine::TooLong
                } else {
                    ReadLine::Line(line)
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LineReader, ReadLine};

    async fn lines(input: &[u8], largest: usize) -> Vec<ReadLine> {
        let mut reader = LineReader::new(input, largest);
        let mut lines = Vec::new();
        while let Some(line) = reader.next().await.unwrap() {
            lines.push(line);
        }
        lines
    }

    #[tokio::test]
    async fn a_line_keeps_its_bytes_and_a_longer_one_is_skipped_whole() {
        let line = |text: &str| ReadLine::Line(text.as_bytes().to_vec());
        for (case, input, want) in [
            ("two lines", "a\nbc\r\n", vec![line("a\n"), line("bc\r\n")]),
            ("no end", "a\nb", vec![line("a\n"), line("b")]),
            ("empty", "\n\n", vec![line("\n"), line("\n")]),
            ("nothing", "", vec![]),
            ("the limit", "12345\n", vec![line("12345\n")]),
            ("longer", "123456\nx\n", vec![ReadLine::TooLong, line("x\n")]),
            ("longer at the end", "1234567", vec![ReadLine::TooLong]),
        ] {
            assert_eq!(lines(input.as_bytes(), 6).await, want, "{case}");
        }
    }
}
