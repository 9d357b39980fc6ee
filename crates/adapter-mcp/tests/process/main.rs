//! MCP in the program: hosts over stdio and HTTP, a service on loopback, people at the command line.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bad_input;
mod conformance;
mod decisions;
mod http;
mod mcp_host;
mod own_tools;
mod repeated_calls;
mod standalone;
mod stdio;
