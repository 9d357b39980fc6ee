//! A Rust file as the rules see it: its code without comments and literals, and where its tests begin.
//!
//! It is a lexer, not a parser: enough to never mistake a comment or a string for code.

use std::{
    fs, iter,
    path::{Path, PathBuf},
};

use anyhow::Context as _;

/// A file with what the rules ask of it.
pub(crate) struct RustSource<'a> {
    pub(crate) file: &'a Path,
    /// The text with the insides of comments, strings and characters blanked; lines stay where they were.
    pub(crate) code: String,
    /// Lines before the tests, all of them if there are none.
    pub(crate) lines_without_tests: usize,
}

impl<'a> RustSource<'a> {
    pub(crate) fn new(file: &'a Path, text: &str) -> Self {
        let code = blank_literals(text);
        let is_tests = file.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "tests.rs");
        let lines_without_tests = if is_tests { 0 } else { lines_before_tests(&code) };
        Self { file, code, lines_without_tests }
    }

    /// Returns the lines of code with their numbers from 1.
    pub(crate) fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

/// String literal of a Rust file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StringLiteral<'a> {
    /// Of its first character, from 1.
    pub(crate) line: usize,
    /// As it is written, with its quotes.
    pub(crate) text: &'a str,
}

/// Returns every page in Markdown that belongs to the project's documents: those at the root and below `docs`, in order.
pub(crate) fn pages(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| format!("{} could not be listed", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                if folder != root || path.ends_with("docs") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    Ok(pages)
}

/// Returns the number of lines up to a test module with a body, which by convention is the end of a file.
///
/// A `#[cfg(test)]` on anything else hides nothing: code could follow it.
fn lines_before_tests(code: &str) -> usize {
    let lines: Vec<&str> = code.lines().collect();
    let begins = |index: &usize| {
        let body = lines[index + 1..].iter().find(|line| !line.trim_start().starts_with("#["));
        lines[*index] == "#[cfg(test)]"
            && body.is_some_and(|line| line.split_whitespace().any(|word| word == "mod") && line.ends_with('{'))
    };
    (0..lines.len()).find(begins).unwrap_or(lines.len())
}

/// Replaces every character inside a comment or a literal by a space, and keeps line ends.
fn blank_literals(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    for piece in pieces(text) {
        match piece {
            SourcePiece::Code(piece) => code.push_str(piece),
            SourcePiece::Literal(piece) => code.extend(piece.chars().map(|c| if c == '\n' { '\n' } else { ' ' })),
        }
    }
    code
}

/// Returns the string literals of a Rust file in order.
pub(crate) fn string_literals(text: &str) -> Vec<StringLiteral<'_>> {
    let mut literals = Vec::new();
    let mut line = 1;
    for piece in pieces(text) {
        let (SourcePiece::Code(text) | SourcePiece::Literal(text)) = piece;
        if matches!(piece, SourcePiece::Literal(_)) && !text.starts_with(['/', '\'']) {
            literals.push(StringLiteral { line, text });
        }
        line += text.matches('\n').count();
    }
    literals
}

/// Part of a Rust file.
#[derive(Clone, Copy)]
enum SourcePiece<'a> {
    /// One character.
    Code(&'a str),
    /// A whole comment, string or character.
    Literal(&'a str),
}

fn pieces(text: &str) -> impl Iterator<Item = SourcePiece<'_>> {
    let mut rest = text;
    let mut before = None;
    iter::from_fn(move || {
        let first = rest.chars().next()?;
        let length = literal_length(rest, before);
        let (piece, after) = rest.split_at(if length == 0 { first.len_utf8() } else { length });
        rest = after;
        before = Some(first).filter(|_| length == 0);
        Some(if length == 0 { SourcePiece::Code(piece) } else { SourcePiece::Literal(piece) })
    })
}

/// Returns the length in bytes of the comment or literal that `rest` begins with, 0 if it begins with code.
fn literal_length(rest: &str, before: Option<char>) -> usize {
    let in_word = before.is_some_and(is_word);
    if rest.starts_with("//") {
        rest.find('\n').unwrap_or(rest.len())
    } else if rest.starts_with("/*") {
        block_comment_length(rest)
    } else if rest.starts_with('"') {
        quoted_length(rest, '"')
    } else if rest.starts_with('\'') {
        character_length(rest)
    } else if !in_word && (rest.starts_with('r') || rest.starts_with("br") || rest.starts_with("cr")) {
        raw_length(rest)
    } else {
        0
    }
}

/// Reports whether `c` can be part of a name.
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn block_comment_length(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        let here = &rest[at..];
        if here.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += here.chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

fn quoted_length(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return at + c.len_utf8();
        }
    }
    rest.len()
}

/// Tells a character from a lifetime: only the character ends in a quote.
fn character_length(rest: &str) -> usize {
    let mut inside = rest.chars().skip(1);
    match (inside.next(), inside.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted_length(rest, '\''),
        _ => 0,
    }
}

fn raw_length(rest: &str) -> usize {
    let behind = rest.trim_start_matches(['b', 'c', 'r']);
    let hashes = behind.len() - behind.trim_start_matches('#').len();
    let Some(body) = behind[hashes..].strip_prefix('"') else { return 0 };
    let end = format!("\"{}", "#".repeat(hashes));
    let start = rest.len() - body.len();
    body.find(&end).map_or(rest.len(), |at| start + at + end.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_lines_stay() {
        for (text, want) in [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"f("x\"y") g"#, "f(      ) g"),
            ("r#\"a\"b\"# c", "         c"),
            ("for\"x\"", "for   "),
            ("'a' 'b: 'c", "    'b: 'c"),
            (r"'\'' x", "     x"),
            ("\"a\nb\"c", "  \n  c"),
            ("r#type br\"x\"", "r#type      "),
        ] {
            assert_eq!(blank_literals(text), want, "{text}");
        }
    }

    #[test]
    fn string_literals_have_the_lines_on_which_they_begin() {
        let text = "// \"a\"\nf(\"b\\\"c\", 'd', b\"e\");\nlet x = r#\"f\n\"g\"\"#;\n\"h\"";
        let literals = string_literals(text);
        let literals: Vec<_> = literals.iter().map(|literal| (literal.line, literal.text)).collect();
        assert_eq!(literals, [(2, "\"b\\\"c\""), (2, "\"e\""), (3, "r#\"f\n\"g\"\"#"), (5, "\"h\"")]);
    }

    #[test]
    fn tests_begin_at_a_test_module_with_a_body() {
        for (case, text, want) in [
            ("none", "a\nb\n", 2),
            ("at the end", "a\n#[cfg(test)]\nmod tests {\n}\n", 1),
            ("with a lint", "a\nb\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n}\n", 2),
            ("on an import", "#[cfg(test)]\nuse a;\nb\n", 3),
            ("in a file of its own", "a\n#[cfg(test)]\nmod tests;\n", 3),
            ("in a comment", "// #[cfg(test)]\nmod a {\n}\n", 3),
        ] {
            assert_eq!(RustSource::new(Path::new("src/a.rs"), text).lines_without_tests, want, "{case}");
        }
    }

    #[test]
    fn files_of_tests_have_no_other_lines() {
        for file in ["tests/it/main.rs", "src/gate/tests.rs", "src/gate/tests/expiry.rs"] {
            assert_eq!(RustSource::new(Path::new(file), "a\nb\n").lines_without_tests, 0, "{file}");
        }
    }
}
