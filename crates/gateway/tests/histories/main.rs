//! Seeded histories of a whole gateway with its five adapters, on a record, a clock, a service and a model with faults.
//!
//! The gateway is the one that `serve` runs, on real sockets of this machine; only its record is in memory, and its time stands
//! still unless the history moves it. An agent, a client and a node, a browser and two hosts make requests; approvers answer at
//! every surface. Appends fail, end unsure, or are the last thing that happens; the disk is full for a while; the
//! wall clock is set forward and back; the service and the model are slow, fail, break off and answer more than the request; connections
//! are cut; the process dies between any two steps, or is stopped. The answers to all actors are compared with the record, with
//! the actions of the service, the node and the hosts, and with the facts that one follower saw over all lives.
//!
//! A seed decides the history. The system decides which of two sockets it serves first, so that a repeated history
//! may take another course.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod agents;
mod browsers;
mod connection;
mod fixture;
mod hosts;
mod http;
mod lifetime;
mod model;
mod peers;
mod people;
mod realms;
mod record_checks;
mod rng;
mod service;
mod tokens;

use countersign_runtime::store::MemoryLog;

use self::fixture::{HistoryCounts, HistoryFixture};

/// Number of histories, unless `COUNTERSIGN_HISTORIES` is set.
const HISTORIES: u64 = 12;
/// Variable with the first of them, so that one that broke an invariant can be run alone.
const FIRST: &str = "COUNTERSIGN_HISTORY";
/// Most lives of the process before the last.
const LIVES: u32 = 4;
/// Most last lives that may end by crashes that were planted before.
const DEATHS: u32 = 20;

/// Runs one history from its beginning to its rest.
fn live(seed: u64) -> HistoryCounts {
    let log = MemoryLog::new();
    let world = HistoryFixture::new(seed);
    for _ in 0..LIVES {
        lifetime::run(&log, &world, false);
    }
    // A life that ends by an earlier planted crash is followed by another.
    assert!((0..DEATHS).any(|_| lifetime::run(&log, &world, true)), "it does not live to its end");
    record_checks::check_record(&log, &world);
    world.figures()
}

#[test]
fn five_adapters_lose_nothing_repeat_nothing_and_agree() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let histories = std::env::var("COUNTERSIGN_HISTORIES").ok().and_then(|text| text.parse().ok()).unwrap_or(HISTORIES);
    let first = std::env::var(FIRST).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut total = HistoryCounts::default();
    for seed in first..first + histories {
        // A broken invariant is reported with the seed of its history.
        match std::panic::catch_unwind(|| live(seed)) {
            Ok(figures) => total.add(&figures),
            Err(panic) => {
                eprintln!("history {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    eprintln!("{histories} histories: {total:?}");
    // Histories without faults, or in which no actor at an adapter succeeds, show nothing.
    assert!(histories < HISTORIES || total.is_telling(), "{total:?}");
}
