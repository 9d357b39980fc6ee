//! Chat networks, and who of their people may speak with an agent. Source: docs/protocol/gsv.md, Channels.

mod access;
mod accounts;
mod asks;
mod carrier;
pub(super) mod enclosed;
mod inbound;
pub(super) mod media;
mod pairing;
mod places;
mod post;
mod telegram;
pub mod webhook;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use countersign_core::{
    channel::{ChannelAccount, Command as Network},
    engine::Command,
    id::OutboundId,
    time::Millis,
};
use countersign_protocol::{
    RawJson,
    gsv::{GsvError, GsvRequest, Method, code, connect},
};
use countersign_runtime::InboxLane;
use countersign_telegram::transport::ChannelTransport;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{
    Door,
    answer::{Answer, missing},
    chat::Moment,
    peer::Peer,
};

pub(super) use accounts::shown;
pub use enclosed::LETTERS;
pub(super) use places::{kind, peer};
pub(super) use telegram::join as join_telegram;

/// What the door holds of chat networks beside the record.
#[derive(Default)]
pub(super) struct Networks {
    /// Since when accounts are connected that connect by themselves.
    connected: Mutex<BTreeMap<ChannelAccount, Millis>>,
    /// The letter of an account that was sent and never answered for, and how often.
    silent: Mutex<BTreeMap<ChannelAccount, (OutboundId, u32)>>,
    /// The messenger, if there is one.
    telegram: OnceLock<Arc<dyn ChannelTransport>>,
    /// Requests to others over HTTP.
    webhook: webhook::Sender,
    /// One after the other is let in: lists are read before they are written.
    finishing: tokio::sync::Mutex<()>,
    /// Accounts to look at again, each once however often it was said, and that there are some.
    kicked: Mutex<BTreeSet<ChannelAccount>>,
    rung: Notify,
}

impl Networks {
    /// The accounts of which that was said, once there are some.
    async fn kicked(&self) -> BTreeSet<ChannelAccount> {
        self.rung.notified().await;
        std::mem::take(&mut *self.kicked.lock())
    }

    /// Something can be carried to an account now that could not a moment ago.
    fn kick(&self, account: ChannelAccount) {
        self.kicked.lock().insert(account);
        self.rung.notify_one();
    }
}

/// Follows the record for chat networks. `None` if the gateway closes.
pub(super) async fn follow(door: &Arc<Door>) -> Option<()> {
    asks::follow(door).await?;
    post::follow(door).await?;
    enclosed::sweep(door).await
}

/// The account that a peer is, if it is one.
fn account_of(peer: &Peer) -> Option<ChannelAccount> {
    match &peer.connect.peer {
        connect::PeerDetails::Channel { channel, account } => Some(places::account(channel, account)),
        connect::PeerDetails::Client | connect::PeerDetails::Node { .. } => None,
    }
}

/// An account came by itself: it is known from now on.
///
/// # Errors
/// 503 if it cannot be.
pub(super) async fn came(door: &Arc<Door>, peer: &Peer) -> Result<(), GsvError> {
    let Some(account) = account_of(peer) else { return Ok(()) };
    let met = Command::Channel(Network::Meet(account.clone()));
    let asked = door.context.handle.source(InboxLane::Request).send_command(met).await;
    asked.map_err(|refused| GsvError::new(code::UNAVAILABLE, refused.to_string()))?;
    door.networks.connected.lock().insert(account.clone(), door.context.clock.now());
    door.networks.kick(account);
    Ok(())
}

/// An account went, and no newer connection of it is there.
pub(super) fn went(door: &Arc<Door>, peer: &Peer) {
    if let Some(account) = account_of(peer) {
        door.networks.connected.lock().remove(&account);
    }
}

/// What an answer says that failed.
fn failed(why: impl std::fmt::Display) -> GsvError {
    GsvError::new(code::FAILED, why.to_string())
}

/// Answers a request of this group that came at this moment.
pub(super) async fn answer(
    door: &Arc<Door>,
    peer: &Arc<Peer>,
    method: Method,
    request: GsvRequest,
    came: Moment,
) -> Answer {
    match request {
        GsvRequest::ChannelInbound(inbound) => {
            if account_of(peer) != Some(places::account(&inbound.channel, &inbound.account)) {
                let message = "Channel not authorized for this account";
                return Err(GsvError::new(code::FORBIDDEN, message));
            }
            Ok(RawJson::from_wire(&inbound::take(door, *inbound, came).await?))
        }
        GsvRequest::ChannelsList => accounts::list(door).await,
        GsvRequest::ChannelStart(asked) => accounts::start(door, asked).await,
        GsvRequest::ChannelStop(asked) => accounts::stop(door, asked).await,
        GsvRequest::ChannelStatus(asked) => accounts::status(door, asked).await,
        GsvRequest::ChannelLogin(asked) => accounts::login(door, asked).await,
        GsvRequest::ChannelLogout(asked) => accounts::logout(door, asked).await,
        GsvRequest::PairList => pairing::list(door).await,
        GsvRequest::PairApprove(wanted) => pairing::approve(door, &wanted, peer.principal()).await,
        GsvRequest::PairReject(wanted) => pairing::reject(door, &wanted, peer.principal()).await,
        _ => Err(missing(method)),
    }
}
