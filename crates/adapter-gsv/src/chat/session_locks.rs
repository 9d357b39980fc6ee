//! One at a time: what is said and done in a session through this door is looked at in the order in which it came.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// A desk for each session at which somebody is.
#[derive(Default)]
pub(crate) struct SessionLocks(Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>);

/// How many desks there may be before those at which nobody is are taken away.
const MANY: usize = 1024;

impl SessionLocks {
    /// Waits for the turn of whoever asks in the session with this key. It lasts until what is given is dropped.
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
