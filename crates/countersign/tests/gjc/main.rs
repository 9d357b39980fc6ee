//! The gjc door through the real binary: real pipes, a scripted model provider, real files.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod attach;
mod bridge;
mod bridge_work;
mod examples;
mod frames;
mod gates;
mod handing_over;
mod lending_socket;
mod lending_tools;
mod lending_uris;
mod socket;
mod speaking;
mod stages;
mod tasks;
mod unattended;
