//! How a text is read when something encoded is looked for in it: without what programs put between its characters.
//!
//! It must not know secrets.

/// The most bytes that may stand between two characters of something encoded: a line end and an indentation. Without a
/// limit, white space at the end of an output would be held for as long as it goes on.
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

/// What follows a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoreInput {
    /// Nothing.
    Nothing,
    /// More, or nothing.
    Perhaps,
}

/// What a text has next.
pub(super) enum NextSymbol {
    /// A symbol, and where what follows it begins.
    Symbol(u8, usize),
    /// Something that nothing encoded goes on behind.
    Break,
    /// Nothing, or nothing yet.
    End,
}

enum ByteMeaning {
    Symbol(u8),
    Gap,
    Break,
    /// Only what comes next can tell.
    Open,
}

impl TextEncoding {
    /// What `byte` is read as by itself, if it is not to be passed over.
    pub(super) const fn decode_symbol(self, byte: u8) -> Option<u8> {
        match (self, byte) {
            (Self::Plain, _) | (Self::Base64, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/') => Some(byte),
            (Self::Base64, b'-') => Some(b'+'),
            (Self::Base64, b'_') => Some(b'/'),
            (Self::Hex, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => Some(byte.to_ascii_lowercase()),
            (Self::Base64 | Self::Hex, _) => None,
        }
    }

    /// What `text` has at `at`, behind at least one symbol.
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
                // Line ends as JSON has them. What stands before them is passed over, also where there are two of it.
                b'n' | b'r' | b't' if before == b'\\' => return ByteMeaning::Gap,
                _ => {}
            }
        }
        if self == Self::Hex {
            match byte {
                b':' | b'-' | b',' => return ByteMeaning::Gap,
                b'x' | b'X' if matches!(before, b'0' | b'\\') => return ByteMeaning::Gap,
                // Where a byte begins, and the beginning of `0x`. At the end it could be either.
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
