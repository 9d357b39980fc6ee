//! Behaviour of a log in a database of a real server, which the tests start themselves. They are skipped, and say so, where
//! PostgreSQL is not installed.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests, and say why they do nothing")]

mod database;
mod fencing;
mod full_disk;
mod leases;
mod outages;
mod proxy;
mod refusals;
mod roles;
mod server;
mod suites;
mod transfer;
