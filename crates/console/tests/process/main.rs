//! The console in the program, used by a browser without JavaScript.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod conversations;
mod gates;
mod mcp_servers;
mod rules;
