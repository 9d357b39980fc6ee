//! Chat networks: which accounts of theirs are known, what came through them, and what is still owed to their chats.
//!
//! What is said to a chat is a letter: owed from the batch that says why, until whoever carries it says how that ended. It
//! must not know how any network carries one.

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
