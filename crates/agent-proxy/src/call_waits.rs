//! Messages that are held until all calls in them are decided.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    agent_call::{AgentCall, CallDecision},
    interceptor::{CallToken, MOST_CALLS, ProxyAction, ProxyActions},
};

/// Held message: `P` says what follows.
#[derive(Debug)]
struct HeldMessage<P> {
    purpose: P,
    session: String,
    calls: Vec<AgentCall>,
    open: BTreeSet<CallToken>,
}

/// Held message whose calls are decided.
#[derive(Debug, PartialEq)]
pub(crate) struct DecidedMessage<P> {
    pub(crate) purpose: P,
    pub(crate) session: String,
    pub(crate) calls: Vec<AgentCall>,
    /// The reason if one of them was denied.
    pub(crate) outcome: Result<(), String>,
}

/// All held messages.
#[derive(Debug)]
pub(crate) struct CallWaits<P> {
    next: u64,
    held: BTreeMap<u64, HeldMessage<P>>,
    tokens: BTreeMap<CallToken, u64>,
}

impl<P> Default for CallWaits<P> {
    fn default() -> Self {
        Self { next: 0, held: BTreeMap::new(), tokens: BTreeMap::new() }
    }
}

impl<P> CallWaits<P> {
    /// Holds a message until its calls are decided. One without calls, or one too many, is decided at once.
    pub(crate) fn hold(
        &mut self,
        purpose: P,
        session: &str,
        calls: Vec<AgentCall>,
        actions: &mut ProxyActions,
    ) -> Option<DecidedMessage<P>> {
        let session = session.to_owned();
        if calls.is_empty() {
            return Some(DecidedMessage { purpose, session, calls, outcome: Ok(()) });
        }
        if self.tokens.len() + calls.len() > MOST_CALLS {
            let outcome = Err(format!("Too many calls wait for a decision: at most {MOST_CALLS} at a time"));
            return Some(DecidedMessage { purpose, session, calls, outcome });
        }
        let number = self.next;
        let mut open = BTreeSet::new();
        for call in &calls {
            let token = CallToken(self.next);
            self.next += 1;
            open.insert(token);
            self.tokens.insert(token, number);
            actions.push(ProxyAction::Decide { token, call: call.clone() });
        }
        self.held.insert(number, HeldMessage { purpose, session, calls, open });
        None
    }

    /// Takes in a decision. Returns the message if nothing more is to be decided: at the first denial, or the last approval.
    pub(crate) fn decide(
        &mut self,
        token: CallToken,
        decision: CallDecision,
        actions: &mut ProxyActions,
    ) -> Option<DecidedMessage<P>> {
        let number = self.tokens.remove(&token)?;
        let held = self.held.get_mut(&number)?;
        held.open.remove(&token);
        let outcome = match decision {
            CallDecision::Allow if !held.open.is_empty() => return None,
            CallDecision::Allow => Ok(()),
            CallDecision::Deny(reason) => Err(reason),
        };
        let HeldMessage { purpose, session, calls, open } = self.held.remove(&number)?;
        self.abandon(open, actions);
        Some(DecidedMessage { purpose, session, calls, outcome })
    }

    /// Takes out the messages that `is_meant`, and ends their waits.
    pub(crate) fn cancel(&mut self, is_meant: impl Fn(&P, &str) -> bool, actions: &mut ProxyActions) -> Vec<P> {
        let meant = self.held.iter().filter(|(_, held)| is_meant(&held.purpose, &held.session));
        let numbers: Vec<u64> = meant.map(|(number, _)| *number).collect();
        let mut purposes = Vec::new();
        for number in numbers {
            if let Some(held) = self.held.remove(&number) {
                self.abandon(held.open, actions);
                purposes.push(held.purpose);
            }
        }
        purposes
    }

    /// Finds the message to which a call belongs, with its session and the call.
    pub(crate) fn find(&self, token: CallToken) -> Option<(&P, &str, &AgentCall)> {
        let held = self.held.get(self.tokens.get(&token)?)?;
        // The tokens of a message are in a row, which begins with its number.
        let place = token.0.checked_sub(*self.tokens.get(&token)?)?;
        let call = held.calls.get(usize::try_from(place).ok()?)?;
        Some((&held.purpose, &held.session, call))
    }

    /// Reports whether the call still waits.
    pub(crate) fn is_open(&self, token: CallToken) -> bool {
        self.tokens.contains_key(&token)
    }

    fn abandon(&mut self, open: BTreeSet<CallToken>, actions: &mut ProxyActions) {
        for token in open {
            self.tokens.remove(&token);
            actions.push(ProxyAction::Abandon(token));
        }
    }
}
