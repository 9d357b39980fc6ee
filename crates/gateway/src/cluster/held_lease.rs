//! Lease that a node holds, for readers that cannot wait for its keeper: the process may have been stopped meanwhile.
//!
//! It must not know how a lease is taken.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Lease of a node. A clone shows the same lease.
#[derive(Clone, Debug, Default)]
pub struct HeldLease(Arc<Mutex<Option<LeaseTerm>>>);

#[derive(Clone, Copy, Debug)]
struct LeaseTerm {
    /// Time from which it counts as lost.
    deadline: Instant,
    number: u64,
}

impl HeldLease {
    /// Reports whether the lease is held now.
    pub fn is_held(&self) -> bool {
        self.remaining().is_some()
    }

    /// Returns the time for which the lease is held for certain, unless it is renewed.
    pub fn remaining(&self) -> Option<Duration> {
        let term = (*self.0.lock())?;
        term.deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    /// Returns the number of the lease, which grows with each change of the owner; zero if none is held.
    pub fn term(&self) -> u64 {
        self.0.lock().map_or(0, |term| term.number)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.lock().map(|term| term.deadline)
    }

    pub(super) fn hold(&self, deadline: Instant, number: u64) {
        *self.0.lock() = Some(LeaseTerm { deadline, number });
    }

    /// Notes that the lease is not held any more.
    pub(crate) fn lose(&self) {
        *self.0.lock() = None;
    }
}
