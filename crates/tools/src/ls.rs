//! `ls`: what a folder holds.
//!
//! It must not walk below the folder.

use std::{fs, path::Path};

use countersign_core::tool::{CallConcurrency, RepeatMode, ToolEffect, ToolSpec};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    arguments,
    outcome::{CallFailure, CallOutput},
    text,
    tool::{AgentTool, ToolContext},
};

/// The most entries that are shown.
const ENTRIES: usize = 1000;

/// The tool `ls`.
pub struct LsTool {
    spec: ToolSpec,
}

impl Default for LsTool {
    fn default() -> Self {
        Self {
            spec: ToolSpec {
                name: "ls".to_owned(),
                description: "Lists a folder, hidden files too, sorted by name: folders end in /, links show where they lead, files show their size."
                    .to_owned(),
                schema: json!({"type": "object", "properties": {
                    "path": {"type": "string", "description": "Folder (default: the working folder)"},
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
struct LsArguments {
    path: Option<String>,
}

impl AgentTool for LsTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run<'a>(
        &'a self,
        arguments: Map<String, Value>,
        cx: &'a ToolContext,
    ) -> BoxFuture<'a, Result<CallOutput, CallFailure>> {
        Box::pin(async move {
            let LsArguments { path } = arguments::parse_arguments(&self.spec.name, arguments)?;
            let given = cx.clone();
            arguments::run_blocking(cx, move || {
                let path = path.as_deref().filter(|path| !path.is_empty()).unwrap_or(".");
                let place = arguments::locate_path(path, &given)?;
                let FolderListing { text, entries, truncated } = list_folder(place.path(), &given)
                    .map_err(|error| CallFailure::Failed(format!("{path}: {error}")))?;
                Ok(CallOutput::from_text(text).with_details(json!({"entryCount": entries, "truncated": truncated})))
            })
            .await
        })
    }
}

/// A folder in words.
pub(crate) struct FolderListing {
    pub(crate) text: String,
    pub(crate) entries: usize,
    pub(crate) truncated: bool,
}

/// Lists an allowed folder. Entries that tools may not touch are left out.
pub(crate) fn list_folder(folder: &Path, cx: &ToolContext) -> std::io::Result<FolderListing> {
    let boundary = cx.roots.boundary();
    let mut names: Vec<_> = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    names.retain(|entry| boundary.allows_entry(&entry.path()));
    names.sort_by_key(fs::DirEntry::file_name);
    let mut text = String::new();
    for entry in names.iter().take(ENTRIES) {
        text.push_str(&entry.file_name().to_string_lossy());
        match entry.metadata() {
            Ok(found) if found.is_dir() => text.push('/'),
            Ok(found) if found.is_symlink() => {
                text.push_str(" -> ");
                text.push_str(&fs::read_link(entry.path()).unwrap_or_default().to_string_lossy());
            }
            Ok(found) if found.is_file() => text.push_str(&format!(" ({})", text::format_size(found.len()))),
            Ok(_) => text.push_str(" (special file)"),
            Err(_) => {}
        }
        text.push('\n');
    }
    let truncated = names.len() > ENTRIES;
    if names.is_empty() {
        text.push_str("(empty folder)");
    }
    if truncated {
        text.push_str(&format!("[{ENTRIES} of {} entries shown; use find with a pattern for the others]", names.len()));
    }
    Ok(FolderListing { text: text.trim_end().to_owned(), entries: names.len(), truncated })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use serde_json::json;

    use super::LsTool;
    use crate::tool::testing::{ToolFixture, failure, text};

    #[tokio::test]
    async fn a_folder_is_listed_by_name_without_what_is_reserved() {
        let case = ToolFixture::new();
        assert_eq!(text(&case.run(&LsTool::default(), json!({})).await), "(empty folder)");
        case.write("b.txt", "12345");
        case.write(".hidden", "");
        fs::create_dir(case.path("a")).unwrap();
        symlink("b.txt", case.path("link")).unwrap();
        case.write("own/rules", "a secret");
        fs::hard_link(case.path("own/rules"), case.path("alias")).unwrap();
        let listed = case.run(&LsTool::default(), json!({"path": "."})).await;
        assert_eq!(text(&listed), ".hidden (0 B)\na/\nb.txt (5 B)\nlink -> b.txt");
        assert_eq!(listed.unwrap().details, Some(json!({"entryCount": 4, "truncated": false})));
    }

    #[tokio::test]
    async fn what_is_no_folder_is_an_error() {
        let case = ToolFixture::new();
        case.write("file", "");
        for (path, want) in [
            ("file", "file: Not a directory (os error 20)"),
            ("none", "none: No such file or directory (os error 2)"),
            ("..", ".. is outside of the allowed folder"),
            ("own", "own is reserved"),
        ] {
            let got = case.run(&LsTool::default(), json!({"path": path})).await;
            assert!(failure(&got).starts_with(want), "{path}: {got:?}");
        }
    }
}
