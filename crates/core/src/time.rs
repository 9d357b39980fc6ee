//! Instants and spans as the engine counts them. Nothing here reads a clock.

use std::{fmt, ops::Add, time::Duration};

use serde::{Deserialize, Serialize};

/// An instant: milliseconds since the Unix epoch, never decreasing within one log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// Returns the span from `earlier` to here; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// Returns the instant so many milliseconds later; earlier if negative. Saturates.
    #[must_use]
    pub const fn moved_by(self, by: i64) -> Self {
        Self(self.0.saturating_add_signed(by))
    }
}

impl Add<Duration> for Millis {
    type Output = Self;

    /// Adds and saturates: a deadline too far to count is never reached.
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}
