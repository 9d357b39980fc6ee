//! Seeded histories of a whole gateway with its five doors, on a record, a clock, a service and a model that go wrong.
//!
//! The gateway is the one that `serve` runs, on real sockets of this machine; only its record is in memory, and its time stands
//! still unless the history moves it. An agent, a client and a node, a browser and two hosts ask for things under it; people answer at
//! every door that takes answers. Appends fail, end unsure, or are the last thing that happens; the disk is full for a while; the
//! wall clock is set forward and back; the service and the model are slow, fail, break off and answer more than they were asked; lines
//! are cut; the process dies between any two steps, or is asked to end. What was said to everybody is compared with the record, with
//! what the service, the node and the hosts did, and with what one follower saw over all lives.
//!
//! A seed decides what happens. Which of two sockets the system serves first is its own affair, so that a history that is played again
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

/// How many histories, unless `COUNTERSIGN_HISTORIES` says so.
const HISTORIES: u64 = 12;
/// The first of them, so that one that broke a promise can be played alone.
const FIRST: &str = "COUNTERSIGN_HISTORY";
/// How many lives of the process one has before the last.
const LIVES: u32 = 4;
/// How many last ones may die of what was planted before.
const DEATHS: u32 = 20;

/// One history from its beginning to its rest.
fn live(seed: u64) -> HistoryCounts {
    let log = MemoryLog::new();
    let world = HistoryFixture::new(seed);
    for _ in 0..LIVES {
        lifetime::run(&log, &world, false);
    }
    // One that dies of what was planted before is followed by another.
    assert!((0..DEATHS).any(|_| lifetime::run(&log, &world, true)), "it does not live to its end");
    record_checks::check_record(&log, &world);
    world.figures()
}

#[test]
fn at_five_doors_nothing_is_lost_nothing_is_done_twice_and_everybody_is_told_the_same() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let histories = std::env::var("COUNTERSIGN_HISTORIES").ok().and_then(|text| text.parse().ok()).unwrap_or(HISTORIES);
    let first = std::env::var(FIRST).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut total = HistoryCounts::default();
    for seed in first..first + histories {
        // A broken promise is told with the seed of its history.
        match std::panic::catch_unwind(|| live(seed)) {
            Ok(figures) => total.add(&figures),
            Err(panic) => {
                eprintln!("history {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    eprintln!("{histories} histories: {total:?}");
    // Histories in which nothing goes wrong, or nobody at a door gets anywhere, show nothing.
    assert!(histories < HISTORIES || total.is_telling(), "{total:?}");
}
