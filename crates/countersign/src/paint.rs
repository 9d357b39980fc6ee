//! Colours of what is printed, on a terminal only.
//!
//! It must not know what the text says.

use std::{fmt, io::IsTerminal as _};

/// How a piece of text is set off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// A heading, a name.
    Strong,
    /// What is there for reference.
    Faint,
    /// Allowed, intact, added.
    Good,
    /// Denied, broken, removed.
    Bad,
    /// Waits for a person.
    Asking,
}

impl Tone {
    const fn code(self) -> &'static str {
        match self {
            Self::Strong => "1",
            Self::Faint => "2",
            Self::Good => "32",
            Self::Bad => "31",
            Self::Asking => "1;33",
        }
    }
}

/// Whether text is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    Coloured,
    Plain,
}

impl Paint {
    /// Colours if standard output is a terminal that can and `NO_COLOR` is not set.
    pub(crate) fn stdout() -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let able = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        if wanted && able && std::io::stdout().is_terminal() { Self::Coloured } else { Self::Plain }
    }

    /// `text` in `tone`.
    pub(crate) fn tone<T: fmt::Display>(self, tone: Tone, text: T) -> String {
        match self {
            Self::Coloured => format!("\u{1b}[{}m{text}\u{1b}[0m", tone.code()),
            Self::Plain => text.to_string(),
        }
    }
}

/// `text` in at most `columns` characters; what was cut shows as an ellipsis.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    match text.char_indices().nth(columns) {
        None => text.to_owned(),
        Some(_) => text.chars().take(columns.saturating_sub(1)).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Paint, Tone, cut};

    #[test]
    fn a_text_is_cut_where_the_columns_end_and_says_so() {
        for (text, columns, want) in [("four", 4, "four"), ("fives", 4, "fiv…"), ("größe", 4, "grö…"), ("", 0, "")]
        {
            assert_eq!(cut(text, columns), want, "{text} in {columns}");
        }
    }

    #[test]
    fn plain_text_stays_as_it_is() {
        assert_eq!(Paint::Plain.tone(Tone::Bad, "no"), "no");
        assert_eq!(Paint::Coloured.tone(Tone::Bad, "no"), "\u{1b}[31mno\u{1b}[0m");
    }
}
