//! Seeded histories of the real owner on a log, a clock and a model that go wrong, each checked against the log, the tool and
//! the clients.
//!
//! Every life of the process has a runtime of its own, with time that stands still unless the history moves it; a death drops all of
//! it. Appends fail, end unsure, or are the last thing that happens; the disk is full for a while; the wall clock is set forward and back;
//! the model is slow, breaks off or fails; prompts and answers come twice.

mod life;
mod two_owners;
mod witness;

use countersign_runtime::store::MemoryLog;

use self::{life::SimulatedWorld, witness::HistoryChecker};

/// Number of histories, unless `COUNTERSIGN_HISTORIES` sets another.
const HISTORIES: u64 = 40;
/// The first of them, so that one that broke a promise can be played alone.
const FIRST: &str = "COUNTERSIGN_HISTORY";
/// Lives of the process in one history.
const LIVES: u32 = 5;

/// Numbers that the seed decides.
#[derive(Clone, Debug)]
pub(crate) struct SeededRandom(u64);

impl SeededRandom {
    fn roll(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Draws a number from 0 up to and without `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.roll() % end
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn bytes(&mut self) -> [u8; 16] {
        let (low, high) = (self.roll(), self.roll());
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&low.to_le_bytes());
        bytes[8..].copy_from_slice(&high.to_le_bytes());
        bytes
    }
}

/// Plays one history from its beginning to its rest.
fn live(seed: u64) -> HistoryChecker {
    let log = MemoryLog::new();
    let world = SimulatedWorld::new(seed);
    let mut witness = HistoryChecker::default();
    life::run(&log, &world, &mut witness, false);
    for _ in 1..LIVES {
        life::run(&log.restart(), &world, &mut witness, false);
    }
    while !life::run(&log.restart(), &world, &mut witness, true) {}
    witness.examine(&log.restart(), &world);
    witness
}

/// Plays all histories, and returns their number and the statistics of all of them.
#[expect(clippy::print_stderr, reason = "a history that broke a promise is named by its seed")]
fn play(live: impl Fn(u64) -> HistoryChecker + std::panic::RefUnwindSafe) -> (u64, witness::HistoryStats) {
    let histories = std::env::var("COUNTERSIGN_HISTORIES").ok().and_then(|text| text.parse().ok()).unwrap_or(HISTORIES);
    let first = std::env::var(FIRST).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut total = witness::HistoryStats::default();
    for seed in first..first + histories {
        // A broken promise is reported with the seed that gives the same history again.
        let outcome = std::panic::catch_unwind(|| live(seed));
        match outcome {
            Ok(witness) => total.add(&witness.figures),
            Err(panic) => {
                eprintln!("history {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    eprintln!("{histories} histories: {total:?}");
    (histories, total)
}

#[test]
fn whatever_goes_wrong_nothing_is_lost_nothing_is_done_twice_and_everybody_sees_the_same() {
    let (histories, total) = play(live);
    // Histories in which nothing goes wrong and nothing works show nothing.
    let is_telling = total.deaths > 0 && total.refused > 0 && total.done > 0 && total.answers > 0;
    assert!(is_telling || histories < HISTORIES, "{total:?}");
}

#[test]
fn owners_that_take_a_log_over_from_each_other_let_nothing_leave_that_is_not_in_it() {
    let (histories, total) = play(two_owners::live);
    let is_telling = total.fenced > 0 && total.refused > 0 && total.done > 0 && total.answers > 0;
    assert!(is_telling || histories < HISTORIES, "{total:?}");
}
