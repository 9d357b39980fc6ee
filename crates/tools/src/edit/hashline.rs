//! The form of `edit` that names lines by number and hash, as `read` shows them in that setting.
//!
//! It must not move an anchor: one that does not fit any more is explained with the lines as they are now.

use std::ops::Range;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{EditPlan, content::FileText};
use crate::{outcome::CallFailure, tool::ToolContext};

pub(super) const DESCRIPTION: &str = "Changes lines of a file, named by the anchors that read shows (12#XY). All anchors mean the file as it was read; the edits of one \
    call are applied together. loc: \"append\" or \"prepend\" for the end or the beginning of the file, {append: anchor} or {prepend: anchor} for the place \
    after or before a line, {range: {pos, end}} for lines to replace, both included. content: the new lines, without anchors; null removes the range.";

/// Letters that are hard to confuse, one for each half byte.
const LETTERS: [char; 16] = ['Z', 'P', 'M', 'Q', 'V', 'R', 'W', 'S', 'N', 'K', 'T', 'X', 'J', 'B', 'Y', 'H'];

/// Returns the anchor of a line: its number and a hash of its content, such as `12#XY`.
pub(crate) fn line_anchor(number: usize, line: &str) -> String {
    // FNV-1a; a line without letters or digits is distinguished from equal lines by its number.
    let line = line.trim_end();
    let mut hash: u32 = 0x811C_9DC5;
    let mut mix = |byte: u8| hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    line.bytes().for_each(&mut mix);
    if !line.chars().any(char::is_alphanumeric) {
        number.to_le_bytes().into_iter().for_each(&mut mix);
    }
    let byte = hash ^ (hash >> 8) ^ (hash >> 16) ^ (hash >> 24);
    format!("{number}#{}{}", LETTERS[(byte >> 4 & 15) as usize], LETTERS[(byte & 15) as usize])
}

#[derive(Deserialize)]
pub(super) struct HashlineArguments {
    path: String,
    #[serde(default)]
    edits: Vec<AnchoredEdit>,
    #[serde(default)]
    delete: bool,
    #[serde(rename = "move")]
    target: Option<String>,
}

#[derive(Deserialize)]
struct AnchoredEdit {
    loc: EditLocation,
    content: Option<LineContent>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum FileEdge {
    Append,
    Prepend,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum EditLocation {
    Whole(FileEdge),
    After { append: String },
    Before { prepend: String },
    Range { range: AnchorRange },
}

#[derive(Deserialize)]
struct AnchorRange {
    pos: String,
    end: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum LineContent {
    Text(String),
    List(Vec<String>),
}

pub(super) fn arguments_schema() -> Value {
    let anchor = json!({"type": "string", "description": "Anchor, such as 12#XY"});
    let object = |name: &str, form: &Value| json!({"type": "object", "required": [name], "properties": {name: form}});
    let range = json!({"type": "object", "required": ["pos", "end"], "properties": {"pos": anchor, "end": anchor}});
    let loc = json!({"anyOf": [
        {"type": "string", "enum": ["append", "prepend"]},
        object("append", &anchor),
        object("prepend", &anchor),
        object("range", &range),
    ]});
    let content =
        json!({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}, {"type": "null"}]});
    json!({"type": "object", "required": ["path", "edits"], "properties": {
        "path": {"type": "string", "description": "File, absolute or relative to the working folder"},
        "edits": {"type": "array", "items": {"type": "object", "required": ["loc", "content"], "properties": {"loc": loc, "content": content}}},
        "delete": {"type": "boolean", "description": "Delete the file instead"},
        "move": {"type": "string", "description": "New path of the file"},
    }})
}

pub(super) fn plan_edit(arguments: &HashlineArguments, cx: &ToolContext) -> Result<EditPlan, CallFailure> {
    let HashlineArguments { path, edits, delete, target } = arguments;
    if *delete {
        let old = FileText::read_existing(path, cx)?;
        return Ok(EditPlan { path: path.clone(), old: Some(old), new: None, rename: None });
    }
    if edits.is_empty() && target.is_none() {
        return Err(CallFailure::Failed("edits is empty: nothing to change".to_owned()));
    }
    let Some(content) = FileText::read_if_exists(path, cx)? else {
        return plan_creation(path, edits);
    };
    let mut changes = edits.iter().map(|change| locate_change(change, &content)).collect::<Result<Vec<_>, _>>()?;
    // Stable: insertions at one place keep the order of the call.
    changes.sort_by_key(|(range, _)| (range.start, range.end));
    if changes.windows(2).any(|pair| pair[0].0.end > pair[1].0.start) {
        return Err(CallFailure::Failed("two edits change the same lines: put them into one".to_owned()));
    }
    let new = content.splice(&changes);
    Ok(EditPlan { path: path.clone(), old: Some(content), new: Some(new), rename: target.clone() })
}

fn plan_creation(path: &str, edits: &[AnchoredEdit]) -> Result<EditPlan, CallFailure> {
    let mut made = String::new();
    for change in edits {
        match &change.loc {
            EditLocation::Whole(FileEdge::Append) => made.push_str(&text_of(change.content.as_ref())),
            EditLocation::Whole(FileEdge::Prepend) => made.insert_str(0, &text_of(change.content.as_ref())),
            EditLocation::After { .. } | EditLocation::Before { .. } | EditLocation::Range { .. } => {
                return Err(CallFailure::Failed(format!("{path} does not exist, so it has no lines to name")));
            }
        }
    }
    Ok(EditPlan { path: path.to_owned(), old: None, new: Some(made), rename: None })
}

/// Returns the range of a change in the text, and its replacement.
fn locate_change(change: &AnchoredEdit, content: &FileText) -> Result<(Range<usize>, String), CallFailure> {
    let starts = content.line_starts();
    let text = content.normalised_text();
    let mut new = text_of(change.content.as_ref());
    let at = match &change.loc {
        EditLocation::Whole(FileEdge::Prepend) => 0..0,
        EditLocation::Whole(FileEdge::Append) => text.len()..text.len(),
        EditLocation::After { append } => {
            let line = find_line(append, content, &starts)?;
            starts[line]..starts[line]
        }
        EditLocation::Before { prepend } => {
            let line = find_line(prepend, content, &starts)?;
            starts[line - 1]..starts[line - 1]
        }
        EditLocation::Range { range } => {
            let (first, last) = (find_line(&range.pos, content, &starts)?, find_line(&range.end, content, &starts)?);
            if first > last {
                return Err(CallFailure::Failed(format!(
                    "the range {} to {} ends before it begins",
                    range.pos, range.end
                )));
            }
            starts[first - 1]..starts[last]
        }
    };
    // A last line without an end must not run into the text after it, and stays without one.
    if at.end == text.len() && !text.is_empty() && !text.ends_with('\n') {
        if at.start == text.len() && !new.is_empty() {
            new.insert(0, '\n');
        }
        if new.ends_with('\n') {
            new.pop();
        }
    }
    Ok((at, new))
}

/// Returns the number of the line that an anchor names, from 1. Text after the hash is ignored.
fn find_line(given: &str, content: &FileText, starts: &[usize]) -> Result<usize, CallFailure> {
    let malformed = || {
        CallFailure::Failed(format!(
            "{given:?} is not an anchor: it is a line number, # and two letters, such as 12#XY"
        ))
    };
    let short = given.trim().split(':').next().unwrap_or_default();
    let (number, hash) = short.split_once('#').ok_or_else(malformed)?;
    let number: usize = number.trim().parse().map_err(|_| malformed())?;
    let count = starts.len() - 1;
    if number == 0 || number > count {
        return Err(CallFailure::Failed(format!("{given} names a line that does not exist: the last line is {count}")));
    }
    let line = |number: usize| content.normalised_text()[starts[number - 1]..starts[number]].trim_end_matches('\n');
    if line_anchor(number, line(number)) == format!("{number}#{}", hash.trim()) {
        return Ok(number);
    }
    let mut text = format!("{given} does not match: the line has changed since it was read. The lines are now:");
    for near in number.saturating_sub(2).max(1)..=(number + 2).min(count) {
        text.push_str(&format!("\n{}:{}", line_anchor(near, line(near)), line(near)));
    }
    Err(CallFailure::Failed(text))
}

fn text_of(lines: Option<&LineContent>) -> String {
    match lines {
        None => String::new(),
        Some(LineContent::Text(text)) if text.is_empty() || text.ends_with('\n') => text.clone(),
        Some(LineContent::Text(text)) => format!("{text}\n"),
        Some(LineContent::List(lines)) => lines.iter().map(|line| format!("{line}\n")).collect(),
    }
}
