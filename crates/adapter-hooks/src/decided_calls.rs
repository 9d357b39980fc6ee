//! Decisions about calls by the program's own ids, so that each call that ran is compared with its own decision.

use std::collections::{HashMap, HashSet, VecDeque};

use countersign_core::{
    call::AgentRequest,
    digest::Digest,
    id::{CallId, SessionId},
};
use countersign_foreign_calls::{key_prefix, run_prefix};
use parking_lot::Mutex;

/// Most decisions that are kept. Programs report a call right after it.
const MOST: usize = 16_384;

/// Id of a call of a program.
type CallKey = (SessionId, String);

/// Decisions since the start.
#[derive(Default)]
pub(crate) struct DecidedCalls(Mutex<DecidedState>);

#[derive(Default)]
struct DecidedState {
    decided: HashMap<CallKey, DecidedCall>,
    order: VecDeque<CallKey>,
    /// Requests whose decision is about a call with an id.
    taken: HashSet<CallId>,
}

#[derive(Default)]
struct DecidedCall {
    allowed: Option<AllowedCall>,
    /// Requests that decided it.
    requests: Vec<CallId>,
}

/// Call that was allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllowedCall {
    /// Digest of what it does, as its program reports it after it ran.
    ran: Digest,
    /// Digest of the same with its folder, its requester and the files to which its paths lead.
    key: Digest,
}

impl AllowedCall {
    /// Returns the digests of a request.
    pub(crate) fn from_request(request: &AgentRequest) -> Self {
        let digest = |text: String| Digest::hash_bytes(text.as_bytes());
        Self { ran: digest(run_prefix(request)), key: digest(key_prefix(request)) }
    }

    /// Reports whether a call that ran does the same.
    pub(crate) fn is_run(&self, ran: &AgentRequest) -> bool {
        self.ran == Self::from_request(ran).ran
    }
}

impl DecidedCalls {
    /// Keeps the decision about a call, and the request that made it. The last decision counts.
    pub(crate) fn insert(
        &self,
        session: &SessionId,
        id: String,
        allowed: Option<AllowedCall>,
        request: Option<CallId>,
    ) {
        let mut state = self.0.lock();
        let key = (session.clone(), id);
        if !state.decided.contains_key(&key) {
            state.order.push_back(key.clone());
        }
        let decided = state.decided.entry(key).or_default();
        decided.allowed = allowed;
        decided.requests.extend(request);
        state.taken.extend(request);
        if state.order.len() > MOST
            && let Some(oldest) = state.order.pop_front()
            && let Some(forgotten) = state.decided.remove(&oldest)
        {
            for request in forgotten.requests {
                state.taken.remove(&request);
            }
        }
    }

    /// Returns the decision about a call, if it is kept.
    pub(crate) fn find(&self, session: &SessionId, id: &str) -> Option<Option<AllowedCall>> {
        self.0.lock().decided.get(&(session.clone(), id.to_owned())).map(|decided| decided.allowed)
    }

    /// Takes one of `requests` of the record as the decision about a call of before the start. False if all of them decided other calls.
    pub(crate) fn adopt(&self, session: &SessionId, id: &str, allowed: AllowedCall, requests: &[CallId]) -> bool {
        let free = {
            let state = self.0.lock();
            requests.iter().find(|request| !state.taken.contains(request)).copied()
        };
        if free.is_some() {
            self.insert(session, id.to_owned(), Some(allowed), free);
        }
        free.is_some()
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::{
        digest::Digest,
        id::{CallId, SessionId},
    };
    use uuid::Uuid;

    use super::{AllowedCall, DecidedCalls, MOST};

    fn allowed() -> AllowedCall {
        let digest = Digest::hash_bytes(b"x");
        AllowedCall { ran: digest, key: digest }
    }

    #[test]
    fn the_last_decisions_are_kept() {
        let (calls, session) = (DecidedCalls::default(), SessionId::new("claude:1"));
        for number in 0..=MOST {
            calls.insert(&session, number.to_string(), Some(allowed()), None);
        }
        calls.insert(&session, "1".to_owned(), None, None);
        assert_eq!(calls.find(&session, "0"), None);
        assert_eq!(calls.find(&session, "1"), Some(None));
        assert_eq!(calls.find(&session, "2"), Some(Some(allowed())));
        assert_eq!(calls.find(&SessionId::new("claude:2"), "2"), None);
    }

    #[test]
    fn a_request_decides_about_one_call_with_an_id() {
        let (calls, session) = (DecidedCalls::default(), SessionId::new("claude:1"));
        let [own, first, second] = [1, 2, 3].map(|number| CallId::new(Uuid::from_u128(number)));
        calls.insert(&session, "a".to_owned(), Some(allowed()), Some(own));
        assert!(!calls.adopt(&session, "b", allowed(), &[own]), "it decided about another call");
        assert!(calls.adopt(&session, "c", allowed(), &[own, first, second]));
        assert_eq!(calls.find(&session, "c"), Some(Some(allowed())));
        assert!(calls.adopt(&session, "d", allowed(), &[own, first, second]));
        assert!(!calls.adopt(&session, "e", allowed(), &[own, first, second]));
        assert_eq!(calls.find(&session, "e"), None);
    }
}
