//! Chat networks: their known accounts, the received messages, and the outbound messages.
//!
//! An outbound message is owed from the batch that records its cause until its sender reports the outcome. This module
//! must not know the protocol of any network.

mod address;
mod command;
mod event;
mod recent_names;
mod state;

pub use address::{AddressKind, ChannelAccount, ChatAddress, MessageOrigin, OutboundMedia};
pub use command::{ChannelError, Command, InboundMessage, OutboundRequest, PairingRequest};
pub use event::{DeliveryEnd, Event};
pub use state::{ActiveChat, KnownAccount, PendingMessage, State};
pub(crate) use state::{MOST_ACCOUNTS, MOST_LETTERS};
