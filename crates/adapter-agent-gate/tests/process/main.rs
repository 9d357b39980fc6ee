//! agent-gate in the program: agents over real sockets, a service on loopback, people at the command line.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod authentication;
mod command_line;
mod connection_limit;
mod decisions;
mod free_text;
mod many_agents;
mod python_client;
mod replies;
mod tokens;
