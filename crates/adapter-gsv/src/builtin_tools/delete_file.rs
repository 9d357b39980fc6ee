//! `gsv__DeleteFile`: deletes a file of the agent.

use countersign_core::tool::ToolEffect;
use serde::Deserialize;
use serde_json::json;

use super::{
    BuiltinCall, BuiltinResult, BuiltinTool,
    files::{in_folder, path_form, path_schema},
};

pub(super) const TOOL: BuiltinTool = BuiltinTool {
    name: "DeleteFile",
    description: "Deletes a file of your workspace.",
    schema: || json!({"type": "object", "required": ["path"], "properties": {"path": path_schema("File")}}),
    signature: &["path"],
    effect: ToolEffect::Changes,
    form: path_form,
    run: |call| Box::pin(run(call)),
};

#[derive(Deserialize)]
struct DeleteFileArguments {
    path: String,
}

async fn run(mut call: BuiltinCall) -> BuiltinResult {
    let DeleteFileArguments { path } = call.read_arguments()?;
    in_folder(&call, &path, |folder, path| folder.remove_file(&path).map_err(|error| error.to_string())).await?;
    Ok(json!({"path": path, "deleted": true}).to_string())
}
