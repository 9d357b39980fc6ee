//! One word of a shell line: what of it is literal, what the shell would expand, and what that would run.

/// Stands in [`Word::value`] for text that is only known when the line runs.
pub(super) const UNKNOWN: char = '\u{10FFFE}';

/// Stands in [`Word::value`] for an unquoted pattern character.
pub(super) const GLOB: char = '\u{10FFFD}';

/// One word, scanned.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Word {
    /// As written.
    pub(super) raw: String,
    /// Its text; [`UNKNOWN`] and [`GLOB`] stand for what is not text.
    pub(super) value: String,
    /// True if the shell expands anything in it, known or not.
    pub(super) expands: bool,
    /// Commands that expanding it runs.
    pub(super) runs: Vec<String>,
    /// Why no rule covers it.
    pub(super) opaque: Option<&'static str>,
}

impl Word {
    /// A word of which nothing is known.
    pub(super) fn unknown() -> Self {
        Self { raw: "…".to_owned(), value: UNKNOWN.to_string(), expands: true, ..Self::default() }
    }

    /// Its text if nothing in it is expanded.
    pub(super) fn as_literal(&self) -> Option<&str> {
        (!self.expands && self.opaque.is_none()).then_some(self.value.as_str())
    }

    /// Its text as far as known, to be read as shell text again.
    pub(super) fn approximate(&self) -> String {
        self.value.replace(UNKNOWN, "$unknown").replace(GLOB, "*")
    }

    /// The literal text quoted where it needs to be, or what was written.
    pub(super) fn normal(&self) -> String {
        self.as_literal().map_or_else(|| self.raw.clone(), quoted)
    }

    /// The literal text, or what was written.
    pub(super) fn plain(&self) -> &str {
        self.as_literal().unwrap_or(&self.raw)
    }
}

/// What the variables of the shell that are known stand for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    pub(super) home: Option<&'a str>,
    pub(super) cwd: Option<&'a str>,
}

/// Scans one word as the grammar cut it.
pub(super) fn scan(raw: &str, known: Known<'_>) -> Word {
    let mut scanner = Scanner { chars: raw.chars().collect(), at: 0, known, word: Word { raw: raw.to_owned(), ..Word::default() } };
    scanner.tilde();
    scanner.unquoted();
    scanner.word
}

/// Finds the commands that expanding `text` runs where no quote protects them: in here-documents, arithmetic and parameter expansions.
pub(super) fn scan_live(text: &str, known: Known<'_>) -> Word {
    let mut scanner = Scanner { chars: text.chars().collect(), at: 0, known, word: Word { raw: text.to_owned(), ..Word::default() } };
    scanner.quoted_by(None);
    scanner.word
}

/// `text` as the shell reads it back, in single quotes where it must be.
pub(super) fn quoted(text: &str) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c) || (!c.is_ascii() && c.is_alphanumeric());
    if !text.is_empty() && text.chars().all(harmless) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// What the shell makes of `{a,b}` in an otherwise plain word: words of their own. Anything more involved stays as it is.
pub(super) fn braces(raw: &str) -> Vec<String> {
    let plain = raw.len() < 1024 && !raw.contains(['\'', '"', '\\', '$', '`']);
    let Some((open, close)) = plain.then(|| innermost(raw)).flatten() else { return vec![raw.to_owned()] };
    let (before, inner, after) = (&raw[..open], &raw[open + 1..close], &raw[close + 1..]);
    let words: Vec<String> = inner.split(',').flat_map(|part| braces(&format!("{before}{part}{after}"))).take(65).collect();
    if words.len() > 64 { vec![raw.to_owned()] } else { words }
}

/// The first pair of braces around a comma that holds no other pair.
fn innermost(raw: &str) -> Option<(usize, usize)> {
    let mut open = None;
    for (at, c) in raw.char_indices() {
        match (c, open) {
            ('{', _) => open = Some(at),
            ('}', Some(start)) if raw[start..at].contains(',') => return Some((start, at)),
            ('}', _) => open = None,
            _ => {}
        }
    }
    None
}

struct Scanner<'a> {
    chars: Vec<char>,
    at: usize,
    known: Known<'a>,
    word: Word,
}

impl Scanner<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek(0)?;
        self.at += 1;
        Some(c)
    }

    fn unknown(&mut self) {
        self.word.expands = true;
        self.word.value.push(UNKNOWN);
    }

    fn stands_for(&mut self, text: Option<&str>) {
        self.word.expands = true;
        match text {
            Some(text) => self.word.value.push_str(text),
            None => self.word.value.push(UNKNOWN),
        }
    }

    fn tilde(&mut self) {
        if self.peek(0) != Some('~') {
            return;
        }
        self.at += 1;
        if matches!(self.peek(0), None | Some('/')) {
            self.stands_for(self.known.home);
        } else {
            while self.peek(0).is_some_and(|c| c != '/') {
                self.at += 1;
            }
            self.unknown();
        }
    }

    fn unquoted(&mut self) {
        while let Some(c) = self.next() {
            match c {
                '\'' => {
                    while let Some(c) = self.next().filter(|c| *c != '\'') {
                        self.word.value.push(c);
                    }
                }
                '"' => self.quoted_by(Some('"')),
                '\\' => match self.next() {
                    Some('\n') | None => {}
                    Some(c) => self.word.value.push(c),
                },
                '$' if self.peek(0) == Some('\'') => self.ansi(),
                '$' if self.peek(0) == Some('"') => {
                    self.at += 1;
                    self.quoted_by(Some('"'));
                }
                '$' => self.dollar(),
                '`' => self.backticks(),
                '*' | '?' | '[' => {
                    self.word.expands = true;
                    self.word.value.push(GLOB);
                }
                '{' if self.is_brace() => self.unknown(),
                _ => self.word.value.push(c),
            }
        }
    }

    /// True if the shell would make several words of the brace before the cursor.
    fn is_brace(&self) -> bool {
        let rest = &self.chars[self.at..];
        let inner = rest.iter().rposition(|c| *c == '}').map(|end| &rest[..end]).unwrap_or_default();
        inner.contains(&',') || inner.windows(2).any(|pair| pair == ['.', '.'])
    }

    /// Text in which only `$`, backticks and backslashes live, up to `end`.
    fn quoted_by(&mut self, end: Option<char>) {
        while let Some(c) = self.next() {
            match c {
                _ if Some(c) == end => return,
                '\\' if self.peek(0).is_some_and(|c| "$`\"\\\n".contains(c)) => {
                    if let Some(c) = self.next().filter(|c| *c != '\n') {
                        self.word.value.push(c);
                    }
                }
                '$' => self.dollar(),
                '`' => self.backticks(),
                _ => self.word.value.push(c),
            }
        }
    }

    fn dollar(&mut self) {
        match self.peek(0) {
            Some('(') if self.peek(1) == Some('(') => {
                let body = self.balanced('(', ')');
                let inner = body.strip_prefix('(').unwrap_or(&body);
                // `$((a) | (b))` is a command: where the shell could read either, both are judged.
                self.word.runs.push(body.clone());
                self.live(inner);
                let is_number = inner.chars().all(|c| c.is_ascii_digit() || " +-*/%()<>=&|^~!,?:".contains(c));
                if is_number {
                    self.word.runs.pop();
                } else {
                    self.word.opaque = Some("arithmetic over names");
                }
            }
            Some('(') => {
                let body = self.balanced('(', ')');
                self.word.runs.push(body);
                self.word.opaque = Some("command substitution");
            }
            Some('[') => {
                let body = self.balanced('[', ']');
                self.live(&body);
                self.word.opaque = Some("arithmetic over names");
            }
            Some('{') => {
                let body = self.balanced('{', '}');
                self.parameter(&body);
                return;
            }
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let mut name = String::new();
                while let Some(c) = self.peek(0).filter(|c| c.is_ascii_alphanumeric() || *c == '_') {
                    name.push(c);
                    self.at += 1;
                }
                self.variable(&name);
                return;
            }
            Some(c) if c.is_ascii_digit() || "@*#?-$!".contains(c) => self.at += 1,
            Some(_) | None => {
                self.word.value.push('$');
                return;
            }
        }
        self.unknown();
    }

    fn parameter(&mut self, body: &str) {
        let name: String = body.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        if name == body && !body.is_empty() {
            self.variable(&name);
            return;
        }
        let operator = &body[name.len()..];
        let plain = name.is_empty() && body.strip_prefix('#').is_some_and(|rest| rest.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
            || !name.is_empty() && [":-", "-", ":+", "+", ":?", "?", "#", "%", "/", "^", ","].iter().any(|known| operator.starts_with(known));
        self.live(operator);
        if !plain {
            self.word.opaque = self.word.opaque.or(Some("a parameter expansion that computes"));
        }
        self.unknown();
    }

    fn variable(&mut self, name: &str) {
        match name {
            "HOME" => self.stands_for(self.known.home),
            "PWD" => self.stands_for(self.known.cwd),
            _ => self.unknown(),
        }
    }

    fn live(&mut self, text: &str) {
        let inner = scan_live(text, self.known);
        self.word.runs.extend(inner.runs);
        self.word.opaque = self.word.opaque.or(inner.opaque);
    }

    fn backticks(&mut self) {
        let mut body = String::new();
        while let Some(c) = self.next().filter(|c| *c != '`') {
            match (c, self.peek(0)) {
                ('\\', Some(next @ ('`' | '\\' | '$'))) => {
                    body.push(next);
                    self.at += 1;
                }
                _ => body.push(c),
            }
        }
        self.word.runs.push(body);
        self.word.opaque = Some("command substitution");
        self.unknown();
    }

    /// The text between the bracket at the cursor and its partner. Quotes inside hide brackets; without a partner everything is taken.
    fn balanced(&mut self, open: char, close: char) -> String {
        let mut body = String::new();
        let (mut depth, mut quote) = (0_usize, None);
        while let Some(c) = self.next() {
            match (quote, c) {
                (None | Some('"'), '\\') => {
                    body.push(c);
                    body.extend(self.next());
                    continue;
                }
                (None, '\'' | '"') => quote = Some(c),
                (Some(q), c) if q == c => quote = None,
                (None, c) if c == open => depth += 1,
                (None, c) if c == close => {
                    depth -= 1;
                    if depth == 0 {
                        break;
                    }
                }
                _ => {}
            }
            body.push(c);
        }
        body.strip_prefix(open).map(str::to_owned).unwrap_or(body)
    }

    fn ansi(&mut self) {
        self.at += 1;
        while let Some(c) = self.next().filter(|c| *c != '\'') {
            let c = if c == '\\' { self.escape() } else { Some(c) };
            self.word.value.extend(c);
        }
    }

    fn escape(&mut self) -> Option<char> {
        let c = self.next()?;
        let (radix, most) = match c {
            'n' => return Some('\n'),
            't' => return Some('\t'),
            'r' => return Some('\r'),
            'a' => return Some('\u{7}'),
            'b' => return Some('\u{8}'),
            'e' | 'E' => return Some('\u{1b}'),
            'f' => return Some('\u{c}'),
            'v' => return Some('\u{b}'),
            'x' => (16, 2),
            'u' => (16, 4),
            'U' => (16, 8),
            '0'..='7' => {
                self.at -= 1;
                (8, 3)
            }
            _ => return Some(c),
        };
        let mut code = 0;
        for _ in 0..most {
            let Some(digit) = self.peek(0).and_then(|c| c.to_digit(radix)) else { break };
            code = code * radix + digit;
            self.at += 1;
        }
        char::from_u32(code)
    }
}

#[cfg(test)]
mod tests {
    use super::{GLOB, Known, UNKNOWN, scan};

    const KNOWN: Known<'static> = Known { home: Some("/home/ana"), cwd: Some("/w") };

    #[test]
    fn a_word_is_its_text_where_nothing_expands() {
        for (raw, want) in [
            ("rm", "rm"),
            ("r\\m", "rm"),
            ("'r'\"m\"", "rm"),
            ("$'\\x72m'", "rm"),
            ("$'\\162m'", "rm"),
            ("\"a\\\"b\\c\"", "a\"b\\c"),
            ("a\\\nb", "ab"),
            ("'$(x)'", "$(x)"),
            ("a$", "a$"),
        ] {
            assert_eq!(scan(raw, KNOWN).as_literal(), Some(want), "{raw}");
        }
    }

    #[test]
    fn what_expands_is_marked_and_what_runs_is_found() {
        let unknown = UNKNOWN.to_string();
        let glob = GLOB.to_string();
        for (raw, value, runs, opaque) in [
            ("~/x", "/home/ana/x".to_owned(), vec![], false),
            ("$HOME", "/home/ana".to_owned(), vec![], false),
            ("${PWD}/a", "/w/a".to_owned(), vec![], false),
            ("~bob/x", format!("{unknown}/x"), vec![], false),
            ("a*", format!("a{glob}"), vec![], false),
            ("$X/y", format!("{unknown}/y"), vec![], false),
            ("${X:-y}", unknown.clone(), vec![], false),
            ("$(id)", unknown.clone(), vec!["id"], true),
            ("\"`id`\"", unknown.clone(), vec!["id"], true),
            ("${X:-$(rm x)}", unknown.clone(), vec!["rm x"], true),
            ("${X:-'$(rm x)'}", unknown.clone(), vec!["rm x"], true),
            ("${a[$(id)]}", unknown.clone(), vec!["id"], true),
            ("$((1 + 2))", unknown.clone(), vec![], false),
            ("$((a[$(id)]))", unknown.clone(), vec!["(a[$(id)])", "id"], true),
            ("${!X}", unknown.clone(), vec![], true),
            ("${X@P}", unknown.clone(), vec![], true),
            ("${X:=y}", unknown.clone(), vec![], true),
            ("$(echo \")\" ; id)", unknown, vec!["echo \")\" ; id"], true),
        ] {
            let word = scan(raw, KNOWN);
            let found: Vec<&str> = word.runs.iter().map(String::as_str).collect();
            assert_eq!((word.value.as_str(), found, word.opaque.is_some()), (value.as_str(), runs, opaque), "{raw}");
            assert_eq!(word.as_literal(), None, "{raw}");
        }
    }
}
