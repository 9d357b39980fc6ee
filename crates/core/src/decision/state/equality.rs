//! Equality of two states.

use std::collections::BTreeMap;

use super::State;
use crate::gate::Gate;

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        let at_hand = |state: &Self, gate: &Gate| gate.is_pending() || state.is_awaited(gate);
        (self.head, self.at, self.boot) == (other.head, other.at, other.boot)
            && same_entries(&self.sessions, &other.sessions, |session| !session.may_park())
            && self.runs == other.runs
            && self.calls == other.calls
            && same_entries(&self.gates, &other.gates, |gate| at_hand(self, gate) || at_hand(other, gate))
            && self.policy == other.policy
            && self.settings == other.settings
            && self.peers == other.peers
            && self.channels == other.channels
            && self.schedule == other.schedule
            && self.compacting == other.compacting
            && self.pending == other.pending
            && self.gate_deadlines == other.gate_deadlines
            && self.backoffs == other.backoffs
            && self.awaiting_peers == other.awaiting_peers
    }
}

/// Reports whether the entries in both are equal, and nothing is in one alone that must be loaded.
fn same_entries<K: Ord, V: PartialEq>(
    one: &BTreeMap<K, V>,
    other: &BTreeMap<K, V>,
    must_be: impl Fn(&V) -> bool,
) -> bool {
    let in_one = one.iter().all(|(key, value)| other.get(key).map_or_else(|| !must_be(value), |found| found == value));
    in_one && other.iter().all(|(key, value)| one.contains_key(key) || !must_be(value))
}
