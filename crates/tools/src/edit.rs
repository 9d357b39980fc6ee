//! `edit`: changes a part of a text file, in one of three forms.
//!
//! It must not guess: what does not fit exactly is explained and the file is left as it was.

pub(crate) mod content;
pub(crate) mod hashline;
mod nearest;
mod patch;
mod replace;

use countersign_core::tool::{CallConcurrency, RepeatMode, ToolEffect, ToolSpec};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};

use crate::{
    arguments, diff,
    disk::{self, ReplaceCondition},
    outcome::{CallFailure, CallOutput},
    tool::{AgentTool, EditFormat, ToolContext},
};
use content::FileText;

/// The tool `edit`.
pub struct EditTool {
    spec: ToolSpec,
    mode: EditFormat,
}

impl Default for EditTool {
    fn default() -> Self {
        Self::new(EditFormat::default())
    }
}

impl EditTool {
    /// Creates the tool in one of its forms.
    pub fn new(mode: EditFormat) -> Self {
        let (description, schema) = match mode {
            EditFormat::Replace => (replace::DESCRIPTION, replace::arguments_schema()),
            EditFormat::Hashline => (hashline::DESCRIPTION, hashline::arguments_schema()),
            EditFormat::Patch => (patch::DESCRIPTION, patch::arguments_schema()),
        };
        let spec = ToolSpec {
            name: "edit".to_owned(),
            description: description.to_owned(),
            schema,
            concurrency: CallConcurrency::Exclusive,
            repeat: RepeatMode::Once,
            effect: ToolEffect::Changes,
            signature: &["path"],
        };
        Self { spec, mode }
    }
}

impl AgentTool for EditTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run<'a>(
        &'a self,
        arguments: Map<String, Value>,
        cx: &'a ToolContext,
    ) -> BoxFuture<'a, Result<CallOutput, CallFailure>> {
        Box::pin(async move {
            let name = &self.spec.name;
            let given = cx.clone();
            match self.mode {
                EditFormat::Replace => {
                    let arguments = arguments::parse_arguments(name, arguments)?;
                    arguments::run_to_completion(cx, move || {
                        apply_plan(&replace::plan_edit(&arguments, &given)?, &given)
                    })
                    .await
                }
                EditFormat::Hashline => {
                    let arguments = arguments::parse_arguments(name, arguments)?;
                    arguments::run_to_completion(cx, move || {
                        apply_plan(&hashline::plan_edit(&arguments, &given)?, &given)
                    })
                    .await
                }
                EditFormat::Patch => {
                    let arguments = arguments::parse_arguments(name, arguments)?;
                    arguments::run_to_completion(cx, move || apply_plan(&patch::plan_edit(&arguments, &given)?, &given))
                        .await
                }
            }
        })
    }
}

/// Result of an edit, decided before anything is written.
struct EditPlan {
    /// Path as requested.
    path: String,
    /// Present content; absent if the file is to be made.
    old: Option<FileText>,
    /// All that the file is to hold, as written to the disk; absent if it is to be removed.
    new: Option<String>,
    /// Another name that the file is to have.
    rename: Option<String>,
}

/// Carries a plan out.
fn apply_plan(plan: &EditPlan, cx: &ToolContext) -> Result<CallOutput, CallFailure> {
    let EditPlan { path, old, new, rename } = plan;
    let failed = |path: &str, error: std::io::Error| CallFailure::Failed(format!("{path} was not changed: {error}"));
    let place = arguments::locate_to_change(path, cx)?;
    let target = rename.as_deref().map(|rename| arguments::locate_to_change(rename, cx)).transpose()?;
    if let (Some(target), Some(rename)) = (&target, rename)
        && target.exists()
    {
        return Err(CallFailure::Failed(format!("{rename} exists already: nothing was changed")));
    }
    let before = old.as_ref().map_or("", |old| old.normalised_text());
    let Some(new) = new else {
        disk::remove_file(&place).map_err(|error| failed(path, error))?;
        let shown = diff::compute_diff(before, "");
        let details = json!({"diff": shown.text, "firstChangedLine": shown.first_changed_line, "op": "delete"});
        return Ok(CallOutput::from_text(format!("Deleted {path}")).with_details(details));
    };
    let expected = old.as_ref().map_or(ReplaceCondition::Anything, |old| ReplaceCondition::Unchanged(old.file_stamp()));
    let text = match (&target, rename) {
        (Some(target), Some(rename)) => {
            disk::replace_file(target, new.as_bytes(), ReplaceCondition::Anything)
                .map_err(|error| failed(rename, error))?;
            if old.is_some() {
                disk::remove_file(&place).map_err(|error| {
                    CallFailure::Failed(format!("{rename} was written, but {path} could not be removed: {error}"))
                })?;
            }
            format!("Edited {path} and moved it to {rename}")
        }
        _ => {
            disk::replace_file(&place, new.as_bytes(), expected).map_err(|error| failed(path, error))?;
            let verb = if old.is_some() { "Edited" } else { "Created" };
            format!("{verb} {path}")
        }
    };
    let shown = diff::compute_diff(before, &content::normalise_text(new));
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
    Ok(CallOutput::from_text(text).with_details(details))
}

#[cfg(test)]
mod tests;
