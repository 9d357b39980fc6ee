//! Reads what stands in `$'…'`.

use super::WordScanner;

impl WordScanner<'_> {
    /// Scans the `$'…'` of an expansion for hidden text.
    pub(super) fn scan_disguised(&mut self, text: &str) {
        let mut inner = WordScanner::from_text(text, self.known);
        for at in 1..inner.chars.len() {
            if inner.chars[at - 1..].starts_with(&['$', '\'']) {
                inner.at = at;
                inner.scan_ansi();
            }
        }
        if inner.word.disguised {
            self.mark_disguised();
        }
    }

    fn mark_disguised(&mut self) {
        self.word.disguised = true;
        self.word.opaque = Some("text in $'…' that is not read alike everywhere");
    }

    /// Reads the text of `$'…'`, from its first quote on.
    pub(super) fn scan_ansi(&mut self) {
        self.at += 1;
        // Several bytes make one character: `\xc3\xa9` is one.
        let mut bytes = Vec::new();
        while let Some(c) = self.next().filter(|c| *c != '\'') {
            let c = match c {
                '\\' => match self.read_escape() {
                    Some(AnsiEscape::Byte(byte)) => {
                        bytes.push(byte);
                        continue;
                    }
                    Some(AnsiEscape::Letter(c)) => c,
                    None => {
                        self.mark_disguised();
                        continue;
                    }
                },
                c => c,
            };
            self.push_bytes(std::mem::take(&mut bytes));
            self.word.value.push(c);
        }
        self.push_bytes(bytes);
    }

    /// Adds the characters that `bytes` make. The meaning of invalid bytes depends on the reader.
    fn push_bytes(&mut self, bytes: Vec<u8>) {
        match String::from_utf8(bytes) {
            Ok(text) => self.word.value.push_str(&text),
            Err(_) => self.mark_disguised(),
        }
    }

    /// Returns the value of an escape. None for the end of the text (a zero ends it in bash), and for escapes that some versions of bash
    /// know and others do not.
    fn read_escape(&mut self) -> Option<AnsiEscape> {
        let c = self.next()?;
        let (radix, most) = match c {
            'n' => return Some(AnsiEscape::Letter('\n')),
            't' => return Some(AnsiEscape::Letter('\t')),
            'r' => return Some(AnsiEscape::Letter('\r')),
            'a' => return Some(AnsiEscape::Letter('\u{7}')),
            'b' => return Some(AnsiEscape::Letter('\u{8}')),
            'e' | 'E' => return Some(AnsiEscape::Letter('\u{1b}')),
            'f' => return Some(AnsiEscape::Letter('\u{c}')),
            'v' => return Some(AnsiEscape::Letter('\u{b}')),
            '\\' | '\'' | '"' | '?' => return Some(AnsiEscape::Letter(c)),
            'x' => (16, 2),
            'u' => (16, 4),
            'U' => (16, 8),
            '0'..='7' => {
                self.at -= 1;
                (8, 3)
            }
            _ => return None,
        };
        let mut code = 0;
        for _ in 0..most {
            let Some(digit) = self.peek_char(0).and_then(|c| c.to_digit(radix)) else { break };
            code = code * radix + digit;
            self.at += 1;
        }
        match (c, code) {
            // No digit comes to a zero too.
            (_, 0) => None,
            ('u' | 'U', _) => char::from_u32(code).map(AnsiEscape::Letter),
            _ => u8::try_from(code).ok().map(AnsiEscape::Byte),
        }
    }
}

/// Value of an escape in `$'…'`.
enum AnsiEscape {
    Letter(char),
    /// Part of a character, or one.
    Byte(u8),
}
