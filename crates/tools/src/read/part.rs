//! Some lines of a text, read without holding the rest.
//!
//! It must not know where the text comes from.

use std::io::{self, BufRead, BufReader, Read};

use crate::text::start_of;

/// Most bytes after the last shown line in which further lines are counted.
const COUNTED: u64 = 256 << 20;

/// Range of lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineRange {
    /// First line, from 1.
    pub(crate) first: usize,
    pub(crate) lines: usize,
    /// The most that all of them together may have.
    pub(crate) bytes: usize,
}

/// The requested lines, as far as they fit.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TextExcerpt {
    /// Without their ends; what is no UTF-8 is marked.
    pub(crate) lines: Vec<String>,
    /// Lines of the whole text, a line end at the very end counting no other; absent if it is too long to count.
    pub(crate) total: Option<usize>,
    /// True if the size rather than the number of lines was the limit.
    pub(crate) by_bytes: bool,
    /// True if the only line is shown in part.
    pub(crate) is_cut: bool,
    pub(crate) ends_with_line_end: bool,
}

/// Reads until enough is known, or until `stopped` returns true.
pub(crate) fn read_excerpt(text: impl Read, range: LineRange, stopped: impl Fn() -> bool) -> io::Result<TextExcerpt> {
    let mut text = BufReader::with_capacity(64 << 10, text);
    let mut part = TextExcerpt::default();
    let mut number = 0;
    let mut bytes = 0;
    while let Some(line) = next_line(&mut text, range.bytes)? {
        if stopped() {
            return Err(io::Error::other("reading was stopped"));
        }
        number += 1;
        part.ends_with_line_end = line.ended;
        if number < range.first || part.by_bytes || part.is_cut {
            continue;
        }
        if part.lines.len() == range.lines {
            continue;
        }
        let mut start = line.start.as_slice();
        if number == 1 {
            start = start.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(start);
        }
        let content = String::from_utf8_lossy(start.strip_suffix(b"\r").unwrap_or(start)).into_owned();
        if part.lines.is_empty() && (line.is_cut || content.len() > range.bytes) {
            part.is_cut = true;
            part.lines.push(start_of(&content, range.bytes).to_owned());
            continue;
        }
        bytes += content.len() + 1;
        if line.is_cut || bytes > range.bytes {
            part.by_bytes = true;
            continue;
        }
        part.lines.push(content);
        if part.lines.len() == range.lines {
            return count_rest(text, part, number, stopped);
        }
    }
    part.total = Some(number);
    Ok(part)
}

struct BoundedLine {
    /// Without its end; no more than can be shown.
    start: Vec<u8>,
    is_cut: bool,
    ended: bool,
}

/// Reads a line but holds no more of it than can be shown.
fn next_line(text: &mut impl BufRead, most: usize) -> io::Result<Option<BoundedLine>> {
    let mut line = BoundedLine { start: Vec::new(), is_cut: false, ended: false };
    let mut any = false;
    loop {
        let chunk = text.fill_buf()?;
        if chunk.is_empty() {
            return Ok(any.then_some(line));
        }
        any = true;
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let piece = &chunk[..end.unwrap_or(chunk.len())];
        let room = (most + 4).saturating_sub(line.start.len());
        line.start.extend_from_slice(&piece[..piece.len().min(room)]);
        line.is_cut |= piece.len() > room;
        let used = end.map_or(chunk.len(), |end| end + 1);
        text.consume(used);
        if end.is_some() {
            line.ended = true;
            return Ok(Some(line));
        }
    }
}

fn count_rest(
    mut text: impl BufRead,
    mut part: TextExcerpt,
    mut number: usize,
    stopped: impl Fn() -> bool,
) -> io::Result<TextExcerpt> {
    let mut counted = 0;
    let mut open = false;
    loop {
        if stopped() {
            return Err(io::Error::other("reading was stopped"));
        }
        let chunk = text.fill_buf()?;
        if chunk.is_empty() {
            if open {
                number += 1;
                part.ends_with_line_end = false;
            } else if counted > 0 {
                part.ends_with_line_end = true;
            }
            part.total = Some(number);
            return Ok(part);
        }
        number += chunk.iter().filter(|byte| **byte == b'\n').count();
        open = chunk.last() != Some(&b'\n');
        let used = chunk.len();
        counted += used as u64;
        text.consume(used);
        if counted > COUNTED {
            return Ok(part);
        }
    }
}
