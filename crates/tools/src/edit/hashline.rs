//! The form of `edit` that names lines by number and hash, as `read` shows them in that setting.
//!
//! It must not move an anchor: one that does not fit any more is explained with the lines as they are now.

use std::ops::Range;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Plan, content::Content};
use crate::{outcome::Failure, tool::Context};

pub(super) const DESCRIPTION: &str = "Changes lines of a file, named by the anchors that read shows (12#XY). All anchors mean the file as it was read; the edits of one \
    call are applied together. loc: \"append\" or \"prepend\" for the end or the beginning of the file, {append: anchor} or {prepend: anchor} for the place \
    after or before a line, {range: {pos, end}} for lines to replace, both included. content: the new lines, without anchors; null removes the range.";

/// Letters that are hard to confuse, one for each half byte.
const LETTERS: [char; 16] = ['Z', 'P', 'M', 'Q', 'V', 'R', 'W', 'S', 'N', 'K', 'T', 'X', 'J', 'B', 'Y', 'H'];

/// The name of a line: its number and a hash of what it holds, such as `12#XY`.
pub(crate) fn anchor(number: usize, line: &str) -> String {
    // FNV-1a; a line without letters or digits is told apart from its like by its number.
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
pub(super) struct Arguments {
    path: String,
    #[serde(default)]
    edits: Vec<Change>,
    #[serde(default)]
    delete: bool,
    #[serde(rename = "move")]
    target: Option<String>,
}

#[derive(Deserialize)]
struct Change {
    loc: Location,
    content: Option<Lines>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Whole {
    Append,
    Prepend,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Location {
    Whole(Whole),
    After { append: String },
    Before { prepend: String },
    Range { range: Ends },
}

#[derive(Deserialize)]
struct Ends {
    pos: String,
    end: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Lines {
    Text(String),
    List(Vec<String>),
}

pub(super) fn schema() -> Value {
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

pub(super) fn plan(arguments: &Arguments, cx: &Context) -> Result<Plan, Failure> {
    let Arguments { path, edits, delete, target } = arguments;
    if *delete {
        let old = Content::read_existing(path, cx)?;
        return Ok(Plan { path: path.clone(), old: Some(old), new: None, rename: None });
    }
    if edits.is_empty() && target.is_none() {
        return Err(Failure::Failed("edits is empty: nothing to change".to_owned()));
    }
    let Some(content) = Content::read(path, cx)? else {
        return create(path, edits);
    };
    let mut changes = edits.iter().map(|change| located(change, &content)).collect::<Result<Vec<_>, _>>()?;
    // Stable: insertions at one place keep the order of the call.
    changes.sort_by_key(|(range, _)| (range.start, range.end));
    if changes.windows(2).any(|pair| pair[0].0.end > pair[1].0.start) {
        return Err(Failure::Failed("two edits change the same lines: put them into one".to_owned()));
    }
    let new = content.splice(&changes);
    Ok(Plan { path: path.clone(), old: Some(content), new: Some(new), rename: target.clone() })
}

fn create(path: &str, edits: &[Change]) -> Result<Plan, Failure> {
    let mut made = String::new();
    for change in edits {
        match &change.loc {
            Location::Whole(Whole::Append) => made.push_str(&text_of(change.content.as_ref())),
            Location::Whole(Whole::Prepend) => made.insert_str(0, &text_of(change.content.as_ref())),
            Location::After { .. } | Location::Before { .. } | Location::Range { .. } => {
                return Err(Failure::Failed(format!("{path} does not exist, so it has no lines to name")));
            }
        }
    }
    Ok(Plan { path: path.to_owned(), old: None, new: Some(made), rename: None })
}

/// Where a change goes in the text, and what goes there.
fn located(change: &Change, content: &Content) -> Result<(Range<usize>, String), Failure> {
    let starts = content.line_starts();
    let text = content.text();
    let mut new = text_of(change.content.as_ref());
    let at = match &change.loc {
        Location::Whole(Whole::Prepend) => 0..0,
        Location::Whole(Whole::Append) => text.len()..text.len(),
        Location::After { append } => {
            let line = find(append, content, &starts)?;
            starts[line]..starts[line]
        }
        Location::Before { prepend } => {
            let line = find(prepend, content, &starts)?;
            starts[line - 1]..starts[line - 1]
        }
        Location::Range { range } => {
            let (first, last) = (find(&range.pos, content, &starts)?, find(&range.end, content, &starts)?);
            if first > last {
                return Err(Failure::Failed(format!(
                    "the range {} to {} is the wrong way round",
                    range.pos, range.end
                )));
            }
            starts[first - 1]..starts[last]
        }
    };
    // A last line without an end must not run into what comes behind it, and stays without one.
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

/// The number of the line that an anchor names, from 1. What stands behind the hash is not looked at.
fn find(given: &str, content: &Content, starts: &[usize]) -> Result<usize, Failure> {
    let malformed = || {
        Failure::Failed(format!("{given:?} is not an anchor: it is a line number, # and two letters, such as 12#XY"))
    };
    let short = given.trim().split(':').next().unwrap_or_default();
    let (number, hash) = short.split_once('#').ok_or_else(malformed)?;
    let number: usize = number.trim().parse().map_err(|_| malformed())?;
    let count = starts.len() - 1;
    if number == 0 || number > count {
        return Err(Failure::Failed(format!("{given} names a line that is not there: the file has {count}")));
    }
    let line = |number: usize| content.text()[starts[number - 1]..starts[number]].trim_end_matches('\n');
    if anchor(number, line(number)) == format!("{number}#{}", hash.trim()) {
        return Ok(number);
    }
    let mut text = format!("{given} does not fit: the line has changed since it was read. The lines are now:");
    for near in number.saturating_sub(2).max(1)..=(number + 2).min(count) {
        text.push_str(&format!("\n{}:{}", anchor(near, line(near)), line(near)));
    }
    Err(Failure::Failed(text))
}

fn text_of(lines: Option<&Lines>) -> String {
    match lines {
        None => String::new(),
        Some(Lines::Text(text)) if text.is_empty() || text.ends_with('\n') => text.clone(),
        Some(Lines::Text(text)) => format!("{text}\n"),
        Some(Lines::List(lines)) => lines.iter().map(|line| format!("{line}\n")).collect(),
    }
}
