//! `Edit` of a node: exact text in the place of other text.
//!
//! It must not guess: what does not fit exactly leaves the file as it was.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::files::named;
use crate::{
    arguments,
    disk::{self, Before},
    edit::content::{Content, normalised},
    outcome::Failure,
    tool::Context,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    path: String,
    old_string: String,
    new_string: String,
    #[serde(default)]
    replace_all: bool,
}

/// Changes a file.
pub(super) async fn edit(arguments: Map<String, Value>, cx: &Context) -> Result<Value, Failure> {
    let arguments: Arguments = arguments::parse("Edit", arguments)?;
    let given = cx.clone();
    arguments::to_the_end(cx, move || replace(&arguments, &given)).await
}

fn replace(arguments: &Arguments, cx: &Context) -> Result<Value, Failure> {
    let Arguments { path, old_string, new_string, replace_all } = arguments;
    let failed =
        |doing: &str, error: &dyn std::fmt::Display| Failure::Failed(format!("Failed to {doing} '{path}': {error}"));
    let place = named(path, cx).map_err(|error| failed("read", &error))?;
    let content = Content::read_existing(path, cx).map_err(|error| failed("read", &error))?;
    let (old, new) = (normalised(old_string), normalised(new_string));
    if old.is_empty() {
        return Err(Failure::Failed("oldString is empty: it must be text of the file".to_owned()));
    }
    let found: Vec<usize> = content.text().match_indices(&old).map(|(at, _)| at).collect();
    match found.len() {
        0 => {
            return Err(Failure::Failed(format!(
                "oldString not found in '{path}': it must match exactly, white space too"
            )));
        }
        1 => {}
        _ if *replace_all => {}
        count => {
            return Err(Failure::Failed(format!(
                "oldString found {count} times in '{path}': add lines around it to make it unique, or set replaceAll"
            )));
        }
    }
    let edits: Vec<_> = found.iter().map(|at| (*at..at + old.len(), new.clone())).collect();
    let made = content.splice(&edits);
    disk::replace(&place, made.as_bytes(), Before::Unchanged(content.stamp()))
        .map_err(|error| failed("write", &error))?;
    Ok(json!({"path": place.path().display().to_string(), "replacements": found.len()}))
}
