//! Texts that cannot be parsed, or must not be: what of them is judged all the same.

use brush_parser::Token;

use super::{LineWalk, MOST_TEXTS_DEEP};
use crate::{action_class::ActionClass as Class, line::UNPARSABLE, programs, word::ShellWord};

/// Maximum number of pieces of a text that cannot be parsed that are looked at.
const MOST_PARTS: usize = 256;

impl LineWalk<'_> {
    pub(super) fn note_beyond(&mut self, reason: &str) {
        self.line.note_opaque(format!("a line that {reason}"));
        self.line.note_floor(reason);
        self.line.classes.insert(Class::BashDestructive);
    }

    pub(super) fn note_unparsable(&mut self, text: &str) {
        self.line.note_opaque(UNPARSABLE);
        // A shell runs the text before the fault, and its commands cannot be determined.
        self.line.classes.insert(Class::BashDestructive);
        if let Some(program) = programs::mentions_destroyer(text) {
            self.line.note_floor(format!("cannot be parsed and names {program}"));
        }
        // A shell runs what stands before the fault.
        self.suppose_commands(text);
    }

    /// Judges the pieces of a text that may be commands, for deny rules and the floor.
    pub(super) fn suppose_commands(&mut self, text: &str) {
        const RESERVED: &str = "do then else elif if while until time !";
        if self.depth > MOST_TEXTS_DEEP {
            return;
        }
        if self.is_spent_by(text.len()) {
            return self.note_beyond("is too involved to be judged");
        }
        self.depth += 1;
        for part in text.split(['\n', ';', '|', '&', '(', ')', '{', '}', '`']).take(MOST_PARTS) {
            let is_reserved = |word: &&str| RESERVED.split_ascii_whitespace().any(|known| known == *word);
            let raw = part.split_whitespace().skip_while(is_reserved);
            let mut words: Vec<ShellWord> = raw.flat_map(|raw| self.scan_words(raw)).collect();
            // Assignments and redirections stand before a command.
            let before = words.iter().take_while(|word| stands_before(&word.value)).count();
            if 0 < before && before < words.len() {
                self.judge_perhaps(&words[before..]);
            }
            // No command begins with a dash: it closed a descriptor.
            if let Some(rest) = words.first().and_then(ShellWord::as_literal).and_then(|text| text.strip_prefix('-')) {
                words[0] = ShellWord::from_text(rest);
            }
            if !words.is_empty() {
                self.judge_perhaps(&words);
            }
        }
        // A quoted text may be one for another shell (`sh -c "…"`).
        for quoted in quoted_texts(text).take(MOST_PARTS) {
            self.suppose_commands(quoted);
        }
        self.depth -= 1;
    }

    /// Notes a text that is not parsed for its array indices: the commands in its words are judged all the same.
    pub(super) fn note_involved(&mut self, text: &str, tokens: &[Token]) {
        self.note_unparsable(text);
        self.depth += 1;
        for token in tokens {
            for word in self.scan_words(token.to_str()) {
                self.run_all(&word);
            }
        }
        self.depth -= 1;
    }
}

/// Reports whether a word of a text that cannot be parsed stands before a command: an assignment, or a redirection with its target.
fn stands_before(word: &str) -> bool {
    let name = word.split(['=', '+']).next().unwrap_or_default();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let target = word.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches(['<', '>', '-']);
    is_name && word.contains('=') || target.len() < word.len() && !target.is_empty() && word.contains(['<', '>'])
}

/// Returns the texts of several words that stand within a pair of quotes of one kind.
fn quoted_texts(text: &str) -> impl Iterator<Item = &str> {
    ['"', '\'']
        .into_iter()
        .flat_map(|quote| text.split(quote).skip(1).step_by(2))
        .filter(|inner| inner.contains(char::is_whitespace))
}
