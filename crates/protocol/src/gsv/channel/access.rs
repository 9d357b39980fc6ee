//! Says whether somebody in a chat network may speak to an agent, as the settings of the network have it.

use super::{ChatPeer, MessageSender};
use crate::gsv::key::phone_number;

/// Who may speak. It holds for chats of all kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SenderPolicy {
    /// Everybody.
    #[default]
    Open,
    /// Those on the list.
    Allowlist,
    /// Those on the list; others wait until somebody lets them in.
    Pairing,
}

impl SenderPolicy {
    /// The policy of this name in the settings.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "open" => Some(Self::Open),
            "allowlist" => Some(Self::Allowlist),
            "pairing" => Some(Self::Pairing),
            _ => None,
        }
    }
}

/// Whether somebody may speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderAccess {
    /// Yes.
    Allowed,
    /// Once somebody has let them in.
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
        // An empty line must not let in whoever has no id.
        !entry.is_empty() && (entry == "*" || entry == peer.id || phone_number(entry) == phone_number(id))
    };
    match policy {
        SenderPolicy::Open => SenderAccess::Allowed,
        SenderPolicy::Allowlist | SenderPolicy::Pairing if allowed.iter().any(is_listed) => SenderAccess::Allowed,
        SenderPolicy::Allowlist => SenderAccess::Blocked,
        SenderPolicy::Pairing => SenderAccess::Pairing,
    }
}
