//! Commands about chat networks: received messages and outbound messages.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{ChannelAccount, ChatAddress, DeliveryEnd, OutboundMedia};
use crate::id::OutboundId;

/// A command about chat networks. `C` is the type of all commands, which includes this one.
#[derive(Clone, Debug)]
pub enum Command<C> {
    /// Registers an account. A repeated command is recorded once.
    Meet(ChannelAccount),
    /// Removes an account. Its outbound messages are not sent.
    Forget(ChannelAccount),
    /// Records a received message together with the facts of the command that it causes.
    Hear(Box<InboundMessage<C>>),
    /// Queues an outbound message.
    Send(Box<OutboundRequest>),
    /// Ends an outbound message. One that has ended already stays as it is.
    Ended {
        /// The outbound message.
        letter: OutboundId,
        /// The outcome.
        end: DeliveryEnd,
        /// Reason for which it was not delivered, for people.
        why: Option<Arc<str>>,
    },
    /// Records a pairing request of an unknown sender. Approvers are asked once for each sender.
    Knock(Box<PairingRequest>),
}

/// A received message. `C` is the type of all commands.
#[derive(Clone, Debug)]
pub struct InboundMessage<C> {
    /// The chat that it comes from.
    pub from: ChatAddress,
    /// The agent that it is for.
    pub agent: String,
    /// The network's id of it: a message with a known id is ignored. None if it has none.
    pub id: Option<String>,
    /// Command that it causes, if any. Both are recorded together, or neither is.
    pub then: Option<Box<C>>,
}

/// A message to send to a chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundRequest {
    /// The chat.
    pub to: ChatAddress,
    /// The text.
    pub text: Arc<str>,
    /// The session that it belongs to, under its adapter's name for it.
    pub session: Option<String>,
    /// The network's id of the message that it answers.
    pub reply_to: Option<String>,
    /// Idempotency key: a repeated key names the same message.
    pub key: Option<String>,
    /// File that goes with it.
    pub media: Option<OutboundMedia>,
}

/// A pairing request of an unknown sender.
#[derive(Clone, Debug, PartialEq)]
pub struct PairingRequest {
    /// The chat that it comes from.
    pub from: ChatAddress,
    /// The sender, as in the network's list of allowed senders.
    pub sender: String,
    /// Question for the approvers.
    pub question: String,
    /// Known details about it.
    pub why: Option<String>,
    /// The same details by name, for adapters with fields for them.
    pub about: Map<String, Value>,
    /// Notice for the sender meanwhile.
    pub notice: Arc<str>,
}

/// Reason for which a command about a chat network was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    /// There is no such account.
    #[error("no account {account} of {network} is known")]
    Unknown {
        /// The network.
        network: String,
        /// The account.
        account: String,
    },
    /// The number of accounts is at its limit.
    #[error("at most {0} accounts of chat networks are kept")]
    Accounts(usize),
    /// More messages came in a short time than can be deduplicated.
    #[error("too many messages came through this account; it may try again later")]
    Flooded,
    /// The number of pending pairing requests is at its limit.
    #[error("at most {0} people may wait to be let in")]
    Crowded(usize),
    /// A name, an id or a text of the network's is too long.
    #[error("{what} is longer than {limit} bytes")]
    TooLong {
        /// The value.
        what: &'static str,
        /// Its maximum length.
        limit: usize,
    },
}
