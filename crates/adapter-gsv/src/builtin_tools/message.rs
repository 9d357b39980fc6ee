//! `gsv__Message`: the agent sends a message in a chat network.

use countersign_core::{channel::OutboundMedia, tool::ToolEffect};
use countersign_protocol::gsv::channel::PeerKind;
use countersign_runtime::tools::CallFailure;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    super::{
        channels::{self, attachments},
        delivery::{self, DeliveryError, DeliveryRequest, DeliveryTarget},
    },
    BuiltinCall, BuiltinResult, BuiltinTool, accept_unchanged,
};

pub(super) const TOOL: BuiltinTool = BuiltinTool {
    name: "Message",
    description: "Sends a message to somebody in a chat network. Without channel and to it goes to whoever last spoke with you there. What you answer to a chat goes there by itself: this is for everything else.",
    schema: || target_schema("text", json!({"text": {"type": "string", "description": "What to say"}})),
    signature: &["channel", "to", "text"],
    effect: ToolEffect::Changes,
    form: accept_unchanged,
    run: |call| Box::pin(run(call)),
};

#[derive(Deserialize)]
struct MessageArguments {
    text: String,
    #[serde(flatten)]
    place: ChatTarget,
}

/// Target of a message.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChatTarget {
    channel: Option<String>,
    to: Option<String>,
    peer_kind: Option<PeerKind>,
    account_id: Option<String>,
    reply_to_id: Option<String>,
}

async fn run(mut call: BuiltinCall) -> BuiltinResult {
    let MessageArguments { text, place } = call.read_arguments()?;
    send_message(&call, &text, place.delivery_target()?, None).await
}

fn non_blank(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.trim().is_empty())
}

impl ChatTarget {
    /// Returns the target, and the message to which it replies.
    ///
    /// # Errors
    /// [`CallFailure::Invalid`] if the target is incomplete.
    pub(super) fn delivery_target(self) -> Result<(DeliveryTarget, Option<String>), CallFailure> {
        let target = match (non_blank(self.channel), non_blank(self.to)) {
            (None, None) => DeliveryTarget::Last,
            (Some(channel), Some(to)) => {
                let kind = channels::chat_kind(self.peer_kind.unwrap_or(PeerKind::Dm));
                DeliveryTarget::Chat { channel, to, kind, account: non_blank(self.account_id) }
            }
            (Some(_), None) | (None, Some(_)) => {
                let why = "channel and to go together; without both it goes to who last spoke";
                return Err(CallFailure::Invalid(why.to_owned()));
            }
        };
        Ok((target, non_blank(self.reply_to_id)))
    }
}

/// Sends a message, and tells the model the target.
///
/// # Errors
/// The reason why it is not sent.
pub(super) async fn send_message(
    call: &BuiltinCall,
    text: &str,
    (to, reply_to): (DeliveryTarget, Option<String>),
    media: Option<OutboundMedia>,
) -> BuiltinResult {
    let session = Some(call.key.as_str());
    let object = media.as_ref().map(|media| media.object.clone());
    let delivery = DeliveryRequest { agent: &call.agent, to, text, session, reply_to, key: None, media };
    let sent = delivery::deliver_text(&call.door, delivery).await;
    let sent = match sent {
        Ok(sent) => sent,
        Err(problem) => {
            // A message that may have been recorded needs its file.
            if let Some(object) = object.filter(|_| !matches!(problem, DeliveryError::Failed(_))) {
                attachments::release_file(&call.door, object).await;
            }
            return Err(CallFailure::NotBegun(problem.to_string()));
        }
    };
    let peer = channels::chat_peer(&sent);
    Ok(json!({
        "ok": true,
        "channel": sent.account.network,
        "accountId": sent.account.name,
        "peer": { "kind": peer.kind.name(), "id": peer.id },
    })
    .to_string())
}

/// Returns the schema of a message's target, with `more` fields of the tool.
pub(super) fn target_schema(required: &str, more: Value) -> Value {
    let mut properties = json!({
        "channel": {"type": "string", "description": "The network, such as telegram"},
        "to": {"type": "string", "description": "The network's id of the chat"},
        "peerKind": {"type": "string", "enum": ["dm", "group", "channel", "thread"], "description": "What kind of chat it is (default: dm)"},
        "accountId": {"type": "string", "description": "The account to send it through"},
        "replyToId": {"type": "string", "description": "The network's id of the message that it answers"},
    });
    if let (Some(all), Value::Object(more)) = (properties.as_object_mut(), more) {
        all.extend(more);
    }
    json!({"type": "object", "required": [required], "properties": properties})
}
