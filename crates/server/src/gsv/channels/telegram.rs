//! Telegram as a chat network: what people write to the bot that shows cards, and what is written to them.

use std::sync::Arc;

use countersign_core::{
    channel::{Command as Network, Message},
    engine::Command,
};
use countersign_protocol::gsv::channel::{Account, Inbound, Peer, PeerKind, Sender};
use countersign_runtime::Lane;
use futures_util::{FutureExt as _, future::BoxFuture};

use super::{
    super::{Door, delivery},
    inbound,
    places::{self, TELEGRAM},
};
use crate::messenger::telegram::{ChatType, Ear, Flow, Hear, Talk, Written};

/// Joins a messenger and the door: what is written to it is heard from now on, and letters for it are sent.
pub(in crate::gsv) async fn join(door: &Arc<Door>, talk: Arc<Talk>, ear: &Ear) {
    let account = places::account(TELEGRAM, Account::DEFAULT);
    let met = Command::Channel(Network::Meet(account.clone()));
    if let Err(problem) = door.site.handle.source(Lane::Request).ask(met).await {
        // It is known with the first message that comes.
        tracing::warn!(%problem, "telegram could not be recorded as a chat network");
    }
    // A gateway has one messenger.
    let _ = door.networks.telegram.set(talk);
    door.networks.kick(account);
    ear.open(Arc::new(Listener(Arc::clone(door))));
}

struct Listener(Arc<Door>);

impl Hear for Listener {
    fn hear(&self, written: Written) -> BoxFuture<'_, Flow> {
        self.take(written).boxed()
    }
}

impl Listener {
    async fn take(&self, written: Written) -> Flow {
        let kind = match written.chat_type {
            ChatType::Private => PeerKind::Dm,
            ChatType::Group => PeerKind::Group,
            ChatType::Channel => PeerKind::Channel,
        };
        let inbound = Inbound {
            channel: TELEGRAM.to_owned(),
            account: Account::DEFAULT.to_owned(),
            peer: Peer { kind, id: written.chat.to_string(), name: written.title, handle: None },
            sender: Some(Sender { id: written.from.to_string(), name: written.name, handle: written.username }),
            // Ids of messages are a chat's own.
            message_id: Some(format!("{}:{}", written.chat, written.message)),
            text: written.text,
            reply_to: None,
            media: Vec::new(),
            was_mentioned: None,
        };
        let (to, reply_to) = (places::address(&inbound), inbound.message_id.clone());
        let came = self.0.cards.now();
        match inbound::take(&self.0, inbound, came).await {
            Ok(_) => Flow::Next,
            // What cannot be said cannot be said however often it comes; what was not recorded can.
            Err(fault) => {
                tracing::warn!(problem = fault.message, "a message of Telegram could not be taken");
                if fault.retryable == Some(true) {
                    return Flow::Again;
                }
                let text = format!("This message was not taken: {}", fault.message).into();
                let told = Message { to, text, session: None, reply_to, key: None };
                if let Err(problem) = delivery::send(&self.0, told).await {
                    tracing::warn!(%problem, "and whoever wrote it is not told");
                }
                Flow::Next
            }
        }
    }
}
