//! The time that the engine gets: it never goes back, and a jump of the wall clock does not move it. For jobs that go by the
//! calendar, the engine also gets the wall clock's offset from it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use countersign_core::time::Millis;

/// Source of `now`: the wall clock at the start plus the time that has passed since, time spent asleep included.
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
    /// Returns the machine's clock.
    pub fn system() -> Self {
        Self { base: wall_time(), since: ClockOrigin::Boot(boot_time()) }
    }

    /// Returns a clock that starts at `base` and follows the runtime's time. For tests, and for callers with a time of their own.
    pub fn starting_at(base: Millis) -> Self {
        Self { base, since: ClockOrigin::Runtime(tokio::time::Instant::now(), Arc::default()) }
    }

    /// Returns the same clock, but never earlier than `last`, which a log holds already.
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

    /// Returns the current time.
    pub fn now(&self) -> Millis {
        let elapsed = match &self.since {
            ClockOrigin::Boot(start) => boot_time().saturating_sub(*start),
            ClockOrigin::Runtime(start, _) => start.elapsed(),
        };
        self.base + elapsed
    }

    /// Returns the time that the wall clock shows, which a user can set. Never before 1970.
    pub fn wall_time(&self) -> Millis {
        match &self.since {
            ClockOrigin::Boot(_) => wall_time(),
            ClockOrigin::Runtime(_, ahead) => self.now().moved_by(ahead.load(Ordering::Relaxed)),
        }
    }

    /// Returns the milliseconds that the wall clock is ahead of [`Clock::now`]; negative if it is late.
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
