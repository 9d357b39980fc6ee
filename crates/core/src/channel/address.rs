//! Places in chat networks.

use serde::{Deserialize, Serialize};

use crate::id::PrincipalId;

/// An account through which a gateway is in a chat network.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ChannelAccount {
    /// The network.
    pub network: String,
    /// The account's name there.
    pub name: String,
}

/// What kind of chat it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressKind {
    /// With one person.
    Dm,
    /// With a few.
    Group,
    /// With whoever follows it.
    Channel,
    /// Within another.
    Thread,
}

/// A chat of an account.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ChatAddress {
    /// The account.
    pub account: ChannelAccount,
    /// What kind of chat it is.
    pub kind: AddressKind,
    /// The network's id of it.
    pub chat: String,
}

/// A file that goes with what is said to a chat. It lies outside of the record until the letter has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboundMedia {
    /// Where it lies, in the words of whoever put it there.
    pub object: String,
    /// What it is called.
    pub name: String,
    /// Its type.
    pub mime_type: String,
}

/// Where a message came from, and so where what its run says goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageOrigin {
    /// The chat.
    pub from: ChatAddress,
    /// Who said it. What the run asks is for nobody else in the chat to answer.
    pub by: PrincipalId,
    /// The network's id of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
