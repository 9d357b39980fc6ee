//! The way into the library's grammar of shells: it reads texts only so that it comes to their end.

use std::{borrow::Cow, panic::catch_unwind};

use brush_parser::{ParserOptions, Token, ast};

/// Returns the words and operators of a text that [`limits`](super::limits) let through. None if the grammar cannot cut it: it
/// panics at a substitution that ends twice, for a here-document's line within it is read again.
pub(super) fn tokenize_text(text: &str) -> Option<Vec<Token>> {
    let text = with_ending(text)?;
    catch_unwind(|| brush_parser::uncached_tokenize_str(&text, &parser_options().tokenizer_options())).ok()?.ok()
}

/// Returns the tree of [`tokens`]. None if they are no program.
pub(super) fn parse_program(tokens: &[Token]) -> Option<ast::Program> {
    catch_unwind(|| brush_parser::parse_tokens(tokens, &parser_options())).ok()?.ok()
}

/// Returns a text as it is read. None if it cannot be.
///
/// If the text is at its end and the line of a here-document is not, the grammar looks for a word that ends the document, and an
/// empty one it finds again and again, taking memory all the while: `$( e << ` is enough. After an empty line there is no such place: the
/// first break ends the word, the second the line.
pub(super) fn with_ending(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains("<<") {
        return Some(text.into());
    }
    // It would take a break away, and for a shell it is a word.
    (!text.ends_with('\\')).then(|| format!("{text}\n\n").into())
}

fn parser_options() -> ParserOptions {
    // A shell that runs commands for a program has extended globs off: `!(x)` is a negated subshell there.
    ParserOptions { enable_extended_globbing: false, ..ParserOptions::default() }
}

#[cfg(test)]
mod tests {
    use super::tokenize_text;

    /// Each took all memory there is.
    #[test]
    fn a_here_document_without_a_word_comes_to_an_end() {
        for start in [
            "$( e <<",
            "$( e <<-",
            "${x:-$( e <<",
            "\"$( e <<",
            "$[$( e <<",
            "<( e <<",
            "e <<",
            "$( a <<A <<",
            "$( a <<A\nA\n b <<",
        ] {
            for word in [
                "",
                " ",
                "  ",
                "\t ",
                "''",
                "\"\"",
                "\\\n",
                " \\\n ",
                "\u{c}",
                "  #",
                ";",
                " )$( e",
                " )$( e<> x",
                " \n",
                "\\",
                "A",
                "A\\\n",
            ] {
                let _ = tokenize_text(&format!("{start}{word}"));
            }
        }
    }

    #[test]
    fn a_document_is_read_to_its_end() {
        for text in ["cat <<E\na\nE", "cat <<E\na\nE\n", "cat <<E; ls\na\nE\n\n", "cat <<E | cat <<-F\na\nE\n\tb\n\tF"]
        {
            let tokens = tokenize_text(text).expect("it can be cut");
            assert!(tokens.iter().any(|token| token.to_str() == "a\n"), "{text:?}: {tokens:?}");
            assert!(super::parse_program(&tokens).is_some(), "{text:?}");
        }
        for text in ["cat <<E", "cat <<E\na", "cat <<E\na\n", "cat <<"] {
            assert!(tokenize_text(text).is_none(), "{text:?}");
        }
    }
}
