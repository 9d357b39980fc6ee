//! The messenger with an engine, a service and a chat, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod approvals;
mod crashes;
mod fake_api;
mod fixture;
mod outages;
mod questions;
mod taps;
