//! gsv in the program: clients, nodes and channels over real sockets, models on loopback.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod agents;
mod approvals;
mod channels;
mod chat;
mod connect;
mod console_page;
mod crash;
mod files;
mod heartbeats;
mod jobs;
mod many_peers;
mod mcp_servers;
mod messaging_tools;
mod methods;
mod nodes;
mod nodes_in_runs;
mod real_node;
mod sessions;
mod settings;
mod transcripts;
mod webhook;
mod workspace;
