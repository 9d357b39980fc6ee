//! `gsv__Message`: the agent says something in a chat network.

use countersign_core::tool::Effect;
use countersign_protocol::gsv::channel::PeerKind;
use countersign_runtime::tools::Failure;
use serde::Deserialize;
use serde_json::json;

use super::{
    super::{
        channels,
        delivery::{self, Delivery, Target},
    },
    Call, Native, Outcome, as_it_is,
};

pub(super) const TOOL: Native = Native {
    name: "Message",
    description: "Sends a message to somebody in a chat network. Without channel and to it goes to whoever last spoke with you there. What you answer to a chat goes there by itself: this is for everything else.",
    schema: || {
        json!({"type": "object", "required": ["text"], "properties": {
            "text": {"type": "string", "description": "What to say"},
            "channel": {"type": "string", "description": "The network, such as telegram"},
            "to": {"type": "string", "description": "The network's id of the chat"},
            "peerKind": {"type": "string", "enum": ["dm", "group", "channel", "thread"], "description": "What kind of chat it is (default: dm)"},
            "accountId": {"type": "string", "description": "The account to send it through"},
            "replyToId": {"type": "string", "description": "The network's id of the message that it answers"},
        }})
    },
    signature: &["channel", "to", "text"],
    effect: Effect::Changes,
    form: as_it_is,
    run: |call| Box::pin(run(call)),
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    text: String,
    channel: Option<String>,
    to: Option<String>,
    peer_kind: Option<PeerKind>,
    account_id: Option<String>,
    reply_to_id: Option<String>,
}

async fn run(mut call: Call) -> Outcome {
    let Arguments { text, channel, to, peer_kind, account_id, reply_to_id } = call.read()?;
    let given = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
    let to = match (given(channel), given(to)) {
        (None, None) => Target::Last,
        (Some(channel), Some(to)) => {
            let kind = channels::kind(peer_kind.unwrap_or(PeerKind::Dm));
            Target::Chat { channel, to, kind, account: given(account_id) }
        }
        (Some(_), None) | (None, Some(_)) => {
            return Err(Failure::Invalid(
                "channel and to go together; without both it goes to who last spoke".to_owned(),
            ));
        }
    };
    let delivery = Delivery {
        agent: &call.agent,
        to,
        text: &text,
        session: Some(&call.key),
        reply_to: given(reply_to_id),
        key: None,
    };
    let sent = delivery::deliver(&call.door, delivery).await;
    let sent = sent.map_err(|problem| Failure::NotBegun(problem.to_string()))?;
    let peer = channels::peer(&sent);
    Ok(json!({
        "ok": true,
        "channel": sent.account.network,
        "accountId": sent.account.name,
        "peer": { "kind": peer.kind.name(), "id": peer.id },
    })
    .to_string())
}
