//! The gsv door through the real binary: clients, nodes and channels over real sockets, models on loopback.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod telegram;
