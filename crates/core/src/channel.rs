//! Chat networks: which accounts of theirs are known, what came through them, and what is still owed to their chats.
//!
//! What is said to a chat is a letter: owed from the batch that says why, until whoever carries it says how that ended. It
//! must not know how any network carries one.

mod address;
mod command;
mod event;
mod recent;
mod state;

pub use address::{Account, Address, ChatKind, Media, Origin};
pub use command::{Command, Heard, Knock, Message, Refusal};
pub use event::{End, Event};
pub use state::{Active, Known, Letter, State};
pub(crate) use state::{MOST_ACCOUNTS, MOST_LETTERS};
