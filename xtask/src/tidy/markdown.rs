//! Pages in Markdown as paragraphs of prose: without code, tables, link targets and HTML.

/// Running text of one heading, paragraph or list item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Paragraph {
    pub(crate) kind: ParagraphKind,
    /// Of its first line, from 1.
    pub(crate) line: usize,
    /// Lines as in the page. A backtick stands for each piece of code.
    pub(crate) text: String,
}

/// Part of a page that a paragraph is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParagraphKind {
    Heading,
    Text,
    Item,
}

/// Returns the prose of a page in order.
pub(crate) fn paragraphs(page: &str) -> Vec<Paragraph> {
    let mut reader = PageReader::default();
    for (line, text) in (1..).zip(page.lines()) {
        reader.read_line(line, text);
    }
    reader.end_paragraph();
    reader.paragraphs
}

#[derive(Default)]
struct PageReader {
    paragraphs: Vec<Paragraph>,
    open: Option<Paragraph>,
    is_fenced: bool,
}

impl PageReader {
    fn read_line(&mut self, line: usize, text: &str) {
        let trimmed = text.trim_start();
        let is_fence = trimmed.starts_with("```");
        if is_fence {
            self.is_fenced = !self.is_fenced;
        }
        // An indented line after a paragraph or a list item continues it.
        let is_indented_code = self.open.is_none() && text.starts_with("    ");
        if is_fence || self.is_fenced || is_indented_code || trimmed.is_empty() || trimmed.starts_with(['|', '<']) {
            self.end_paragraph();
            return;
        }
        let (kind, text) = without_marker(trimmed);
        if let Some(open) = self.open.as_mut().filter(|_| kind == ParagraphKind::Text) {
            open.text.push('\n');
            open.text.push_str(text);
            return;
        }
        self.end_paragraph();
        self.open = Some(Paragraph { kind, line, text: text.to_owned() });
        if kind == ParagraphKind::Heading {
            self.end_paragraph();
        }
    }

    fn end_paragraph(&mut self) {
        if let Some(paragraph) = self.open.take() {
            let text = without_targets(&without_code(&paragraph.text));
            self.paragraphs.push(Paragraph { text, ..paragraph });
        }
    }
}

/// Takes the marker of a heading, a list item or a quotation from the beginning of a line.
fn without_marker(line: &str) -> (ParagraphKind, &str) {
    if let Some(heading) = line.strip_prefix('#') {
        return (ParagraphKind::Heading, heading.trim_start_matches('#').trim_start());
    }
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let item = if number.len() < line.len() {
        number.strip_prefix(". ")
    } else {
        ["- ", "* ", "+ "].iter().find_map(|marker| line.strip_prefix(marker))
    };
    match item {
        Some(item) => (ParagraphKind::Item, item.trim_start()),
        None => (ParagraphKind::Text, line.trim_start_matches("> ")),
    }
}

/// Replaces each piece between backticks by one backtick and the line ends in it.
fn without_code(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('`') {
        kept.push_str(&rest[..at]);
        kept.push('`');
        let code = rest[at..].trim_start_matches('`');
        let fence = &rest[at..rest.len() - code.len()];
        let Some(length) = code.find(fence) else {
            rest = code;
            continue;
        };
        kept.extend(code[..length].matches('\n'));
        rest = &code[length + fence.len()..];
    }
    kept + rest
}

/// Leaves the targets out of `[text](target)`.
fn without_targets(text: &str) -> String {
    let mut parts = text.split("](");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        kept.push(']');
        kept.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(page: &str) -> Vec<(usize, String)> {
        paragraphs(page).into_iter().map(|paragraph| (paragraph.line, paragraph.text)).collect()
    }

    #[test]
    fn a_page_is_read_as_headings_paragraphs_and_items() {
        let page = "# Log\nA line\nand one.\n\n- one\n  more\n- two\n12. three\n    more\n> four\n";
        let want = [
            (ParagraphKind::Heading, 1, "Log"),
            (ParagraphKind::Text, 2, "A line\nand one."),
            (ParagraphKind::Item, 5, "one\nmore"),
            (ParagraphKind::Item, 7, "two"),
            (ParagraphKind::Item, 8, "three\nmore\nfour"),
        ]
        .map(|(kind, line, text)| Paragraph { kind, line, text: text.to_owned() });
        assert_eq!(paragraphs(page), want);
    }

    #[test]
    fn code_tables_targets_and_html_are_left_out() {
        for (page, want) in [
            ("a\n\n    code\n\nb", vec![(1, "a"), (5, "b")]),
            ("a\n```sh\ncode\n```\nb", vec![(1, "a"), (5, "b")]),
            ("| a |\n|---|\n<img>\n", vec![]),
            ("a `code` b `c\nd` e", vec![(1, "a ` b `\n e")]),
            ("a ``c ` d`` b ` c", vec![(1, "a ` b ` c")]),
            ("[a](b/c.md#d), [e](f)", vec![(1, "[a], [e]")]),
            ("2024 was\n-1 too", vec![(1, "2024 was\n-1 too")]),
        ] {
            let want: Vec<_> = want.into_iter().map(|(line, text): (usize, &str)| (line, text.to_owned())).collect();
            assert_eq!(texts(page), want, "{page}");
        }
    }
}
