//! Sends messages to chat networks that do not answer an inbound message: of a job, a heartbeat or an agent.
//!
//! A message is recorded and delivered at least once, through restarts.

use std::sync::Arc;

use countersign_core::{
    channel::{self, AddressKind, ChannelAccount, ChatAddress, OutboundMedia, OutboundRequest},
    engine::{Command, CommandError, EngineReply},
    time::Millis,
};
use countersign_runtime::{InboxLane, OwnerError};

use super::{GsvAdapter, registry::session_of};

/// Target of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DeliveryTarget {
    /// User who last spoke with the agent.
    Last,
    /// Chat of a network.
    Chat {
        /// Network.
        channel: String,
        /// Network's id of the chat.
        to: String,
        /// Kind of chat.
        kind: AddressKind,
        /// Account. Default: the one through which a user last spoke with the agent there, else the only one
        /// that is known, else `default`.
        account: Option<String>,
    },
}

/// Message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeliveryRequest<'a> {
    /// Agent that sends it.
    pub(super) agent: &'a str,
    /// Target.
    pub(super) to: DeliveryTarget,
    /// Text.
    pub(super) text: &'a str,
    /// Canonical key of the session that it comes from.
    pub(super) session: Option<&'a str>,
    /// Network's id of the message to which it replies.
    pub(super) reply_to: Option<String>,
    /// Idempotency key. A caller that may be interrupted before it notes the message gives one.
    pub(super) key: Option<String>,
    /// Attachment.
    pub(super) media: Option<OutboundMedia>,
}

/// Reason why a message is not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DeliveryError {
    /// No user has spoken with the agent yet.
    #[error("nobody has spoken with {0} in a chat network yet")]
    Nobody(String),
    /// There is no such account.
    #[error("Unknown channel: {0}")]
    Unknown(String),
    /// The message is empty.
    #[error("there is nothing to say")]
    Blank,
    /// Failure to record the message.
    #[error("{0}")]
    Failed(String),
}

/// Returns the chat that last spoke with an agent, and the time.
pub(super) async fn last_active(door: &Arc<GsvAdapter>, agent: &str) -> Option<(ChatAddress, Millis)> {
    let agent = agent.to_owned();
    let source = door.context.handle.source(InboxLane::Request);
    let read = source.read_state(move |engine| {
        engine.state().channels().active_chat(&agent).map(|active| (active.at.clone(), active.time))
    });
    read.await?.0
}

/// Records a message for delivery, and returns its target.
///
/// # Errors
/// [`DeliveryError`]; then nothing is recorded.
pub(super) async fn deliver_text(
    door: &Arc<GsvAdapter>,
    delivery: DeliveryRequest<'_>,
) -> Result<ChatAddress, DeliveryError> {
    let text = delivery.text.trim_end();
    if text.trim().is_empty() && delivery.media.is_none() {
        return Err(DeliveryError::Blank);
    }
    let to = resolve_address(door, delivery.agent, delivery.to).await?;
    let message = OutboundRequest {
        to: to.clone(),
        text: text.into(),
        session: delivery.session.map(|key| session_of(key).as_str().to_owned()),
        reply_to: delivery.reply_to,
        key: delivery.key,
        media: delivery.media,
    };
    enqueue_message(door, message).await?;
    Ok(to)
}

/// Records a message to a chat. Returns false if its key was recorded before.
///
/// # Errors
/// [`DeliveryError`]; then nothing is recorded.
pub(super) async fn enqueue_message(door: &Arc<GsvAdapter>, message: OutboundRequest) -> Result<bool, DeliveryError> {
    let command = Command::Channel(channel::Command::Send(Box::new(message)));
    match door.context.handle.source(InboxLane::Result).send_command(command).await {
        Ok(reply) => Ok(reply.outcome != EngineReply::Repeated),
        Err(OwnerError::Refusal(CommandError::Channel(channel::ChannelError::Unknown { network, .. }))) => {
            Err(DeliveryError::Unknown(network))
        }
        Err(refused) => Err(DeliveryError::Failed(refused.to_string())),
    }
}

async fn resolve_address(
    door: &Arc<GsvAdapter>,
    agent: &str,
    target: DeliveryTarget,
) -> Result<ChatAddress, DeliveryError> {
    let last = last_active(door, agent).await.map(|(address, _)| address);
    let (channel, chat, kind, account) = match target {
        DeliveryTarget::Last => return last.ok_or_else(|| DeliveryError::Nobody(agent.to_owned())),
        DeliveryTarget::Chat { channel, to, kind, account } => (channel, to, kind, account),
    };
    let name = match (account, last.filter(|last| last.account.network == channel)) {
        (Some(account), _) => account,
        (None, Some(last)) => last.account.name,
        (None, None) => {
            let of = channel.clone();
            let source = door.context.handle.source(InboxLane::Request);
            let read = source.read_state(move |engine| {
                let known = engine.state().channels().accounts().map(|known| &known.account);
                known.filter(|account| account.network == of).map(|account| account.name.clone()).collect::<Vec<_>>()
            });
            let known = read.await.map(|(known, _)| known).unwrap_or_default();
            match &known[..] {
                [only] => only.clone(),
                [] | [..] => DEFAULT_ACCOUNT.to_owned(),
            }
        }
    };
    Ok(ChatAddress { account: ChannelAccount { network: channel, name }, kind, chat })
}

/// Name of an account without a name.
const DEFAULT_ACCOUNT: &str = countersign_protocol::gsv::channel::ChannelAccountParams::DEFAULT;
