//! `find`: files and folders whose path matches a glob, the newest first.
//!
//! It must not look into files or follow links.

use std::{path::Path, time::SystemTime};

use countersign_core::tool::{CallConcurrency, RepeatMode, ToolEffect, ToolSpec};
use futures_util::future::BoxFuture;
use globset::{GlobBuilder, GlobMatcher};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    arguments, grep,
    outcome::{CallFailure, CallOutput},
    text,
    tool::{AgentTool, ToolContext},
};

/// Default number of shown paths.
const LIMIT: usize = 1000;
/// The most paths that are put in order.
const SORTED: usize = 200_000;

/// The tool `find`.
pub struct FindTool {
    spec: ToolSpec,
}

impl Default for FindTool {
    fn default() -> Self {
        let description = "Finds files and folders by a glob, the last changed first; folders end in /. A pattern without / matches names at any depth (*.rs), one with / matches \
            paths from the working folder, or from the folder that it begins with (src/**/*.rs, /etc/*.conf). A folder's path alone means all below it. .git and what \
            git ignores are left out.";
        Self {
            spec: ToolSpec {
                name: "find".to_owned(),
                description: description.to_owned(),
                schema: json!({"type": "object", "required": ["pattern"], "properties": {
                    "pattern": {"type": "string", "description": "Glob, such as *.rs or src/**/*.rs"},
                    "hidden": {"type": "boolean", "description": "Hidden files too (default true)"},
                    "limit": {"type": "integer", "minimum": 1, "maximum": 10000, "description": "Paths shown (default 1000)"},
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
struct FindArguments {
    pattern: String,
    hidden: Option<bool>,
    limit: Option<usize>,
}

impl AgentTool for FindTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run<'a>(
        &'a self,
        arguments: Map<String, Value>,
        cx: &'a ToolContext,
    ) -> BoxFuture<'a, Result<CallOutput, CallFailure>> {
        Box::pin(async move {
            let arguments: FindArguments = arguments::parse_arguments(&self.spec.name, arguments)?;
            let given = cx.clone();
            arguments::run_blocking(cx, move || find_paths(&arguments, &given)).await
        })
    }
}

/// A pattern taken apart.
#[derive(Debug, PartialEq, Eq)]
struct PatternParts {
    /// The folder to start in, as given; empty is the working folder.
    folder: String,
    /// Pattern for the paths below it.
    glob: String,
}

/// Splits off the leading parts that name a folder literally.
fn split_pattern(pattern: &str, is_folder: impl Fn(&str) -> bool) -> PatternParts {
    let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
    let special = pattern.find(['*', '?', '[', '{']);
    if special.is_none() && is_folder(pattern) {
        return PatternParts { folder: pattern.to_owned(), glob: "**/*".to_owned() };
    }
    let literal = &pattern[..special.unwrap_or(pattern.len())];
    match literal.rfind('/') {
        None if pattern.contains('/') => PatternParts { folder: String::new(), glob: pattern.to_owned() },
        None => PatternParts { folder: String::new(), glob: format!("**/{pattern}") },
        Some(end) => PatternParts { folder: pattern[..=end].to_owned(), glob: pattern[end + 1..].to_owned() },
    }
}

fn find_paths(arguments: &FindArguments, cx: &ToolContext) -> Result<CallOutput, CallFailure> {
    let pattern = arguments.pattern.trim();
    if pattern.is_empty() {
        return Err(CallFailure::Failed("the pattern is empty".to_owned()));
    }
    let is_folder = |path: &str| arguments::locate_path(path, cx).is_ok_and(|place| place.path().is_dir());
    let parts = split_pattern(pattern, is_folder);
    let folder = if parts.folder.is_empty() { "." } else { &parts.folder };
    let place = arguments::locate_path(folder, cx)?;
    if !place.path().is_dir() {
        return Err(CallFailure::Failed(format!("{folder} is not a folder")));
    }
    let glob = GlobBuilder::new(&parts.glob).literal_separator(true).build();
    let glob = glob.map_err(|error| CallFailure::Failed(format!("invalid pattern: {error}")))?;
    let mut found = matching_paths(place.path(), &glob.compile_matcher(), arguments.hidden != Some(false), cx)?;
    // The newest first, and by name where the times are equal.
    found.sort_by(|left, right| right.1.cmp(&left.1).then_with(|| left.0.cmp(&right.0)));
    let limit = arguments.limit.unwrap_or(LIMIT);
    let mut files: Vec<String> = found.into_iter().map(|(path, _)| path).collect();
    let all = files.len();
    files.truncate(limit);
    let mut bytes = 0;
    let fitting = files.iter().take_while(|path| {
        bytes += path.len() + 1;
        bytes <= text::SHOWN_BYTES
    });
    let fitting = fitting.count();
    files.truncate(fitting);
    let truncated = files.len() < all;
    let mut details = json!({
        "fileCount": files.len(),
        "files": files,
        "scopePath": arguments::display_path(place.path(), cx),
        "truncated": truncated,
    });
    if all > limit {
        details["resultLimitReached"] = limit.into();
    }
    if files.is_empty() {
        return Ok(CallOutput::from_text("No files found matching pattern").with_details(details));
    }
    let mut text = files.join("\n");
    if truncated {
        text.push_str(&format!("\n\n[{} of {all} shown; use a narrower pattern or another limit]", files.len()));
    }
    Ok(CallOutput::from_text(text).with_details(details))
}

fn matching_paths(
    root: &Path,
    glob: &GlobMatcher,
    hidden: bool,
    cx: &ToolContext,
) -> Result<Vec<(String, SystemTime)>, CallFailure> {
    let mut builder = grep::walk_builder(root, cx, true);
    builder.hidden(!hidden);
    let mut found = Vec::new();
    for entry in builder.build().flatten() {
        if cx.cancel.is_cancelled() {
            return Err(CallFailure::Cancelled("Tool execution was aborted".to_owned()));
        }
        let Ok(below) = entry.path().strip_prefix(root) else { continue };
        if entry.depth() == 0 || !glob.is_match(below) {
            continue;
        }
        let changed = entry.metadata().ok().and_then(|found| found.modified().ok()).unwrap_or(SystemTime::UNIX_EPOCH);
        let slash = if entry.file_type().is_some_and(|kind| kind.is_dir()) { "/" } else { "" };
        found.push((format!("{}{slash}", arguments::display_path(entry.path(), cx)), changed));
        if found.len() == SORTED {
            break;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{File, hard_link},
        os::unix::fs::symlink,
        time::{Duration, SystemTime},
    };

    use serde_json::json;

    use super::{FindTool, PatternParts, split_pattern};
    use crate::tool::testing::{ToolFixture, failure, text};

    fn case() -> ToolFixture {
        let case = ToolFixture::new();
        for (age, name) in
            ["src/a.rs", "src/deep/b.rs", "top.rs", "src/c.py", ".hidden/d.rs", "own/e.rs", ".git/f.rs", "no/g.rs"]
                .iter()
                .enumerate()
        {
            case.write(name, "");
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1000 - age as u64);
            File::open(case.path(name)).unwrap().set_modified(time).unwrap();
        }
        case.write(".gitignore", "no/\n");
        symlink("/etc", case.path("etc")).unwrap();
        hard_link(case.path("own/e.rs"), case.path("alias.rs")).unwrap();
        case
    }

    #[tokio::test]
    async fn paths_are_found_by_glob_the_newest_first() {
        let case = case();
        for (arguments, want) in [
            (json!({"pattern": "*.rs"}), "src/a.rs\nsrc/deep/b.rs\ntop.rs\n.hidden/d.rs"),
            (json!({"pattern": "*.rs", "hidden": false}), "src/a.rs\nsrc/deep/b.rs\ntop.rs"),
            (json!({"pattern": "src/*.rs"}), "src/a.rs"),
            (json!({"pattern": "./src/**/*.rs"}), "src/a.rs\nsrc/deep/b.rs"),
            (json!({"pattern": "**/b.rs"}), "src/deep/b.rs"),
            (json!({"pattern": "*.{py,txt}"}), "src/c.py"),
            (json!({"pattern": "top.rs"}), "top.rs"),
            (json!({"pattern": "src/c.py"}), "src/c.py"),
            (json!({"pattern": "dee*"}), "src/deep/"),
            (json!({"pattern": "none"}), "No files found matching pattern"),
            (json!({"pattern": "g.rs"}), "No files found matching pattern"),
            (
                json!({"pattern": "*.rs", "limit": 1}),
                "src/a.rs\n\n[1 of 4 shown; use a narrower pattern or another limit]",
            ),
        ] {
            let got = case.run(&FindTool::default(), arguments.clone()).await;
            assert_eq!(text(&got), want, "{arguments}");
        }
        let got = case.run(&FindTool::default(), json!({"pattern": "src/*.rs"})).await.unwrap();
        let want = json!({"fileCount": 1, "files": ["src/a.rs"], "scopePath": "src", "truncated": false});
        assert_eq!(got.details, Some(want));
    }

    #[tokio::test]
    async fn a_pattern_cannot_lead_out() {
        let case = case();
        for (pattern, want) in [
            ("/etc/*", "/etc/ is outside of the allowed folder"),
            ("../*", "../ is outside of the allowed folder"),
            ("etc/*", "etc/ is outside of the allowed folder"),
            ("own/*", "own/ is reserved"),
            ("top.rs/*", "top.rs/ is not a folder"),
            ("[", "invalid pattern: "),
            ("", "the pattern is empty"),
        ] {
            let got = case.run(&FindTool::default(), json!({"pattern": pattern})).await;
            assert!(failure(&got).starts_with(want), "{pattern}: {got:?}");
        }
    }

    #[test]
    fn the_literal_beginning_of_a_pattern_is_the_folder() {
        for (pattern, folder, glob) in [
            ("*.rs", "", "**/*.rs"),
            ("src/*.rs", "src/", "*.rs"),
            ("/etc/a*/b", "/etc/", "a*/b"),
            ("*/x", "", "*/x"),
            ("known", "known", "**/*"),
            ("a/b.c", "a/", "b.c"),
            ("/*", "/", "*"),
        ] {
            let want = PatternParts { folder: folder.to_owned(), glob: glob.to_owned() };
            assert_eq!(split_pattern(pattern, |path| path == "known"), want, "{pattern}");
        }
    }
}
