//! Style of documents and doc comments.

use std::{collections::BTreeMap, path::Path};

use crate::tidy::{banned_words::QUESTIONS, markdown};

const TOLD: [&str; 3] = ["told", "said", "heard"];
const YOU: [&str; 3] = ["you", "your", "yours"];

/// Folders of pages that state facts and do not address the reader.
const REFERENCE: [&str; 3] = ["docs/adr", "docs/protocol", "docs/reference"];

/// The texts of the workspace in figures.
#[derive(Debug, Default)]
pub(super) struct TextFigures {
    doc_comments: usize,
    questions: usize,
    pages: TextCounts,
    guides: TextCounts,
    words: BTreeMap<String, usize>,
}

#[derive(Debug, Default)]
struct TextCounts {
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

    /// Adds a page in Markdown. Code and tables do not count.
    pub(super) fn add_page(&mut self, path: &Path, text: &str) {
        let is_guide = !REFERENCE.iter().any(|folder| path.starts_with(folder));
        let mut count = 0;
        let prose = markdown::paragraphs(text);
        for word in prose.iter().flat_map(|paragraph| words(&paragraph.text)) {
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

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '\'' || c == '-'))
        .filter(|word| word.contains(char::is_alphabetic))
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
}
