//! The time as the engine is told it: it never goes back, and a jump of the wall clock does not move it.

use std::time::Duration;

use countersign_core::time::Millis;

/// Where `now` comes from: the wall clock at the start, and what has passed since, time spent asleep included.
#[derive(Clone, Debug)]
pub struct Clock {
    base: Millis,
    since: Since,
}

#[derive(Clone, Debug)]
enum Since {
    /// The machine's time since boot.
    Boot(Duration),
    /// The runtime's time, which tests pause and move.
    Runtime(tokio::time::Instant),
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self { base: Millis(u64::try_from(wall.as_millis()).unwrap_or(u64::MAX)), since: Since::Boot(boot_time()) }
    }

    /// A clock that starts at `base` and follows the runtime's time. For tests, and for whoever brings a time of their own.
    pub fn starting_at(base: Millis) -> Self {
        Self { base, since: Since::Runtime(tokio::time::Instant::now()) }
    }

    /// The same clock, but never behind `last`, which a log holds already.
    #[must_use]
    pub fn not_before(mut self, last: Millis) -> Self {
        if self.now() < last {
            self.base = last;
            self.since = match self.since {
                Since::Boot(_) => Since::Boot(boot_time()),
                Since::Runtime(_) => Since::Runtime(tokio::time::Instant::now()),
            };
        }
        self
    }

    /// Now.
    pub fn now(&self) -> Millis {
        let elapsed = match self.since {
            Since::Boot(start) => boot_time().saturating_sub(start),
            Since::Runtime(start) => start.elapsed(),
        };
        self.base + elapsed
    }
}

fn boot_time() -> Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
}
