//! Breaks text into lines between words while it still comes in.
//!
//! It must not know where the lines go.

/// A text that is being written, line by line.
#[derive(Debug)]
pub(crate) struct LineWrapper {
    indent: usize,
    width: usize,
    column: usize,
    /// Blanks that stand before the next word.
    blanks: usize,
    word: String,
}

impl LineWrapper {
    /// Returns a text whose first line begins at `column`; further lines begin at `indent`, and none is longer than `width` unless a word
    /// is.
    pub(crate) const fn new(column: usize, indent: usize, width: usize) -> Self {
        Self { indent, width, column, blanks: 0, word: String::new() }
    }

    /// Takes what comes next and gives what can be written of it.
    pub(crate) fn push(&mut self, text: &str) -> String {
        let mut written = String::new();
        for letter in text.chars() {
            match letter {
                '\n' => {
                    self.end_word(&mut written);
                    self.break_line(&mut written);
                }
                ' ' | '\t' => {
                    self.end_word(&mut written);
                    self.blanks += 1;
                }
                letter => self.word.push(letter),
            }
        }
        written
    }

    /// Gives what is left.
    pub(crate) fn finish(mut self) -> String {
        let mut written = String::new();
        self.end_word(&mut written);
        written
    }

    fn end_word(&mut self, written: &mut String) {
        let length = self.word.chars().count();
        if length == 0 {
            return;
        }
        if self.column > self.indent && self.column + self.blanks + length > self.width {
            self.break_line(written);
        }
        written.push_str(&" ".repeat(self.blanks));
        written.push_str(&self.word);
        self.column += self.blanks + length;
        self.blanks = 0;
        self.word.clear();
    }

    fn break_line(&mut self, written: &mut String) {
        written.push('\n');
        written.push_str(&" ".repeat(self.indent));
        self.column = self.indent;
        self.blanks = 0;
    }
}

/// Wraps the whole of `text`, its first line from `column` on.
pub(crate) fn wrap_text(text: &str, column: usize, indent: usize, width: usize) -> String {
    let mut wrap = LineWrapper::new(column, indent, width);
    let written = wrap.push(text);
    written + &wrap.finish()
}

#[cfg(test)]
mod tests {
    use super::{LineWrapper, wrap_text};

    #[test]
    fn lines_break_between_words_however_the_text_comes() {
        let text = "one two  three\nfour extraordinary five";
        let want = "one two\n  three\n  four\n  extraordinary\n  five";
        assert_eq!(wrap_text(text, 2, 2, 10), want);
        let mut wrap = LineWrapper::new(2, 2, 10);
        let mut pieces: String = text.chars().map(|letter| wrap.push(&letter.to_string())).collect();
        pieces.push_str(&wrap.finish());
        assert_eq!(pieces, want);
    }
}
