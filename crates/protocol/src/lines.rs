//! Cuts a byte stream into JSON lines, for chunks of any size.
//!
//! It must not know the meaning of a line: text goes out as it came in. Source: docs/protocol/omp.md, Transport.

use bytes::{Buf, BytesMut};

/// Longest line that [`LineDecoder::default`] accepts: 64 MiB of payload and room for the frame around it.
pub const DEFAULT_LIMIT: usize = 64 * 1024 * 1024 + 64 * 1024;

/// One line of the stream, or the reason that it cannot be read. The stream continues after each of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodedLine {
    /// The line without its end (`\n` or `\r\n`). Never blank.
    Text(String),
    /// More than `limit` bytes came before a line break. Reported once; the rest of that line is dropped unread.
    TooLong {
        /// The most bytes that a line may have.
        limit: usize,
    },
    /// The bytes are not UTF-8.
    NotUtf8,
}

/// Decodes JSON lines from chunks of any size.
///
/// Push a chunk, then take lines until there is none: between two chunks it holds at most one unfinished line. Lines end at the
/// byte 0x0A only, because U+2028 and U+2029 may occur in a JSON string as they are.
///
/// # Example
///
/// ```
/// use countersign_protocol::lines::{DecodedLine, LineDecoder};
///
/// let mut decoder = LineDecoder::new(16);
/// decoder.push(b"{\"id\":1}\n{\"id");
/// assert_eq!(decoder.next_line(), Some(DecodedLine::Text("{\"id\":1}".to_owned())));
/// assert_eq!(decoder.next_line(), None, "the second line is not complete");
/// decoder.push(b"\":2}\n");
/// assert_eq!(decoder.next_line(), Some(DecodedLine::Text("{\"id\":2}".to_owned())));
/// ```
#[derive(Debug)]
pub struct LineDecoder {
    buffer: BytesMut,
    /// Number of bytes of `buffer` that are known to hold no line break.
    searched: usize,
    rest_of_line: RestOfLine,
    limit: usize,
    not_utf8: Utf8Policy,
}

/// Handling of a line that is not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Utf8Policy {
    Reported,
    Replaced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RestOfLine {
    Kept,
    Dropped,
}

impl Default for LineDecoder {
    fn default() -> Self {
        Self::new(DEFAULT_LIMIT)
    }
}

impl LineDecoder {
    /// Starts at the beginning of a stream. `limit` counts the bytes before the line break.
    pub fn new(limit: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            searched: 0,
            rest_of_line: RestOfLine::Kept,
            limit,
            not_utf8: Utf8Policy::Reported,
        }
    }

    /// Reads bytes that are not UTF-8 as U+FFFD from now on, in place of giving up their line.
    pub fn with_lossy_utf8(self) -> Self {
        Self { not_utf8: Utf8Policy::Replaced, ..self }
    }

    /// Appends what was read.
    pub fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// Takes the next line that is complete or known to be too long.
    pub fn next_line(&mut self) -> Option<DecodedLine> {
        loop {
            let found = self.buffer[self.searched..].iter().position(|&byte| byte == b'\n');
            let Some(length) = found.map(|at| self.searched + at) else {
                return self.without_line_break();
            };
            let line = self.buffer.split_to(length);
            self.buffer.advance(1);
            self.searched = 0;
            if self.rest_of_line == RestOfLine::Dropped {
                self.rest_of_line = RestOfLine::Kept;
                continue;
            }
            if let Some(line) = self.decode_line(&line) {
                return Some(line);
            }
        }
    }

    /// Ends the stream and returns the text after the last line break, if that was not blank.
    ///
    /// Take all lines first. The caller decides whether an unfinished line still counts.
    pub fn finish(self) -> Option<DecodedLine> {
        match self.rest_of_line {
            RestOfLine::Dropped => None,
            RestOfLine::Kept => self.decode_line(&self.buffer),
        }
    }

    fn without_line_break(&mut self) -> Option<DecodedLine> {
        if self.rest_of_line == RestOfLine::Dropped {
            self.buffer.clear();
        } else if self.buffer.len() > self.limit {
            // A new buffer, so that one long line does not hold its memory for the life of the stream.
            self.buffer = BytesMut::new();
            self.searched = 0;
            self.rest_of_line = RestOfLine::Dropped;
            return Some(DecodedLine::TooLong { limit: self.limit });
        }
        self.searched = self.buffer.len();
        None
    }

    fn decode_line(&self, line: &[u8]) -> Option<DecodedLine> {
        if line.len() > self.limit {
            return Some(DecodedLine::TooLong { limit: self.limit });
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r')) {
            return None;
        }
        Some(match (std::str::from_utf8(line), self.not_utf8) {
            (Ok(text), _) => DecodedLine::Text(text.to_owned()),
            (Err(_), Utf8Policy::Reported) => DecodedLine::NotUtf8,
            (Err(_), Utf8Policy::Replaced) => DecodedLine::Text(String::from_utf8_lossy(line).into_owned()),
        })
    }
}

/// Checks, for a fuzz loop, that `bytes` give the same lines whole and in chunks.
///
/// The first byte chooses the size of the chunks and the limit.
///
/// # Panics
/// If the two differ, which is the fault the loop looks for.
#[cfg(feature = "fuzzing")]
pub fn fuzz(bytes: &[u8]) {
    let Some((&choice, stream)) = bytes.split_first() else { return };
    let limit = usize::from(choice >> 4) + 1;
    let size = usize::from(choice & 15) + 1;
    assert_eq!(
        decode_lines(limit, stream.chunks(size)),
        decode_lines(limit, [stream]),
        "limit {limit}, chunks of {size}"
    );
}

#[cfg(feature = "fuzzing")]
fn decode_lines<'a>(limit: usize, chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<DecodedLine> {
    let mut lines = LineDecoder::new(limit);
    let mut seen = Vec::new();
    for chunk in chunks {
        lines.push(chunk);
        while let Some(line) = lines.next_line() {
            seen.push(line);
        }
    }
    seen.extend(lines.finish());
    seen
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(line: &str) -> DecodedLine {
        DecodedLine::Text(line.to_owned())
    }

    #[test]
    fn lines_end_at_a_line_feed_only_and_blank_ones_are_skipped() {
        let long = DecodedLine::TooLong { limit: 8 };
        for (case, stream, want) in [
            ("two lines", &b"{}\n[]\n"[..], vec![text("{}"), text("[]")]),
            ("carriage returns", b"{}\r\n[]\r\n", vec![text("{}"), text("[]")]),
            ("blank lines", b"\n\r\n \t \n{}\n\n", vec![text("{}")]),
            ("separators of unicode", "\"\u{2028}\u{2029}\"\n".as_bytes(), vec![text("\"\u{2028}\u{2029}\"")]),
            ("no end", b"{}\n[1", vec![text("{}"), text("[1")]),
            ("blank at the end", b"{}\n  ", vec![text("{}")]),
            ("at the limit", b"12345678\n{}\n", vec![text("12345678"), text("{}")]),
            ("over the limit", b"123456789\n{}\n", vec![long.clone(), text("{}")]),
            ("far over the limit", b"1234567890123456789012\n{}\n", vec![long.clone(), text("{}")]),
            ("over the limit without end", b"{}\n123456789", vec![text("{}"), long]),
            ("not utf-8", b"\xff\xfe{\n{}\n", vec![DecodedLine::NotUtf8, text("{}")]),
        ] {
            assert_eq!(decode_lines(8, [stream]), want, "{case}");
            assert_eq!(decode_lines(8, stream.chunks(1)), want, "{case}, byte by byte");
        }
    }

    #[test]
    fn a_lossy_stream_gives_up_no_line_for_its_bytes() {
        let mut lines = LineDecoder::new(64).with_lossy_utf8();
        lines.push(b"{\"a\":\"\xff\xfe\"}\n");
        assert_eq!(lines.next_line(), Some(text("{\"a\":\"\u{fffd}\u{fffd}\"}")));
    }

    #[test]
    fn a_line_that_is_too_long_is_reported_before_it_ends_and_not_buffered() {
        let mut lines = LineDecoder::new(4);
        lines.push(b"123456");
        assert_eq!(lines.next_line(), Some(DecodedLine::TooLong { limit: 4 }));
        for _ in 0..100 {
            lines.push(b"789012");
            assert_eq!(lines.next_line(), None);
            assert_eq!(lines.buffer.len(), 0);
        }
        lines.push(b"\n{}\n");
        assert_eq!(lines.next_line(), Some(text("{}")));
    }

    proptest! {
        #[test]
        fn the_lines_do_not_depend_on_the_chunks(
            stream in proptest::collection::vec(prop_oneof![3 => Just(b'\n'), 1 => Just(b'\r'), 1 => Just(b' '), 9 => any::<u8>()], 0..200),
            cuts in proptest::collection::vec(0..200usize, 0..20),
            limit in 1..40usize,
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let chunks = cuts.windows(2).map(|pair| &stream[pair[0]..pair[1]]);
            prop_assert_eq!(decode_lines(limit, chunks), decode_lines(limit, [&stream[..]]));
        }

        #[test]
        fn the_fuzz_entry_finds_no_fault(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            fuzz(&bytes);
        }
    }
}
