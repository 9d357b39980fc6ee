//! `gsv__WriteFile`: a whole file of the agent's, made or replaced.

use countersign_core::tool::ToolEffect;
use serde::Deserialize;
use serde_json::json;

use super::{
    Call, Native, Outcome,
    files::{in_folder, path_form, path_schema},
};

pub(super) const TOOL: Native = Native {
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
struct Arguments {
    path: String,
    content: String,
}

async fn run(mut call: Call) -> Outcome {
    let Arguments { path, content } = call.read()?;
    let size = content.chars().count();
    in_folder(&call, &path, move |folder, path| folder.write(&path, &content).map_err(|error| error.to_string()))
        .await?;
    Ok(json!({"path": path, "size": size, "written": true}).to_string())
}
