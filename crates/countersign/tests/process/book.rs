//! The book: every page is in it, every link leads somewhere, and what a page tells a reader to do works.

mod guide;
mod shown;
mod starts;

use std::{
    fs,
    path::{Path, PathBuf},
};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").canonicalize().unwrap()
}

fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let found = entries.flat_map(|path| if path.is_dir() { pages(&path) } else { vec![path] });
    found.filter(|path| path.extension().is_some_and(|end| end == "md")).collect()
}

/// Returns the targets of a page's links that name a file.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let files = targets.filter(|target| !target.contains("://") && !target.starts_with('#') && !target.contains(' '));
    files.filter_map(|target| target.split('#').next()).filter(|target| target.contains('.')).collect()
}

#[test]
fn every_page_is_in_the_book_and_every_link_leads_somewhere() {
    let docs = docs();
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let listed = links(&summary);
    for page in pages(&docs) {
        let name = page.strip_prefix(&docs).unwrap().to_str().unwrap().to_owned();
        assert!(name == "SUMMARY.md" || listed.contains(&name.as_str()), "{name} is in no chapter");
        for link in links(&fs::read_to_string(&page).unwrap()) {
            assert!(page.parent().unwrap().join(link).exists(), "{name} links to {link}");
        }
    }
}

/// A fenced block of a page.
#[derive(Debug)]
struct FencedBlock {
    /// Text after the fence.
    head: String,
    body: String,
    /// Why no test runs it, from the line above: `<!-- not run: … -->`.
    why_not: Option<String>,
}

fn blocks(page: &str) -> Vec<FencedBlock> {
    let mut blocks = Vec::new();
    let mut open: Option<FencedBlock> = None;
    let mut above = "";
    for line in page.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(head)) => {
                let why_not = above.strip_prefix("<!-- not run: ").and_then(|why| why.strip_suffix(" -->"));
                let (head, why_not) = (head.to_owned(), why_not.map(str::to_owned));
                open = Some(FencedBlock { head, body: String::new(), why_not });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.body += &format!("{line}\n"),
            (None, None) => {}
        }
        above = line;
    }
    blocks
}

/// Pages that are followed from their top to their end, or whose commands are run.
const RUN: [&str; 7] = [
    "start/embed.md",
    "start/home-assistant.md",
    "start/mcp.md",
    "start/nodes.md",
    "start/phone.md",
    "operations.md",
    "protocol/api.md",
];

#[test]
fn what_pages_say_to_do_is_run_or_says_why_it_is_not() {
    let docs = docs();
    for page in pages(&docs) {
        let name = page.strip_prefix(&docs).unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&page).unwrap();
        for block in blocks(&text) {
            let is_tried = RUN.contains(&name.as_str()) || matches!(block.head.as_str(), "yaml check" | "yaml rules");
            assert!(is_tried || block.why_not.is_some(), "{name}: nothing is done with\n{}", block.body);
            // A block of a page that is run is of a kind that is.
            let kind = block.head.split(' ').next().unwrap();
            assert!(block.why_not.is_some() || matches!(kind, "sh" | "yaml" | "python"), "{name}: {}", block.head);
        }
        // An indented command would not be checked.
        let indented = text.lines().find(|line| line.starts_with("    countersign ") || line.starts_with("    curl "));
        assert_eq!(indented, None, "{name}: put it into a fenced block");
    }
}
