//! `Read` and `Write` of a node.
//!
//! It must not follow a path out of the workspace.

use std::io::{self, Read as _};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    arguments,
    disk::{self, Before},
    outcome::Failure,
    read::{
        kind::{self, Kind},
        part::{self, Wanted},
    },
    roots::{Place, RootsError},
    text,
    tool::Context,
};

/// The most that is shown of a file, in bytes.
const SHOWN: usize = 200_000;
/// How much of a file decides what it is.
const SAMPLE: u64 = 8 << 10;

/// Where a path leads, if that is in the workspace.
pub(super) fn named(given: &str, cx: &Context) -> Result<Place, RootsError> {
    cx.roots.resolve(&cx.cwd, &arguments::expand(given, cx))
}

#[derive(Deserialize)]
struct Reading {
    path: String,
    #[serde(default)]
    offset: usize,
    limit: Option<usize>,
}

/// Shows lines of a file.
pub(super) async fn read(arguments: Map<String, Value>, cx: &Context) -> Result<Value, Failure> {
    let wanted: Reading = arguments::parse("Read", arguments)?;
    let given = cx.clone();
    arguments::blocking(cx, move || part_of(&wanted, &given)).await
}

fn part_of(Reading { path, offset, limit }: &Reading, cx: &Context) -> Result<Value, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(format!("Failed to read '{path}': {error}"));
    let place = named(path, cx).map_err(|error| failed(&error))?;
    let mut file = disk::open(&place).map_err(|error| failed(&error))?;
    let found = file.metadata().map_err(|error| failed(&error))?;
    if found.is_dir() {
        return Err(failed(&"it is a folder; Glob lists it"));
    }
    if !found.is_file() {
        return Err(failed(&"it is a device, pipe or socket"));
    }
    let mut sample = Vec::new();
    file.by_ref().take(SAMPLE).read_to_end(&mut sample).map_err(|error| failed(&error))?;
    match kind::of(&sample) {
        Kind::Text => {}
        Kind::Image(what) | Kind::Binary(what) => {
            let size = text::size(found.len());
            return Err(failed(&format!("it is not text but {what} ({size})")));
        }
    }
    let first = offset.saturating_add(1);
    let wanted = Wanted { first, lines: limit.unwrap_or(usize::MAX), bytes: SHOWN };
    let part = part::take(io::Cursor::new(sample).chain(file), wanted, || cx.cancel.is_cancelled())
        .map_err(|error| failed(&error))?;
    let lines = part.lines.iter().enumerate().map(|(at, line)| format!("{:>6}\t{line}", first + at));
    let mut told = json!({
        "path": place.path().display().to_string(),
        "content": lines.collect::<Vec<_>>().join("\n"),
        "lines": part.lines.len(),
    });
    // Only where it is not all that was asked for.
    if part.by_bytes || part.is_cut {
        told["truncated"] = true.into();
        told["totalLines"] = part.total.into();
    }
    Ok(told)
}

#[derive(Deserialize)]
struct Writing {
    path: String,
    content: String,
}

/// Makes or replaces a file.
pub(super) async fn write(arguments: Map<String, Value>, cx: &Context) -> Result<Value, Failure> {
    let Writing { path, content } = arguments::parse("Write", arguments)?;
    let given = cx.clone();
    arguments::to_the_end(cx, move || {
        let failed = |error: &dyn std::fmt::Display| Failure::Failed(format!("Failed to write '{path}': {error}"));
        let place = named(&path, &given).map_err(|error| failed(&error))?;
        if path.ends_with('/') || place.path().is_dir() {
            return Err(failed(&"it is a folder"));
        }
        disk::replace(&place, content.as_bytes(), Before::Anything).map_err(|error| failed(&error))?;
        Ok(json!({"path": place.path().display().to_string(), "bytes": content.len()}))
    })
    .await
}
