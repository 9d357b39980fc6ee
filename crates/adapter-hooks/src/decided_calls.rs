//! Decisions about calls by the program's own ids, so that each call that ran is compared with its own decision.

use std::collections::{HashMap, VecDeque};

use countersign_core::{call::AgentRequest, digest::Digest, id::SessionId};
use countersign_foreign_calls::call_prefix;
use parking_lot::Mutex;

/// Most decisions that are kept. Programs report a call right after it.
const MOST: usize = 16_384;

/// Id of a call of a program.
type CallKey = (SessionId, String);

/// Decisions since the start: the digest of the call that was allowed, or none.
#[derive(Default)]
pub(crate) struct DecidedCalls(Mutex<DecidedState>);

#[derive(Default)]
struct DecidedState {
    decided: HashMap<CallKey, Option<Digest>>,
    order: VecDeque<CallKey>,
}

impl DecidedCalls {
    /// Keeps the decision about a call. The last one counts.
    pub(crate) fn insert(&self, session: &SessionId, id: String, allowed: Option<Digest>) {
        let mut state = self.0.lock();
        let key = (session.clone(), id);
        if state.decided.insert(key.clone(), allowed).is_none() {
            state.order.push_back(key);
        }
        if state.order.len() > MOST
            && let Some(oldest) = state.order.pop_front()
        {
            state.decided.remove(&oldest);
        }
    }

    /// Returns the decision about a call, if it is kept.
    pub(crate) fn find(&self, session: &SessionId, id: &str) -> Option<Option<Digest>> {
        self.0.lock().decided.get(&(session.clone(), id.to_owned())).copied()
    }
}

/// Returns the digest of what a call does, in any folder.
pub(crate) fn call_digest(request: &AgentRequest) -> Digest {
    Digest::hash_bytes(call_prefix(request).as_bytes())
}

#[cfg(test)]
mod tests {
    use countersign_core::{digest::Digest, id::SessionId};

    use super::{DecidedCalls, MOST};

    #[test]
    fn the_last_decisions_are_kept() {
        let (calls, session) = (DecidedCalls::default(), SessionId::new("claude:1"));
        let digest = Digest::hash_bytes(b"x");
        for number in 0..=MOST {
            calls.insert(&session, number.to_string(), Some(digest));
        }
        calls.insert(&session, "1".to_owned(), None);
        assert_eq!(calls.find(&session, "0"), None);
        assert_eq!(calls.find(&session, "1"), Some(None));
        assert_eq!(calls.find(&session, "2"), Some(Some(digest)));
        assert_eq!(calls.find(&SessionId::new("claude:2"), "2"), None);
    }
}
