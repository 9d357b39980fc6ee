//! Decides whether a person in a chat network may speak to an agent, by the settings of the network.

use super::{ChatPeer, MessageSender};
use crate::gsv::key::phone_number;

/// Policy for senders. It holds for chats of all kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SenderPolicy {
    /// Every sender.
    #[default]
    Open,
    /// Senders on the list.
    Allowlist,
    /// Senders on the list; others wait until they are approved.
    Pairing,
}

impl SenderPolicy {
    /// Returns the policy of this name in the settings.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "open" => Some(Self::Open),
            "allowlist" => Some(Self::Allowlist),
            "pairing" => Some(Self::Pairing),
            _ => None,
        }
    }
}

/// Access of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderAccess {
    /// Yes.
    Allowed,
    /// Allowed after approval.
    Pairing,
    /// No.
    Blocked,
}

/// Decides whether a sender may speak in a chat. `allowed` is the network's list: ids of senders, ids of chats, or `*`.
///
/// Without a sender the chat's own id is looked for, which is the person's in a chat with one.
pub fn sender_access(
    policy: SenderPolicy,
    allowed: &[String],
    peer: &ChatPeer,
    sender: Option<&MessageSender>,
) -> SenderAccess {
    let id = sender.map_or(peer.id.as_str(), |sender| sender.id.as_str());
    let is_listed = |entry: &String| {
        let entry = entry.trim();
        // An empty entry must not admit a sender without an id.
        !entry.is_empty() && (entry == "*" || entry == peer.id || phone_number(entry) == phone_number(id))
    };
    match policy {
        SenderPolicy::Open => SenderAccess::Allowed,
        SenderPolicy::Allowlist | SenderPolicy::Pairing if allowed.iter().any(is_listed) => SenderAccess::Allowed,
        SenderPolicy::Allowlist => SenderAccess::Blocked,
        SenderPolicy::Pairing => SenderAccess::Pairing,
    }
}
