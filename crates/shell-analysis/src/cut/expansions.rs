//! Words of a text that is cut, with what is quoted and expanded in them.

use super::{Cut, Cutter, Likeness, Said};
use crate::here_documents;

impl Cutter<'_> {
    /// The word at the cursor.
    pub(super) fn word(&mut self) -> Option<Cut> {
        let mut word = Cut::default();
        let mut indices = 0_usize;
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' | '\n' | '|' | '&' | ';' | '(' | ')' | '<' | '>' => break,
                '[' if indices > 0 || is_name(&word.text) => indices += 1,
                ']' => indices = indices.saturating_sub(1),
                _ => {}
            }
            self.part(c, false, &mut word)?;
        }
        // An index may go on behind a blank.
        let is_whole = indices == 0 || self.at > self.last_bracket;
        (is_whole && !word.text.is_empty()).then_some(word)
    }

    /// What begins with `c` at the cursor: a letter, or all that quotes or a dollar keep together.
    fn part(&mut self, c: char, is_quoted: bool, word: &mut Cut) -> Option<()> {
        self.at += 1;
        word.text.push(c);
        match c {
            '\\' => word.text.extend(self.take()),
            '"' if !is_quoted => self.double(word)?,
            '\'' if !is_quoted => self.single(word)?,
            '`' => self.backticks(word)?,
            '$' => self.dollar(is_quoted, word)?,
            _ => {}
        }
        Some(())
    }

    fn single(&mut self, word: &mut Cut) -> Option<()> {
        loop {
            let c = self.take()?;
            word.text.push(c);
            if c == '\'' {
                return Some(());
            }
        }
    }

    fn double(&mut self, word: &mut Cut) -> Option<()> {
        loop {
            let c = self.peek()?;
            if c == '"' {
                self.at += 1;
                word.text.push(c);
                return Some(());
            }
            let from = self.at;
            self.part(c, true, word)?;
            if c == '$' && self.inside == 0 && self.nested == 0 {
                self.note_said(from);
            }
        }
    }

    /// Takes note of a substitution that began at `from` if it only says a here-document.
    fn note_said(&mut self, from: usize) {
        let text: String = self.chars[from..self.at].iter().collect();
        if let Some(text) = here_documents::said(&text) {
            self.said.push(Said { from, to: self.at, text });
        }
    }

    fn backticks(&mut self, word: &mut Cut) -> Option<()> {
        word.loosen(Likeness::Loose);
        loop {
            match self.take()? {
                '`' => return Some(()),
                '\\' => drop(self.take()?),
                _ => {}
            }
        }
    }

    /// What stands behind a dollar.
    fn dollar(&mut self, is_quoted: bool, word: &mut Cut) -> Option<()> {
        match self.peek() {
            Some('(') => {
                self.at += 1;
                word.text.push('(');
                if self.peek() == Some('(') {
                    word.loosen(Likeness::ButBlanks);
                    return self.matched('(', ')', is_quoted, word);
                }
                word.loosen(Likeness::Loose);
                self.substitution()
            }
            Some('[') => {
                self.at += 1;
                word.loosen(Likeness::Loose);
                self.matched('[', ']', is_quoted, word)
            }
            Some('{') => {
                self.at += 1;
                word.text.push('{');
                word.loosen(Likeness::ButBlanks);
                self.parameter(is_quoted, word)
            }
            Some('\'') if !is_quoted => {
                self.at += 1;
                word.text.push('\'');
                self.ansi(word)
            }
            // The number of the shell: the second begins nothing.
            Some('$') => {
                self.at += 1;
                word.text.push('$');
                Some(())
            }
            Some(_) | None => Some(()),
        }
    }

    fn ansi(&mut self, word: &mut Cut) -> Option<()> {
        loop {
            let c = self.take()?;
            word.text.push(c);
            match c {
                '\'' => return Some(()),
                '\\' => word.text.push(self.take()?),
                _ => {}
            }
        }
    }

    /// Commands in `$(…)`, behind its parenthesis.
    pub(super) fn substitution(&mut self) -> Option<()> {
        self.inside += 1;
        let (around, from) = (std::mem::take(&mut self.open), self.at);
        self.commands()?;
        // One that is still open would be read behind the substitution, one of around it perhaps within.
        let is_apart = around.is_empty() || !self.chars[from..self.at].contains(&'\n');
        (self.open.is_empty() && is_apart).then_some(())?;
        self.open = around;
        self.inside -= 1;
        self.at += 1;
        Some(())
    }

    /// What stands in `${…}`: its first brace that is not quoted ends it.
    pub(super) fn parameter(&mut self, is_quoted: bool, word: &mut Cut) -> Option<()> {
        self.nested += 1;
        self.up_to_brace(is_quoted, word)?;
        self.nested -= 1;
        Some(())
    }

    fn up_to_brace(&mut self, is_quoted: bool, word: &mut Cut) -> Option<()> {
        loop {
            let c = self.peek()?;
            match c {
                '}' => {
                    self.at += 1;
                    word.text.push(c);
                    return Some(());
                }
                '"' => {
                    self.at += 1;
                    word.text.push(c);
                    self.double(word)?;
                }
                // Within double quotes it depends on the operator whether it is one: it must not matter.
                '\'' if is_quoted => {
                    self.at += 1;
                    word.text.push(c);
                    let from = word.text.len();
                    self.single(word)?;
                    let text = &word.text[from..word.text.len() - c.len_utf8()];
                    (!text.contains(['}', '"', '$', '`']) && !text.ends_with('\\')).then_some(())?;
                }
                _ => self.part(c, is_quoted, word)?,
            }
        }
    }

    /// All up to the partner of a bracket that is open, nested ones with it.
    pub(super) fn matched(&mut self, open: char, close: char, is_quoted: bool, word: &mut Cut) -> Option<()> {
        self.nested += 1;
        self.up_to_partner(open, close, is_quoted, word)?;
        self.nested -= 1;
        Some(())
    }

    fn up_to_partner(&mut self, open: char, close: char, is_quoted: bool, word: &mut Cut) -> Option<()> {
        let mut depth = 1_usize;
        loop {
            let c = self.peek()?;
            match c {
                '\'' | '"' if is_quoted => return None,
                _ if c == open => depth += 1,
                _ if c == close => depth -= 1,
                _ => {}
            }
            self.part(c, is_quoted, word)?;
            if depth == 0 {
                return Some(());
            }
        }
    }
}

fn is_name(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit())
        && !text.is_empty()
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
