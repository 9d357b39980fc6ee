//! The messenger with an engine, a service and a chat, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod api;
mod approvals;
mod crashes;
mod outages;
mod questions;
mod stage;
mod taps;
