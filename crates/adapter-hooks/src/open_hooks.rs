//! Calls that wait in the hooks of each session: whether one of them is alone.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use countersign_core::id::SessionId;
use parking_lot::Mutex;

/// Calls that wait, by session. Each has a mark that is set when it has company.
#[derive(Default)]
pub(crate) struct OpenHooks(Mutex<HashMap<SessionId, Vec<Arc<AtomicBool>>>>);

/// Call that waits, until it is dropped.
pub(crate) struct OpenHook<'a> {
    hooks: &'a OpenHooks,
    session: SessionId,
    had_company: Arc<AtomicBool>,
}

impl OpenHooks {
    /// Adds a call of a session.
    pub(crate) fn enter(&self, session: &SessionId) -> OpenHook<'_> {
        let had_company = Arc::new(AtomicBool::new(false));
        let mut all = self.0.lock();
        let others = all.entry(session.clone()).or_default();
        for mark in others.iter().chain((!others.is_empty()).then_some(&had_company)) {
            mark.store(true, Ordering::Relaxed);
        }
        others.push(Arc::clone(&had_company));
        OpenHook { hooks: self, session: session.clone(), had_company }
    }
}

impl OpenHook<'_> {
    /// Reports whether no other call of the session waited at the same time.
    pub(crate) fn was_alone(&self) -> bool {
        !self.had_company.load(Ordering::Relaxed)
    }
}

impl Drop for OpenHook<'_> {
    fn drop(&mut self) {
        let mut all = self.hooks.0.lock();
        if let Some(marks) = all.get_mut(&self.session) {
            marks.retain(|mark| !Arc::ptr_eq(mark, &self.had_company));
            if marks.is_empty() {
                all.remove(&self.session);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::id::SessionId;

    use super::OpenHooks;

    #[test]
    fn a_call_is_alone_if_none_of_its_session_waited_with_it() {
        let (hooks, session, other) = (OpenHooks::default(), SessionId::new("claude:1"), SessionId::new("claude:2"));
        let first = hooks.enter(&session);
        let elsewhere = hooks.enter(&other);
        assert!(first.was_alone() && elsewhere.was_alone());
        let second = hooks.enter(&session);
        drop(second);
        assert!(!first.was_alone(), "also when the other has ended");
        drop(first);
        assert!(hooks.enter(&session).was_alone());
        drop(elsewhere);
        assert!(hooks.0.lock().is_empty());
    }
}
