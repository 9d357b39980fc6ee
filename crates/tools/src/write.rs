//! `write`: a whole file, made or replaced.
//!
//! It must not merge: what was there is gone.

use countersign_core::tool::{CallConcurrency, RepeatMode, ToolEffect, ToolSpec};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    arguments,
    disk::{self, ReplaceCondition, ReplaceOutcome},
    outcome::{CallFailure, CallOutput},
    tool::{AgentTool, ToolContext},
};

/// The tool `write`.
pub struct WriteTool {
    spec: ToolSpec,
}

impl Default for WriteTool {
    fn default() -> Self {
        let description = "Writes a whole file. Missing folders are made; a file that is there is replaced, with its mode kept, and a link is followed. \
            To change a part of a file use edit.";
        Self {
            spec: ToolSpec {
                name: "write".to_owned(),
                description: description.to_owned(),
                schema: json!({"type": "object", "required": ["path", "content"], "properties": {
                    "path": {"type": "string", "description": "File, absolute or relative to the working folder"},
                    "content": {"type": "string", "description": "All that the file is to hold"},
                }}),
                concurrency: CallConcurrency::Exclusive,
                repeat: RepeatMode::Idempotent,
                effect: ToolEffect::Changes,
                signature: &["path"],
            },
        }
    }
}

#[derive(Deserialize)]
struct WriteArguments {
    path: String,
    content: String,
}

impl AgentTool for WriteTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run<'a>(
        &'a self,
        arguments: Map<String, Value>,
        cx: &'a ToolContext,
    ) -> BoxFuture<'a, Result<CallOutput, CallFailure>> {
        Box::pin(async move {
            let WriteArguments { path, content } = arguments::parse_arguments(&self.spec.name, arguments)?;
            let given = cx.clone();
            arguments::run_to_completion(cx, move || {
                let place = arguments::locate_to_change(&path, &given)?;
                if path.ends_with('/') || place.path().is_dir() {
                    return Err(CallFailure::Failed(format!("{path} is a folder")));
                }
                let replaced = disk::replace_file(&place, content.as_bytes(), ReplaceCondition::Anything)
                    .map_err(|error| CallFailure::Failed(format!("{path} was not written: {error}")))?;
                let verb = match replaced {
                    ReplaceOutcome::Created => "Created",
                    ReplaceOutcome::Replaced => "Replaced",
                };
                let text = format!("{verb} {path}: wrote {} bytes", content.len());
                Ok(CallOutput::from_text(text).with_details(json!({})))
            })
            .await
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    };

    use serde_json::json;

    use super::WriteTool;
    use crate::tool::testing::{ToolFixture, failure, text};

    #[tokio::test]
    async fn a_file_is_made_with_its_folders_or_replaced() {
        let case = ToolFixture::new();
        let written = case.run(&WriteTool::default(), json!({"path": "a/b/c.txt", "content": "ä\n"})).await;
        assert_eq!(text(&written), "Created a/b/c.txt: wrote 3 bytes");
        let written = case.run(&WriteTool::default(), json!({"path": "a/b/c.txt", "content": ""})).await;
        assert_eq!(text(&written), "Replaced a/b/c.txt: wrote 0 bytes");
        assert_eq!(case.read("a/b/c.txt"), "");
    }

    #[tokio::test]
    async fn a_link_is_written_through_and_stays_a_link() {
        let case = ToolFixture::new();
        case.write("real.txt", "old");
        fs::set_permissions(case.path("real.txt"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink("real.txt", case.path("link.txt")).unwrap();
        case.run(&WriteTool::default(), json!({"path": "link.txt", "content": "new"})).await.unwrap();
        assert_eq!(case.read("real.txt"), "new");
        assert!(fs::symlink_metadata(case.path("link.txt")).unwrap().is_symlink());
        assert_eq!(fs::metadata(case.path("real.txt")).unwrap().mode() & 0o777, 0o640);
    }

    #[tokio::test]
    async fn a_link_does_not_hide_what_other_programs_obey() {
        let case = ToolFixture::new();
        case.write(".git/hooks/old", "x");
        symlink(".git/hooks", case.path("docs")).unwrap();
        symlink(".git/hooks/old", case.path("notes.txt")).unwrap();
        for (path, real) in [("docs/pre-commit", ".git/hooks/pre-commit"), ("notes.txt", ".git/hooks/old")] {
            let got = case.run(&WriteTool::default(), json!({"path": path, "content": "y"})).await;
            let want = format!(
                "{path} was not changed: a symlink in it leads to {real}, which version control runs or obeys later; use that path instead"
            );
            assert_eq!(failure(&got), want);
        }
        assert_eq!(case.read(".git/hooks/old"), "x");
        // A call that names it was judged by that.
        case.run(&WriteTool::default(), json!({"path": ".git/hooks/old", "content": "y"})).await.unwrap();
        assert_eq!(case.read(".git/hooks/old"), "y");
    }

    #[tokio::test]
    async fn what_is_no_place_for_a_file_is_refused() {
        let case = ToolFixture::new();
        fs::create_dir(case.path("folder")).unwrap();
        case.write("file", "x");
        nix::unistd::mkfifo(&case.path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for (path, want) in [
            ("folder", "folder is a folder"),
            ("new/", "new/ is a folder"),
            ("file/below", "file/below: Not a directory (os error 20)"),
            ("pipe", "pipe was not written: it is not a regular file"),
            ("../elsewhere", "../elsewhere is outside of the allowed folder"),
            ("own/rules", "own/rules is reserved: tools may not touch the gateway's own files"),
        ] {
            let got = case.run(&WriteTool::default(), json!({"path": path, "content": "y"})).await;
            assert!(failure(&got).starts_with(want), "{path}: {got:?}");
        }
        assert_eq!(case.read("file"), "x");
    }
}
