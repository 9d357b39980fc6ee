//! `gsv__SendFile`: the agent sends a file of its folder to a chat.
//!
//! A separate tool, so that no rule about messages lets a file go.

use countersign_core::tool::ToolEffect;
use countersign_protocol::gsv::{LARGEST_MEDIA, workspace::WorkspacePath};
use countersign_runtime::tools::CallFailure;
use serde::Deserialize;
use serde_json::json;

use super::{
    super::channels::attachments,
    BuiltinCall, BuiltinResult, BuiltinTool,
    files::{in_folder, path_form, path_schema},
    message::{self, ChatTarget},
};

pub(super) const TOOL: BuiltinTool = BuiltinTool {
    name: "SendFile",
    description: "Sends a file of your workspace, such as a picture, to somebody in a chat network, with words if there are any. Without channel and to it goes to whoever last spoke with you there.",
    schema: || {
        let text = json!({"type": "string", "description": "What to say with it"});
        message::target_schema("path", json!({"path": path_schema("File"), "text": text}))
    },
    signature: &["channel", "to", "path", "text"],
    effect: ToolEffect::Changes,
    form: path_form,
    run: |call| Box::pin(run(call)),
};

#[derive(Deserialize)]
struct SendFileArguments {
    path: String,
    text: Option<String>,
    #[serde(flatten)]
    place: ChatTarget,
}

async fn run(mut call: BuiltinCall) -> BuiltinResult {
    let SendFileArguments { path, text, place } = call.read_arguments()?;
    let to = place.delivery_target()?;
    let found = in_folder(&call, &path, |folder, path: WorkspacePath| {
        folder.read_bytes(&path, LARGEST_MEDIA).map_err(|error| error.to_string())
    });
    let bytes = found.await?;
    if bytes.is_empty() {
        return Err(CallFailure::Failed(format!("{path} is empty")));
    }
    let name = path.rsplit('/').next().unwrap_or(&path);
    let kept = attachments::store_file(&call.door, name, bytes).await;
    let media = kept.map_err(|error| CallFailure::Failed(format!("{path} could not be kept: {error}")))?;
    message::send_message(&call, text.as_deref().unwrap_or_default(), to, Some(media)).await
}
