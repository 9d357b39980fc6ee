//! hermes in the program: clients over HTTP, models on loopback.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod chat;
mod deleted_sessions;
mod edits;
mod prompts;
mod repeated_requests;
