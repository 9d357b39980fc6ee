//! `grep`: lines of files that match a pattern.
//!
//! It must not follow links or look into what the roots deny.

mod sink;

use std::{
    io,
    path::{Path, PathBuf},
};

use countersign_core::tool::{CallConcurrency, RepeatMode, ToolEffect, ToolSpec};
use futures_util::future::BoxFuture;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use ignore::{WalkBuilder, overrides::OverrideBuilder, types::TypesBuilder};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    arguments, disk,
    outcome::{CallFailure, CallOutput},
    text,
    tool::{AgentTool, ToolContext},
};
use sink::{FileSink, MatchBudget};

/// Default number of shown matches.
const LIMIT: usize = 20;
/// The most memory that one file takes where lines are not apart.
const HEAP: usize = 64 << 20;

/// The tool `grep`.
pub struct GrepTool {
    spec: ToolSpec,
}

impl Default for GrepTool {
    fn default() -> Self {
        let description = "Searches files for a regular expression (Rust syntax). Results are grouped by file, in the order of paths, with line numbers: 12:match, 13-context. \
            Hidden files are searched, .git and what git ignores are not, binary files neither. 20 matches are shown unless limit says otherwise; offset skips matches.";
        Self {
            spec: ToolSpec {
                name: "grep".to_owned(),
                description: description.to_owned(),
                schema: json!({"type": "object", "required": ["pattern"], "properties": {
                    "pattern": {"type": "string", "description": "Regular expression"},
                    "path": {"type": "string", "description": "File or folder (default: the working folder)"},
                    "glob": {"type": "string", "description": "Only files that match, such as *.rs or !*.lock"},
                    "type": {"type": "string", "description": "Only files of a type, such as rust, py, js"},
                    "i": {"type": "boolean", "description": "Ignore case"},
                    "pre": {"type": "integer", "minimum": 0, "maximum": 100, "description": "Lines shown before a match"},
                    "post": {"type": "integer", "minimum": 0, "maximum": 100, "description": "Lines shown after a match"},
                    "multiline": {"type": "boolean", "description": "Let matches span lines"},
                    "gitignore": {"type": "boolean", "description": "Leave out what git ignores (default true)"},
                    "limit": {"type": "integer", "minimum": 1, "maximum": 10000, "description": "Matches shown (default 20)"},
                    "offset": {"type": "integer", "minimum": 0, "description": "Matches skipped"},
                }}),
                concurrency: CallConcurrency::Shared,
                repeat: RepeatMode::Idempotent,
                effect: ToolEffect::Reads,
                signature: &["pattern", "path"],
            },
        }
    }
}

#[derive(Deserialize)]
struct GrepArguments {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    i: bool,
    #[serde(default)]
    pre: usize,
    #[serde(default)]
    post: usize,
    #[serde(default)]
    multiline: bool,
    gitignore: Option<bool>,
    limit: Option<usize>,
    #[serde(default)]
    offset: usize,
}

impl AgentTool for GrepTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run<'a>(
        &'a self,
        arguments: Map<String, Value>,
        cx: &'a ToolContext,
    ) -> BoxFuture<'a, Result<CallOutput, CallFailure>> {
        Box::pin(async move {
            let arguments: GrepArguments = arguments::parse_arguments(&self.spec.name, arguments)?;
            let given = cx.clone();
            arguments::run_blocking(cx, move || search_files(&arguments, &given)).await
        })
    }
}

fn search_files(arguments: &GrepArguments, cx: &ToolContext) -> Result<CallOutput, CallFailure> {
    let matcher = build_matcher(arguments)?;
    let path = arguments.path.as_deref().filter(|path| !path.is_empty()).unwrap_or(".");
    let place = arguments::locate_path(path, cx)?;
    if !place.exists() {
        return Err(CallFailure::Failed(format!("{path} does not exist")));
    }
    let limit = arguments.limit.unwrap_or(LIMIT);
    let mut budget = MatchBudget { skip: arguments.offset, left: limit, bytes: text::SHOWN_BYTES, exceeded: false };
    let mut searcher = build_searcher(arguments);
    let mut text = String::new();
    let mut files: Vec<(String, usize)> = Vec::new();
    let mut unread = 0_usize;
    for file in files_to_search(arguments, place.path(), cx)? {
        if cx.cancel.is_cancelled() {
            return Err(CallFailure::Cancelled("Tool execution was aborted".to_owned()));
        }
        let open = match disk::open_walked(&file) {
            Ok(open) => open,
            // It has gone since.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(_) => {
                unread += 1;
                continue;
            }
        };
        if !open.metadata().is_ok_and(|found| found.is_file()) {
            continue;
        }
        let mut sink = FileSink::new(&mut budget, &cx.cancel);
        if searcher.search_file(&matcher, &open, &mut sink).is_err() {
            unread += 1;
        }
        let (lines, matches) = sink.into_lines();
        if matches > 0 {
            let name = arguments::display_path(&file, cx);
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&format!("{name}\n{lines}"));
            files.push((name, matches));
        }
        if budget.exceeded {
            break;
        }
    }
    Ok(search_result(arguments, path, text, &files, unread, &budget))
}

fn search_result(
    arguments: &GrepArguments,
    path: &str,
    mut text: String,
    files: &[(String, usize)],
    unread: usize,
    budget: &MatchBudget,
) -> CallOutput {
    let unread =
        if unread > 0 { format!("\n[{unread} files could not be searched completely]") } else { String::new() };
    let count: usize = files.iter().map(|(_, matches)| matches).sum();
    let details = json!({
        "matchCount": count,
        "fileCount": files.len(),
        "files": files.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "fileMatches": files.iter().map(|(name, matches)| json!({"path": name, "count": matches})).collect::<Vec<_>>(),
        "truncated": budget.exceeded,
    });
    if count == 0 {
        let behind = if arguments.offset > 0 {
            format!(" after the first {}", arguments.offset - budget.skip)
        } else {
            String::new()
        };
        return CallOutput::from_text(format!("No matches found for {} in {path}{behind}{unread}", arguments.pattern))
            .with_details(details);
    }
    if budget.exceeded {
        let next = arguments.offset + count;
        text.push_str(&format!(
            "\n[There are more matches than these {count}. Use offset={next} to continue, or narrow the search]"
        ));
    }
    text.push_str(&unread);
    CallOutput::from_text(text).with_details(details)
}

fn build_matcher(arguments: &GrepArguments) -> Result<RegexMatcher, CallFailure> {
    let mut builder = RegexMatcherBuilder::new();
    // The end of a line is before its \r\n; only where matches may span lines, the pattern may name a line end.
    builder.case_insensitive(arguments.i).multi_line(true).crlf(true);
    builder.line_terminator((!arguments.multiline).then_some(b'\n'));
    builder.build(&arguments.pattern).map_err(|error| {
        let hint = if arguments.multiline { "" } else { " (a match over several lines needs multiline)" };
        CallFailure::Failed(format!("invalid pattern: {error}{hint}"))
    })
}

fn build_searcher(arguments: &GrepArguments) -> Searcher {
    SearcherBuilder::new()
        .line_number(true)
        .before_context(arguments.pre)
        .after_context(arguments.post)
        .multi_line(arguments.multiline)
        .heap_limit(Some(HEAP))
        .binary_detection(BinaryDetection::quit(0))
        .build()
}

/// Returns the files to search, in the order of their paths.
fn files_to_search(
    arguments: &GrepArguments,
    root: &Path,
    cx: &ToolContext,
) -> Result<impl Iterator<Item = PathBuf>, CallFailure> {
    let mut builder = walk_builder(root, cx, arguments.gitignore != Some(false));
    builder.sort_by_file_path(Ord::cmp);
    if let Some(glob) = &arguments.glob {
        let mut globs = OverrideBuilder::new(if root.is_dir() { root } else { root.parent().unwrap_or(root) });
        let unusable = |error| CallFailure::Failed(format!("invalid glob: {error}"));
        globs.add(glob).map_err(unusable)?;
        builder.overrides(globs.build().map_err(unusable)?);
    }
    if let Some(kind) = &arguments.kind {
        let mut types = TypesBuilder::new();
        types.add_defaults().select(kind);
        builder.types(types.build().map_err(|error| CallFailure::Failed(format!("invalid type: {error}")))?);
    }
    let files = builder.build().flatten().filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()));
    Ok(files.map(ignore::DirEntry::into_path))
}

/// Builds a walk that shows hidden files, and neither `.git` nor the trees that the roots deny.
pub(crate) fn walk_builder(root: &Path, cx: &ToolContext, gitignore: bool) -> WalkBuilder {
    let boundary = cx.roots.boundary();
    let mut builder = WalkBuilder::new(root);
    builder
        .standard_filters(false)
        .parents(gitignore)
        .ignore(gitignore)
        .git_ignore(gitignore)
        .git_global(gitignore)
        .git_exclude(gitignore)
        .require_git(false)
        .follow_links(false)
        .filter_entry(move |entry| {
            entry.depth() == 0 || (entry.file_name() != ".git" && boundary.allows_entry(entry.path()))
        });
    builder
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use serde_json::json;

    use super::GrepTool;
    use crate::{
        outcome::CallFailure,
        tool::testing::{ToolFixture, failure, text},
    };

    fn case() -> ToolFixture {
        let case = ToolFixture::new();
        case.write("a.rs", "fn one() {}\nfn two() {}\n// end\n");
        case.write("sub/b.py", "def one():\r\n    pass\r\n");
        case.write(".hidden/c.rs", "fn one() {}\n");
        case.write(".gitignore", "ignored\n");
        case.write("ignored/d.rs", "fn one() {}\n");
        case.write(".git/config", "fn one\n");
        case.write("own/rules", "fn one\n");
        case.write("bin", b"fn one\0");
        symlink("/etc", case.path("etc")).unwrap();
        case
    }

    #[tokio::test]
    async fn matches_are_grouped_by_file_with_line_numbers() {
        let case = case();
        for (arguments, want) in [
            (
                json!({"pattern": "one"}),
                ".hidden/c.rs\n1:fn one() {}\n\na.rs\n1:fn one() {}\n\nsub/b.py\n1:def one():\n",
            ),
            (json!({"pattern": "two", "pre": 1, "post": 1}), "a.rs\n1-fn one() {}\n2:fn two() {}\n3-// end\n"),
            (json!({"pattern": "ONE", "i": true, "glob": "*.py"}), "sub/b.py\n1:def one():\n"),
            (json!({"pattern": "one", "type": "py"}), "sub/b.py\n1:def one():\n"),
            (json!({"pattern": "one", "path": "a.rs"}), "a.rs\n1:fn one() {}\n"),
            (json!({"pattern": "one", "path": "ignored"}), "ignored/d.rs\n1:fn one() {}\n"),
            (json!({"pattern": "\\):$"}), "sub/b.py\n1:def one():\n"),
            (json!({"pattern": "one.*\\nfn two", "multiline": true}), "a.rs\n1:fn one() {}\n2:fn two() {}\n"),
            (json!({"pattern": "d.rs|e", "gitignore": false, "path": "sub"}), "sub/b.py\n1:def one():\n"),
            (
                json!({"pattern": "fn", "limit": 1}),
                ".hidden/c.rs\n1:fn one() {}\n\n[There are more matches than these 1. Use offset=1 to continue, or narrow the search]",
            ),
            (json!({"pattern": "fn", "limit": 2, "offset": 1}), "a.rs\n1:fn one() {}\n2:fn two() {}\n"),
            (json!({"pattern": "nothing"}), "No matches found for nothing in ."),
        ] {
            let got = case.run(&GrepTool::default(), arguments.clone()).await;
            assert_eq!(text(&got), want, "{arguments}");
        }
    }

    #[tokio::test]
    async fn a_second_name_of_a_reserved_file_is_not_searched() {
        let case = ToolFixture::new();
        case.write("own/rules", "a secret");
        case.write("b/c", "no secret");
        fs::hard_link(case.path("own/rules"), case.path("alias")).unwrap();
        fs::hard_link(case.path("own/rules"), case.path("b/alias")).unwrap();
        fs::hard_link(case.path("b/c"), case.path("free")).unwrap();
        let got = case.run(&GrepTool::default(), json!({"pattern": "secret"})).await;
        assert_eq!(text(&got), "b/c\n1:no secret\n\nfree\n1:no secret\n");
    }

    #[tokio::test]
    async fn the_details_count_what_is_shown() {
        let got = case().run(&GrepTool::default(), json!({"pattern": "fn", "path": "a.rs"})).await.unwrap();
        let want = json!({
            "matchCount": 2, "fileCount": 1, "files": ["a.rs"], "fileMatches": [{"path": "a.rs", "count": 2}], "truncated": false,
        });
        assert_eq!(got.details, Some(want));
    }

    #[tokio::test]
    async fn what_cannot_be_searched_is_explained() {
        let case = case();
        for (arguments, want) in [
            (json!({"pattern": "("}), "invalid pattern: "),
            (json!({"pattern": "a\\nb"}), "invalid pattern: "),
            (json!({"pattern": "a", "type": "nonsense"}), "invalid type: "),
            (json!({"pattern": "a", "path": "none"}), "none does not exist"),
            (json!({"pattern": "root", "path": "etc"}), "etc is outside of the allowed folder"),
            (json!({"pattern": "one", "path": "own"}), "own is reserved"),
        ] {
            let got = case.run(&GrepTool::default(), arguments.clone()).await;
            assert!(failure(&got).starts_with(want), "{arguments}: {got:?}");
        }
    }

    #[tokio::test]
    async fn a_cancelled_search_ends() {
        let case = case();
        case.cx.cancel.cancel();
        let got = case.run(&GrepTool::default(), json!({"pattern": "one"})).await;
        assert!(matches!(got, Err(CallFailure::Cancelled(_))), "{got:?}");
    }

    #[tokio::test]
    async fn a_long_line_is_cut_and_the_whole_stays_under_50_kib() {
        let case = ToolFixture::new();
        fs::write(case.path("wide"), format!("{}\n", "x".repeat(2000)).repeat(200)).unwrap();
        let got = case.run(&GrepTool::default(), json!({"pattern": "x", "limit": 1000})).await;
        assert!(text(&got).len() < 52_000);
        assert_eq!(got.unwrap().details.unwrap()["truncated"], true);
    }
}
