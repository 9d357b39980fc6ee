//! Places in chat networks in the words of the wire and of the record.

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

/// The network of the messenger that the gateway itself is in.
pub(super) const TELEGRAM: &str = telegram::SURFACE;
/// The network of signed requests over HTTP.
pub(super) const WEBHOOK: &str = "webhook";

pub(crate) const fn chat_kind(kind: PeerKind) -> AddressKind {
    match kind {
        PeerKind::Dm => AddressKind::Dm,
        PeerKind::Group => AddressKind::Group,
        PeerKind::Channel => AddressKind::Channel,
        PeerKind::Thread => AddressKind::Thread,
    }
}

/// The account of a network.
pub(super) fn channel_account(network: &str, name: &str) -> ChannelAccount {
    ChannelAccount { network: network.to_owned(), name: name.to_owned() }
}

/// The chat that a message came from.
pub(super) fn chat_address(inbound: &ChannelInboundParams) -> ChatAddress {
    ChatAddress {
        account: channel_account(&inbound.channel, &inbound.account),
        kind: chat_kind(inbound.peer.kind),
        chat: inbound.peer.id.clone(),
    }
}

/// A chat as the wire has it.
pub(crate) fn chat_peer(address: &ChatAddress) -> ChatPeer {
    let kind = match address.kind {
        AddressKind::Dm => PeerKind::Dm,
        AddressKind::Group => PeerKind::Group,
        AddressKind::Channel => PeerKind::Channel,
        AddressKind::Thread => PeerKind::Thread,
    };
    ChatPeer { kind, id: address.chat.clone(), name: None, handle: None }
}

/// The network's id of whoever sent a message.
pub(super) fn sender_id(inbound: &ChannelInboundParams) -> &str {
    inbound.sender.as_ref().map_or(inbound.peer.id.as_str(), |sender| sender.id.as_str())
}

/// Who somebody of a network is in the record. Of Telegram the gateway itself knows who it is; of others it is told.
pub(super) fn sender_principal(network: &str, sender: &str) -> PrincipalId {
    match (network, sender.parse()) {
        (TELEGRAM, Ok(user)) => principals::of_telegram(user),
        _ => PrincipalId::new(format!("channel:{network}:{}", phone_number(sender))),
    }
}
