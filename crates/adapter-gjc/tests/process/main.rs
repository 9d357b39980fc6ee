//! gjc in the program: real pipes and sockets, a scripted model provider, real files.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod attach;
mod bridge;
mod bridge_runs;
mod crash_in_a_wait;
mod example_host;
mod frames;
mod gates;
mod handoff;
mod host_tools;
mod host_uris;
mod mcp_servers;
mod rpc;
mod socket;
mod socket_host_tools;
mod todos;
mod unattended;
mod workflows;
