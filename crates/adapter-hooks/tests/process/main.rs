//! Hooks in the program: `countersign hook` as an agent starts it, and the same over HTTP.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod decisions;
mod failures;
mod hook_process;
mod http;
mod moved_links;
mod proxied_calls;
mod ran_calls;
mod repeated_calls;
mod self_approval;
