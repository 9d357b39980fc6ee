//! The gjc door through the real binary: real pipes, a scripted model provider, real files.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod attach;
mod bridge;
mod bridge_work;
mod examples;
mod frames;
mod gates;
#[allow(dead_code, reason = "the tests of the gateway itself need more of it")]
#[path = "../serve/gateway.rs"]
mod gateway;
mod handing_over;
#[allow(dead_code, reason = "the tests of the omp door need more of it")]
#[path = "../it/host.rs"]
mod host;
mod lending_socket;
mod lending_tools;
mod lending_uris;
#[allow(dead_code, reason = "the tests of the omp door need more of it")]
#[path = "../it/place.rs"]
mod place;
#[allow(dead_code, reason = "the tests of the omp door need more of it")]
#[path = "../it/provider.rs"]
mod provider;
mod socket;
mod speaking;
mod stages;
mod tasks;
mod unattended;
#[allow(dead_code, reason = "the tests of the omp door need more of it")]
#[path = "../it/wire.rs"]
mod wire;
