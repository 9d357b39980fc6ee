//! The node through the real binary: a scripted gateway on the other end of a real socket.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod background;
mod calls;
mod confinement;
mod fake_gateway;
mod node_process;
mod reconnects;
mod startup;
