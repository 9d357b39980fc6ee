//! `gsv__SendFile`: the agent sends a file of its folder to a chat.
//!
//! A tool of its own, so that no rule about words lets a file go.

use countersign_core::tool::ToolEffect;
use countersign_protocol::gsv::{LARGEST_MEDIA, workspace::WorkspacePath};
use countersign_runtime::tools::CallFailure;
use serde::Deserialize;
use serde_json::json;

use super::{
    super::channels::enclosed,
    Call, Native, Outcome,
    files::{in_folder, path_form, path_schema},
    message::{self, Place},
};

pub(super) const TOOL: Native = Native {
    name: "SendFile",
    description: "Sends a file of your workspace, such as a picture, to somebody in a chat network, with words if there are any. Without channel and to it goes to whoever last spoke with you there.",
    schema: || {
        let text = json!({"type": "string", "description": "What to say with it"});
        message::schema("path", json!({"path": path_schema("File"), "text": text}))
    },
    signature: &["channel", "to", "path", "text"],
    effect: ToolEffect::Changes,
    form: path_form,
    run: |call| Box::pin(run(call)),
};

#[derive(Deserialize)]
struct Arguments {
    path: String,
    text: Option<String>,
    #[serde(flatten)]
    place: Place,
}

async fn run(mut call: Call) -> Outcome {
    let Arguments { path, text, place } = call.read()?;
    let to = place.target()?;
    let found = in_folder(&call, &path, |folder, path: WorkspacePath| {
        folder.bytes(&path, LARGEST_MEDIA).map_err(|error| error.to_string())
    });
    let bytes = found.await?;
    if bytes.is_empty() {
        return Err(CallFailure::Failed(format!("{path} is empty")));
    }
    let name = path.rsplit('/').next().unwrap_or(&path);
    let kept = enclosed::put(&call.door, name, bytes).await;
    let media = kept.map_err(|error| CallFailure::Failed(format!("{path} could not be kept: {error}")))?;
    message::say(&call, text.as_deref().unwrap_or_default(), to, Some(media)).await
}
