//! Words that hide the thing or the actor of a sentence, and sentences that begin with a question word.
//!
//! Pages may have neither. Texts of the program may not have the words: its string literals with a space, and its help.
//! `wire_texts.rs` lists the files whose texts a protocol fixes.

mod openings;
mod wire_texts;

use std::path::{Path, PathBuf};

pub(crate) use openings::QUESTIONS;

use crate::{
    tidy::{
        TidyFinding, markdown, read_text,
        source::{self, RustSource, StringLiteral, is_word, string_literals},
    },
    workspace::Workspace,
};

/// Phrases that are refused, each with the words to write in its place. Case does not count.
const BANNED: &[(&str, &str)] = &[
    ("afresh", "write \"again\""),
    ("anew", "write \"again\", or \"new\" before the noun"),
    ("beside", "write \"next to\", \"with\" or \"in addition to\""),
    ("but for", "write \"except\""),
    ("for good", "write \"permanently\" or \"always\""),
    ("goes on", "write \"continues\""),
    ("heard", "write \"received\" or \"seen\""),
    ("is had", "write \"is available\" or name who has it"),
    ("knock", "write \"pairing request\" or \"connection attempt\""),
    ("knocks", "write \"pairing requests\" or \"connection attempts\""),
    ("lie", "write \"are in\" or \"be in\""),
    ("lies", "write \"is in\""),
    ("nobody", "name the role: \"no approver\", \"no user\", \"no client\""),
    ("none but", "write \"only\""),
    ("said", "write \"sent\", \"reported\" or \"stated\", with its actor"),
    ("somebody", "name the role: \"an approver\", \"another user\", \"another process\""),
    ("span of time", "write \"duration\""),
    ("thereof", "name the thing"),
    ("told", "write \"gets\", \"receives\" or \"reported\", with its actor"),
    ("what waits", "write \"pending approvals\" or \"pending request\""),
    ("whatever", "write \"any\", \"everything\" or \"regardless of\""),
    ("whichever", "write \"any\" or \"the one that\""),
    ("whoever", "name the role: \"the approver\", \"the client\", \"any user\""),
    ("whomever", "name the role: \"the approver\", \"the client\", \"any user\""),
];

/// Programs and folders below `crates` that are for tests only.
const TEST_PROGRAMS: [&str; 2] = ["crates/loadtest", "crates/testkit"];
const TEST_MODULES: [&str; 4] = ["fuzz", "fuzz.rs", "suite", "suite.rs"];

/// Pages that `cargo xtask reference` writes: their texts are mended in the code.
const GENERATED: &str = "docs/reference";

/// One banned phrase in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BannedUse {
    line: usize,
    phrase: &'static str,
    why: &'static str,
}

/// Finds the banned words in the texts of a file of the program, if they are more than its wire texts need.
pub(crate) fn findings(source: &RustSource<'_>, text: &str) -> Vec<TidyFinding> {
    if !is_program(source.file) {
        return Vec::new();
    }
    let within_program = |literal: &StringLiteral<'_>| literal.line <= source.lines_without_tests;
    let literals = string_literals(text);
    let texts = literals.iter().take_while(|literal| within_program(literal)).filter(|literal| is_text(literal));
    let mut uses: Vec<_> =
        texts.flat_map(|literal| banned_uses(literal.line, &without_escapes(literal.text))).collect();
    uses.extend(help_texts(text).flat_map(|(line, help)| banned_uses(line, help)));
    beyond_allowed(source.file, &uses, wire_texts::allowed(source.file))
}

/// Finds banned words and openings in the pages of the workspace, and files in the list of wire texts that are gone.
pub(crate) fn workspace_findings(workspace: &Workspace) -> anyhow::Result<Vec<TidyFinding>> {
    let mut found = wire_texts::missing_files(&workspace.root);
    for page in checked_pages(workspace)? {
        found.extend(page_findings(workspace.relative_path(&page), &read_text(&page)?));
    }
    Ok(found)
}

/// Returns the pages of the project and of its packages, without generated ones.
fn checked_pages(workspace: &Workspace) -> anyhow::Result<Vec<PathBuf>> {
    let mut pages = source::pages(&workspace.root)?;
    pages.extend(workspace.packages.iter().map(|package| package.folder().join("README.md")));
    pages.retain(|page| page.exists() && !workspace.relative_path(page).starts_with(GENERATED));
    Ok(pages)
}

fn page_findings(file: &Path, page: &str) -> Vec<TidyFinding> {
    let mut found = Vec::new();
    for paragraph in markdown::paragraphs(page) {
        found.extend(banned_uses(paragraph.line, &paragraph.text).iter().map(|banned| banned.finding(file)));
        found.extend(openings::findings(file, &paragraph));
    }
    found
}

impl BannedUse {
    fn finding(&self, file: &Path) -> TidyFinding {
        TidyFinding { file: file.to_path_buf(), line: self.line, what: format!("{:?}", self.phrase), why: self.why }
    }
}

/// Returns every use as a finding if there are more than `allowed`, and one finding if there are fewer.
fn beyond_allowed(file: &Path, uses: &[BannedUse], allowed: usize) -> Vec<TidyFinding> {
    if uses.len() > allowed {
        return uses.iter().map(|banned| banned.finding(file)).collect();
    }
    if uses.len() == allowed {
        return Vec::new();
    }
    let what = format!("{} banned words, and {allowed} in the list of wire texts", uses.len());
    let why = "the list only shrinks: write the number into banned_words/wire_texts.rs";
    vec![TidyFinding { file: file.to_path_buf(), line: 1, what, why }]
}

fn is_program(file: &Path) -> bool {
    let is_of_tests = TEST_PROGRAMS.iter().any(|program| file.starts_with(program))
        || file.components().any(|part| part.as_os_str().to_str().is_some_and(|part| TEST_MODULES.contains(&part)));
    file.starts_with("crates") && !is_of_tests
}

/// Returns the doc comments, with their lines, of a file that defines parts of the command line: they are its help.
fn help_texts(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_help = text.contains("clap::");
    let lines = text.lines().enumerate().filter(move |_| is_help);
    lines.filter_map(|(at, line)| Some((at + 1, line.trim_start().strip_prefix("/// ")?)))
}

/// Reports whether a literal is a text. One without a space is a name: a key, a column, a kind.
fn is_text(literal: &StringLiteral<'_>) -> bool {
    literal.text.contains(' ')
}

/// Replaces each escape by spaces, and keeps line ends.
fn without_escapes(literal: &str) -> String {
    let mut text = String::with_capacity(literal.len());
    let mut letters = literal.chars();
    while let Some(letter) = letters.next() {
        text.push(if letter == '\\' { ' ' } else { letter });
        if letter == '\\' {
            let is_line_end = letters.next() == Some('\n');
            text.push(if is_line_end { '\n' } else { ' ' });
        }
    }
    text
}

/// Returns the uses of banned phrases in a text that begins at `line`.
fn banned_uses(line: usize, text: &str) -> Vec<BannedUse> {
    let words = words(text);
    let mut uses = Vec::new();
    for (index, word) in words.iter().enumerate() {
        for &(phrase, why) in BANNED {
            if begins_with(text, &words[index..], phrase) {
                uses.push(BannedUse { line: line + text[..word.start].matches('\n').count(), phrase, why });
            }
        }
    }
    uses
}

/// Position of a word in a text, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WordPosition {
    start: usize,
    end: usize,
}

/// Returns the words of a text. A name in braces is a placeholder.
fn words(text: &str) -> Vec<WordPosition> {
    let is_part = |c: char| is_word(c) || c == '-';
    let mut words = Vec::new();
    let mut at = 0;
    while let Some(distance) = text[at..].find(is_part) {
        let start = at + distance;
        let end = text[start..].find(|c: char| !is_part(c)).map_or(text.len(), |length| start + length);
        if !text[..start].ends_with('{') {
            words.push(WordPosition { start, end });
        }
        at = end;
    }
    words
}

/// Reports whether `words` begin with `phrase`, with only white space between its words.
fn begins_with(text: &str, words: &[WordPosition], phrase: &str) -> bool {
    let mut end = None;
    for (index, wanted) in phrase.split(' ').enumerate() {
        let Some(word) = words.get(index) else { return false };
        let is_adjacent = end.is_none_or(|end| text[end..word.start].trim().is_empty());
        if !is_adjacent || !text[word.start..word.end].eq_ignore_ascii_case(wanted) {
            return false;
        }
        end = Some(word.end);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_page(page: &str) -> Vec<(usize, String)> {
        page_findings(Path::new("a.md"), page).into_iter().map(|finding| (finding.line, finding.what)).collect()
    }

    fn in_file(file: &str, text: &str) -> Vec<(usize, String)> {
        let found = findings(&RustSource::new(Path::new(file), text), text);
        found.into_iter().map(|finding| (finding.line, finding.what)).collect()
    }

    fn expected(want: &[(usize, &str)]) -> Vec<(usize, String)> {
        want.iter().map(|(line, phrase)| (*line, format!("{phrase:?}"))).collect()
    }

    #[test]
    fn banned_words_of_a_page_are_found_with_their_lines() {
        for (page, want) in [
            ("The client is told.\n\nOne\nlies there.", vec![(1, "told"), (4, "lies")]),
            ("It stays for\ngood, in `told`.", vec![(1, "for good")]),
            ("- none\n- but one, for, good\n", vec![]),
            ("Untold lies-in stories, [text](told.md).", vec![]),
            ("NOBODY is *whoever*.", vec![(1, "nobody"), (1, "whoever")]),
            ("| told |\n\n    told\n", vec![]),
        ] {
            assert_eq!(in_page(page), expected(&want), "{page}");
        }
    }

    #[test]
    fn banned_words_of_the_program_are_found_in_texts_only() {
        let file = "crates/none/src/a.rs";
        for (text, want) in [
            (
                "let a = \"is told\";\nlet b = \"a\\nnobody is \\\n    heard\";",
                vec![(1, "told"), (2, "nobody"), (3, "heard")],
            ),
            ("let told = \"told\"; // is told\n/// is told\nlet a = \"{told} is {said:?} it\";", vec![]),
            ("#[cfg(test)]\nmod tests {\n    let a = \"is told\";\n}\n", vec![]),
        ] {
            assert_eq!(in_file(file, text), expected(&want), "{text}");
        }
        let help = "use clap::Args;\n/// One that is told\nstruct A;";
        assert_eq!(in_file(file, help), expected(&[(2, "told")]));
        for file in ["crates/loadtest/src/a.rs", "crates/a/tests/it/a.rs", "crates/a/src/fuzz.rs", "xtask/src/a.rs"] {
            assert_eq!(in_file(file, "let a = \"is told\";"), [], "{file}");
        }
    }

    #[test]
    fn a_file_has_as_many_banned_words_as_its_wire_texts() {
        let banned = BannedUse { line: 7, phrase: "told", why: "" };
        let count = |uses: &[BannedUse], allowed| {
            let found = beyond_allowed(Path::new("a.rs"), uses, allowed);
            found.into_iter().map(|finding| finding.what).collect::<Vec<_>>()
        };
        assert_eq!(count(&[banned; 2], 2), [""; 0]);
        assert_eq!(count(&[banned; 2], 1), ["\"told\"", "\"told\""]);
        assert_eq!(count(&[banned], 2), ["1 banned words, and 2 in the list of wire texts"]);
    }
}
