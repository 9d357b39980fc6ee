//! Passes the lines of a stream on, counts what belongs to events, and makes events of errors and objects on lines that
//! are no field.
//!
//! It must not know events: those are put together from its output lines.

use bytes::Bytes;
use serde_json::{Map, Value};

/// The name of the event that an object on a line of its own becomes.
pub(super) const OBJECT: &str = "object-line";

/// The name of the event that an `error:` line becomes.
pub(super) const ERROR: &str = "error-line";

/// The longest line that may be held until its end.
const HELD_LIMIT: usize = 64 << 10;

/// Position of a stream in its lines.
#[derive(Clone, Copy, Default)]
enum LinePosition {
    #[default]
    LineStart,
    Comment,
    Field,
    /// A line that is held until its end: an object, or a field whose name may be `error`.
    Held,
}

/// The lines of one stream.
///
/// Some servers write an error as a bare JSON object, or after `error:`, between the events of a stream. The standard
/// has readers ignore both.
#[derive(Default)]
pub(super) struct LineFilter {
    place: LinePosition,
    held: Vec<u8>,
    /// An object that came before any field: the body may be no stream of events.
    early: Option<Vec<u8>>,
    /// True if a field of an event came.
    has_field: bool,
}

impl LineFilter {
    /// Passes a chunk, and returns how many bytes of it are neither comment nor white space.
    pub(super) fn pass_chunk(&mut self, chunk: Bytes) -> (Bytes, usize) {
        let mut grown = 0;
        let mut changed: Option<Vec<u8>> = None;
        let mut next = 0;
        while let Some(byte) = chunk.get(next).copied() {
            if matches!(self.place, LinePosition::Field | LinePosition::Comment) {
                let rest = &chunk[next..];
                let line = &rest[..memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len())];
                if !line.is_empty() {
                    if matches!(self.place, LinePosition::Field) {
                        grown += count_dense(line);
                    }
                    if let Some(changed) = &mut changed {
                        changed.extend_from_slice(line);
                    }
                    next += line.len();
                    continue;
                }
            }
            let at = next;
            next += 1;
            let is_end = matches!(byte, b'\n' | b'\r');
            let begins_data = !self.has_field && byte == b'd' && matches!(self.place, LinePosition::LineStart);
            self.place = match self.place {
                LinePosition::Held if is_end => LinePosition::Held,
                _ if is_end => LinePosition::LineStart,
                LinePosition::LineStart if byte == b':' => LinePosition::Comment,
                LinePosition::LineStart if matches!(byte, b'{' | b'e') => LinePosition::Held,
                LinePosition::LineStart => LinePosition::Field,
                place => place,
            };
            let is_comment = matches!(self.place, LinePosition::Comment);
            grown += usize::from(!is_comment && !byte.is_ascii_whitespace());
            if !matches!(self.place, LinePosition::Held) {
                if begins_data {
                    self.begin_fields(changed.get_or_insert_with(|| chunk[..at].to_vec()));
                }
                if let Some(changed) = &mut changed {
                    changed.push(byte);
                }
                continue;
            }
            let out = changed.get_or_insert_with(|| chunk[..at].to_vec());
            if is_end {
                self.release_line(out);
                out.push(byte);
            } else {
                self.held.push(byte);
                if self.held.len() > HELD_LIMIT {
                    out.append(&mut self.held);
                    self.place = LinePosition::Field;
                }
            }
        }
        (changed.map_or(chunk, Bytes::from), grown)
    }

    /// Ends the stream: returns the held bytes, and the blank line that servers forget after their last event.
    pub(super) fn finish(&mut self) -> Bytes {
        let mut out = Vec::new();
        self.release_line(&mut out);
        out.extend(b"\n\n");
        out.into()
    }

    /// Passes the held line on, as an event if it is one.
    fn release_line(&mut self, out: &mut Vec<u8>) {
        self.place = LinePosition::LineStart;
        let line = std::mem::take(&mut self.held);
        let is_object = |text: &[u8]| serde_json::from_slice::<Map<String, Value>>(text).is_ok();
        let error = line.strip_prefix(b"error:").filter(|error| serde_json::from_slice::<Value>(error).is_ok());
        if let Some(error) = error {
            self.begin_fields(out);
            extend_with_event(out, ERROR, error.trim_ascii());
        } else if !is_object(&line) {
            if line.starts_with(b"event:") {
                self.begin_fields(out);
            }
            out.extend(line);
        } else if self.has_field {
            extend_with_event(out, OBJECT, &line);
        } else {
            out.extend(&line);
            self.early.get_or_insert(line);
        }
    }

    /// Learns that this is a stream of events, in which an earlier object is one too.
    fn begin_fields(&mut self, out: &mut Vec<u8>) {
        self.has_field = true;
        if let Some(line) = self.early.take() {
            extend_with_event(out, OBJECT, &line);
            out.push(b'\n');
        }
    }
}

/// Returns the number of bytes that are not white space. Nearly all bytes of a stream go through this, many at a time.
fn count_dense(line: &[u8]) -> usize {
    // Without branches, and in as many bytes as the sum of ones that one byte can hold.
    let is_blank = |byte: u8| (byte == b' ') | (byte == b'\t') | (byte == b'\n') | (byte == b'\x0C') | (byte == b'\r');
    let of_piece = |piece: &[u8]| piece.iter().map(|&byte| u8::from(!is_blank(byte))).sum::<u8>();
    line.chunks(usize::from(u8::MAX)).map(|piece| usize::from(of_piece(piece))).sum()
}

/// Adds an event without the blank line that ends it.
fn extend_with_event(out: &mut Vec<u8>, name: &str, data: &[u8]) {
    out.extend([b"\nevent: ", name.as_bytes(), b"\ndata: ", data, b"\n"].concat());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_an_error_or_an_object_becomes_an_event() {
        for (lines, want) in [
            (
                "data: a\n\n{\"b\":1}\n\ndata: c\n\n",
                "data: a\n\n\nevent: object-line\ndata: {\"b\":1}\n\n\ndata: c\n\n\n\n",
            ),
            ("data: a\n{\"b\":1}\ndata: c\n", "data: a\n\nevent: object-line\ndata: {\"b\":1}\n\ndata: c\n\n\n"),
            ("data: a\n\n{\"b\":1}", "data: a\n\n\nevent: object-line\ndata: {\"b\":1}\n\n\n"),
            ("{\"b\":1}\ndata: c\n\n", "{\"b\":1}\n\nevent: object-line\ndata: {\"b\":1}\n\ndata: c\n\n\n\n"),
            ("error: {\"b\":1}\n\n", "\nevent: error-line\ndata: {\"b\":1}\n\n\n\n\n"),
            // No stream of events.
            ("{\"b\":1}\n{\"b\":2}\n", "{\"b\":1}\n{\"b\":2}\n\n\n"),
            ("{\n \"b\":1\n}\n", "{\n \"b\":1\n}\n\n\n"),
            // Fields and comments.
            ("event: e\r\ndata: {\"b\":1}\r\n\r\n", "event: e\r\ndata: {\"b\":1}\r\n\r\n\n\n"),
            ("data: a\n\nerror: down\n{no\n: {}\n", "data: a\n\nerror: down\n{no\n: {}\n\n\n"),
        ] {
            for size in [1, 3, 1000] {
                let mut passer = LineFilter::default();
                let chunks = lines.as_bytes().chunks(size).map(Bytes::copy_from_slice);
                let mut got: Vec<u8> = chunks.flat_map(|chunk| passer.pass_chunk(chunk).0).collect();
                got.extend(passer.finish());
                assert_eq!(String::from_utf8(got).unwrap(), want, "{lines:?} by {size}");
            }
        }
    }

    #[test]
    fn comments_and_white_space_are_not_counted() {
        let mut lines = LineFilter::default();
        let long = "a b".repeat(1000);
        assert_eq!(lines.pass_chunk(Bytes::from(long)).1, 2000);
        assert_eq!(lines.pass_chunk(Bytes::from_static(b"\n")).1, 0);
        for (chunk, want) in [(" ", 0), (" \n: here\n\t\r\n", 0), ("data", 4), (": x ", 2), ("\n:x", 0), ("\n{} ", 2)] {
            assert_eq!(lines.pass_chunk(Bytes::from_static(chunk.as_bytes())).1, want, "{chunk:?}");
        }
    }
}
