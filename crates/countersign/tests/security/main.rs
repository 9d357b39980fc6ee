//! Faults of programs of this kind, tried here: each class of fault on every adapter that it can come through, with the
//! real binary. [`classes`] has the table of all of them, those that other tests show among them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod access_table;
mod approved_files;
mod browsers;
mod canaries;
mod child_processes;
mod classes;
mod fixture;
mod foreign_folders;
mod hidden_text;
mod hosts_and_credentials;
mod network_egress;
mod realms;
mod run_modes;
mod secrets;
mod shell_forms;
