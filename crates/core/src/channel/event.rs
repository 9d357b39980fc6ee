//! What happened in chat networks.

use serde::{Deserialize, Serialize};

use super::{Account, Address, Media};
use crate::id::LetterId;

/// How a letter ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
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
        account: Account,
    },
    /// An account is known no more.
    Forgotten {
        /// Which.
        account: Account,
    },
    /// A message came. What came of it stands in the records behind this one.
    #[serde(rename = "heard")]
    Heard {
        /// From where.
        from: Address,
        /// The agent that it is for.
        agent: String,
        /// The network's id of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
    /// Something is to be said to a chat. Its text is the content.
    Owed {
        /// Which letter it is.
        letter: LetterId,
        /// To which chat.
        to: Address,
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
        media: Option<Box<Media>>,
    },
    /// A letter ended. The content says why, where it was not delivered.
    Ended {
        /// Which.
        letter: LetterId,
        /// How.
        end: End,
    },
}
