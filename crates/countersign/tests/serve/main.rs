//! A gateway through the real binary: agents over real sockets, a service on loopback, people at the command line.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

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
mod hermes_chat;
mod hermes_edits;
mod hermes_prompts;
mod interface;
mod kept_names;
mod many;
mod mishaps;
mod not_roots;
mod operations;
mod own_gates;
mod packaged_unit;
mod places;
mod policy;
mod record;
mod replies;
mod scarce;
mod sdk;
mod signals;
mod silence;
mod straits;
mod tokens;
mod twice;
mod upgrades;
mod usual;
