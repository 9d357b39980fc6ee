//! The owner over real and failing logs, with a scripted model.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod fixture;
mod histories;
mod moved_clock;
mod notes;
mod owner;
mod peers;
mod residency;
mod services;
mod silent_retries;
mod stand_in;
mod taken_back;
mod taken_over;
mod week;
