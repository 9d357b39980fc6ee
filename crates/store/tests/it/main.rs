//! Behaviour of a log on a real disk, between real processes.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "these are tests, and children that speak to tests")]

mod chain;
mod files;
mod full;
mod log_folder;
mod migration;
mod owner;
mod process;
mod suites;
mod views;
