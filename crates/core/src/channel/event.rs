//! Events of chat networks.

use serde::{Deserialize, Serialize};

use super::{ChannelAccount, ChatAddress, OutboundMedia};
use crate::id::OutboundId;

/// Outcome of an outbound message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryEnd {
    /// The network has it.
    Delivered,
    /// The network does not take it.
    Refused,
    /// Too many later messages waited.
    Dropped,
    /// Its account was removed.
    Forgotten,
}

/// A fact about chat networks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// An account was registered.
    Met {
        /// The account.
        account: ChannelAccount,
    },
    /// An account was removed.
    Forgotten {
        /// The account.
        account: ChannelAccount,
    },
    /// A message was received. The records after this one hold its consequences.
    #[serde(rename = "heard")]
    Received {
        /// The chat that it came from.
        from: ChatAddress,
        /// The agent that it is for.
        agent: String,
        /// The network's id of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
    /// A message is to be sent to a chat. Its text is the content.
    Owed {
        /// Id of the message.
        letter: OutboundId,
        /// The chat.
        to: ChatAddress,
        /// The session that it belongs to, under its adapter's name for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<String>,
        /// The network's id of the message that it answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply_to: Option<String>,
        /// Idempotency key: a repeated key names the same message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        /// File that goes with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        media: Option<Box<OutboundMedia>>,
    },
    /// An outbound message ended. The content is the reason, if it was not delivered.
    Ended {
        /// The outbound message.
        letter: OutboundId,
        /// The outcome.
        end: DeliveryEnd,
    },
}
