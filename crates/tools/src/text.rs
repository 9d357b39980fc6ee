//! Sizes, lines and cuts of text.
//!
//! It must not know where a text comes from.

/// The most that a result shows of one output, in bytes.
pub(crate) const SHOWN_BYTES: usize = 50 * 1024;

/// Returns the longest end of `text` of at most `most` bytes that starts with a whole character.
pub(crate) fn end_of(text: &str, most: usize) -> &str {
    let mut from = text.len().saturating_sub(most);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

/// Returns the longest beginning of `text` of at most `most` bytes that ends with a whole character.
pub(crate) fn start_of(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// Counts lines as hosts do: one more than there are line ends, none in an empty text.
pub(crate) fn count_lines(text: &str) -> usize {
    if text.is_empty() { 0 } else { text.bytes().filter(|byte| *byte == b'\n').count() + 1 }
}

/// Formats a size for people.
pub(crate) fn format_size(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "it is rounded anyway")]
    let kib = bytes as f64 / 1024.0;
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{kib:.1} KiB"),
        _ => format!("{:.1} MiB", kib / 1024.0),
    }
}

#[cfg(test)]
mod tests {
    use super::{count_lines, end_of, format_size, start_of};

    #[test]
    fn a_cut_leaves_whole_characters() {
        assert_eq!([end_of("aäö", 3), end_of("aäö", 9), end_of("aäö", 0)], ["ö", "aäö", ""]);
        assert_eq!([start_of("aäö", 2), start_of("aäö", 3), start_of("", 3)], ["a", "aä", ""]);
    }

    #[test]
    fn a_trailing_line_end_counts_one_more_line() {
        assert_eq!(["", "a", "done\n", "a\nb"].map(count_lines), [0, 1, 2, 2]);
    }

    #[test]
    fn a_size_has_a_unit() {
        assert_eq!([0, 51_200, 3 << 20].map(format_size), ["0 B", "50.0 KiB", "3.0 MiB"]);
    }
}
