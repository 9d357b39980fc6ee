//! Reading of a text in which encoded data is looked for: without the characters that programs put between.
//!
//! It must not know secrets.

/// Most bytes between two characters of encoded data: a line end and an indentation. Without a limit, white space at the end of
/// an output would be held for as long as it continues.
pub(super) const GAP: usize = 128;

/// A way to read a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TextEncoding {
    /// Byte by byte.
    Plain,
    /// As base64, in lines of any length. The characters that differ in URLs count as the usual ones.
    Base64,
    /// As hex in small letters, in lines of any length, with or without something between the bytes.
    Hex,
}

/// Text that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoreInput {
    /// The end of the text.
    Nothing,
    /// More, or nothing.
    Perhaps,
}

/// Next symbol of a text.
pub(super) enum NextSymbol {
    /// A symbol, and where what follows it begins.
    Symbol(u8, usize),
    /// A byte after which no encoded data continues.
    Break,
    /// The end, or no further symbol yet.
    End,
}

enum ByteMeaning {
    Symbol(u8),
    Gap,
    Break,
    /// Undecided until more text comes.
    Open,
}

impl TextEncoding {
    /// Returns the symbol that `byte` means by itself, if it is not to be skipped.
    pub(super) const fn decode_symbol(self, byte: u8) -> Option<u8> {
        match (self, byte) {
            (Self::Plain, _) | (Self::Base64, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/') => Some(byte),
            (Self::Base64, b'-') => Some(b'+'),
            (Self::Base64, b'_') => Some(b'/'),
            (Self::Hex, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => Some(byte.to_ascii_lowercase()),
            (Self::Base64 | Self::Hex, _) => None,
        }
    }

    /// Returns the next symbol of `text` at `at`, after at least one symbol.
    pub(super) fn next(self, text: &[u8], at: usize, then: MoreInput) -> NextSymbol {
        for place in at..text.len().min(at + GAP + 1) {
            match self.classify_byte(text, place, then) {
                ByteMeaning::Symbol(symbol) => return NextSymbol::Symbol(symbol, place + 1),
                ByteMeaning::Gap => {}
                ByteMeaning::Break => return NextSymbol::Break,
                ByteMeaning::Open => return NextSymbol::End,
            }
        }
        if text.len() > at + GAP { NextSymbol::Break } else { NextSymbol::End }
    }

    fn classify_byte(self, text: &[u8], place: usize, then: MoreInput) -> ByteMeaning {
        let (byte, before) = (text[place], text[place - 1]);
        if self != Self::Plain {
            match byte {
                b' ' | b'\t'..=b'\r' | b'\\' => return ByteMeaning::Gap,
                // Line ends as JSON has them. Backslashes before them are skipped, also where there are two of it.
                b'n' | b'r' | b't' if before == b'\\' => return ByteMeaning::Gap,
                _ => {}
            }
        }
        if self == Self::Hex {
            match byte {
                b':' | b'-' | b',' => return ByteMeaning::Gap,
                b'x' | b'X' if matches!(before, b'0' | b'\\') => return ByteMeaning::Gap,
                // The start of a byte, and of `0x`. At the end it could be either.
                b'0' if !before.is_ascii_hexdigit() => match text.get(place + 1) {
                    Some(b'x' | b'X') => return ByteMeaning::Gap,
                    None if then == MoreInput::Perhaps => return ByteMeaning::Open,
                    Some(_) | None => {}
                },
                _ => {}
            }
        }
        self.decode_symbol(byte).map_or(ByteMeaning::Break, ByteMeaning::Symbol)
    }
}
