//! `Edit` of a node: exact text in the place of other text.
//!
//! It must not guess: what does not fit exactly leaves the file as it was.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::files::resolve_path;
use crate::{
    arguments,
    disk::{self, ReplaceCondition},
    edit::content::{FileText, normalise_text},
    outcome::CallFailure,
    tool::ToolContext,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeEditArguments {
    path: String,
    old_string: String,
    new_string: String,
    #[serde(default)]
    replace_all: bool,
}

/// Changes a file.
pub(super) async fn edit_file(arguments: Map<String, Value>, cx: &ToolContext) -> Result<Value, CallFailure> {
    let arguments: NodeEditArguments = arguments::parse_arguments("Edit", arguments)?;
    let given = cx.clone();
    arguments::run_to_completion(cx, move || replace_text(&arguments, &given)).await
}

fn replace_text(arguments: &NodeEditArguments, cx: &ToolContext) -> Result<Value, CallFailure> {
    let NodeEditArguments { path, old_string, new_string, replace_all } = arguments;
    let failed = |doing: &str, error: &dyn std::fmt::Display| {
        CallFailure::Failed(format!("Failed to {doing} '{path}': {error}"))
    };
    let place = resolve_path(path, cx).map_err(|error| failed("read", &error))?;
    let content = FileText::read_existing(path, cx).map_err(|error| failed("read", &error))?;
    let (old, new) = (normalise_text(old_string), normalise_text(new_string));
    if old.is_empty() {
        return Err(CallFailure::Failed("oldString is empty: it must be text of the file".to_owned()));
    }
    let found: Vec<usize> = content.normalised_text().match_indices(&old).map(|(at, _)| at).collect();
    match found.len() {
        0 => {
            return Err(CallFailure::Failed(format!(
                "oldString not found in '{path}': it must match exactly, white space too"
            )));
        }
        1 => {}
        _ if *replace_all => {}
        count => {
            return Err(CallFailure::Failed(format!(
                "oldString found {count} times in '{path}': add lines around it to make it unique, or set replaceAll"
            )));
        }
    }
    let edits: Vec<_> = found.iter().map(|at| (*at..at + old.len(), new.clone())).collect();
    let made = content.splice(&edits);
    disk::replace_file(&place, made.as_bytes(), ReplaceCondition::Unchanged(content.file_stamp()))
        .map_err(|error| failed("write", &error))?;
    Ok(json!({"path": place.path().display().to_string(), "replacements": found.len()}))
}
