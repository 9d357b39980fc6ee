//! `Glob` and `Grep` of a node.
//!
//! It must not follow links or leave the workspace.

use std::{
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use globset::{Glob, GlobBuilder, GlobMatcher};
use grep_regex::RegexMatcherBuilder;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::files::resolve_path;
use crate::{arguments, disk, grep::walk_builder, outcome::CallFailure, roots::AllowedPath, tool::ToolContext};

/// The most paths of a glob.
const PATHS: usize = 10_000;
/// The most bytes of them.
const BYTES: usize = 1 << 20;
/// The most paths that are looked at to find the newest.
const SORTED: usize = 200_000;
/// The most lines of a search.
const LINES: usize = 100;
/// The most characters that are shown of a line.
const LINE: usize = 200;
/// The most memory that one line takes.
const HEAP: usize = 64 << 20;

#[derive(Deserialize)]
struct NodeGlobArguments {
    pattern: String,
    path: Option<String>,
}

/// Finds paths.
pub(super) async fn glob_paths(arguments: Map<String, Value>, cx: &ToolContext) -> Result<Value, CallFailure> {
    let request: NodeGlobArguments = arguments::parse_arguments("Glob", arguments)?;
    let given = cx.clone();
    arguments::run_blocking(cx, move || find_paths(&request, &given)).await
}

fn find_paths(request: &NodeGlobArguments, cx: &ToolContext) -> Result<Value, CallFailure> {
    let NodeGlobArguments { pattern, path } = request;
    let base = search_base(path.as_deref(), cx)?;
    if !base.path().is_dir() {
        return Err(CallFailure::Failed(format!("'{}' is not a folder", path.as_deref().unwrap_or("."))));
    }
    // A pattern that is absolute is one below the folder, if it is within.
    let below = match Path::new(pattern).strip_prefix(base.path()) {
        Ok(below) => below.display().to_string(),
        Err(_) => pattern.strip_prefix("./").unwrap_or(pattern).to_owned(),
    };
    if below.starts_with('/') || Path::new(&below).components().any(|part| part == std::path::Component::ParentDir) {
        return Err(CallFailure::Failed(format!("'{pattern}' leads outside of '{}'", base.path().display())));
    }
    let invalid = |error| CallFailure::Failed(format!("Invalid pattern: {error}"));
    let matcher = GlobBuilder::new(&below).literal_separator(true).build().map_err(invalid)?.compile_matcher();
    let mut found: Vec<(SystemTime, String)> = Vec::new();
    for entry in walk_builder(base.path(), cx, false).build().flatten() {
        stop_if(&cx.cancel)?;
        let is_named = entry.path().strip_prefix(base.path()).is_ok_and(|below| matcher.is_match(below));
        if entry.depth() > 0 && is_named {
            let changed = entry.metadata().ok().and_then(|found| found.modified().ok());
            found.push((changed.unwrap_or(SystemTime::UNIX_EPOCH), entry.path().display().to_string()));
        }
        if found.len() == SORTED {
            break;
        }
    }
    // The newest first, and by name where the times are equal.
    found.sort_by(|left, right| right.0.cmp(&left.0).then_with(|| left.1.cmp(&right.1)));
    let all = found.len();
    let mut bytes = 0;
    let fits = |(_, path): &(SystemTime, String)| {
        bytes += path.len() + 3;
        bytes <= BYTES
    };
    let matches: Vec<String> = found.into_iter().take(PATHS).take_while(fits).map(|(_, path)| path).collect();
    let mut result = json!({
        "pattern": pattern,
        "basePath": base.path().display().to_string(),
        "matches": matches,
        "count": matches.len(),
    });
    if matches.len() < all {
        result["truncated"] = true.into();
    }
    Ok(result)
}

#[derive(Deserialize)]
struct NodeGrepArguments {
    pattern: String,
    path: Option<String>,
    include: Option<String>,
}

/// Finds lines.
pub(super) async fn grep_files(arguments: Map<String, Value>, cx: &ToolContext) -> Result<Value, CallFailure> {
    let request: NodeGrepArguments = arguments::parse_arguments("Grep", arguments)?;
    let given = cx.clone();
    arguments::run_blocking(cx, move || matching_lines(&request, &given)).await
}

fn matching_lines(
    NodeGrepArguments { pattern, path, include }: &NodeGrepArguments,
    cx: &ToolContext,
) -> Result<Value, CallFailure> {
    let invalid = |error| CallFailure::Failed(format!("Invalid regex pattern: {error}"));
    let mut builder = RegexMatcherBuilder::new();
    builder.multi_line(true).crlf(true).line_terminator(Some(b'\n'));
    let matcher = builder.build(pattern).map_err(invalid)?;
    let include = include.as_deref().map(name_matcher).transpose()?;
    let base = search_base(path.as_deref(), cx)?;
    let mut searcher = build_searcher();
    let mut found = GrepMatches { matches: Vec::new(), more: false, cancel: &cx.cancel };
    for file in files_to_search(&base, include.as_ref(), cx) {
        stop_if(&cx.cancel)?;
        // A file that has gone since, or cannot be read, has no lines.
        let Ok(open) = disk::open_walked(&file) else { continue };
        if open.metadata().is_ok_and(|found| found.is_file()) {
            let mut sink = GrepFileSink { found: &mut found, path: file.display().to_string() };
            let _ = searcher.search_file(&matcher, &open, &mut sink);
        }
        if found.more {
            break;
        }
    }
    let GrepMatches { matches, more, .. } = found;
    let mut result = json!({"matches": matches, "count": matches.len()});
    if more {
        result["truncated"] = true.into();
    }
    Ok(result)
}

fn build_searcher() -> Searcher {
    let mut builder = SearcherBuilder::new();
    builder.line_number(true).heap_limit(Some(HEAP)).binary_detection(BinaryDetection::quit(0)).build()
}

/// Returns the files to search, in the order of their paths.
fn files_to_search(
    base: &AllowedPath,
    include: Option<&GlobMatcher>,
    cx: &ToolContext,
) -> impl Iterator<Item = PathBuf> {
    let mut builder = walk_builder(base.path(), cx, false);
    builder.sort_by_file_path(Ord::cmp);
    let files = builder.build().flatten().filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()));
    files
        .filter(move |entry| include.is_none_or(|include| include.is_match(Path::new(entry.file_name()))))
        .map(ignore::DirEntry::into_path)
}

fn name_matcher(include: &str) -> Result<GlobMatcher, CallFailure> {
    let invalid = |error| CallFailure::Failed(format!("Invalid include: {error}"));
    // With or without the folders that people write in front of it.
    Ok(Glob::new(include.strip_prefix("**/").unwrap_or(include)).map_err(invalid)?.compile_matcher())
}

fn search_base(path: Option<&str>, cx: &ToolContext) -> Result<AllowedPath, CallFailure> {
    let given = path.filter(|path| !path.is_empty()).unwrap_or(".");
    let place = resolve_path(given, cx).map_err(|error| CallFailure::Failed(error.to_string()))?;
    if place.exists() { Ok(place) } else { Err(CallFailure::Failed(format!("'{given}' does not exist"))) }
}

fn stop_if(cancel: &CancellationToken) -> Result<(), CallFailure> {
    if cancel.is_cancelled() { Err(CallFailure::Cancelled("the node is shutting down".to_owned())) } else { Ok(()) }
}

/// Matches in all files.
struct GrepMatches<'a> {
    matches: Vec<Value>,
    more: bool,
    cancel: &'a CancellationToken,
}

struct GrepFileSink<'a, 'b> {
    found: &'a mut GrepMatches<'b>,
    path: String,
}

impl Sink for GrepFileSink<'_, '_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        if self.found.cancel.is_cancelled() {
            return Ok(false);
        }
        if self.found.matches.len() == LINES {
            self.found.more = true;
            return Ok(false);
        }
        let line = String::from_utf8_lossy(found.bytes());
        let content: String = line.trim_end_matches(['\n', '\r']).chars().take(LINE).collect();
        self.found.matches.push(json!({"path": self.path, "line": found.line_number(), "content": content}));
        Ok(true)
    }
}
