//! The gsv door through the real binary: clients, nodes and channels over real sockets, models on loopback.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod agents;
mod approvals;
mod channels;
mod chat;
mod connect;
mod console;
mod crash;
mod crowd;
mod files;
mod heartbeats;
mod jobs;
mod methods;
mod nodes;
mod nodes_in_runs;
mod real_node;
mod sessions;
mod settings;
mod speaking;
mod telegram;
mod transcripts;
mod webhook;
mod workspace;
