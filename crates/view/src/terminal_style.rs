//! Colours of what is printed, on a terminal only.
//!
//! It must not know what the text says.

use std::{fmt, io::IsTerminal as _};

use unicode_width::UnicodeWidthChar as _;

/// Style of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextStyle {
    /// A heading, a name.
    Strong,
    /// Text for reference.
    Faint,
    /// Allowed, intact, added.
    Good,
    /// Denied, broken, removed.
    Bad,
    /// Text that waits for an answer.
    Asking,
}

impl TextStyle {
    const fn ansi_code(self) -> &'static str {
        match self {
            Self::Strong => "1",
            Self::Faint => "2",
            Self::Good => "32",
            Self::Bad => "31",
            Self::Asking => "1;33",
        }
    }
}

/// Selects whether text is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColourMode {
    Coloured,
    Plain,
}

impl ColourMode {
    /// Colours if standard output is a terminal that can and `NO_COLOR` is not set.
    pub fn for_stdout() -> Self {
        let is_permitted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let able = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        if is_permitted && able && std::io::stdout().is_terminal() { Self::Coloured } else { Self::Plain }
    }

    /// Returns `text` in `tone`.
    pub fn apply_style<T: fmt::Display>(self, tone: TextStyle, text: T) -> String {
        match self {
            Self::Coloured => format!("\u{1b}[{}m{text}\u{1b}[0m", tone.ansi_code()),
            Self::Plain => text.to_string(),
        }
    }
}

/// Returns the number of terminal cells of a character. A sign that turns it into a picture makes it wider.
fn char_width(letter: char) -> usize {
    if letter == '\u{fe0f}' { 1 } else { letter.width().unwrap_or(0) }
}

/// Returns the maximum number of terminal cells of `text`.
pub fn text_width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

/// Returns the number of bytes of `text` that fit into so many columns.
fn fitting_bytes(text: &str, columns: usize) -> usize {
    let mut taken = 0;
    let beyond = text.char_indices().find(|(_, letter)| {
        taken += char_width(*letter);
        taken > columns
    });
    beyond.map_or(text.len(), |(at, _)| at)
}

/// Returns `text` in at most so many columns; what was cut shows as an ellipsis.
pub fn cut_to_width(text: &str, columns: usize) -> String {
    if text_width(text) <= columns {
        return text.to_owned();
    }
    let mut cut = text[..fitting_bytes(text, columns.saturating_sub(1))].to_owned();
    if columns > 0 {
        cut.push('…');
    }
    cut
}

/// Returns the end of `text` that fits into so many columns.
pub fn end_of_width(text: &str, columns: usize) -> &str {
    let mut taken = 0;
    let beyond = text.char_indices().rev().find(|(_, letter)| {
        taken += char_width(*letter);
        taken > columns
    });
    beyond.map_or(text, |(at, letter)| &text[at + letter.len_utf8()..])
}

/// Returns the number of columns of the terminal on standard output. None if it is none.
pub fn terminal_columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Splits `line` into lines of at most so many columns, which break after a blank where one is in their second half. Together they equal
/// `line`. A character that is wider than a line stands alone.
pub fn wrap_line(line: &str, columns: usize) -> Vec<String> {
    let (mut lines, mut rest) = (Vec::new(), line);
    loop {
        let first = rest.chars().next().map_or(0, char::len_utf8);
        let mut fits = fitting_bytes(rest, columns).max(first);
        let is_within = rest[fits..].starts_with(|letter| letter != ' ');
        if is_within && let Some(blank) = rest[..fits].rfind(' ').filter(|blank| blank * 2 >= fits) {
            fits = blank + 1;
        }
        let (fits, behind) = rest.split_at(fits);
        lines.push(fits.to_owned());
        if behind.is_empty() {
            return lines;
        }
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::{ColourMode, TextStyle, cut_to_width, end_of_width, wrap_line};

    #[test]
    fn a_text_is_cut_where_the_columns_end_and_says_so() {
        for (text, columns, want) in [
            ("four", 4, "four"),
            ("fives", 4, "fiv…"),
            ("größe", 4, "grö…"),
            ("", 0, ""),
            ("漢字", 4, "漢字"),
            ("漢字", 3, "漢…"),
            ("漢字漢", 4, "漢…"),
            ("🔥🔥", 3, "🔥…"),
        ] {
            assert_eq!(cut_to_width(text, columns), want, "{text} in {columns}");
        }
        assert_eq!([end_of_width("fives", 4), end_of_width("漢字", 3), end_of_width("漢", 2)], ["ives", "字", "漢"]);
    }

    #[test]
    fn a_line_is_wrapped_where_its_cells_end() {
        for (line, columns, want) in [
            ("", 3, &[""][..]),
            ("abcd", 3, &["abc", "d"]),
            ("a漢字b", 3, &["a漢", "字b"]),
            ("漢", 1, &["漢"]),
            ("let me go on", 8, &["let me ", "go on"]),
            ("let me go on", 6, &["let me", " go on"]),
            ("a longword", 6, &["a long", "word"]),
            ("e\u{301}e\u{301}", 1, &["e\u{301}", "e\u{301}"]),
        ] {
            assert_eq!(wrap_line(line, columns), want, "{line} in {columns}");
        }
    }

    #[test]
    fn plain_text_stays_as_it_is() {
        assert_eq!(ColourMode::Plain.apply_style(TextStyle::Bad, "no"), "no");
        assert_eq!(ColourMode::Coloured.apply_style(TextStyle::Bad, "no"), "\u{1b}[31mno\u{1b}[0m");
    }
}
