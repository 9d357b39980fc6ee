//! Conversations that a gateway opens itself: their sessions, models, workspaces and prompts.
//!
//! It must not know a protocol: adapters turn what clients send into calls of what is here.

pub mod chats;
pub mod prompt;
pub mod sessions;
