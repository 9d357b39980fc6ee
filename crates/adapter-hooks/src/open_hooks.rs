//! Calls that wait in the hooks of each session: whether one of them is alone, and may be deferred.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use countersign_core::id::SessionId;
use parking_lot::Mutex;

/// Most deferred calls that are remembered, the latest ones. A program may never be resumed.
const MOST_DEFERRED: usize = 10_000;

/// Calls that wait and calls that are deferred, by session.
#[derive(Default)]
pub(crate) struct OpenHooks {
    /// Each waiting call has a mark that is set when it has company.
    waiting: Mutex<HashMap<SessionId, Vec<Arc<AtomicBool>>>>,
    deferred: Mutex<DeferredCalls>,
}

/// The call with which the program of each session ended, until it is resumed.
#[derive(Default)]
struct DeferredCalls {
    by_session: HashMap<SessionId, DeferredCall>,
    /// Their sessions, the oldest first.
    order: BTreeMap<u64, SessionId>,
    last: u64,
}

/// Deferred call with its place in the order.
struct DeferredCall {
    place: u64,
    call: PromptCall,
}

/// Call of a program, and the prompt of which it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PromptCall {
    pub(crate) id: Option<String>,
    pub(crate) prompt: Option<String>,
}

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
        let mut all = self.waiting.lock();
        let others = all.entry(session.clone()).or_default();
        for mark in others.iter().chain((!others.is_empty()).then_some(&had_company)) {
            mark.store(true, Ordering::Relaxed);
        }
        others.push(Arc::clone(&had_company));
        OpenHook { hooks: self, session: session.clone(), had_company }
    }

    /// Forgets the deferred call of a session if `call` shows that the program was resumed: it is the same call, or one of another prompt.
    pub(crate) fn resume_deferred(&self, session: &SessionId, call: &PromptCall) {
        let mut deferred = self.deferred.lock();
        let before = deferred.by_session.get(session).map(|deferred| &deferred.call);
        if before.is_some_and(|before| before.id == call.id || before.prompt != call.prompt) {
            deferred.remove(session);
        }
    }

    /// Defers a call, and returns true. Returns false if another call of the session is deferred already: the program asks about the calls
    /// of one message one after the other, and keeps only the last that is deferred.
    pub(crate) fn defer_call(&self, session: &SessionId, call: PromptCall) -> bool {
        let mut deferred = self.deferred.lock();
        let is_first = !deferred.by_session.contains_key(session);
        if is_first {
            deferred.insert(session, call);
        }
        is_first
    }
}

impl DeferredCalls {
    /// Adds a call. Forgets the oldest one if there are too many: it keeps its decision in the record.
    fn insert(&mut self, session: &SessionId, call: PromptCall) {
        self.last += 1;
        self.order.insert(self.last, session.clone());
        self.by_session.insert(session.clone(), DeferredCall { place: self.last, call });
        if self.by_session.len() > MOST_DEFERRED
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.by_session.remove(&oldest);
        }
    }

    fn remove(&mut self, session: &SessionId) {
        if let Some(DeferredCall { place, .. }) = self.by_session.remove(session) {
            self.order.remove(&place);
        }
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
        let mut all = self.hooks.waiting.lock();
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

    use super::{MOST_DEFERRED, OpenHooks, PromptCall};

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
        assert!(hooks.waiting.lock().is_empty());
    }

    #[test]
    fn one_call_of_a_prompt_is_deferred_until_the_program_is_resumed() {
        let (hooks, session, other) = (OpenHooks::default(), SessionId::new("claude:1"), SessionId::new("claude:2"));
        let call = |id: &str, prompt: &str| PromptCall { id: Some(id.to_owned()), prompt: Some(prompt.to_owned()) };
        let ask = |session: &SessionId, call: PromptCall| {
            hooks.resume_deferred(session, &call);
            hooks.defer_call(session, call)
        };
        assert!(ask(&session, call("a", "1")));
        assert!(!ask(&session, call("b", "1")), "the program would lose the first");
        assert!(ask(&other, call("b", "1")), "another session");
        assert!(ask(&session, call("a", "2")), "it was resumed, and the same call waits again");
        assert!(ask(&session, call("c", "3")), "it was resumed with another call");
        assert!(!ask(&session, call("d", "3")));
    }

    #[test]
    fn sessions_that_are_never_resumed_stop_no_deferral() {
        let hooks = OpenHooks::default();
        let session = |number: usize| SessionId::new(format!("claude:{number}"));
        let ask = |number: usize, id: &str| {
            let call = PromptCall { id: Some(id.to_owned()), prompt: Some("1".to_owned()) };
            hooks.resume_deferred(&session(number), &call);
            hooks.defer_call(&session(number), call)
        };
        assert!(ask(0, "a") && ask(1, "a") && ask(0, "a"), "session 1 is the oldest now");
        for number in 2..=MOST_DEFERRED {
            assert!(ask(number, "a"), "session {number}");
        }
        assert!(!ask(0, "b"), "the call before is still remembered");
        assert!(ask(1, "b"), "the call of the oldest session was forgotten");
        assert!(ask(0, "b"), "then that of the next one");
        let deferred = hooks.deferred.lock();
        assert_eq!((deferred.by_session.len(), deferred.order.len()), (MOST_DEFERRED, MOST_DEFERRED));
    }
}
