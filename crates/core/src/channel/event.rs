//! What happened in chat networks.

use serde::{Deserialize, Serialize};

use super::{ChannelAccount, ChatAddress, OutboundMedia};
use crate::id::OutboundId;

/// How a letter ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryEnd {
    /// The network has it.
    Delivered,
    /// The network does not take it.
    Refused,
    /// Too many others waited behind it.
    Dropped,
    /// Its account is known no more.
    Forgotten,
}

/// A fact about chat networks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// An account is known.
    Met {
        /// Which.
        account: ChannelAccount,
    },
    /// An account is known no more.
    Forgotten {
        /// Which.
        account: ChannelAccount,
    },
    /// A message came. What came of it stands in the records behind this one.
    #[serde(rename = "heard")]
    Received {
        /// From where.
        from: ChatAddress,
        /// The agent that it is for.
        agent: String,
        /// The network's id of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
    /// Something is to be said to a chat. Its text is the content.
    Owed {
        /// Which letter it is.
        letter: OutboundId,
        /// To which chat.
        to: ChatAddress,
        /// The session that it belongs to, in the words of its door.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<String>,
        /// The network's id of the message that it answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply_to: Option<String>,
        /// The same key again is the same letter.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        /// What goes with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        media: Option<Box<OutboundMedia>>,
    },
    /// A letter ended. The content says why, where it was not delivered.
    Ended {
        /// Which.
        letter: OutboundId,
        /// How.
        end: DeliveryEnd,
    },
}
