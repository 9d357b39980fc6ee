//! The end of an output, counted in characters.
//!
//! It must not know where an output comes from.

/// The most characters that are kept.
pub(super) const KEPT: usize = 200_000;
/// The characters of a tail.
pub(super) const TAIL: usize = 4000;

/// Takes an output in and keeps its end.
#[derive(Debug, Default)]
pub(super) struct OutputCapture {
    text: String,
    chars: usize,
    /// The beginning of a character whose end has not come.
    open: Vec<u8>,
    truncated: bool,
}

impl OutputCapture {
    /// Adds output. Bytes that are not UTF-8 are marked.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.open.extend_from_slice(bytes);
        let open = std::mem::take(&mut self.open);
        let mut rest = open.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    self.add_text(text);
                    break;
                }
                Err(error) => {
                    let (good, bad) = rest.split_at(error.valid_up_to());
                    self.add_text(&String::from_utf8_lossy(good));
                    match error.error_len() {
                        Some(length) => {
                            self.add_text("\u{FFFD}");
                            rest = &bad[length..];
                        }
                        None => {
                            self.open = bad.to_vec();
                            break;
                        }
                    }
                }
            }
        }
        // Cut in large steps: each one moves all that is kept.
        if self.chars > KEPT + KEPT / 4 {
            self.cut_to_limit();
        }
    }

    /// Ends the output.
    pub(super) fn close(&mut self) {
        if !std::mem::take(&mut self.open).is_empty() {
            self.add_text("\u{FFFD}");
        }
        self.cut_to_limit();
    }

    fn add_text(&mut self, text: &str) {
        self.text.push_str(text);
        self.chars += text.chars().count();
    }

    fn cut_to_limit(&mut self) {
        if self.chars > KEPT {
            self.text = last_chars(&self.text, KEPT).to_owned();
            self.chars = KEPT;
            self.truncated = true;
        }
    }

    /// Returns the kept output.
    pub(super) fn kept_text(&self) -> &str {
        last_chars(&self.text, KEPT)
    }

    /// Returns the very end of the output.
    pub(super) fn tail_text(&self) -> &str {
        last_chars(&self.text, TAIL)
    }

    /// Returns true if the beginning is not kept.
    pub(super) const fn is_truncated(&self) -> bool {
        self.truncated || self.chars > KEPT
    }
}

/// Returns the last `count` characters of a text.
fn last_chars(text: &str, count: usize) -> &str {
    // None has more than four bytes: where there are fewer, nothing needs to be counted.
    if text.len() <= count {
        return text;
    }
    let cut = text.char_indices().rev().nth(count - 1).map_or(0, |(at, _)| at);
    &text[cut..]
}

#[cfg(test)]
mod tests {
    use super::{KEPT, OutputCapture, TAIL};

    #[test]
    fn characters_that_come_in_pieces_are_put_together_and_others_marked() {
        let mut capture = OutputCapture::default();
        for bytes in ["a\u{e4}".as_bytes(), &[0xE2], &[0x82], &[0xAC, b'b'], &[0xFF, b'c'], &[0xE2, 0x82]] {
            capture.push(bytes);
        }
        assert_eq!(capture.kept_text(), "aä€b\u{FFFD}c");
        capture.close();
        assert_eq!(capture.kept_text(), "aä€b\u{FFFD}c\u{FFFD}");
    }

    #[test]
    fn the_end_is_kept() {
        let mut capture = OutputCapture::default();
        for _ in 0..KEPT / 10 {
            capture.push("äbcdefghij".as_bytes());
        }
        assert!(!capture.is_truncated());
        assert_eq!((capture.kept_text().chars().count(), capture.tail_text().chars().count()), (KEPT, TAIL));
        capture.push("end".as_bytes());
        assert!(capture.is_truncated() && capture.kept_text().ends_with("ijend"));
        assert_eq!(capture.kept_text().chars().count(), KEPT);
        capture.push(&vec![b'x'; KEPT]);
        capture.close();
        assert_eq!((capture.kept_text().len(), capture.is_truncated()), (KEPT, true));
    }
}
