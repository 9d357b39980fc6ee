//! A gateway through the real binary: agents over real sockets, a service on loopback, people at the command line.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod agent;
mod approvals;
mod asked;
mod auth;
mod backups;
mod backups_in_place;
mod backups_of_workspaces;
mod book;
mod checks;
mod client;
mod console;
mod console_rules;
mod console_talk;
mod conversations;
mod crash;
mod crowd;
mod cuts;
mod events;
mod faults;
mod free_text;
mod gateway;
mod hermes_chat;
mod hermes_edits;
mod hermes_prompts;
mod host;
mod http;
mod interface;
mod kept_names;
mod many;
mod mishaps;
mod not_roots;
mod operations;
mod own_gates;
mod packaged_unit;
#[path = "../gsv/peer.rs"]
#[allow(dead_code, reason = "its other half is used by the tests of its own door")]
mod peer;
mod place;
mod places;
mod policy;
mod program;
#[path = "../it/provider.rs"]
#[allow(dead_code, reason = "its other half is used by the tests of another door")]
mod provider;
mod record;
mod replies;
mod scarce;
#[path = "../gsv/scene.rs"]
#[allow(dead_code, reason = "as the peer")]
mod scene;
mod sdk;
mod service;
mod signals;
mod silence;
mod straits;
mod talk;
mod tokens;
mod twice;
mod upgrades;
mod usual;
mod web;
#[path = "../it/wire.rs"]
#[allow(dead_code, reason = "as the provider")]
mod wire;
