//! Style of documents and doc comments.

use std::{collections::BTreeMap, path::Path};

use crate::tidy::source::RustSource;

/// First words that describe a thing by a question instead of naming it.
const QUESTIONS: [&str; 10] =
    ["What", "Who", "Whoever", "Whatever", "How", "Where", "Whether", "Which", "Whose", "Whom"];

const TOLD: [&str; 3] = ["told", "said", "heard"];
/// Words that hide the thing or the actor of a sentence.
const VAGUE_WORDS: [&str; 10] =
    ["anew", "beside", "heard", "nobody", "said", "somebody", "thereof", "told", "whatever", "whoever"];
const YOU: [&str; 3] = ["you", "your", "yours"];

/// Folders of pages that state facts and do not address the reader.
const REFERENCE: [&str; 3] = ["docs/adr", "docs/protocol", "docs/reference"];

/// The texts of the workspace in figures.
#[derive(Debug, Default)]
pub(super) struct TextFigures {
    doc_comments: usize,
    questions: usize,
    pages: Counts,
    guides: Counts,
    vague_words: usize,
    words: BTreeMap<String, usize>,
}

#[derive(Debug, Default)]
struct Counts {
    words: usize,
    told: usize,
    you: usize,
}

impl TextFigures {
    /// Adds the doc comments of a Rust file.
    pub(super) fn add_rustdoc(&mut self, text: &str) {
        let mut is_inside = false;
        for line in text.lines().map(str::trim_start) {
            let comment = line.strip_prefix("///").filter(|rest| !rest.starts_with('/'));
            if let Some(first) = comment.filter(|_| !is_inside) {
                self.doc_comments += 1;
                let word = words(first).next().unwrap_or_default();
                self.questions += usize::from(QUESTIONS.contains(&word));
            }
            is_inside = comment.is_some();
        }
    }

    /// Adds the string literals of a Rust file, but for its tests.
    pub(super) fn add_literals(&mut self, source: &RustSource<'_>, text: &str) {
        for ((line, code), original) in source.code_lines().zip(text.lines()) {
            if line > source.lines_without_tests {
                break;
            }
            let literals = literal_text(original, code);
            self.vague_words += words(&literals).filter(|word| VAGUE_WORDS.contains(word)).count();
        }
    }

    /// Adds a page in Markdown. Code and tables do not count.
    pub(super) fn add_page(&mut self, path: &Path, text: &str) {
        let prose = prose(text);
        let is_guide = !REFERENCE.iter().any(|folder| path.starts_with(folder));
        let mut count = 0;
        for word in words(&prose) {
            count += 1;
            let lower = word.to_lowercase();
            let (told, you) = (TOLD.contains(&lower.as_str()), YOU.contains(&lower.as_str()));
            for counts in [Some(&mut self.pages), is_guide.then_some(&mut self.guides)].into_iter().flatten() {
                counts.words += 1;
                counts.told += usize::from(told);
                counts.you += usize::from(you);
            }
        }
        self.words.insert(path.display().to_string(), count);
    }

    /// Returns how often vague words stand in the string literals of the program: help, errors, log lines, pages and wire texts.
    pub(super) fn vague_words(&self) -> f64 {
        ratio(self.vague_words, 1)
    }

    /// Returns the share of doc comments that begin with a question word, in percent.
    pub(super) fn rustdoc_questions(&self) -> f64 {
        ratio(self.questions, self.doc_comments) * 100.0
    }

    /// Returns how often told, said and heard stand in 1,000 words of all pages.
    pub(super) fn told(&self) -> f64 {
        ratio(self.pages.told, self.pages.words) * 1000.0
    }

    /// Returns how often the reader is addressed in 1,000 words of the pages that are no reference.
    pub(super) fn you(&self) -> f64 {
        ratio(self.guides.you, self.guides.words) * 1000.0
    }

    /// Returns the number of words of a page. 0 if there is none.
    pub(super) fn words_of(&self, page: &str) -> f64 {
        ratio(self.words.get(page).copied().unwrap_or_default(), 1)
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts of words are far below 2^52")]
fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The characters of a line that are blank in its code, without a comment at its end.
fn literal_text(line: &str, code: &str) -> String {
    let mut text = String::new();
    let mut code = code.chars();
    let mut rest = line.chars().peekable();
    while let Some(letter) = rest.next() {
        let is_blank = code.next() == Some(' ');
        if is_blank && letter == '/' && rest.peek() == Some(&'/') && text.ends_with(['\n', ' ']) | text.is_empty() {
            break;
        }
        text.push(if is_blank { letter } else { '\n' });
    }
    text
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '\'' || c == '-'))
        .filter(|word| word.contains(char::is_alphabetic))
}

/// Returns the running text of a page: without code, tables, link targets and comments.
fn prose(text: &str) -> String {
    let mut prose = String::with_capacity(text.len());
    let mut is_fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
            continue;
        }
        let is_code = is_fenced || line.starts_with("    ") || line.trim_start().starts_with(['|', '<']);
        if is_code {
            continue;
        }
        // Every second piece stands between backticks.
        for piece in line.split('`').step_by(2) {
            prose.push_str(&without_targets(piece));
            prose.push(' ');
        }
        prose.push('\n');
    }
    prose
}

/// Leaves the targets out of `[text](target)`.
fn without_targets(text: &str) -> String {
    let mut parts = text.split("](");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        kept.push(' ');
        kept.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_counts_without_code_tables_and_targets() {
        let mut figures = TextFigures::default();
        let page = "# You are told\n\n```sh\ntold said\n```\n    told\n| told |\nSee `said` and [your page](docs/you.md), heard.\n";
        figures.add_page(Path::new("README.md"), page);
        figures.add_page(Path::new("docs/protocol/omp.md"), "A host sends you a frame.\n");
        assert_eq!(figures.words_of("README.md"), 8.0);
        assert_eq!((figures.pages.words, figures.pages.told, figures.pages.you), (14, 2, 3));
        assert_eq!((figures.guides.words, figures.guides.told, figures.guides.you), (8, 2, 2));
        assert_eq!((figures.told(), figures.you()), (2000.0 / 14.0, 250.0));
        assert_eq!(figures.words_of("absent.md"), 0.0);
    }

    #[test]
    fn the_first_line_of_a_doc_comment_counts() {
        let mut figures = TextFigures::default();
        figures.add_rustdoc(
            "/// What it is.\n/// How.\nfn a() {}\n    /// Returns it.\n//// Who\n/// Whether it is.\nx\n",
        );
        assert_eq!((figures.doc_comments, figures.questions), (3, 2));
    }

    #[test]
    fn vague_words_of_literals_count_and_those_of_comments_and_names_do_not() {
        let mut figures = TextFigures::default();
        let text = "let told = \"it is told to whoever\"; // nobody\n/// told\nlet url = \"http://said\";\nlet x = \"a\n anew\";\n\
                    #[cfg(test)]\nmod tests {\n    let a = \"told\";\n}\n";
        figures.add_literals(&RustSource::new(Path::new("src/a.rs"), text), text);
        assert_eq!(figures.vague_words, 4);
    }
}
