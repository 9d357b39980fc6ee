//! `gsv__WriteFile`: creates or replaces a file of the agent.

use countersign_core::tool::ToolEffect;
use serde::Deserialize;
use serde_json::json;

use super::{
    BuiltinCall, BuiltinResult, BuiltinTool,
    files::{in_folder, path_form, path_schema},
};

pub(super) const TOOL: BuiltinTool = BuiltinTool {
    name: "WriteFile",
    description: "Writes a whole text file of your workspace. Missing folders are made; a file that is there is replaced.",
    schema: || {
        json!({"type": "object", "required": ["path", "content"], "properties": {
            "path": path_schema("File"),
            "content": {"type": "string", "description": "All that the file is to hold"},
        }})
    },
    signature: &["path"],
    effect: ToolEffect::Changes,
    form: path_form,
    run: |call| Box::pin(run(call)),
};

#[derive(Deserialize)]
struct WriteFileArguments {
    path: String,
    content: String,
}

async fn run(mut call: BuiltinCall) -> BuiltinResult {
    let WriteFileArguments { path, content } = call.read_arguments()?;
    let size = content.chars().count();
    in_folder(&call, &path, move |folder, path| folder.write_text(&path, &content).map_err(|error| error.to_string()))
        .await?;
    Ok(json!({"path": path, "size": size, "written": true}).to_string())
}
