//! Words of a text that is cut, with what is quoted and expanded in them.

use super::{DocumentSubstitution, LexedWord, LineTokenizer, TokenFidelity};
use crate::here_documents;

impl LineTokenizer<'_> {
    /// Returns the word at the cursor.
    pub(super) fn read_word(&mut self) -> Option<LexedWord> {
        let mut word = LexedWord::default();
        let mut indices = 0_usize;
        while let Some(c) = self.peek_char() {
            match c {
                ' ' | '\t' | '\n' | '|' | '&' | ';' | '(' | ')' | '<' | '>' => break,
                '[' if indices > 0 || is_name(&word.text) => indices += 1,
                ']' => indices = indices.saturating_sub(1),
                _ => {}
            }
            self.read_part(c, false, &mut word)?;
        }
        // An index may continue after a blank.
        let is_whole = indices == 0 || self.at > self.last_bracket;
        (is_whole && !word.text.is_empty()).then_some(word)
    }

    /// Reads the part that begins with `c` at the cursor: a character, or all that quotes or a dollar keep together.
    fn read_part(&mut self, c: char, is_quoted: bool, word: &mut LexedWord) -> Option<()> {
        self.at += 1;
        word.text.push(c);
        match c {
            '\\' => word.text.extend(self.take_char()),
            '"' if !is_quoted => self.read_double_quoted(word)?,
            '\'' if !is_quoted => self.read_single_quoted(word)?,
            '`' => self.read_backticks(word)?,
            '$' => self.read_dollar(is_quoted, word)?,
            _ => {}
        }
        Some(())
    }

    fn read_single_quoted(&mut self, word: &mut LexedWord) -> Option<()> {
        loop {
            let c = self.take_char()?;
            word.text.push(c);
            if c == '\'' {
                return Some(());
            }
        }
    }

    fn read_double_quoted(&mut self, word: &mut LexedWord) -> Option<()> {
        loop {
            let c = self.peek_char()?;
            if c == '"' {
                self.at += 1;
                word.text.push(c);
                return Some(());
            }
            let from = self.at;
            self.read_part(c, true, word)?;
            if c == '$' && self.inside == 0 && self.nested == 0 {
                self.note_substitution(from);
            }
        }
    }

    /// Takes note of a substitution that began at `from` if it only says a here-document.
    fn note_substitution(&mut self, from: usize) {
        let text: String = self.chars[from..self.at].iter().collect();
        if let Some(text) = here_documents::document_text(&text) {
            self.substitutions.push(DocumentSubstitution { from, to: self.at, text });
        }
    }

    fn read_backticks(&mut self, word: &mut LexedWord) -> Option<()> {
        word.lower_fidelity(TokenFidelity::Loose);
        loop {
            match self.take_char()? {
                '`' => return Some(()),
                '\\' => drop(self.take_char()?),
                _ => {}
            }
        }
    }

    /// Reads the expansion after a dollar.
    fn read_dollar(&mut self, is_quoted: bool, word: &mut LexedWord) -> Option<()> {
        match self.peek_char() {
            Some('(') => {
                self.at += 1;
                word.text.push('(');
                if self.peek_char() == Some('(') {
                    word.lower_fidelity(TokenFidelity::ButBlanks);
                    return self.read_matched('(', ')', is_quoted, word);
                }
                word.lower_fidelity(TokenFidelity::Loose);
                self.read_substitution()
            }
            Some('[') => {
                self.at += 1;
                word.lower_fidelity(TokenFidelity::Loose);
                self.read_matched('[', ']', is_quoted, word)
            }
            Some('{') => {
                self.at += 1;
                word.text.push('{');
                word.lower_fidelity(TokenFidelity::ButBlanks);
                self.read_parameter(is_quoted, word)
            }
            Some('\'') if !is_quoted => {
                self.at += 1;
                word.text.push('\'');
                self.read_ansi(word)
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

    fn read_ansi(&mut self, word: &mut LexedWord) -> Option<()> {
        loop {
            let c = self.take_char()?;
            word.text.push(c);
            match c {
                '\'' => return Some(()),
                '\\' => word.text.push(self.take_char()?),
                _ => {}
            }
        }
    }

    /// Reads commands in `$(…)`, after its parenthesis.
    pub(super) fn read_substitution(&mut self) -> Option<()> {
        self.inside += 1;
        let (around, from) = (std::mem::take(&mut self.open), self.at);
        self.read_commands()?;
        // One that is still open would be read after the substitution, one of around it perhaps within.
        let is_apart = around.is_empty() || !self.chars[from..self.at].contains(&'\n');
        (self.open.is_empty() && is_apart).then_some(())?;
        self.open = around;
        self.inside -= 1;
        self.at += 1;
        Some(())
    }

    /// Reads `${…}`: its first brace that is not quoted ends it.
    pub(super) fn read_parameter(&mut self, is_quoted: bool, word: &mut LexedWord) -> Option<()> {
        self.nested += 1;
        self.up_to_brace(is_quoted, word)?;
        self.nested -= 1;
        Some(())
    }

    fn up_to_brace(&mut self, is_quoted: bool, word: &mut LexedWord) -> Option<()> {
        loop {
            let c = self.peek_char()?;
            match c {
                '}' => {
                    self.at += 1;
                    word.text.push(c);
                    return Some(());
                }
                '"' => {
                    self.at += 1;
                    word.text.push(c);
                    self.read_double_quoted(word)?;
                }
                // Within double quotes it depends on the operator whether it is one: it must not matter.
                '\'' if is_quoted => {
                    self.at += 1;
                    word.text.push(c);
                    let from = word.text.len();
                    self.read_single_quoted(word)?;
                    let text = &word.text[from..word.text.len() - c.len_utf8()];
                    (!text.contains(['}', '"', '$', '`']) && !text.ends_with('\\')).then_some(())?;
                }
                _ => self.read_part(c, is_quoted, word)?,
            }
        }
    }

    /// Returns all up to the partner of a bracket that is open, nested ones with it.
    pub(super) fn read_matched(
        &mut self,
        open: char,
        close: char,
        is_quoted: bool,
        word: &mut LexedWord,
    ) -> Option<()> {
        self.nested += 1;
        self.up_to_partner(open, close, is_quoted, word)?;
        self.nested -= 1;
        Some(())
    }

    fn up_to_partner(&mut self, open: char, close: char, is_quoted: bool, word: &mut LexedWord) -> Option<()> {
        let mut depth = 1_usize;
        loop {
            let c = self.peek_char()?;
            match c {
                '\'' | '"' if is_quoted => return None,
                _ if c == open => depth += 1,
                _ if c == close => depth -= 1,
                _ => {}
            }
            self.read_part(c, is_quoted, word)?;
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
