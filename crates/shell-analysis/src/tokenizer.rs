//! Cuts a text into words and operators as bash does, to be compared with what the grammar's own tokenizer made of it.
//!
//! It must not know what the words mean. Where the two do not agree, quotes or a here-document end elsewhere for one of them, and what
//! stands there may be a command for one and text for the other.

use std::collections::VecDeque;

use brush_parser::Token;

use super::grammar;

mod expansions;

/// Reports whether bash would cut `text` into the same words and operators.
pub(super) fn agrees_with_grammar(text: &str, tokens: &[Token]) -> bool {
    let Some(text) = grammar::with_ending(text) else { return false };
    let chars: Vec<char> = text.chars().collect();
    let last_bracket = chars.iter().rposition(|c| *c == ']').unwrap_or(0);
    let mut cutter = LineTokenizer { last_bracket, ..LineTokenizer::starting_at(&chars, 0) };
    cutter.read_commands().is_some()
        && cutter.open.is_empty()
        && cutter.pieces.len() == tokens.len()
        && cutter.pieces.iter().zip(tokens).all(|(piece, token)| piece.matches_token(token))
}

/// Returns `text` with the text of a here-document in place of each quoted substitution that only prints it. None if there is none.
///
/// It must be one that [`agrees_with_grammar`].
pub(super) fn inline_documents(text: &str) -> Option<String> {
    if !text.contains("<<") {
        return None;
    }
    let text = grammar::with_ending(text)?;
    let chars: Vec<char> = text.chars().collect();
    let last_bracket = chars.iter().rposition(|c| *c == ']').unwrap_or(0);
    let mut cutter = LineTokenizer { last_bracket, ..LineTokenizer::starting_at(&chars, 0) };
    cutter.read_commands()?;
    let (mut plain, mut at) = (String::with_capacity(text.len()), 0);
    for DocumentSubstitution { from, to, text } in &cutter.substitutions {
        plain.extend(&chars[at..*from]);
        for c in text.chars() {
            if "\\\"$`".contains(c) {
                plain.push('\\');
            }
            plain.push(c);
        }
        at = *to;
    }
    plain.extend(&chars[at..]);
    (at > 0).then_some(plain)
}

/// Returns the position of the partner of the bracket at `at`, if the text between can be read. `is_quoted` says whether double quotes are
/// around it.
pub(super) fn matching_bracket(chars: &[char], at: usize, is_quoted: bool) -> Option<usize> {
    let mut cutter = LineTokenizer::starting_at(chars, at + 1);
    let mut between = LexedWord::default();
    match chars.get(at)? {
        '(' if chars.get(at + 1) == Some(&'(') => cutter.read_matched('(', ')', is_quoted, &mut between)?,
        '(' => cutter.read_substitution()?,
        '[' => cutter.read_matched('[', ']', is_quoted, &mut between)?,
        '{' => cutter.read_parameter(is_quoted, &mut between)?,
        _ => return None,
    }
    Some(cutter.at - 1)
}

/// One word or operator, or the body of a here-document.
enum LexedToken {
    Operator(String),
    Word(LexedWord),
}

/// The text of a word without joined lines, and how closely it can be compared.
#[derive(Default)]
struct LexedWord {
    text: String,
    likeness: TokenFidelity,
}

/// Degree to which the tokenizer keeps the text of a word. A later one keeps less than an earlier.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum TokenFidelity {
    #[default]
    Same,
    /// Blanks in `${…}` and `$((…))` may be others.
    ButBlanks,
    /// Substitutions are rebuilt. No rule covers them.
    Loose,
}

impl LexedToken {
    fn matches_token(&self, token: &Token) -> bool {
        match (self, token) {
            (Self::Operator(one), Token::Operator(other, _)) => one == other,
            (Self::Word(one), Token::Word(other, _)) => one.matches_text(other),
            (Self::Operator(_), Token::Word(..)) | (Self::Word(_), Token::Operator(..)) => false,
        }
    }
}

impl LexedWord {
    fn exact_text(text: String) -> Self {
        Self { text, likeness: TokenFidelity::Same }
    }

    fn matches_text(&self, other: &str) -> bool {
        let visible = |text: &str| text.chars().filter(|c| !c.is_ascii_whitespace()).collect::<String>();
        match self.likeness {
            TokenFidelity::Same => self.text == other,
            TokenFidelity::ButBlanks => visible(&self.text) == visible(other),
            TokenFidelity::Loose => true,
        }
    }

    fn lower_fidelity(&mut self, likeness: TokenFidelity) {
        self.likeness = self.likeness.max(likeness);
    }
}

/// A here-document whose body follows the next line break.
struct PendingDocument {
    end: String,
    is_quoted: bool,
    strips_tabs: bool,
    /// Position of its body among the pieces. None within a substitution.
    place: Option<usize>,
}

/// A substitution in double quotes that says what a here-document holds, and nothing else.
struct DocumentSubstitution {
    from: usize,
    to: usize,
    text: String,
}

/// Reads from left to right. What returns an option is none where bash may read on in a way that is not followed here.
struct LineTokenizer<'a> {
    chars: &'a [char],
    at: usize,
    /// The last sign that may end an index.
    last_bracket: usize,
    pieces: Vec<LexedToken>,
    open: VecDeque<PendingDocument>,
    /// Number of substitutions around the cursor: their pieces are not kept.
    inside: usize,
    /// Number of parameters and brackets around the cursor.
    nested: usize,
    substitutions: Vec<DocumentSubstitution>,
}

/// Words after which a command begins.
const BEFORE_COMMANDS: [&str; 10] = ["do", "then", "else", "elif", "if", "while", "until", "{", "!", "time"];

const OPERATORS: [&str; 19] =
    ["<<-", "<<<", "&>>", ";;&", "&&", "||", ">>", "<<", ";;", "<&", ">&", "<>", ">|", "&>", ";&", "|&", "|", "&", ";"];

impl<'a> LineTokenizer<'a> {
    const fn starting_at(chars: &'a [char], at: usize) -> Self {
        Self {
            chars,
            at,
            last_bracket: 0,
            pieces: Vec::new(),
            open: VecDeque::new(),
            inside: 0,
            nested: 0,
            substitutions: Vec::new(),
        }
    }
}

impl LineTokenizer<'_> {
    /// Returns the next character. Lines that a backslash joins are one.
    fn peek_char(&mut self) -> Option<char> {
        while self.chars[self.at..].starts_with(&['\\', '\n']) {
            self.at += 2;
        }
        self.chars.get(self.at).copied()
    }

    /// Takes the next character, of lines as they are written.
    fn take_char(&mut self) -> Option<char> {
        let c = self.chars.get(self.at).copied()?;
        self.at += 1;
        Some(c)
    }

    fn push_token(&mut self, piece: LexedToken) {
        if self.inside == 0 {
            self.pieces.push(piece);
        }
    }

    /// Commands up to the end, or in a substitution up to the parenthesis that ends it.
    fn read_commands(&mut self) -> Option<()> {
        let (mut depth, mut is_pattern) = (0_usize, false);
        // Tells whether a command may begin at the cursor, and how many `case` are open: a parenthesis ends their patterns.
        let (mut begins, mut cases) = (true, 0_usize);
        // True if a descriptor may be closed: the dash that does it is a word by itself.
        let mut closes = false;
        // Ends of `((…))`, in which nothing is a here-document and nothing a comment.
        let mut arithmetic = 0;
        while let Some(c) = self.peek_char() {
            if !matches!(c, ' ' | '\t') && std::mem::take(&mut is_pattern) {
                self.is_plain_pattern().then_some(())?;
            }
            let was_closing = !matches!(c, ' ' | '\t') && std::mem::take(&mut closes);
            match c {
                ' ' | '\t' => self.at += 1,
                '-' if was_closing => {
                    self.at += 1;
                    self.push_token(LexedToken::Word(LexedWord::exact_text("-".to_owned())));
                }
                '#' if self.at < arithmetic => return None,
                '#' => {
                    while self.chars.get(self.at).is_some_and(|c| *c != '\n') {
                        self.at += 1;
                    }
                }
                '\n' => {
                    begins = true;
                    self.at += 1;
                    self.push_token(LexedToken::Operator("\n".to_owned()));
                    self.read_bodies()?;
                }
                ')' if depth == 0 && self.inside > 0 && cases == 0 => return Some(()),
                '(' | ')' => {
                    begins = true;
                    self.at += 1;
                    self.push_token(LexedToken::Operator(c.to_string()));
                    depth = if c == '(' { depth + 1 } else { depth.saturating_sub(1) };
                    if c == '(' && self.at >= arithmetic && self.peek_char() == Some('(') {
                        arithmetic = self.arithmetic_end()?;
                    }
                }
                '|' | '&' | ';' | '<' | '>' => {
                    begins = true;
                    let operator = self.read_operator();
                    closes = matches!(operator, "<&" | ">&");
                    self.push_token(LexedToken::Operator(operator.to_owned()));
                    if matches!(operator, "<<" | "<<-") && self.at >= arithmetic {
                        self.here_document(operator == "<<-")?;
                    }
                }
                _ => {
                    let word = self.read_word()?;
                    is_pattern = word.text == "=~";
                    cases = match word.text.as_str() {
                        "case" if begins => cases + 1,
                        "esac" if begins => cases.saturating_sub(1),
                        _ => cases,
                    };
                    begins = BEFORE_COMMANDS.contains(&word.text.as_str());
                    self.push_token(LexedToken::Word(word));
                }
            }
        }
        (self.inside == 0).then_some(())
    }

    fn read_operator(&mut self) -> &'static str {
        let mut found = "";
        let mut text = String::new();
        while let Some(c) = self.peek_char().filter(|_| text.len() < 3) {
            text.push(c);
            match OPERATORS.iter().chain(&["<", ">"]).find(|operator| **operator == text) {
                Some(operator) => found = operator,
                None => break,
            }
            self.at += 1;
        }
        found
    }

    /// Returns the position of the `))` that ends the arithmetic around the cursor, if it is some: two subshells may open together too.
    fn arithmetic_end(&mut self) -> Option<usize> {
        let from = self.at;
        self.at += 1;
        self.read_matched('(', ')', false, &mut LexedWord::default())?;
        let end = self.at;
        let is_arithmetic = self.peek_char() == Some(')');
        self.at = from;
        Some(if is_arithmetic { end } else { 0 })
    }

    /// Reports whether bash may take the text after `=~` for a pattern in which other signs are plain than elsewhere.
    fn is_plain_pattern(&self) -> bool {
        let mut depth = 0_usize;
        for c in &self.chars[self.at..] {
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                '#' | '<' if depth > 0 => return false,
                c if c.is_ascii_whitespace() && depth == 0 => return true,
                _ => {}
            }
        }
        true
    }

    /// Reads the end marker of a here-document.
    fn here_document(&mut self, strips_tabs: bool) -> Option<()> {
        while matches!(self.peek_char(), Some(' ' | '\t')) {
            self.at += 1;
        }
        let word = self.read_word()?;
        let is_quoted = word.text.contains(['\\', '\'', '"']);
        let end = strip_quotes(&word.text)?;
        self.push_token(LexedToken::Word(word));
        let place = (self.inside == 0).then_some(self.pieces.len());
        self.push_token(LexedToken::Word(LexedWord::default()));
        self.push_token(LexedToken::Word(LexedWord::exact_text(end.clone())));
        self.open.push_back(PendingDocument { end, is_quoted, strips_tabs, place });
        Some(())
    }

    /// Reads the bodies of here-documents after a line break.
    fn read_bodies(&mut self) -> Option<()> {
        while let Some(open) = self.open.pop_front() {
            let body = self.read_body(&open)?;
            if let Some(LexedToken::Word(cut)) = open.place.and_then(|place| self.pieces.get_mut(place)) {
                cut.text = body;
            }
        }
        Some(())
    }

    fn read_body(&mut self, open: &PendingDocument) -> Option<String> {
        let mut body = String::new();
        // Lines that are joined to lines before.
        let mut joined = String::new();
        while self.at < self.chars.len() {
            let from = self.at;
            while self.chars.get(self.at).is_some_and(|c| *c != '\n') {
                self.at += 1;
            }
            let is_last = self.at == self.chars.len();
            let line: String = self.chars[from..self.at].iter().collect();
            self.at += usize::from(!is_last);
            let stripped = if open.strips_tabs { line.trim_start_matches('\t') } else { &line };
            let goes_on = !open.is_quoted && (line.len() - line.trim_end_matches('\\').len()) % 2 == 1;
            joined.push_str(if joined.is_empty() { stripped } else { &line });
            if goes_on {
                joined.pop();
            } else if std::mem::take(&mut joined) == open.end {
                return Some(body);
            }
            body.push_str(stripped);
            if !is_last {
                body.push('\n');
            }
        }
        None
    }
}

/// Returns a word without its quotes. None where a dollar or a backtick lives in it.
fn strip_quotes(text: &str) -> Option<String> {
    let mut plain = String::new();
    let mut quote = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            (None | Some('"'), '$' | '`') => return None,
            (None, '\\') => plain.extend(chars.next()),
            (Some('"'), '\\') if chars.peek().is_some_and(|c| "$`\"\\".contains(*c)) => plain.extend(chars.next()),
            _ => plain.push(c),
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::{super::grammar, agrees_with_grammar};

    fn agrees_with_itself(text: &str) -> bool {
        grammar::tokenize_text(text).is_some_and(|tokens| agrees_with_grammar(text, &tokens))
    }

    #[test]
    fn what_people_write_is_cut_alike() {
        for text in [
            "",
            "ls -la 'a b' \"c $d\" \\\n  e # it's\n\ncat x|grep y&&z;(a&)\n",
            "a 2>&1 3>&- 4<& - >>b &>c <<<d 3<&- || ! b |& c",
            "cat <<A <<-'B' | x\n$(a) `b`\nA\n\t\\\n\tB\ny",
            "cat <<\\E\n'\nE",
            "x=1 y+=2 z[3]=4 w[$i]='a b' f() { :; }",
            "echo ${a:-b  c} \"${d#\"$e\"}\" ${f/\\}/g} ${h:-'}'} $'i\\'j' $\"k\" $$ $? a$ $((1 + (2 << 3)))",
            "echo \"$(cat <<'E'\nit's (\nE\n)\" `echo \\`ls\\`` $(a \"$(b ')')\")",
            "((i++, x << 2)); ((ls); ls) && [[ $a =~ ^(b|c)$ && ( d < e ) ]]",
            "case $x in a) b;; (c|d) e;& *) ;; esac",
            "diff <(a) >(b) 2> >(c)",
            "echo \"${a:-'b c'} ${d//'e'/_} ${f%%$'\\n'*}\"",
        ] {
            assert!(agrees_with_itself(text), "{text:?}");
        }
    }

    #[test]
    fn ambiguous_ends_of_quotes_or_documents_are_detected() {
        for text in [
            "echo ${x:-a<<E}\nevil\nE",
            "echo ${x:-((}; cat <<ls; evil\nls x\nls",
            "echo \\$'\\'; evil #'",
            "cat <<'E\\F'\nE\\F\nevil\nEF",
            "cat <<\\\n-E\nE\nevil\n-E",
            "cat <<E\nE\\\n\nevil\nE",
            "echo $'a\\\nb'",
            "(( 1 # )); evil\n))",
            "a[ #]=1; evil",
            "<&-rm x",
            "[[ a =~ (#) ]]; evil\n) ]]",
            "echo \"${x:-'}\" ; evil \"'}\"",
            "cat <<E $(\nE\n) x\nE\n",
        ] {
            assert!(!agrees_with_itself(text), "{text:?}");
        }
    }
}
