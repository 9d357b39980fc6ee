//! The program in processes of its own: its commands, start and end, crashes, backups, and what is about several adapters at once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod acp;
mod acp_proxy;
mod audit_record;
mod backup_targets;
mod backups;
mod beginner_mistakes;
mod book;
mod clocks_and_timeouts;
mod cluster;
mod cluster_clocks;
mod cluster_crashes;
mod cluster_failover;
mod cluster_faulty_line;
mod cluster_fixture;
mod cluster_full_disk;
mod codex_proxy;
mod completions;
mod config_and_doctor;
mod crash;
mod crash_at_each_commit;
mod data_owner;
mod default_paths;
mod demo;
mod demo_terminal;
mod every_surface;
mod gateway_lookup;
mod guard;
mod kept_names;
mod log_redaction;
mod mcp_changes;
mod mcp_host_of_servers;
mod mcp_questions;
mod mcp_servers;
mod operations;
mod packaged_unit;
mod postgres_faulty_line;
#[path = "../../../store/tests/postgres/proxy.rs"]
mod postgres_proxy;
#[allow(clippy::print_stderr, reason = "it says why a test does nothing")]
#[path = "../../../store/tests/postgres/server.rs"]
mod postgres_server;
#[allow(clippy::print_stderr, reason = "it says why a test does nothing")]
mod postgres_standby;
mod postgres_storage;
mod proxied_agent;
mod recorded_sessions;
mod resource_exhaustion;
mod self_approval;
mod signals;
mod start_failures;
#[cfg(feature = "otlp")]
mod traces;
mod upgrades;
mod workspace_backups;
