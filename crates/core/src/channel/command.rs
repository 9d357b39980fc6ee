//! What is told of chat networks, and what is to be told to them.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{ChannelAccount, ChatAddress, DeliveryEnd, OutboundMedia};
use crate::id::OutboundId;

/// A command about chat networks. `C` is the type of all commands, which stands above this one.
#[derive(Clone, Debug)]
pub enum Command<C> {
    /// There is such an account. Told twice, it is recorded once.
    Meet(ChannelAccount),
    /// The account is known no more, and what is owed to its chats is not sent.
    Forget(ChannelAccount),
    /// A message came. What it begins or changes is recorded together with that.
    Hear(Box<InboundMessage<C>>),
    /// Something is to be said to a chat.
    Send(Box<OutboundRequest>),
    /// A letter ended. One that has ended already stays as it is.
    Ended {
        /// Which.
        letter: OutboundId,
        /// How.
        end: DeliveryEnd,
        /// Why it was not delivered, for people.
        why: Option<Arc<str>>,
    },
    /// Somebody unknown wants to speak. People are asked, once for each that knocks.
    Knock(Box<PairingRequest>),
}

/// A message that came. `C` is the type of all commands.
#[derive(Clone, Debug)]
pub struct InboundMessage<C> {
    /// From where.
    pub from: ChatAddress,
    /// The agent that it is for.
    pub agent: String,
    /// The network's id of it: under the same one it is heard once. None if it has none.
    pub id: Option<String>,
    /// What is said or done with it, if anything is. It is recorded together with that it was heard, or neither is.
    pub then: Option<Box<C>>,
}

/// What is to be said to a chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundRequest {
    /// To which.
    pub to: ChatAddress,
    /// What.
    pub text: Arc<str>,
    /// The session that it belongs to, in the words of its door.
    pub session: Option<String>,
    /// The network's id of the message that it answers.
    pub reply_to: Option<String>,
    /// The same key again is the same letter.
    pub key: Option<String>,
    /// What goes with it.
    pub media: Option<OutboundMedia>,
}

/// Somebody unknown who wants to speak.
#[derive(Clone, Debug, PartialEq)]
pub struct PairingRequest {
    /// From where.
    pub from: ChatAddress,
    /// Who, as the network's list of those who may speak has it.
    pub sender: String,
    /// What people are asked.
    pub question: String,
    /// What there is to know about it.
    pub why: Option<String>,
    /// The same by name, for doors that have a place for it.
    pub about: Map<String, Value>,
    /// What they are told meanwhile.
    pub notice: Arc<str>,
}

/// Why something about a chat network was not done.
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
    /// There are as many accounts as there may be.
    #[error("at most {0} accounts of chat networks are kept")]
    Accounts(usize),
    /// More came in a short time than can be told apart.
    #[error("too many messages came through this account; it may try again later")]
    Flooded,
    /// As many people wait to be let in as may.
    #[error("at most {0} people may wait to be let in")]
    Crowded(usize),
    /// A name, an id or a text of the network's is too long.
    #[error("{what} is longer than {limit} bytes")]
    TooLong {
        /// What.
        what: &'static str,
        /// How long it may be.
        limit: usize,
    },
}
