//! `read`: a part of a text file, an image, or a folder.
//!
//! It must not change anything, and it never waits for a pipe or a device.

pub(crate) mod kind;
pub(crate) mod part;

use std::{
    io::{self, Read as _},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use countersign_core::{
    message::{ImageBlock, MessageBlock},
    tool::{Lane, RepeatMode, ToolEffect, ToolSpec},
};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    arguments, disk,
    edit::hashline,
    ls,
    outcome::{Failure, Output},
    text,
    tool::{Context, EditMode, Tool},
};
use kind::Kind;
use part::{Part, Wanted};

/// The lines that are shown where nothing is said.
const LINES: usize = 300;
/// The most lines that are shown.
const MOST_LINES: usize = 3000;
/// The largest image that is shown.
const IMAGE: u64 = 20 << 20;
/// How much of a file decides what it is.
const SAMPLE: u64 = 8 << 10;

/// The media type of an image that models see, by its first bytes.
pub fn image_type(sample: &[u8]) -> Option<&'static str> {
    match kind::of(sample) {
        Kind::Image(mime) => Some(mime),
        Kind::Text | Kind::Binary(_) => None,
    }
}

/// The tool `read`.
pub struct Read {
    spec: ToolSpec,
}

impl Default for Read {
    fn default() -> Self {
        let description = "Reads a text file, an image (png, jpeg, gif, webp) or a folder. Of a text 300 lines are shown unless limit says otherwise, at most 3000 \
            lines or 50 KiB; the result says how to read on. Other binary files are refused.";
        Self {
            spec: ToolSpec {
                name: "read".to_owned(),
                description: description.to_owned(),
                schema: json!({"type": "object", "required": ["path"], "properties": {
                    "path": {"type": "string", "description": "File or folder, absolute or relative to the working folder"},
                    "offset": {"type": "integer", "minimum": 1, "description": "First line to show, from 1"},
                    "limit": {"type": "integer", "minimum": 1, "description": "Lines to show (default 300, at most 3000)"},
                    "timeout": {"type": "integer", "minimum": 1, "maximum": 3600, "description": "Seconds after which it is given up"},
                    "raw": {"type": "boolean", "description": "Text only: no line marks and no notes"},
                }}),
                lane: Lane::Shared,
                repeat: RepeatMode::Idempotent,
                effect: ToolEffect::Reads,
                signature: &["path"],
            },
        }
    }
}

#[derive(Deserialize)]
struct Arguments {
    path: String,
    offset: Option<usize>,
    limit: Option<usize>,
    timeout: Option<u64>,
    #[serde(default)]
    raw: bool,
}

impl Wanted {
    fn of(arguments: &Arguments) -> Self {
        let first = arguments.offset.unwrap_or(1).max(1);
        Self { first, lines: arguments.limit.unwrap_or(LINES).clamp(1, MOST_LINES), bytes: text::SHOWN_BYTES }
    }
}

impl Tool for Read {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run<'a>(&'a self, arguments: Map<String, Value>, cx: &'a Context) -> BoxFuture<'a, Result<Output, Failure>> {
        Box::pin(async move {
            let arguments: Arguments = arguments::parse(&self.spec.name, arguments)?;
            let given = cx.clone();
            let patience = arguments.timeout.map(Duration::from_secs);
            let reading = arguments::blocking(cx, move || read(&arguments, &given));
            match patience {
                None => reading.await,
                Some(patience) => tokio::time::timeout(patience, reading).await.unwrap_or_else(|_| {
                    Err(Failure::Failed(format!("reading took longer than {} seconds", patience.as_secs())))
                }),
            }
        })
    }
}

fn read(arguments: &Arguments, cx: &Context) -> Result<Output, Failure> {
    let path = &arguments.path;
    let failed = |error: io::Error| Failure::Failed(format!("{path}: {error}"));
    let place = arguments::locate(path, cx)?;
    if !place.exists() {
        return Err(Failure::Failed(format!("{path} does not exist")));
    }
    let mut file = disk::open(&place).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    let resolved = place.path().display().to_string();
    if found.is_dir() {
        let listing = ls::list(place.path(), cx).map_err(failed)?;
        return Ok(Output::text(listing.text).with_details(json!({"isDirectory": true, "resolvedPath": resolved})));
    }
    if !found.is_file() {
        return Err(Failure::Failed(format!("{path} is a device, pipe or socket, which cannot be read")));
    }
    let mut sample = Vec::new();
    file.by_ref().take(SAMPLE).read_to_end(&mut sample).map_err(failed)?;
    match kind::of(&sample) {
        Kind::Text => {}
        Kind::Image(mime) => {
            if found.len() > IMAGE {
                let size = text::size(found.len());
                return Err(Failure::Failed(format!("{path} is an image of {size}, above the limit of 20 MiB")));
            }
            let mut bytes = sample;
            file.take(IMAGE).read_to_end(&mut bytes).map_err(failed)?;
            let note = format!("Read image file {path} [{mime}, {}]", text::size(bytes.len() as u64));
            let image = ImageBlock { data: STANDARD.encode(&bytes), mime_type: mime.to_owned() };
            return Ok(Output {
                content: vec![MessageBlock::from_text(note), MessageBlock::Image(image)],
                details: Some(json!({"kind": "image", "resolvedPath": resolved})),
                is_error: false,
            });
        }
        Kind::Binary(what) => {
            let size = text::size(found.len());
            return Err(Failure::Failed(format!(
                "{path} is not text but {what} ({size}); use a command that understands it"
            )));
        }
    }
    let wanted = Wanted::of(arguments);
    let stopped = || cx.cancel.is_cancelled();
    let part = part::take(io::Cursor::new(sample).chain(file), wanted, stopped).map_err(failed)?;
    shown(&part, wanted, arguments, &resolved, Marks::of(cx))
}

/// What stands before each line.
#[derive(Clone, Copy)]
enum Marks {
    None,
    Numbers,
    /// By which `edit` knows it.
    Anchors,
}

impl Marks {
    const fn of(cx: &Context) -> Self {
        match cx.edit_mode {
            EditMode::Hashline => Self::Anchors,
            EditMode::Replace | EditMode::Patch if cx.line_numbers => Self::Numbers,
            EditMode::Replace | EditMode::Patch => Self::None,
        }
    }
}

/// The part of a text that a call of `read` with these arguments shows, where the text is not a file's: `from` says whose it
/// is. Its lines are not marked, for it cannot be edited.
///
/// # Errors
/// [`Failure`] for arguments that do not fit, and for a line that is not there.
pub fn part_of(text: &str, arguments: Map<String, Value>, from: &str) -> Result<Output, Failure> {
    let arguments: Arguments = arguments::parse("read", arguments)?;
    let wanted = Wanted::of(&arguments);
    let part = part::take(io::Cursor::new(text), wanted, || false)
        .map_err(|error| Failure::Failed(format!("{from}: {error}")))?;
    shown(&part, wanted, &arguments, from, Marks::None)
}

fn shown(part: &Part, wanted: Wanted, arguments: &Arguments, resolved: &str, marks: Marks) -> Result<Output, Failure> {
    let mut details = json!({"resolvedPath": resolved});
    if part.total == Some(0) {
        let text = if arguments.raw { String::new() } else { "(empty file)".to_owned() };
        return Ok(Output::text(text).with_details(details));
    }
    if part.lines.is_empty() {
        let total = part.total.map_or_else(String::new, |total| format!(": it has {total}"));
        return Err(Failure::Failed(format!("{} has no line {}{total}", arguments.path, wanted.first)));
    }
    let last = wanted.first + part.lines.len() - 1;
    let mut text = String::new();
    for (at, line) in part.lines.iter().enumerate() {
        let number = wanted.first + at;
        match marks {
            _ if arguments.raw => {}
            Marks::Anchors => text.push_str(&format!("{}:", hashline::anchor(number, line))),
            Marks::Numbers => text.push_str(&format!("{number:>6}\t")),
            Marks::None => {}
        }
        text.push_str(line);
        text.push('\n');
    }
    if arguments.raw && part.total == Some(last) && !part.ends_with_line_end {
        text.pop();
    }
    if part.total == Some(last) && !part.is_cut {
        return Ok(Output::text(text).with_details(details));
    }
    let total = part.total.map_or_else(|| "more".to_owned(), |total| total.to_string());
    if !arguments.raw {
        let more = if part.is_cut {
            format!(
                "[Line {last} is longer than {}: its beginning is shown; use bash for the rest]",
                text::size(text::SHOWN_BYTES as u64)
            )
        } else {
            format!("[Showing lines {}-{last} of {total}. Use offset={} to continue]", wanted.first, last + 1)
        };
        text.push('\n');
        text.push_str(&more);
    }
    details["truncation"] = json!({
        "direction": "head",
        "truncatedBy": if part.by_bytes || part.is_cut { "bytes" } else { "lines" },
        "totalLines": part.total,
        "outputLines": part.lines.len(),
        "shownRange": {"start": wanted.first, "end": last},
    });
    Ok(Output::text(text).with_details(details))
}

#[cfg(test)]
mod tests;
