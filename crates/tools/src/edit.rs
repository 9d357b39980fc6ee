//! `edit`: changes a part of a text file, in one of three forms.
//!
//! It must not guess: what does not fit exactly is explained and the file is left as it was.

pub(crate) mod content;
pub(crate) mod hashline;
mod nearest;
mod patch;
mod replace;

use countersign_core::tool::{Lane, RepeatMode, ToolEffect, ToolSpec};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

use crate::{
    arguments, diff,
    disk::{self, Before},
    outcome::{Failure, Output},
    tool::{Context, EditMode, Tool},
};
use content::Content;

/// The tool `edit`.
pub struct Edit {
    spec: ToolSpec,
    mode: EditMode,
}

impl Default for Edit {
    fn default() -> Self {
        Self::new(EditMode::default())
    }
}

impl Edit {
    /// The tool in one of its forms.
    pub fn new(mode: EditMode) -> Self {
        let (description, schema) = match mode {
            EditMode::Replace => (replace::DESCRIPTION, replace::schema()),
            EditMode::Hashline => (hashline::DESCRIPTION, hashline::schema()),
            EditMode::Patch => (patch::DESCRIPTION, patch::schema()),
        };
        let spec = ToolSpec {
            name: "edit".to_owned(),
            description: description.to_owned(),
            schema,
            lane: Lane::Exclusive,
            repeat: RepeatMode::Once,
            effect: ToolEffect::Changes,
            signature: &["path"],
        };
        Self { spec, mode }
    }
}

impl Tool for Edit {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run<'a>(&'a self, arguments: Map<String, Value>, cx: &'a Context) -> BoxFuture<'a, Result<Output, Failure>> {
        Box::pin(async move {
            let name = &self.spec.name;
            let given = cx.clone();
            match self.mode {
                EditMode::Replace => {
                    let arguments = arguments::parse(name, arguments)?;
                    arguments::to_the_end(cx, move || apply(&replace::plan(&arguments, &given)?, &given)).await
                }
                EditMode::Hashline => {
                    let arguments = arguments::parse(name, arguments)?;
                    arguments::to_the_end(cx, move || apply(&hashline::plan(&arguments, &given)?, &given)).await
                }
                EditMode::Patch => {
                    let arguments = arguments::parse(name, arguments)?;
                    arguments::to_the_end(cx, move || apply(&patch::plan(&arguments, &given)?, &given)).await
                }
            }
        })
    }
}

/// What an edit comes to, decided before anything is written.
struct Plan {
    /// As it was asked for.
    path: String,
    /// What is there; absent if the file is to be made.
    old: Option<Content>,
    /// All that the file is to hold, as written to the disk; absent if it is to be removed.
    new: Option<String>,
    /// Another name that the file is to have.
    rename: Option<String>,
}

/// Carries a plan out.
fn apply(plan: &Plan, cx: &Context) -> Result<Output, Failure> {
    let Plan { path, old, new, rename } = plan;
    let failed = |path: &str, error: std::io::Error| Failure::Failed(format!("{path} was not changed: {error}"));
    let place = arguments::locate_to_change(path, cx)?;
    let target = rename.as_deref().map(|rename| arguments::locate_to_change(rename, cx)).transpose()?;
    if let (Some(target), Some(rename)) = (&target, rename)
        && target.exists()
    {
        return Err(Failure::Failed(format!("{rename} exists already: nothing was changed")));
    }
    let before = old.as_ref().map_or("", |old| old.text());
    let Some(new) = new else {
        disk::remove(&place).map_err(|error| failed(path, error))?;
        let shown = diff::between(before, "");
        let details = json!({"diff": shown.text, "firstChangedLine": shown.first_changed_line, "op": "delete"});
        return Ok(Output::text(format!("Deleted {path}")).with_details(details));
    };
    let expected = old.as_ref().map_or(Before::Anything, |old| Before::Unchanged(old.stamp()));
    let text = match (&target, rename) {
        (Some(target), Some(rename)) => {
            disk::replace(target, new.as_bytes(), Before::Anything).map_err(|error| failed(rename, error))?;
            if old.is_some() {
                disk::remove(&place).map_err(|error| {
                    Failure::Failed(format!("{rename} was written, but {path} could not be removed: {error}"))
                })?;
            }
            format!("Edited {path} and moved it to {rename}")
        }
        _ => {
            disk::replace(&place, new.as_bytes(), expected).map_err(|error| failed(path, error))?;
            let verb = if old.is_some() { "Edited" } else { "Created" };
            format!("{verb} {path}")
        }
    };
    let shown = diff::between(before, &content::normalised(new));
    let mut details = json!({"diff": shown.text});
    if let Some(line) = shown.first_changed_line {
        details["firstChangedLine"] = line.into();
    }
    if old.is_none() {
        details["op"] = "create".into();
    }
    if let Some(rename) = rename {
        details["move"] = rename.as_str().into();
    }
    Ok(Output::text(text).with_details(details))
}

#[cfg(test)]
mod tests;
