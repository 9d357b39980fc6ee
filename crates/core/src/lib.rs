//! Decides for an agent gateway: gates, policy, runs, sessions and calls as pure state machines.
//!
//! It must not know the time, randomness, a file, a socket, a thread or the wire name of any adapter: `now` and fresh
//! ids are handed in, and all work that it requests is listed by [`owed_work`].
#![warn(missing_docs)]

pub mod call;
mod call_subject;
pub mod channel;
mod decision;
pub mod digest;
pub mod engine;
pub mod gate;
pub mod id;
pub mod ledger;
pub mod message;
mod message_content;
mod model_ref;
mod owed;
pub mod peer;
pub mod policy;
mod principal;
pub mod reply_parser;
pub mod run;
pub mod schedule;
pub mod secret;
pub mod session;
pub mod settings;
mod settle;
pub mod time;
pub mod tool;
pub mod unattended;

pub use call_subject::{CallOrigin, folder_of, subject_at};

pub use owed::{FiringStep, OwedWork, owed_work, stopping_work};
