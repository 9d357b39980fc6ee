//! Rules and approvers in the program, from the command line and with agents that ask.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod approvals;
mod policy_commands;
