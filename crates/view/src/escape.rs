//! The one function that all text passes before a person sees it: invisible characters become visible.
//!
//! It must not know where the text is shown; HTML, Markdown and terminals escape their own signs after it.

use std::borrow::Cow;

use self::hidden::HIDDEN;

mod hidden;

/// Line mode of a text: one line or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineMode {
    /// Line ends and tabs are written out too.
    One,
    /// Line ends (`\n`) and tabs stay.
    Many,
}

/// Writes every character of `text` that hides, reorders or ends something as `\u{…}`: control, format, bidirectional,
/// zero-width, unassigned and private characters, and all white space but the blank.
///
/// Different texts stay different: a backslash that only looks like the beginning of such a form is written as
/// `\u{5c}`.
pub fn escape(text: &str, lines: LineMode) -> Cow<'_, str> {
    let Some(first) = next_hidden(text, lines) else { return Cow::Borrowed(text) };
    let mut shown = String::with_capacity(text.len() + 16);
    let (mut rest, mut at) = (text, Some(first));
    while let Some(found) = at {
        let (before, behind) = rest.split_at(found);
        shown.push_str(before);
        let mut letters = behind.chars();
        if let Some(letter) = letters.next() {
            shown.push_str(&format!("\\u{{{:x}}}", u32::from(letter)));
        }
        rest = letters.as_str();
        at = next_hidden(rest, lines);
    }
    shown.push_str(rest);
    Cow::Owned(shown)
}

/// Writes the same characters of a JSON text as JSON escapes (`\uXXXX`): its values stay the same. Line ends between values stay.
pub fn escape_json(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|letter| letter != '\n' && is_hidden(letter)) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 64);
    for letter in text.chars() {
        if letter == '\n' || !is_hidden(letter) {
            shown.push(letter);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            shown.push_str(&format!("\\u{unit:04x}"));
        }
    }
    Cow::Owned(shown)
}

/// Escapes a text in which hidden characters were written out before: those forms stay as they are. The text itself could hold the same
/// forms, so different texts may become the same.
pub fn escape_rest(text: &str, lines: LineMode) -> Cow<'_, str> {
    if !text.contains("\\u{") {
        return escape(text, lines);
    }
    let parts: Vec<Cow<'_, str>> = text.split("\\u{").map(|part| escape(part, lines)).collect();
    parts.join("\\u{").into()
}

/// Returns the position of the next character that must be written out.
fn next_hidden(text: &str, lines: LineMode) -> Option<usize> {
    text.char_indices()
        .find(|(at, letter)| match letter {
            '\n' | '\t' => lines == LineMode::One,
            '\\' => text[at + 1..].starts_with("u{"),
            letter => is_hidden(*letter),
        })
        .map(|(at, _)| at)
}

fn is_hidden(letter: char) -> bool {
    // Most text is this.
    if (' '..='~').contains(&letter) {
        return false;
    }
    let code = u32::from(letter);
    let behind = HIDDEN.partition_point(|(first, _)| *first <= code);
    behind.checked_sub(1).is_some_and(|at| code <= HIDDEN[at].1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{HIDDEN, LineMode, escape, escape_json, escape_rest, is_hidden};

    #[test]
    fn a_json_text_hides_nothing_and_keeps_its_value() {
        let value = serde_json::json!({ "a": "x\u{202e}y\u{9b}\u{7f}\u{e0041}ä \n" });
        let shown = escape_json(&format!("{value:#}")).into_owned();
        assert_eq!(shown, "{\n  \"a\": \"x\\u202ey\\u009b\\u007f\\udb40\\udc41ä \\n\"\n}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }

    /// Reverses the escapes, as a reader could do by hand.
    fn unescape(shown: &str) -> String {
        let mut text = String::new();
        let mut rest = shown;
        while let Some(at) = rest.find("\\u{") {
            let (before, form) = rest.split_at(at);
            text.push_str(before);
            let (digits, behind) = form[3..].split_once('}').unwrap();
            text.push(char::from_u32(u32::from_str_radix(digits, 16).unwrap()).unwrap());
            rest = behind;
        }
        text + rest
    }

    #[test]
    fn what_cannot_be_seen_is_written_out() {
        for (text, one, many) in [
            ("rm -rf ~/x | tee \"y\" # ok", "rm -rf ~/x | tee \"y\" # ok", "rm -rf ~/x | tee \"y\" # ok"),
            ("a\nb\tc", "a\\u{a}b\\u{9}c", "a\nb\tc"),
            ("a\r\nb", "a\\u{d}\\u{a}b", "a\\u{d}\nb"),
            ("\u{1b}[2K\u{7}\0", "\\u{1b}[2K\\u{7}\\u{0}", "\\u{1b}[2K\\u{7}\\u{0}"),
            ("a\u{202e}b\u{2066}c", "a\\u{202e}b\\u{2066}c", "a\\u{202e}b\\u{2066}c"),
            ("z\u{200b}w\u{200d}\u{feff}", "z\\u{200b}w\\u{200d}\\u{feff}", "z\\u{200b}w\\u{200d}\\u{feff}"),
            ("nb\u{a0}sp\u{3000}", "nb\\u{a0}sp\\u{3000}", "nb\\u{a0}sp\\u{3000}"),
            (
                "\u{3164}\u{ad}\u{fe0f}\u{e0041}",
                "\\u{3164}\\u{ad}\\u{fe0f}\\u{e0041}",
                "\\u{3164}\\u{ad}\\u{fe0f}\\u{e0041}",
            ),
            ("\u{2028}\u{2029}\u{85}", "\\u{2028}\\u{2029}\\u{85}", "\\u{2028}\\u{2029}\\u{85}"),
            ("\u{e000}\u{378}\u{10ffff}", "\\u{e000}\\u{378}\\u{10ffff}", "\\u{e000}\\u{378}\\u{10ffff}"),
            ("C:\\users \\n \\u0041", "C:\\users \\n \\u0041", "C:\\users \\n \\u0041"),
            ("\\u{202e}", "\\u{5c}u{202e}", "\\u{5c}u{202e}"),
            ("größer 日本語 שלום 🙂", "größer 日本語 שלום 🙂", "größer 日本語 שלום 🙂"),
        ] {
            assert_eq!(escape(text, LineMode::One), one);
            assert_eq!(escape(text, LineMode::Many), many);
        }
    }

    #[test]
    fn the_ranges_are_in_order_and_hold_the_known_dangers() {
        assert!(HIDDEN.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
        assert!(HIDDEN.iter().all(|(first, last)| first <= last));
        for letter in ('\u{202a}'..='\u{202e}').chain('\u{2060}'..='\u{206f}').chain('\u{200b}'..='\u{200f}') {
            assert!(is_hidden(letter), "{letter:?}");
        }
        assert!((char::MIN..='\u{1f}').chain('\u{7f}'..='\u{9f}').all(is_hidden));
        assert!(!(' '..='~').any(is_hidden));
    }

    proptest! {
        #[test]
        fn nothing_hidden_survives_and_nothing_is_lost(text in any::<String>(), tail in "[\\\\u{}a-f0-9\n\t]*") {
            let text = text + &tail;
            for lines in [LineMode::One, LineMode::Many] {
                let shown = escape(&text, lines);
                let kept = |letter: char| lines == LineMode::Many && (letter == '\n' || letter == '\t');
                prop_assert!(!shown.chars().any(|letter| is_hidden(letter) && !kept(letter)));
                prop_assert_eq!(unescape(&shown), text.clone());
            }
        }
    }

    #[test]
    fn forms_that_were_written_out_before_are_not_written_out_again() {
        for (text, want) in [
            ("plain", "plain"),
            ("a\\u{202e}b", "a\\u{202e}b"),
            ("a\\u{202e}b\u{202e}\nc", "a\\u{202e}b\\u{202e}\\u{a}c"),
            ("\u{200b}", "\\u{200b}"),
        ] {
            assert_eq!(escape_rest(text, LineMode::One), want);
        }
    }
}
