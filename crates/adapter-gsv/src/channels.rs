//! Chat networks, and access of their users to agents. Source: docs/protocol/gsv.md, Channels.

mod access;
mod accounts;
mod addresses;
pub(super) mod attachments;
mod gate_prompts;
mod inbound;
pub(super) mod media;
mod outbound;
mod pairing;
mod telegram;
mod transport;
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
    GsvAdapter,
    chat::CardMoment,
    method_result::{MethodResult, unsupported_method},
    peer::ConnectedPeer,
};

pub(super) use accounts::account_overview;
pub(super) use addresses::{chat_kind, chat_peer};
pub use attachments::LETTERS;
pub(super) use telegram::join_messenger as join_telegram;

/// State of chat networks in this adapter, apart from the record.
#[derive(Default)]
pub(super) struct ChannelState {
    /// Accounts that connect by themselves and are connected, with the time since when.
    connected: Mutex<BTreeMap<ChannelAccount, Millis>>,
    /// Outbound message of an account that was sent and not confirmed, and its number of attempts.
    silent: Mutex<BTreeMap<ChannelAccount, (OutboundId, u32)>>,
    /// Messenger, if there is one.
    telegram: OnceLock<Arc<dyn ChannelTransport>>,
    /// Client for requests over HTTP.
    webhook: webhook::WebhookSender,
    /// Lock for pairings: lists are read before they are written.
    finishing: tokio::sync::Mutex<()>,
    /// Accounts to check again, each once, with a signal that there are some.
    kicked: Mutex<BTreeSet<ChannelAccount>>,
    rung: Notify,
}

impl ChannelState {
    /// Waits for woken accounts, and returns them.
    async fn woken_accounts(&self) -> BTreeSet<ChannelAccount> {
        self.rung.notified().await;
        std::mem::take(&mut *self.kicked.lock())
    }

    /// Notes that outbound messages to an account may succeed now.
    fn wake_account(&self, account: ChannelAccount) {
        self.kicked.lock().insert(account);
        self.rung.notify_one();
    }
}

/// Follows the record for chat networks. `None` if the gateway closes.
pub(super) async fn follow_channels(door: &Arc<GsvAdapter>) -> Option<()> {
    gate_prompts::follow_gates(door).await?;
    outbound::start_delivery(door).await?;
    attachments::sweep_files(door).await
}

/// Returns the account that a peer is, if it is one.
fn account_of(peer: &ConnectedPeer) -> Option<ChannelAccount> {
    match &peer.connect.peer {
        connect::PeerDetails::Channel { channel, account } => Some(addresses::channel_account(channel, account)),
        connect::PeerDetails::Client | connect::PeerDetails::Node { .. } => None,
    }
}

/// Records an account that connected by itself.
///
/// # Errors
/// 503 if it cannot be recorded.
pub(super) async fn channel_connected(door: &Arc<GsvAdapter>, peer: &ConnectedPeer) -> Result<(), GsvError> {
    let Some(account) = account_of(peer) else { return Ok(()) };
    let met = Command::Channel(Network::Meet(account.clone()));
    let result = door.context.handle.source(InboxLane::Request).send_command(met).await;
    result.map_err(|refused| GsvError::new(code::UNAVAILABLE, refused.to_string()))?;
    door.networks.connected.lock().insert(account.clone(), door.context.clock.now());
    door.networks.wake_account(account);
    Ok(())
}

/// Notes that an account disconnected, if no newer connection of it exists.
pub(super) fn channel_disconnected(door: &Arc<GsvAdapter>, peer: &ConnectedPeer) {
    if let Some(account) = account_of(peer) {
        door.networks.connected.lock().remove(&account);
    }
}

/// Returns the error of a failed request.
fn channel_error(why: impl std::fmt::Display) -> GsvError {
    GsvError::new(code::FAILED, why.to_string())
}

/// Answers a request of this group that came at this moment.
pub(super) async fn handle_request(
    door: &Arc<GsvAdapter>,
    peer: &Arc<ConnectedPeer>,
    method: Method,
    request: GsvRequest,
    came: CardMoment,
) -> MethodResult {
    match request {
        GsvRequest::ChannelInbound(inbound) => {
            if account_of(peer) != Some(addresses::channel_account(&inbound.channel, &inbound.account)) {
                let message = "Channel not authorized for this account";
                return Err(GsvError::new(code::FORBIDDEN, message));
            }
            Ok(RawJson::from_wire(&inbound::handle_inbound(door, *inbound, None, came).await?))
        }
        GsvRequest::ChannelsList => accounts::list_channels(door).await,
        GsvRequest::ChannelStart(params) => accounts::start_account(door, params).await,
        GsvRequest::ChannelStop(params) => accounts::stop_account(door, params).await,
        GsvRequest::ChannelStatus(params) => accounts::account_status(door, params).await,
        GsvRequest::ChannelLogin(params) => accounts::log_in(door, params).await,
        GsvRequest::ChannelLogout(params) => accounts::log_out(door, params).await,
        GsvRequest::PairList => pairing::list_pairings(door).await,
        GsvRequest::PairApprove(params) => pairing::approve_sender(door, &params, peer.principal_id()).await,
        GsvRequest::PairReject(params) => pairing::reject_sender(door, &params, peer.principal_id()).await,
        _ => Err(unsupported_method(method)),
    }
}
