//! Addresses in chat networks, on the wire and in the record.

use countersign_core::{
    channel::{AddressKind, ChannelAccount, ChatAddress},
    id::PrincipalId,
};
use countersign_protocol::gsv::{
    channel::{ChannelInboundParams, ChatPeer, PeerKind},
    key::phone_number,
};
use countersign_telegram as telegram;
use countersign_view::principals;

/// Network of the messenger of the gateway.
pub(super) const TELEGRAM: &str = telegram::SURFACE;
/// Network of signed requests over HTTP.
pub(super) const WEBHOOK: &str = "webhook";

pub(crate) const fn chat_kind(kind: PeerKind) -> AddressKind {
    match kind {
        PeerKind::Dm => AddressKind::Dm,
        PeerKind::Group => AddressKind::Group,
        PeerKind::Channel => AddressKind::Channel,
        PeerKind::Thread => AddressKind::Thread,
    }
}

/// Returns the account of a network.
pub(super) fn channel_account(network: &str, name: &str) -> ChannelAccount {
    ChannelAccount { network: network.to_owned(), name: name.to_owned() }
}

/// Returns the chat that a message came from.
pub(super) fn chat_address(inbound: &ChannelInboundParams) -> ChatAddress {
    ChatAddress {
        account: channel_account(&inbound.channel, &inbound.account),
        kind: chat_kind(inbound.peer.kind),
        chat: inbound.peer.id.clone(),
    }
}

/// Returns what a prompt adds for answers in this chat: in groups of Telegram the bot gets only messages that are meant for it.
pub(super) fn reply_hint(to: &ChatAddress) -> &'static str {
    if to.account.network == TELEGRAM && to.kind != AddressKind::Dm {
        "\nIn this chat, reply to this message or name the bot."
    } else {
        ""
    }
}

/// Returns the chat of a topic of a forum, if a message came from one: settings for a chat apply to its topics.
pub(super) fn chat_of_topic(inbound: &ChannelInboundParams) -> Option<ChatPeer> {
    let place: telegram::ChatPlace = inbound.peer.id.parse().ok().filter(|_| inbound.channel == TELEGRAM)?;
    place.topic?;
    Some(ChatPeer { id: place.whole_chat().to_string(), ..inbound.peer.clone() })
}

/// Converts a chat to the form of the wire.
pub(crate) fn chat_peer(address: &ChatAddress) -> ChatPeer {
    let kind = match address.kind {
        AddressKind::Dm => PeerKind::Dm,
        AddressKind::Group => PeerKind::Group,
        AddressKind::Channel => PeerKind::Channel,
        AddressKind::Thread => PeerKind::Thread,
    };
    ChatPeer { kind, id: address.chat.clone(), name: None, handle: None }
}

/// Returns the network's id of the sender of a message.
pub(super) fn sender_id(inbound: &ChannelInboundParams) -> &str {
    inbound.sender.as_ref().map_or(inbound.peer.id.as_str(), |sender| sender.id.as_str())
}

/// Returns the principal of a sender. The gateway itself knows it in Telegram; other networks name it.
pub(super) fn sender_principal(network: &str, sender: &str) -> PrincipalId {
    match (network, sender.parse()) {
        (TELEGRAM, Ok(user)) => principals::of_telegram(user),
        _ => PrincipalId::new(format!("channel:{network}:{}", phone_number(sender))),
    }
}
