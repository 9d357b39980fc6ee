//! The form of `edit` that puts one exact text in the place of another.
//!
//! It must not interpret either text.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    EditPlan,
    content::{FileText, normalise_text},
    nearest,
};
use crate::{outcome::CallFailure, tool::ToolContext};

pub(super) const DESCRIPTION: &str = "Replaces exact text in a file. old_text must occur exactly once, unless all is set; include lines around it to \
    make it unique. Line ends of the file are kept and need not be matched. The file is left as it was if anything does not fit.";

/// Most line numbers that are named.
const NAMED: usize = 20;

#[derive(Deserialize)]
pub(super) struct ReplaceArguments {
    path: String,
    old_text: String,
    new_text: String,
    #[serde(default)]
    all: bool,
}

pub(super) fn arguments_schema() -> Value {
    json!({"type": "object", "required": ["path", "old_text", "new_text"], "properties": {
        "path": {"type": "string", "description": "File, absolute or relative to the working folder"},
        "old_text": {"type": "string", "description": "Text to replace, exactly as in the file"},
        "new_text": {"type": "string", "description": "Text to put in its place, taken literally"},
        "all": {"type": "boolean", "description": "Replace every occurrence (default false)"},
    }})
}

pub(super) fn plan_edit(arguments: &ReplaceArguments, cx: &ToolContext) -> Result<EditPlan, CallFailure> {
    let ReplaceArguments { path, old_text, new_text, all } = arguments;
    let content = FileText::read_existing(path, cx)?;
    let (old, new) = (normalise_text(old_text), normalise_text(new_text));
    if old.is_empty() {
        return Err(CallFailure::Failed(
            "old_text is empty: it must be text of the file; use write to replace a whole file".to_owned(),
        ));
    }
    if old == new {
        return Err(CallFailure::Failed("old_text and new_text are the same: nothing to change".to_owned()));
    }
    let found: Vec<usize> = content.normalised_text().match_indices(&old).map(|(at, _)| at).collect();
    match found.len() {
        0 => return Err(CallFailure::Failed(not_found(path, &content, &old))),
        1 => {}
        _ if *all => {}
        _ => return Err(CallFailure::Failed(not_unique(path, content.normalised_text(), &found))),
    }
    let edits: Vec<_> = found.into_iter().map(|at| (at..at + old.len(), new.clone())).collect();
    let made = content.splice(&edits);
    Ok(EditPlan { path: path.clone(), old: Some(content), new: Some(made), rename: None })
}

fn not_found(path: &str, content: &FileText, old: &str) -> String {
    let mut text = format!("old_text was not found in {path}: it must match exactly, white space too.");
    match nearest::describe_nearest(content.normalised_text(), old) {
        Some(lines) => {
            text.push('\n');
            text.push_str(&lines);
        }
        None => text.push_str(" No line is similar; read the file again."),
    }
    text
}

fn not_unique(path: &str, text: &str, found: &[usize]) -> String {
    let mut lines = Vec::new();
    let (mut line, mut from) = (1, 0);
    for at in found.iter().take(NAMED) {
        line += text[from..*at].bytes().filter(|byte| *byte == b'\n').count();
        from = *at;
        lines.push(line.to_string());
    }
    let more = if found.len() > NAMED { ", …" } else { "" };
    format!(
        "old_text occurs {} times in {path}, on lines {}{more}: add lines around it to make it unique, or set all",
        found.len(),
        lines.join(", ")
    )
}
