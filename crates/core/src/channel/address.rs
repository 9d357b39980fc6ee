//! Places in chat networks.

use serde::{Deserialize, Serialize};

use crate::id::PrincipalId;

/// Account of a gateway in a chat network.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ChannelAccount {
    /// The network.
    pub network: String,
    /// The account's name there.
    pub name: String,
}

/// Kind of a chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressKind {
    /// Chat with one person.
    Dm,
    /// Chat with a few people.
    Group,
    /// Chat with followers.
    Channel,
    /// Thread within another chat.
    Thread,
}

/// A chat of an account.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ChatAddress {
    /// The account.
    pub account: ChannelAccount,
    /// Kind of the chat.
    pub kind: AddressKind,
    /// The network's id of it.
    pub chat: String,
}

/// A file that goes with an outbound message. It is stored outside of the record until the message has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboundMedia {
    /// Its location, in the terms of the component that stored it.
    pub object: String,
    /// Its name.
    pub name: String,
    /// Its type.
    pub mime_type: String,
}

/// Origin of a message, to which the output of its run goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageOrigin {
    /// The chat.
    pub from: ChatAddress,
    /// The sender. Only the sender may answer the questions of the run in the chat.
    pub by: PrincipalId,
    /// The network's id of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
