//! Latch that holds an answer back until a test opens it.

use std::sync::{Arc, Condvar, Mutex};

use crate::process::WAIT_TIMEOUT;

/// Latch that blocks its waiters until a test opens it.
#[derive(Clone, Default)]
pub struct Latch(Arc<(Mutex<bool>, Condvar)>);

impl Latch {
    /// Releases all waiters, now and later.
    pub fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    /// Waits until it is open.
    pub(crate) fn wait_open(&self) {
        let open = self.0.0.lock().unwrap();
        drop(self.0.1.wait_timeout_while(open, WAIT_TIMEOUT, |open| !*open).unwrap());
    }
}
