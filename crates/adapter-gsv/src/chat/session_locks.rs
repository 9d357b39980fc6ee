//! Locks of sessions: input and actions of a session in this adapter are handled in the order in which they came.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// Locks of the sessions in use, by key.
#[derive(Default)]
pub(crate) struct SessionLocks(Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>);

/// Number of locks at which unused ones are removed.
const MANY: usize = 1024;

impl SessionLocks {
    /// Waits for the lock of the session with this key. It is held until the guard is dropped.
    pub(super) async fn lock_session(&self, key: &str) -> OwnedMutexGuard<()> {
        let desk = {
            let mut desks = self.0.lock();
            if desks.len() >= MANY {
                desks.retain(|_, desk| desk.strong_count() > 0);
            }
            let known = desks.get(key).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let desk = Arc::new(tokio::sync::Mutex::new(()));
                desks.insert(key.to_owned(), Arc::downgrade(&desk));
                desk
            })
        };
        desk.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::SessionLocks;

    #[tokio::test]
    async fn one_waits_for_the_other_in_a_session_and_nobody_in_another() {
        let desks = SessionLocks::default();
        let first = desks.lock_session("a").await;
        let mut second = std::pin::pin!(desks.lock_session("a"));
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(desks.lock_session("b").await);
        drop(first);
        drop(second.await);
    }
}
