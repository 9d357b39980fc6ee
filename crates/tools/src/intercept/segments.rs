//! Splits a command line into its sequential and piped commands.
//!
//! It must not expand anything: substituted and quoted parts are text, and so are the bodies of here-documents.

use std::{iter::Peekable, str::Chars};

/// One command of a line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CommandSegment {
    /// Text of the command, unchanged.
    pub(super) text: String,
    /// Text without the variables that are set before the command.
    pub(super) call: String,
    /// The program and its arguments, without quotes and redirections.
    pub(super) words: Vec<String>,
    /// True if it reads the output of the command before it.
    pub(super) is_fed: bool,
    /// True if its output goes to a file.
    pub(super) writes: bool,
}

/// Files that are no files: output to them is kept nowhere.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/tty", "/dev/stdout", "/dev/stderr"];

/// Returns the commands of a line, in their order.
pub(super) fn split_segments(command: &str) -> Vec<CommandSegment> {
    let mut reader = SegmentReader {
        chars: command.chars().peekable(),
        done: Vec::new(),
        open: CommandSegment::default(),
        word: None,
        is_quoted: false,
        role: WordRole::Word,
        has_body: false,
    };
    reader.read_segments();
    reader.done
}

/// Role of the next word.
#[derive(Clone, Copy, PartialEq)]
enum WordRole {
    /// A word of the command.
    Word,
    /// The file that output goes to.
    Output,
    /// Another word after a redirection.
    Input,
}

struct SegmentReader<'a> {
    chars: Peekable<Chars<'a>>,
    done: Vec<CommandSegment>,
    open: CommandSegment,
    /// The word that is open.
    word: Option<String>,
    /// True if any part of that word is quoted.
    is_quoted: bool,
    role: WordRole,
    /// True if the body of a here-document follows the line.
    has_body: bool,
}

impl SegmentReader<'_> {
    fn read_segments(&mut self) {
        while let Some(c) = self.next() {
            match c {
                '\'' => self.read_quoted('\''),
                '"' => self.read_quoted('"'),
                '`' => self.read_quoted('`'),
                '\\' => {
                    if let Some(c) = self.next().filter(|c| *c != '\n') {
                        self.push(c);
                    }
                }
                '$' if self.chars.peek() == Some(&'(') => self.read_substitution(),
                ' ' | '\t' => self.end_word(),
                '#' if self.word.is_none() => {
                    while self.chars.peek().is_some_and(|c| *c != '\n') {
                        self.next();
                    }
                }
                '\n' => {
                    self.end_before(false);
                    if self.has_body {
                        return;
                    }
                }
                ';' | '(' | ')' => self.end_before(false),
                '&' if self.chars.peek() == Some(&'>') => self.end_word(),
                '&' => {
                    self.skip_char('&');
                    self.end_before(false);
                }
                '|' => {
                    let is_fed = !self.skip_char('|');
                    self.skip_char('&');
                    self.end_before(is_fed);
                }
                '>' => self.begin_output_redirect(),
                '<' => self.begin_input_redirect(),
                c => self.push(c),
            }
        }
        self.end_segment(false);
    }

    fn next(&mut self) -> Option<char> {
        let c = self.chars.next()?;
        self.open.text.push(c);
        self.open.call.push(c);
        Some(c)
    }

    /// Takes the rest of an operator between commands.
    fn skip_char(&mut self, expected: char) -> bool {
        self.chars.next_if_eq(&expected).is_some()
    }

    /// Takes the rest of an operator that is part of a command.
    fn take_char(&mut self, expected: char) -> bool {
        self.chars.peek() == Some(&expected) && self.next().is_some()
    }

    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    fn read_quoted(&mut self, end: char) {
        self.is_quoted = true;
        self.word.get_or_insert_default();
        while let Some(c) = self.next().filter(|c| *c != end) {
            let c = if c == '\\' && end != '\'' { self.next().unwrap_or(c) } else { c };
            self.push(c);
        }
    }

    fn read_substitution(&mut self) {
        self.push('$');
        let mut depth = 0;
        while let Some(c) = self.next() {
            self.push(c);
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
    }

    fn begin_output_redirect(&mut self) {
        // A number here is no word but a descriptor. Only what goes out over the first one is the text of the command.
        let descriptor = self.word.take_if(|word| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit()));
        self.end_word();
        self.take_char('>');
        self.take_char('|');
        let is_copy = self.take_char('&');
        self.role =
            if is_copy || descriptor.is_some_and(|number| number != "1") { WordRole::Input } else { WordRole::Output };
    }

    fn begin_input_redirect(&mut self) {
        self.end_word();
        if self.take_char('<') && !self.take_char('<') {
            self.take_char('-');
            self.has_body = true;
        }
        self.role = WordRole::Input;
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        let is_quoted = std::mem::take(&mut self.is_quoted);
        match std::mem::replace(&mut self.role, WordRole::Word) {
            WordRole::Output => self.open.writes |= !DEVICES.contains(&word.as_str()),
            WordRole::Input => {}
            WordRole::Word if self.open.words.is_empty() && sets_variable(&word) => self.open.call.clear(),
            WordRole::Word if word.is_empty() && !is_quoted => {}
            WordRole::Word => self.open.words.push(word),
        }
    }

    /// Ends a command before the operator that was read.
    fn end_before(&mut self, feeds: bool) {
        self.open.text.pop();
        self.open.call.pop();
        self.end_segment(feeds);
    }

    /// Ends a command; `feeds` the next one if that reads what it wrote.
    fn end_segment(&mut self, feeds: bool) {
        self.end_word();
        self.role = WordRole::Word;
        let mut ended =
            std::mem::replace(&mut self.open, CommandSegment { is_fed: feeds, ..CommandSegment::default() });
        for text in [&mut ended.text, &mut ended.call] {
            *text = text.trim().to_owned();
        }
        if !ended.text.is_empty() {
            self.done.push(ended);
        } else if ended.is_fed {
            self.open.is_fed = true;
        }
    }
}

/// Returns true if a word before a command sets a variable.
fn sets_variable(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    })
}
