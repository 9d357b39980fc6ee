//! Transports of outbound messages, and their results.

use std::{sync::Arc, time::Duration};

use countersign_core::{channel::ChatAddress, id::SessionId, time::Millis};
use countersign_protocol::gsv::channel::{ChannelOutboundEvent, ChannelOutboundMessage, ChannelTypingEvent};
use countersign_telegram::transport::{Attachment, DeliveryOutcome, OutboundDelivery};

use super::{
    super::{GsvAdapter, peer::DeliveryProof, registry::key_of},
    addresses::{self, TELEGRAM, WEBHOOK},
};

/// Most attempts over connections that never confirm: each attempt may have shown the message.
const TRIES: u32 = 3;
/// Time after which an outbound message over HTTP is given up.
const TRIED_FOR: Duration = Duration::from_secs(24 * 3600);

/// Returns the canonical key of the session of an outbound message, empty if it belongs to none.
pub(super) fn session_key(session: Option<&str>) -> String {
    session.and_then(|session| key_of(&SessionId::new(session)).map(str::to_owned)).unwrap_or_default()
}

/// Gives an outbound message to the transport of its network.
pub(super) async fn deliver_letter(door: &Arc<GsvAdapter>, letter: &OutboundDelivery, now: Millis) -> DeliveryOutcome {
    match letter.owed.to.account.network.as_str() {
        TELEGRAM => match door.networks.telegram.get() {
            Some(telegram) => telegram.deliver_message(letter).await,
            None => DeliveryOutcome::Away,
        },
        WEBHOOK => match door.networks.webhook.post_letter(door, letter).await {
            DeliveryOutcome::Later(_) | DeliveryOutcome::Away if letter.owed.at + TRIED_FOR <= now => {
                DeliveryOutcome::Refused("it was tried for a day".to_owned())
            }
            carried => carried,
        },
        _ => over_socket(door, letter).await,
    }
}

async fn over_socket(door: &Arc<GsvAdapter>, letter: &OutboundDelivery) -> DeliveryOutcome {
    let to = &letter.owed.to;
    let media = letter.media.as_ref().map(Attachment::data_url);
    let Some(message) = ChannelOutboundMessage::new(&letter.text, letter.owed.reply_to.as_deref(), media.as_deref())
    else {
        return DeliveryOutcome::Delivered;
    };
    let Some(peer) = door.roster.find_channel(&to.account.network, &to.account.name) else {
        return DeliveryOutcome::Away;
    };
    let outbound = ChannelOutboundEvent {
        channel: &to.account.network,
        account_id: &to.account.name,
        peer: &addresses::chat_peer(to),
        session_key: &session_key(letter.owed.session.as_deref()),
        message,
    };
    // Frames arrive in order: a peer that answers a later frame has this one.
    match peer.send_proved("channel.outbound", &outbound).await {
        DeliveryProof::Has => DeliveryOutcome::Delivered,
        DeliveryProof::Gone => DeliveryOutcome::Away,
        DeliveryProof::Silent => {
            let mut silent = door.networks.silent.lock();
            let (letter, tries) = (letter.owed.id, silent.entry(to.account.clone()).or_insert((letter.owed.id, 0)));
            *tries = if tries.0 == letter { (letter, tries.1 + 1) } else { (letter, 1) };
            if tries.1 < TRIES {
                return DeliveryOutcome::Away;
            }
            silent.remove(&to.account);
            DeliveryOutcome::Refused("whoever is connected never says that it came".to_owned())
        }
    }
}

/// Shows in a chat whether the agent works. It is not recorded.
pub(super) fn show_typing(door: &Arc<GsvAdapter>, at: &ChatAddress, session: &SessionId, typing: bool) {
    match at.account.network.as_str() {
        TELEGRAM => {
            if let Some(telegram) = door.networks.telegram.get().filter(|_| typing).map(Arc::clone) {
                let at = at.clone();
                tokio::spawn(async move { telegram.show_typing(&at).await });
            }
        }
        WEBHOOK => {}
        _ => {
            if let Some(peer) = door.roster.find_channel(&at.account.network, &at.account.name) {
                let typing = ChannelTypingEvent {
                    channel: &at.account.network,
                    account_id: &at.account.name,
                    peer: &addresses::chat_peer(at),
                    session_key: key_of(session).unwrap_or_default(),
                    typing,
                };
                // A connection that is gone need not know.
                let _ = peer.send_event("channel.typing", &typing);
            }
        }
    }
}
