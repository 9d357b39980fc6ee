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
    tool::{CallConcurrency, RepeatMode, ToolEffect, ToolSpec},
};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    arguments, disk,
    edit::hashline,
    ls,
    outcome::{CallFailure, CallOutput},
    text,
    tool::{AgentTool, EditFormat, ToolContext},
};
use kind::ContentKind;
use part::{LineRange, TextExcerpt};

/// Default number of shown lines.
const LINES: usize = 300;
/// The most lines that are shown.
const MOST_LINES: usize = 3000;
/// The largest image that is shown.
const IMAGE: u64 = 20 << 20;
/// Number of bytes of a file that decide its type.
const SAMPLE: u64 = 8 << 10;

/// Returns the media type of an image that models see, by its first bytes.
pub fn image_type(sample: &[u8]) -> Option<&'static str> {
    match kind::detect_kind(sample) {
        ContentKind::Image(mime) => Some(mime),
        ContentKind::Text | ContentKind::Binary(_) => None,
    }
}

/// The tool `read`.
pub struct ReadTool {
    spec: ToolSpec,
}

impl Default for ReadTool {
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
                concurrency: CallConcurrency::Shared,
                repeat: RepeatMode::Idempotent,
                effect: ToolEffect::Reads,
                signature: &["path"],
            },
        }
    }
}

#[derive(Deserialize)]
struct ReadArguments {
    path: String,
    offset: Option<usize>,
    limit: Option<usize>,
    timeout: Option<u64>,
    #[serde(default)]
    raw: bool,
}

impl LineRange {
    fn from_arguments(arguments: &ReadArguments) -> Self {
        let first = arguments.offset.unwrap_or(1).max(1);
        Self { first, lines: arguments.limit.unwrap_or(LINES).clamp(1, MOST_LINES), bytes: text::SHOWN_BYTES }
    }
}

impl AgentTool for ReadTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run<'a>(
        &'a self,
        arguments: Map<String, Value>,
        cx: &'a ToolContext,
    ) -> BoxFuture<'a, Result<CallOutput, CallFailure>> {
        Box::pin(async move {
            let arguments: ReadArguments = arguments::parse_arguments(&self.spec.name, arguments)?;
            let given = cx.clone();
            let patience = arguments.timeout.map(Duration::from_secs);
            let reading = arguments::run_blocking(cx, move || read_path(&arguments, &given));
            match patience {
                None => reading.await,
                Some(patience) => tokio::time::timeout(patience, reading).await.unwrap_or_else(|_| {
                    Err(CallFailure::Failed(format!("reading took longer than {} seconds", patience.as_secs())))
                }),
            }
        })
    }
}

fn read_path(arguments: &ReadArguments, cx: &ToolContext) -> Result<CallOutput, CallFailure> {
    let path = &arguments.path;
    let failed = |error: io::Error| CallFailure::Failed(format!("{path}: {error}"));
    let place = arguments::locate_path(path, cx)?;
    if !place.exists() {
        return Err(CallFailure::Failed(format!("{path} does not exist")));
    }
    let mut file = disk::open_file(&place).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    let resolved = place.path().display().to_string();
    if found.is_dir() {
        let listing = ls::list_folder(place.path(), cx).map_err(failed)?;
        return Ok(
            CallOutput::from_text(listing.text).with_details(json!({"isDirectory": true, "resolvedPath": resolved}))
        );
    }
    if !found.is_file() {
        return Err(CallFailure::Failed(format!("{path} is a device, pipe or socket, which cannot be read")));
    }
    let mut sample = Vec::new();
    file.by_ref().take(SAMPLE).read_to_end(&mut sample).map_err(failed)?;
    match kind::detect_kind(&sample) {
        ContentKind::Text => {}
        ContentKind::Image(mime) => {
            if found.len() > IMAGE {
                let size = text::format_size(found.len());
                return Err(CallFailure::Failed(format!("{path} is an image of {size}, above the limit of 20 MiB")));
            }
            let mut bytes = sample;
            file.take(IMAGE).read_to_end(&mut bytes).map_err(failed)?;
            let note = format!("Read image file {path} [{mime}, {}]", text::format_size(bytes.len() as u64));
            let image = ImageBlock { data: STANDARD.encode(&bytes), mime_type: mime.to_owned() };
            return Ok(CallOutput {
                content: vec![MessageBlock::from_text(note), MessageBlock::Image(image)],
                details: Some(json!({"kind": "image", "resolvedPath": resolved})),
                is_error: false,
            });
        }
        ContentKind::Binary(what) => {
            let size = text::format_size(found.len());
            return Err(CallFailure::Failed(format!(
                "{path} is not text but {what} ({size}); use a command that understands it"
            )));
        }
    }
    let range = LineRange::from_arguments(arguments);
    let stopped = || cx.cancel.is_cancelled();
    let part = part::read_excerpt(io::Cursor::new(sample).chain(file), range, stopped).map_err(failed)?;
    render_part(&part, range, arguments, &resolved, LineMarks::for_context(cx))
}

/// Marks before each line.
#[derive(Clone, Copy)]
enum LineMarks {
    None,
    Numbers,
    /// By which `edit` knows it.
    Anchors,
}

impl LineMarks {
    const fn for_context(cx: &ToolContext) -> Self {
        match cx.edit_mode {
            EditFormat::Hashline => Self::Anchors,
            EditFormat::Replace | EditFormat::Patch if cx.line_numbers => Self::Numbers,
            EditFormat::Replace | EditFormat::Patch => Self::None,
        }
    }
}

/// Returns the part of a text that a call of `read` with these arguments shows, if the text is not a file's: `from` names its
/// source. Its lines are not marked, since it cannot be edited.
///
/// # Errors
/// [`CallFailure`] for arguments that do not fit, and for a line that is not there.
pub fn part_of(text: &str, arguments: Map<String, Value>, from: &str) -> Result<CallOutput, CallFailure> {
    let arguments: ReadArguments = arguments::parse_arguments("read", arguments)?;
    let range = LineRange::from_arguments(&arguments);
    let part = part::read_excerpt(io::Cursor::new(text), range, || false)
        .map_err(|error| CallFailure::Failed(format!("{from}: {error}")))?;
    render_part(&part, range, &arguments, from, LineMarks::None)
}

fn render_part(
    part: &TextExcerpt,
    range: LineRange,
    arguments: &ReadArguments,
    resolved: &str,
    marks: LineMarks,
) -> Result<CallOutput, CallFailure> {
    let mut details = json!({"resolvedPath": resolved});
    if part.total == Some(0) {
        let text = if arguments.raw { String::new() } else { "(empty file)".to_owned() };
        return Ok(CallOutput::from_text(text).with_details(details));
    }
    if part.lines.is_empty() {
        let total = part.total.map_or_else(String::new, |total| format!(": the last line is {total}"));
        return Err(CallFailure::Failed(format!("{} has no line {}{total}", arguments.path, range.first)));
    }
    let last = range.first + part.lines.len() - 1;
    let mut text = String::new();
    for (at, line) in part.lines.iter().enumerate() {
        let number = range.first + at;
        match marks {
            _ if arguments.raw => {}
            LineMarks::Anchors => text.push_str(&format!("{}:", hashline::line_anchor(number, line))),
            LineMarks::Numbers => text.push_str(&format!("{number:>6}\t")),
            LineMarks::None => {}
        }
        text.push_str(line);
        text.push('\n');
    }
    if arguments.raw && part.total == Some(last) && !part.ends_with_line_end {
        text.pop();
    }
    if part.total == Some(last) && !part.is_cut {
        return Ok(CallOutput::from_text(text).with_details(details));
    }
    let total = part.total.map_or_else(|| "more".to_owned(), |total| total.to_string());
    if !arguments.raw {
        let more = if part.is_cut {
            format!(
                "[Line {last} is longer than {}: its beginning is shown; use bash for the rest]",
                text::format_size(text::SHOWN_BYTES as u64)
            )
        } else {
            format!("[Showing lines {}-{last} of {total}. Use offset={} to continue]", range.first, last + 1)
        };
        text.push('\n');
        text.push_str(&more);
    }
    details["truncation"] = json!({
        "direction": "head",
        "truncatedBy": if part.by_bytes || part.is_cut { "bytes" } else { "lines" },
        "totalLines": part.total,
        "outputLines": part.lines.len(),
        "shownRange": {"start": range.first, "end": last},
    });
    Ok(CallOutput::from_text(text).with_details(details))
}

#[cfg(test)]
mod tests;
