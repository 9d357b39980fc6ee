//! Conversations that a gateway opens itself: their sessions, models, workspaces and prompts.
//!
//! It must not know a protocol: adapters turn requests of clients into calls of this crate.

pub mod chats;
pub mod pending_turn;
pub mod prompt;
pub mod sessions;
