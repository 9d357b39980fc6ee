//! Reads a word from left to right, quote by quote and dollar by dollar.

mod ansi;

use super::{GLOB, KnownVariables, ShellWord, UNKNOWN, braces::BraceUnit};
use crate::tokenizer;

/// Reason for `$"…"`: the shell looks its text up in a catalogue, and expands the result.
const TRANSLATED: &str = "text that is translated";

/// Scans one word as the grammar cut it.
pub(crate) fn scan_word(raw: &str, known: KnownVariables<'_>) -> ShellWord {
    let mut scanner = WordScanner { bare: true, ..WordScanner::from_text(raw, known) };
    scanner.scan_tilde();
    scanner.scan_unquoted();
    scanner.word
}

/// Finds the commands that expanding `text` runs where no quote protects them: in here-documents, arithmetic and parameter expansions.
pub(crate) fn scan_live(text: &str, known: KnownVariables<'_>) -> ShellWord {
    let mut scanner = WordScanner::from_text(&join_lines(text), known);
    scanner.quoted_by(None);
    scanner.word
}

/// Returns the parts of a word as braces see it: what quotes or a dollar keep together is one.
pub(super) fn brace_units(raw: &str) -> Vec<BraceUnit<'_>> {
    let mut scanner = WordScanner::from_text(raw, KnownVariables { home: None, cwd: None, tried: &[] });
    let (mut units, mut rest) = (Vec::new(), raw);
    while scanner.at < scanner.chars.len() {
        let from = scanner.at;
        let first = scanner.chars[from];
        scanner.scan_step();
        let length = scanner.chars[from..scanner.at].iter().map(|c| c.len_utf8()).sum();
        let (text, behind) = rest.split_at(length);
        rest = behind;
        units.push(match first {
            '{' => BraceUnit::Open,
            '}' => BraceUnit::Close,
            ',' => BraceUnit::Comma,
            _ => BraceUnit::Text(text),
        });
    }
    units
}

/// Returns `text` with its lines joined where a backslash says so, as a shell has done before it reads a dollar.
fn join_lines(text: &str) -> String {
    let (mut joined, mut chars) = (String::with_capacity(text.len()), text.chars());
    while let Some(c) = chars.next() {
        match (c, chars.clone().next()) {
            ('\\', Some('\n')) => drop(chars.next()),
            ('\\', Some(_)) => {
                joined.push(c);
                joined.extend(chars.next());
            }
            _ => joined.push(c),
        }
    }
    joined
}

struct WordScanner<'a> {
    chars: Vec<char>,
    at: usize,
    known: KnownVariables<'a>,
    ends: LastPositions,
    /// True if no quote keeps the expansion together.
    bare: bool,
    word: ShellWord,
}

/// Positions of the last signs that may end a pattern or a brace, each counted from one: a search at every sign that may begin one would
/// take the square of a word's length.
struct LastPositions {
    pattern: usize,
    comma: usize,
    dots: usize,
}

impl LastPositions {
    fn from_chars(chars: &[char]) -> Self {
        let brace = chars.iter().rposition(|c| *c == '}').unwrap_or(0);
        let last = |found: Option<usize>| found.map_or(0, |at| at + 1);
        Self {
            pattern: last(chars.iter().rposition(|c| matches!(c, ']' | '$' | '`'))),
            comma: last(chars[..brace].iter().rposition(|c| *c == ',')),
            dots: last(chars[..brace].windows(2).rposition(|pair| pair == ['.', '.'])),
        }
    }

    /// Reports whether the bracket before `at` may begin a pattern: there may be one that ends it.
    const fn may_be_pattern(&self, at: usize) -> bool {
        at < self.pattern
    }

    /// Reports whether the shell would make several words of the brace before `at`.
    const fn may_be_words(&self, at: usize) -> bool {
        at < self.comma || at < self.dots
    }
}

impl<'a> WordScanner<'a> {
    fn from_text(text: &str, known: KnownVariables<'a>) -> Self {
        let word = ShellWord { raw: text.to_owned(), ..ShellWord::default() };
        let chars: Vec<char> = text.chars().collect();
        Self { ends: LastPositions::from_chars(&chars), chars, at: 0, known, bare: false, word }
    }
}

impl WordScanner<'_> {
    fn peek_char(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek_char(0)?;
        self.at += 1;
        Some(c)
    }

    fn push_unknown(&mut self) {
        self.word.expands = true;
        self.word.splits |= self.bare;
        self.word.value.push(UNKNOWN);
    }

    fn stands_for(&mut self, name: &str, text: Option<&str>) {
        self.word.expands = true;
        let tried = self.known.tried.iter().find(|(tried, _)| tried == name).map(|(_, value)| value.as_str());
        match text.or(tried) {
            Some(text) => {
                self.word.splits |= self.bare && text.contains(char::is_whitespace);
                self.word.value.push_str(text);
            }
            None => {
                self.word.names.push(name.to_owned());
                self.word.value.push(UNKNOWN);
                // Quoted, all that a list holds is as many words.
                self.word.splits |= self.bare || name.contains("[@]") || name.starts_with('@');
            }
        }
    }

    fn scan_tilde(&mut self) {
        if self.peek_char(0) != Some('~') {
            return;
        }
        self.at += 1;
        let mut name = String::new();
        while let Some(c) = self.peek_char(0).filter(|c| *c != '/') {
            name.push(c);
            self.at += 1;
        }
        let home = self.known.home;
        match name.as_str() {
            "" => self.stands_for("HOME", home),
            // The user's own home may be named too.
            _ if home.is_some_and(|home| home.rsplit('/').next() == Some(&name)) => self.stands_for("HOME", home),
            "-" => self.stands_for("OLDPWD", None),
            // The folders that the shell keeps, its own among them.
            _ if name.trim_start_matches(['+', '-']).bytes().all(|byte| byte.is_ascii_digit()) => {
                self.stands_for("PWD", self.known.cwd);
            }
            _ => self.push_unknown(),
        }
    }

    fn scan_unquoted(&mut self) {
        while self.scan_step() {}
    }

    /// Reads the unquoted text at the cursor: a character, or the part that is kept together from there. False at the end.
    fn scan_step(&mut self) -> bool {
        let Some(c) = self.next() else { return false };
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
            '$' if self.peek_char(0) == Some('\'') => self.scan_ansi(),
            '$' if self.peek_char(0) == Some('"') => {
                self.at += 1;
                self.quoted_by(Some('"'));
                self.word.opaque = Some(TRANSLATED);
            }
            '$' => self.scan_dollar(),
            '`' => self.scan_backticks(),
            '[' if !self.ends.may_be_pattern(self.at) => self.word.value.push(c),
            '*' | '?' | '[' => {
                self.word.expands = true;
                self.word.splits = true;
                self.word.value.push(GLOB);
            }
            '{' if self.ends.may_be_words(self.at) => self.push_unknown(),
            _ => self.word.value.push(c),
        }
        true
    }

    /// Reads text in which only `$`, backticks and backslashes live, up to `end`.
    fn quoted_by(&mut self, end: Option<char>) {
        let bare = std::mem::replace(&mut self.bare, false);
        self.quoted_up_to(end);
        self.bare = bare;
    }

    fn quoted_up_to(&mut self, end: Option<char>) {
        while let Some(c) = self.next() {
            match c {
                _ if Some(c) == end => return,
                '\\' if self.peek_char(0).is_some_and(|c| "$`\"\\\n".contains(c)) => {
                    if let Some(c) = self.next().filter(|c| *c != '\n') {
                        self.word.value.push(c);
                    }
                }
                '$' => self.scan_dollar(),
                '`' => self.scan_backticks(),
                _ => self.word.value.push(c),
            }
        }
    }

    fn scan_dollar(&mut self) {
        match self.peek_char(0) {
            Some('(') if self.peek_char(1) == Some('(') => {
                let body = self.take_balanced('(', ')');
                let inner = body.strip_prefix('(').unwrap_or(&body);
                // `$((a) | (b))` is a command: where the shell could read either, both are judged.
                self.word.runs.push(body.clone());
                self.scan_live_text(inner);
                let is_number = inner.chars().all(|c| c.is_ascii_digit() || " +-*/%()<>=&|^~!,?:".contains(c));
                if is_number {
                    self.word.runs.pop();
                } else {
                    self.word.opaque = Some("arithmetic over names");
                }
            }
            Some('(') => {
                let body = self.take_balanced('(', ')');
                self.word.runs.push(body);
                self.word.opaque = Some("command substitution");
            }
            Some('[') => {
                let body = self.take_balanced('[', ']');
                self.scan_live_text(&body);
                self.word.opaque = Some("arithmetic over names");
            }
            Some('{') => {
                let body = self.take_balanced('{', '}');
                self.scan_parameter(&body);
                return;
            }
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let mut name = String::new();
                while let Some(c) = self.peek_char(0).filter(|c| c.is_ascii_alphanumeric() || *c == '_') {
                    name.push(c);
                    self.at += 1;
                }
                self.scan_variable(&name);
                return;
            }
            Some(c) if c.is_ascii_digit() || "@*#?-$!".contains(c) => {
                self.word.splits |= c == '@';
                self.at += 1;
            }
            Some(_) | None => {
                self.word.value.push('$');
                return;
            }
        }
        self.push_unknown();
    }

    fn scan_parameter(&mut self, body: &str) {
        let name: String = body.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        if name == body && !body.is_empty() {
            self.scan_variable(&name);
            return;
        }
        if matches!(body, "@" | "*" | "#" | "?" | "-" | "$" | "!") {
            self.word.splits |= body == "@";
            self.push_unknown();
            return;
        }
        let operator = &body[name.len()..];
        let plain = name.is_empty()
            && body.strip_prefix('#').is_some_and(|rest| rest.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
            || !name.is_empty()
                && [":-", "-", ":+", "+", ":?", "?", "#", "%", "/", "^", ","]
                    .iter()
                    .any(|known| operator.starts_with(known));
        let plain = plain || !name.is_empty() && cuts_by_number(operator);
        self.scan_live_text(operator);
        self.scan_substituted(operator);
        self.scan_disguised(operator);
        if operator.contains("$\"") {
            self.word.opaque = Some(TRANSLATED);
        }
        if !plain {
            self.word.opaque = self.word.opaque.or(Some("a parameter expansion that computes"));
        }
        self.stands_for(body, None);
    }

    fn scan_variable(&mut self, name: &str) {
        match name {
            "HOME" => self.stands_for(name, self.known.home),
            "PWD" => self.stands_for(name, self.known.cwd),
            _ => self.stands_for(name, None),
        }
    }

    fn scan_live_text(&mut self, text: &str) {
        let inner = scan_live(text, self.known);
        self.word.runs.extend(inner.runs);
        self.word.opaque = self.word.opaque.or(inner.opaque);
    }

    /// Finds `<(…)` and `>(…)` within an expansion: what stands for a variable that is not set is read like any word.
    fn scan_substituted(&mut self, text: &str) {
        let mut scanner = WordScanner::from_text(text, self.known);
        while let Some(c) = scanner.next() {
            if matches!(c, '<' | '>') && scanner.peek_char(0) == Some('(') {
                self.word.runs.push(scanner.take_balanced('(', ')'));
                self.word.opaque = Some("process substitution");
            }
        }
    }

    fn scan_backticks(&mut self) {
        let mut body = String::new();
        while let Some(c) = self.next().filter(|c| *c != '`') {
            match (c, self.peek_char(0)) {
                ('\\', Some(next @ ('`' | '\\' | '$'))) => {
                    body.push(next);
                    self.at += 1;
                }
                _ => body.push(c),
            }
        }
        // In double quotes a backslash before one is taken off too.
        if body.contains("\\\"") {
            self.word.runs.push(body.replace("\\\"", "\""));
        }
        self.word.runs.push(body);
        self.word.opaque = Some("command substitution");
        self.push_unknown();
    }

    /// Takes the text between the bracket at the cursor and its partner. If the partner is ambiguous, quotes inside hide brackets, and
    /// without one everything is taken.
    fn take_balanced(&mut self, open: char, close: char) -> String {
        if let Some(end) = tokenizer::matching_bracket(&self.chars, self.at, !self.bare) {
            let body = self.chars[self.at + 1..end].iter().collect();
            self.at = end + 1;
            return body;
        }
        let mut body = String::new();
        let (mut depth, mut quote, mut cases) = (0_usize, None, 0_usize);
        while let Some(c) = self.next() {
            if quote.is_none() && !c.is_alphanumeric() && body.ends_with(char::is_alphanumeric) {
                cases = match last_word(&body) {
                    Some("case") => cases + 1,
                    Some("esac") => cases.saturating_sub(1),
                    Some(_) | None => cases,
                };
            }
            match (quote, c) {
                // It ends a pattern.
                (None, ')') if close == ')' && depth == 1 && cases > 0 => {}
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
}

/// Returns the last word of a text, where a command may begin with it: it may be a reserved one.
fn last_word(text: &str) -> Option<&str> {
    let before = text.trim_end_matches(|c: char| c.is_alphanumeric());
    let (word, before) = (&text[before.len()..], before.trim_end());
    let begins = before.is_empty()
        || before.ends_with([';', '|', '&', '(', ')', '{', '!'])
        || text[..text.len() - word.len()].ends_with('\n')
        || ["do", "then", "else"].iter().any(|reserved| before.ends_with(reserved));
    (begins && !word.is_empty()).then_some(word)
}

/// Reports whether an operator cuts a value, or takes a member of a list, by numbers that are written out.
fn cuts_by_number(operator: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let index = operator.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let cut = operator.strip_prefix(':');
    index.is_some_and(is_number) || cut.is_some_and(|cut| cut.splitn(2, ':').all(is_number))
}
