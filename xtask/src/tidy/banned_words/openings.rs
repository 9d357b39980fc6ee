//! First words of sentences in pages.

use std::path::Path;

use crate::tidy::{
    TidyFinding,
    markdown::{Paragraph, ParagraphKind},
    source::is_word,
};

/// First words that describe a thing by a question instead of naming it.
pub(crate) const QUESTIONS: [&str; 10] =
    ["What", "Who", "Whoever", "Whatever", "How", "Where", "Whether", "Which", "Whose", "Whom"];

/// Openings that a heading may have without a question mark.
const HEADINGS: [&str; 2] = ["How to ", "Where to "];

const SENTENCE_ENDS: [char; 3] = ['.', '!', '?'];

/// Finds the sentences of a paragraph that begin with a question word and ask nothing.
pub(super) fn findings(file: &Path, paragraph: &Paragraph) -> Vec<TidyFinding> {
    let text = paragraph.text.as_str();
    let mut found = Vec::new();
    for (start, opening) in sentences(text) {
        let Some(word) = question_word(opening).filter(|_| !opening.ends_with('?')) else { continue };
        if paragraph.kind == ParagraphKind::Heading && HEADINGS.iter().any(|heading| opening.starts_with(heading)) {
            continue;
        }
        found.push(TidyFinding {
            file: file.to_path_buf(),
            line: paragraph.line + text[..start].matches('\n').count(),
            what: format!("a sentence begins with {word:?}"),
            why: "begin with the thing or the actor",
        });
    }
    found
}

fn question_word(sentence: &str) -> Option<&'static str> {
    let first = sentence.split(|c: char| !is_word(c)).next()?;
    QUESTIONS.into_iter().find(|question| *question == first)
}

/// Returns the sentences of a text from their first letter to their end mark, each with its position.
fn sentences(text: &str) -> Vec<(usize, &str)> {
    let mut sentences = Vec::new();
    let mut at = 0;
    while let Some(distance) = text[at..].find(|c: char| !(c.is_whitespace() || is_quote(c))) {
        let start = at + distance;
        let end = sentence_end(text, start);
        sentences.push((start, &text[start..end]));
        at = end;
    }
    sentences
}

/// Returns the position after the end mark of the sentence at `start`: white space follows it, or quotes and white space.
fn sentence_end(text: &str, start: usize) -> usize {
    let is_end = |end: &usize| text[*end..].trim_start_matches(is_quote).chars().next().is_none_or(char::is_whitespace);
    let mut marks = text[start..].match_indices(SENTENCE_ENDS).map(|(at, mark)| start + at + mark.len());
    marks.find(is_end).unwrap_or(text.len())
}

/// Reports whether `c` encloses a sentence or a part of it.
fn is_quote(c: char) -> bool {
    matches!(c, '*' | '_' | '"' | '\'' | '(' | ')' | '[' | ']' | '“' | '”')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::markdown::paragraphs;

    #[test]
    fn sentences_that_begin_with_a_question_word_are_found() {
        for (page, want) in [
            ("What it is.\n", vec![(1, "What")]),
            ("A log.\n**Whether** it is, or\n(see b.md). Where it is.", vec![(2, "Whether"), (3, "Where")]),
            ("- one. How\n- Who asks", vec![(1, "How"), (2, "Who")]),
            ("## What to watch", vec![(1, "What")]),
            ("## Where to test\n## How to add to it\n## What is a gate?", vec![]),
            ("What is it? A log, 0.5 What long. Whatsoever.", vec![]),
            ("*What becomes of\na call?* is a page.", vec![]),
            ("`a` What. However, it is.", vec![]),
        ] {
            let found = paragraphs(page).into_iter().flat_map(|paragraph| findings(Path::new("a.md"), &paragraph));
            let found: Vec<_> = found.map(|finding| (finding.line, finding.what)).collect();
            let want = want.into_iter().map(|(line, word)| (line, format!("a sentence begins with {word:?}")));
            assert_eq!(found, want.collect::<Vec<_>>(), "{page}");
        }
    }
}
