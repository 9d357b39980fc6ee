//! The omp door through the real binary: real pipes, a scripted model provider, real files.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod aborts;
mod attach;
mod bad_input;
mod bad_providers;
mod bash_command;
mod choosing;
mod compaction;
mod crash;
mod crash_waiting;
mod deaf;
mod edited_files;
mod endings;
mod extras;
mod file_notices;
mod foreign_files;
mod full_disk;
mod gates;
mod given_back;
mod hostile_files;
mod in_doubt;
mod later_commands;
mod limits;
mod locks;
mod questions;
mod queues;
mod regressions;
mod restricting;
mod retries;
mod runs;
mod sandbox;
mod sessions;
mod settings;
mod switching;
mod taken_up;
mod volume;
