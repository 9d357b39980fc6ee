//! omp in the program: real pipes, a scripted model provider, real files.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod aborts;
mod attach;
mod bad_input;
mod bad_providers;
mod bash_command;
mod compacted_files;
mod compaction;
mod crash;
mod crash_at_a_gate;
mod crash_in_a_wait;
mod edited_files;
mod file_notices;
mod foreign_files;
mod full_disk;
mod gates;
mod hostile_files;
mod mcp_servers;
mod message_limits;
mod multiple_choice;
mod output_volume;
mod process_exit;
mod provider_state;
mod questions;
mod regressions;
mod released_clients;
mod restrictions;
mod resumed_runs;
mod retries;
mod runs;
mod sandbox;
mod session_locks;
mod session_switching;
mod sessions;
mod settings;
mod slow_reader;
mod steering;
mod tasks_and_mentions;
mod unknown_outcomes;
