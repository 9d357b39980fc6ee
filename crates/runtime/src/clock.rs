//! The time as the engine is told it: it never goes back, and a jump of the wall clock does not move it. What goes by the
//! calendar is told how far the wall clock is from it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use countersign_core::time::Millis;

/// Where `now` comes from: the wall clock at the start, and what has passed since, time spent asleep included.
#[derive(Clone, Debug)]
pub struct Clock {
    base: Millis,
    since: ClockOrigin,
}

#[derive(Clone, Debug)]
enum ClockOrigin {
    /// The machine's time since boot.
    Boot(Duration),
    /// The runtime's time, which tests pause and move, and how far the wall clock is ahead, in milliseconds.
    Runtime(tokio::time::Instant, Arc<AtomicI64>),
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self { base: wall_time(), since: ClockOrigin::Boot(boot_time()) }
    }

    /// A clock that starts at `base` and follows the runtime's time. For tests, and for whoever brings a time of their own.
    pub fn starting_at(base: Millis) -> Self {
        Self { base, since: ClockOrigin::Runtime(tokio::time::Instant::now(), Arc::default()) }
    }

    /// The same clock, but never behind `last`, which a log holds already.
    #[must_use]
    pub fn not_before(mut self, last: Millis) -> Self {
        if self.now() < last {
            self.base = last;
            self.since = match self.since.clone() {
                ClockOrigin::Boot(_) => ClockOrigin::Boot(boot_time()),
                ClockOrigin::Runtime(_, ahead) => ClockOrigin::Runtime(tokio::time::Instant::now(), ahead),
            };
        }
        self
    }

    /// Now.
    pub fn now(&self) -> Millis {
        let elapsed = match &self.since {
            ClockOrigin::Boot(start) => boot_time().saturating_sub(*start),
            ClockOrigin::Runtime(start, _) => start.elapsed(),
        };
        self.base + elapsed
    }

    /// What the wall clock shows, which somebody may set. Never behind 1970.
    pub fn wall_time(&self) -> Millis {
        match &self.since {
            ClockOrigin::Boot(_) => wall_time(),
            ClockOrigin::Runtime(_, ahead) => self.now().moved_by(ahead.load(Ordering::Relaxed)),
        }
    }

    /// How many milliseconds the wall clock is ahead of [`Clock::now`]; behind if negative.
    pub fn ahead_millis(&self) -> i64 {
        let signed = |at: Millis| i64::try_from(at.0).unwrap_or(i64::MAX);
        signed(self.wall_time()) - signed(self.now())
    }

    /// Sets the wall clock of a clock that follows the runtime's time. The machine's is not for us to set.
    pub fn set_ahead(&self, milliseconds: i64) {
        if let ClockOrigin::Runtime(_, ahead) = &self.since {
            ahead.store(milliseconds, Ordering::Relaxed);
        }
    }
}

fn wall_time() -> Millis {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(wall.as_millis()).unwrap_or(u64::MAX))
}

fn boot_time() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
}
