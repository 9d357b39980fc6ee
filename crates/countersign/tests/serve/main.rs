//! A gateway through the real binary: agents over real sockets, a service on loopback, people at the command line.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod agent;
mod approvals;
mod asked;
mod auth;
mod checks;
mod client;
mod conversations;
mod crash;
mod crowd;
mod cuts;
mod events;
mod faults;
mod gateway;
mod interface;
mod many;
mod own_gates;
mod place;
mod places;
mod policy;
mod record;
mod replies;
mod service;
mod signals;
mod straits;
mod tokens;
mod web;
