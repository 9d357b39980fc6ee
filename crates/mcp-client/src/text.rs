//! Texts of servers for people and logs: one line, without characters that hide something, cut.

/// Longest excerpt of a text of a server in an error or a log line, in bytes.
pub(crate) const EXCERPT: usize = 400;

/// Returns the beginning of `text` on one line, with control and format characters as `\u{…}`.
pub(crate) fn printable_excerpt(text: &str) -> String {
    let text = text.trim();
    let cut = &text[..text.floor_char_boundary(EXCERPT)];
    let mut shown = String::with_capacity(cut.len());
    for letter in cut.chars() {
        if letter.is_control() || is_format(letter) {
            shown.extend(letter.escape_unicode());
        } else {
            shown.push(letter);
        }
    }
    if cut.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// Returns true for characters that are not visible or change the order of others.
pub(crate) const fn is_format(letter: char) -> bool {
    matches!(
        letter,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

#[cfg(test)]
mod tests {
    use super::{EXCERPT, printable_excerpt};

    #[test]
    fn an_excerpt_is_one_line_without_hidden_characters() {
        for (given, want) in [
            (" plain ä ", "plain ä"),
            ("a\nb\u{1b}[2J", "a\\u{a}b\\u{1b}[2J"),
            ("a\u{202e}b\u{200b}", "a\\u{202e}b\\u{200b}"),
        ] {
            assert_eq!(printable_excerpt(given), want);
        }
        assert_eq!(printable_excerpt(&"ä".repeat(EXCERPT)), "ä".repeat(EXCERPT / 2) + "…");
    }
}
