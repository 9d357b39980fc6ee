//! The node through the real binary: a scripted gateway on the other end of a real socket.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod background;
mod calls;
mod confined;
mod gateway;
mod lines;
mod program;
mod starting;
