//! `gsv__ListFiles`: lists a folder of the agent.

use countersign_core::tool::ToolEffect;
use serde::Deserialize;
use serde_json::json;

use super::{
    BuiltinCall, BuiltinResult, BuiltinTool,
    files::{in_folder, path_form, path_schema},
};

pub(super) const TOOL: BuiltinTool = BuiltinTool {
    name: "ListFiles",
    description: "Lists a folder of your workspace: its files, and its folders with / at the end. Without a path, all that lies at the top.",
    schema: || json!({"type": "object", "properties": {"path": path_schema("Folder")}}),
    signature: &["path"],
    effect: ToolEffect::Reads,
    form: path_form,
    run: |call| Box::pin(run(call)),
};

#[derive(Deserialize)]
struct ListFilesArguments {
    path: Option<String>,
}

async fn run(mut call: BuiltinCall) -> BuiltinResult {
    let ListFilesArguments { path } = call.read_arguments()?;
    let listing = in_folder(&call, path.as_deref().unwrap_or("."), |folder, path| {
        folder.list_entries(&path).map_err(|error| error.to_string())
    })
    .await?;
    Ok(json!({"files": listing.files, "directories": listing.directories}).to_string())
}
