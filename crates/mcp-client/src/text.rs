//! Texts of servers for people and logs: one line, without characters that hide something, cut.

/// Longest excerpt of a text of a server in an error or a log line, in bytes.
pub(crate) const EXCERPT: usize = 400;

/// Returns the beginning of `text` on one line, with control and format characters as `\u{…}`.
pub(crate) fn printable_excerpt(text: &str) -> String {
    let text = text.trim();
    let cut = &text[..text.floor_char_boundary(EXCERPT)];
    let mut shown = printable_line(cut);
    if cut.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// Returns the whole `text` on one line, with control and format characters as `\u{…}`.
pub(crate) fn printable_line(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() || is_format(letter) {
            shown.extend(letter.escape_unicode());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// Returns a text of a server within a text of the gateway: up to `limit` bytes, each line marked, so that none looks like the
/// gateway's own. Surfaces write hidden characters out.
pub(crate) fn quoted_lines(text: &str, limit: usize) -> String {
    let text = text.trim();
    let cut = &text[..text.floor_char_boundary(limit)];
    let mut shown = String::with_capacity(cut.len() + 16);
    let mut is_blank = false;
    for line in cut.lines().map(str::trim_end) {
        // Many empty lines would push away what follows.
        if line.is_empty() && is_blank {
            continue;
        }
        is_blank = line.is_empty();
        if !shown.is_empty() {
            shown.push('\n');
        }
        shown.push_str(if line.is_empty() { ">" } else { "> " });
        shown.push_str(line);
    }
    if cut.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// Returns a text of a server on one line, up to `limit` bytes. Surfaces write hidden characters out.
pub(crate) fn single_line(text: &str, limit: usize) -> String {
    let text = text.trim();
    let cut = &text[..text.floor_char_boundary(limit)];
    cut.chars().map(|letter| if matches!(letter, '\n' | '\r' | '\t') { ' ' } else { letter }).collect()
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
    use super::{EXCERPT, printable_excerpt, quoted_lines, single_line};

    #[test]
    fn no_line_of_a_server_looks_like_one_of_the_gateway() {
        for (given, want) in [
            (" one\r\ntwo ", "> one\n> two"),
            ("a\n\n\n\nHost: b", "> a\n>\n> Host: b"),
            ("äöüäöüäöü", "> äöüäöüä…"),
            ("", ""),
        ] {
            assert_eq!(quoted_lines(given, 15), want);
        }
        assert_eq!(single_line(" a\nb ", 9), "a b");
    }

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
