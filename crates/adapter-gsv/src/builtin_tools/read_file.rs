//! `gsv__ReadFile`: reads a file of the agent, or of the shared skills.

use countersign_core::tool::ToolEffect;
use countersign_runtime::tools::CallFailure;
use serde::Deserialize;
use serde_json::json;

use super::{
    BuiltinCall, BuiltinResult, BuiltinTool,
    files::{in_folder, path_form, path_schema},
};

/// Most bytes of a file for a model.
const LARGEST: usize = 256 << 10;

pub(super) const TOOL: BuiltinTool = BuiltinTool {
    name: "ReadFile",
    description: "Reads a text file of your workspace. Paths that begin with skills/ lead to your own skills first, then to everybody's.",
    schema: || json!({"type": "object", "required": ["path"], "properties": {"path": path_schema("File")}}),
    signature: &["path"],
    effect: ToolEffect::Reads,
    form: path_form,
    run: |call| Box::pin(run(call)),
};

#[derive(Deserialize)]
struct ReadFileArguments {
    path: String,
}

async fn run(mut call: BuiltinCall) -> BuiltinResult {
    let ReadFileArguments { path } = call.read_arguments()?;
    let found =
        in_folder(&call, &path, |folder, path| folder.read_text(&path).map_err(|error| error.to_string())).await?;
    if found.text.len() > LARGEST {
        let size = found.text.len();
        return Err(CallFailure::Failed(format!("{path} has {size} bytes, at most {LARGEST} are shown")));
    }
    Ok(found.text)
}
