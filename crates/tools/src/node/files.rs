//! `Read` and `Write` of a node.
//!
//! It must not follow a path out of the workspace.

use std::io::{self, Read as _};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    arguments,
    disk::{self, ReplaceCondition},
    outcome::CallFailure,
    read::{
        kind::{self, ContentKind},
        part::{self, LineRange},
    },
    roots::{AllowedPath, RootsError},
    text,
    tool::ToolContext,
};

/// The most that is shown of a file, in bytes.
const SHOWN: usize = 200_000;
/// Number of bytes of a file that decide its type.
const SAMPLE: u64 = 8 << 10;

/// Resolves a path, if it leads into the workspace.
pub(super) fn resolve_path(given: &str, cx: &ToolContext) -> Result<AllowedPath, RootsError> {
    cx.roots.resolve_path(&cx.cwd, &arguments::expand_home(given, cx))
}

#[derive(Deserialize)]
struct NodeReadArguments {
    path: String,
    #[serde(default)]
    offset: usize,
    limit: Option<usize>,
}

/// Shows lines of a file.
pub(super) async fn read_file(arguments: Map<String, Value>, cx: &ToolContext) -> Result<Value, CallFailure> {
    let request: NodeReadArguments = arguments::parse_arguments("Read", arguments)?;
    let given = cx.clone();
    arguments::run_blocking(cx, move || part_of(&request, &given)).await
}

fn part_of(
    NodeReadArguments { path, offset, limit }: &NodeReadArguments,
    cx: &ToolContext,
) -> Result<Value, CallFailure> {
    let failed = |error: &dyn std::fmt::Display| CallFailure::Failed(format!("Failed to read '{path}': {error}"));
    let place = resolve_path(path, cx).map_err(|error| failed(&error))?;
    let mut file = disk::open_file(&place).map_err(|error| failed(&error))?;
    let found = file.metadata().map_err(|error| failed(&error))?;
    if found.is_dir() {
        return Err(failed(&"it is a folder; Glob lists it"));
    }
    if !found.is_file() {
        return Err(failed(&"it is a device, pipe or socket"));
    }
    let mut sample = Vec::new();
    file.by_ref().take(SAMPLE).read_to_end(&mut sample).map_err(|error| failed(&error))?;
    match kind::detect_kind(&sample) {
        ContentKind::Text => {}
        ContentKind::Image(what) | ContentKind::Binary(what) => {
            let size = text::format_size(found.len());
            return Err(failed(&format!("it is not text but {what} ({size})")));
        }
    }
    let first = offset.saturating_add(1);
    let range = LineRange { first, lines: limit.unwrap_or(usize::MAX), bytes: SHOWN };
    let part = part::read_excerpt(io::Cursor::new(sample).chain(file), range, || cx.cancel.is_cancelled())
        .map_err(|error| failed(&error))?;
    let lines = part.lines.iter().enumerate().map(|(at, line)| format!("{:>6}\t{line}", first + at));
    let mut result = json!({
        "path": place.path().display().to_string(),
        "content": lines.collect::<Vec<_>>().join("\n"),
        "lines": part.lines.len(),
    });
    // Only if it is less than the requested part.
    if part.by_bytes || part.is_cut {
        result["truncated"] = true.into();
        result["totalLines"] = part.total.into();
    }
    Ok(result)
}

#[derive(Deserialize)]
struct NodeWriteArguments {
    path: String,
    content: String,
}

/// Makes or replaces a file.
pub(super) async fn write_file(arguments: Map<String, Value>, cx: &ToolContext) -> Result<Value, CallFailure> {
    let NodeWriteArguments { path, content } = arguments::parse_arguments("Write", arguments)?;
    let given = cx.clone();
    arguments::run_to_completion(cx, move || {
        let failed = |error: &dyn std::fmt::Display| CallFailure::Failed(format!("Failed to write '{path}': {error}"));
        let place = resolve_path(&path, &given).map_err(|error| failed(&error))?;
        if path.ends_with('/') || place.path().is_dir() {
            return Err(failed(&"it is a folder"));
        }
        disk::replace_file(&place, content.as_bytes(), ReplaceCondition::Anything).map_err(|error| failed(&error))?;
        Ok(json!({"path": place.path().display().to_string(), "bytes": content.len()}))
    })
    .await
}
