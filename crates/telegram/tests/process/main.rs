//! Telegram in the program, with a Bot API on loopback.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod chat_network;
