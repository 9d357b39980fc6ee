//! `gsv__Message`: the agent says something in a chat network.

use countersign_core::{channel::OutboundMedia, tool::ToolEffect};
use countersign_protocol::gsv::channel::PeerKind;
use countersign_runtime::tools::CallFailure;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    super::{
        channels::{self, enclosed},
        delivery::{self, Delivery, Target, Undelivered},
    },
    Call, Native, Outcome, as_it_is,
};

pub(super) const TOOL: Native = Native {
    name: "Message",
    description: "Sends a message to somebody in a chat network. Without channel and to it goes to whoever last spoke with you there. What you answer to a chat goes there by itself: this is for everything else.",
    schema: || schema("text", json!({"text": {"type": "string", "description": "What to say"}})),
    signature: &["channel", "to", "text"],
    effect: ToolEffect::Changes,
    form: as_it_is,
    run: |call| Box::pin(run(call)),
};

#[derive(Deserialize)]
struct Arguments {
    text: String,
    #[serde(flatten)]
    place: Place,
}

/// Where something is to be said.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Place {
    channel: Option<String>,
    to: Option<String>,
    peer_kind: Option<PeerKind>,
    account_id: Option<String>,
    reply_to_id: Option<String>,
}

async fn run(mut call: Call) -> Outcome {
    let Arguments { text, place } = call.read()?;
    say(&call, &text, place.target()?, None).await
}

fn given(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.trim().is_empty())
}

impl Place {
    /// To whom, and the message that it answers.
    ///
    /// # Errors
    /// [`Failure::Invalid`] where only half of a place is named.
    pub(super) fn target(self) -> Result<(Target, Option<String>), CallFailure> {
        let target = match (given(self.channel), given(self.to)) {
            (None, None) => Target::Last,
            (Some(channel), Some(to)) => {
                let kind = channels::kind(self.peer_kind.unwrap_or(PeerKind::Dm));
                Target::Chat { channel, to, kind, account: given(self.account_id) }
            }
            (Some(_), None) | (None, Some(_)) => {
                let why = "channel and to go together; without both it goes to who last spoke";
                return Err(CallFailure::Invalid(why.to_owned()));
            }
        };
        Ok((target, given(self.reply_to_id)))
    }
}

/// Says something, and tells the model where.
///
/// # Errors
/// Why it is not said.
pub(super) async fn say(
    call: &Call,
    text: &str,
    (to, reply_to): (Target, Option<String>),
    media: Option<OutboundMedia>,
) -> Outcome {
    let session = Some(call.key.as_str());
    let object = media.as_ref().map(|media| media.object.clone());
    let delivery = Delivery { agent: &call.agent, to, text, session, reply_to, key: None, media };
    let sent = delivery::deliver(&call.door, delivery).await;
    let sent = match sent {
        Ok(sent) => sent,
        Err(problem) => {
            // What was perhaps recorded all the same needs its file.
            if let Some(object) = object.filter(|_| !matches!(problem, Undelivered::Failed(_))) {
                enclosed::release(&call.door, object).await;
            }
            return Err(CallFailure::NotBegun(problem.to_string()));
        }
    };
    let peer = channels::peer(&sent);
    Ok(json!({
        "ok": true,
        "channel": sent.account.network,
        "accountId": sent.account.name,
        "peer": { "kind": peer.kind.name(), "id": peer.id },
    })
    .to_string())
}

/// The schema of where something is said, with `more` of the tool's own.
pub(super) fn schema(required: &str, more: Value) -> Value {
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
