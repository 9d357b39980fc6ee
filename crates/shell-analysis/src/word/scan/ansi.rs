//! Reads what stands in `$'…'`.

use super::Scanner;

impl Scanner<'_> {
    /// Whether something is hidden in the `$'…'` of an expansion.
    pub(super) fn disguised(&mut self, text: &str) {
        let mut inner = Scanner::of(text, self.known);
        for at in 1..inner.chars.len() {
            if inner.chars[at - 1..].starts_with(&['$', '\'']) {
                inner.at = at;
                inner.ansi();
            }
        }
        if inner.word.disguised {
            self.disguise();
        }
    }

    fn disguise(&mut self) {
        self.word.disguised = true;
        self.word.opaque = Some("text in $'…' that is not read alike everywhere");
    }

    /// What stands in `$'…'`, from its first quote on.
    pub(super) fn ansi(&mut self) {
        self.at += 1;
        // Bytes make letters together: `\xc3\xa9` is one.
        let mut bytes = Vec::new();
        while let Some(c) = self.next().filter(|c| *c != '\'') {
            let c = match c {
                '\\' => match self.escape() {
                    Some(Escaped::Byte(byte)) => {
                        bytes.push(byte);
                        continue;
                    }
                    Some(Escaped::Letter(c)) => c,
                    None => {
                        self.disguise();
                        continue;
                    }
                },
                c => c,
            };
            self.say(std::mem::take(&mut bytes));
            self.word.value.push(c);
        }
        self.say(bytes);
    }

    /// Adds the letters that `bytes` make. What they are where they make none depends on who reads them.
    fn say(&mut self, bytes: Vec<u8>) {
        match String::from_utf8(bytes) {
            Ok(text) => self.word.value.push_str(&text),
            Err(_) => self.disguise(),
        }
    }

    /// What an escape stands for. None for the end of the text (a zero ends it in bash), and for what some versions of bash know and
    /// others do not.
    fn escape(&mut self) -> Option<Escaped> {
        let c = self.next()?;
        let (radix, most) = match c {
            'n' => return Some(Escaped::Letter('\n')),
            't' => return Some(Escaped::Letter('\t')),
            'r' => return Some(Escaped::Letter('\r')),
            'a' => return Some(Escaped::Letter('\u{7}')),
            'b' => return Some(Escaped::Letter('\u{8}')),
            'e' | 'E' => return Some(Escaped::Letter('\u{1b}')),
            'f' => return Some(Escaped::Letter('\u{c}')),
            'v' => return Some(Escaped::Letter('\u{b}')),
            '\\' | '\'' | '"' | '?' => return Some(Escaped::Letter(c)),
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
            let Some(digit) = self.peek(0).and_then(|c| c.to_digit(radix)) else { break };
            code = code * radix + digit;
            self.at += 1;
        }
        match (c, code) {
            // No digit comes to a zero too.
            (_, 0) => None,
            ('u' | 'U', _) => char::from_u32(code).map(Escaped::Letter),
            _ => u8::try_from(code).ok().map(Escaped::Byte),
        }
    }
}

/// What an escape in `$'…'` stands for.
enum Escaped {
    Letter(char),
    /// Part of a letter, or one.
    Byte(u8),
}
