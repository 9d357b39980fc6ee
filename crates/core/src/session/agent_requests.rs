//! Requests of an agent: the open ones, those whose results it has not received, and its used ids.
//!
//! An agent's program counts its ids from 1 again when it restarts. A repeated id begins a new
//! generation: results of an older one are never answered by their id, for it now means another request.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{
    breaker::Breaker,
    used_ids::{UsedIds, parse_number},
};
use crate::{
    call::CallEnd,
    digest::Digest,
    id::{CallId, GateId, Lsn},
    time::Millis,
};

/// Maximum number of non-numeric ids of a generation, and of keys, that are remembered of requests that are over and
/// received; and how many results that are not.
const REMEMBERED: usize = 4096;

/// One request of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// The agent's own id of it, as JSON text.
    pub wire: Arc<str>,
    /// The generation of the id.
    pub generation: u32,
    /// Idempotency key: a repeated key names the same request.
    pub key: Option<String>,
    /// The gate that decides it, if a person does.
    #[serde(default)]
    pub gate: Option<GateId>,
    /// Time of the request.
    pub at: Millis,
    /// Digest of tool and arguments.
    pub asks: Option<Digest>,
}

/// A request that is over and whose result the agent has not received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestOutcome {
    /// The request.
    #[serde(rename = "asked")]
    pub request: RequestRecord,
    /// Its outcome.
    pub end: CallEnd,
    /// The record of the end, with the result as its content.
    pub lsn: Lsn,
    /// The record of the request, with its content.
    #[serde(rename = "wanted")]
    pub proposed_lsn: Lsn,
}

/// Request of an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyedRequest {
    /// The first request with the key.
    pub call: CallId,
    /// Digest of that request's tool and arguments.
    pub asks: Option<Digest>,
    /// The gate that decided it, if a person did.
    #[serde(default)]
    pub gate: Option<GateId>,
    /// Its outcome and the position of the record of it, once it has ended.
    pub over: Option<(CallEnd, Lsn)>,
}

/// Program that asks for its results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramGeneration {
    /// One that continues with this generation.
    From(u32),
    /// One that restarted.
    Anew,
    /// One of several: it is not known which.
    Unclear,
}

/// An agent's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRequests {
    generation: u32,
    open: BTreeMap<CallId, RequestRecord>,
    results: BTreeMap<CallId, RequestOutcome>,
    /// Ids of this generation.
    used: UsedIds,
    /// Keys, and those that may be forgotten.
    keys: BTreeMap<String, KeyedRequest>,
    keys_order: VecDeque<String>,
    #[serde(default)]
    pub(crate) breaker: Breaker,
}

impl AgentRequests {
    /// Returns the generation of the last id.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Reports whether an id was used in this generation.
    pub fn has_used(&self, wire: &str) -> bool {
        self.used.contains(wire)
    }

    /// Returns the program of a result request with the id `wire`, among those with waiting requests. A program counts on, so the
    /// `lowest` number that it used on its connection is above those of all that it has open or did not receive; of several with
    /// this property it is the one with the closest numbers below. One that restarted counts from 1. Requests that `is_own` accepts came
    /// on that connection and prove nothing.
    pub fn counts_on(&self, wire: &str, lowest: Option<u64>, is_own: impl Fn(CallId) -> bool) -> ProgramGeneration {
        let results = self.results.iter().map(|(call, result)| (*call, &result.request));
        let waits = self.open.iter().map(|(call, request)| (*call, request)).chain(results);
        let mut highest: BTreeMap<u32, u64> = BTreeMap::new();
        for (_, request) in waits.filter(|(call, _)| !is_own(*call)) {
            if let Some(number) = counted_number(&request.wire) {
                let known = highest.entry(request.generation).or_default();
                *known = number.max(*known);
            }
        }
        let is_current = || match self.has_used(wire) {
            false => ProgramGeneration::From(self.generation),
            true => ProgramGeneration::Anew,
        };
        let Some(lowest) = lowest.filter(|_| !highest.is_empty()) else { return is_current() };
        let before = || highest.iter().filter(|(_, highest)| **highest < lowest);
        let closest = before().map(|(_, highest)| *highest).max();
        let mut generations =
            before().filter(|(_, highest)| Some(**highest) == closest).map(|(generation, _)| *generation);
        match (generations.next(), generations.next()) {
            (None, _) => ProgramGeneration::Anew,
            (Some(generation), None) if generation == self.generation => is_current(),
            (Some(generation), None) => ProgramGeneration::From(generation),
            (Some(_), Some(_)) => ProgramGeneration::Unclear,
        }
    }

    /// Returns the generation of an id that comes now.
    pub fn generation_of(&self, wire: &str) -> u32 {
        if self.used.contains(wire) { self.generation + 1 } else { self.generation.max(1) }
    }

    /// Returns the requests that are not over.
    pub fn open_requests(&self) -> &BTreeMap<CallId, RequestRecord> {
        &self.open
    }

    /// Returns the results that were not received, in the order of the requests.
    pub fn results(&self) -> &BTreeMap<CallId, RequestOutcome> {
        &self.results
    }

    /// Returns the breaker of its requests.
    pub fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// Returns the request of a key.
    pub fn keyed_request(&self, key: &str) -> Option<&KeyedRequest> {
        self.keys.get(key)
    }

    /// Returns the requests whose keys begin with `prefix`.
    pub fn requests_with_prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a KeyedRequest> {
        let from = self.keys.range::<str, _>((std::ops::Bound::Included(prefix), std::ops::Bound::Unbounded));
        from.take_while(move |(key, _)| key.starts_with(prefix)).map(|(_, keyed)| keyed)
    }

    /// Returns the requests of all keys.
    pub fn keyed_requests(&self) -> impl Iterator<Item = &KeyedRequest> {
        self.keys.values()
    }

    pub(crate) fn record_request(&mut self, call: CallId, request: RequestRecord) {
        if request.generation > self.generation {
            self.generation = request.generation;
            self.used = UsedIds::default();
        }
        self.used.insert(&request.wire);
        if let Some(key) = &request.key {
            self.keys.insert(key.clone(), KeyedRequest { call, asks: request.asks, gate: request.gate, over: None });
        }
        self.open.insert(call, request);
    }

    pub(crate) fn record_end(&mut self, call: CallId, end: CallEnd, lsn: Lsn, proposed_lsn: Lsn) {
        let Some(request) = self.open.remove(&call) else { return };
        if let Some(keyed) =
            request.key.as_ref().and_then(|key| self.keys.get_mut(key)).filter(|keyed| keyed.call == call)
        {
            keyed.over = Some((end, lsn));
        }
        self.results.insert(call, RequestOutcome { request, end, lsn, proposed_lsn });
        // An agent that never fetches anything costs a bounded amount; forgotten results are still in the log. Results that
        // certainly had no effect go first: the agent must receive the rest.
        if self.results.len() > REMEMBERED {
            let without_effect = self.results.iter().find(|(_, result)| !may_have_taken_effect(result.end));
            let dropped = without_effect.or_else(|| self.results.first_key_value()).map(|(call, _)| *call);
            if let Some(dropped) = dropped {
                self.record_received(dropped);
            }
        }
    }

    /// Returns the gate that decides a request, or did, for as long as anything of it is remembered.
    pub fn gate_of(&self, call: CallId) -> Option<GateId> {
        let request = self.open.get(&call).or_else(|| self.results.get(&call).map(|result| &result.request));
        request.and_then(|request| request.gate).or_else(|| self.keys.values().find(|keyed| keyed.call == call)?.gate)
    }

    pub(crate) fn record_gate(&mut self, call: CallId, gate: GateId) {
        let Some(request) = self.open.get_mut(&call) else { return };
        request.gate = Some(gate);
        if let Some(keyed) = request.key.as_ref().and_then(|key| self.keys.get_mut(key)) {
            keyed.gate = Some(gate);
        }
    }

    pub(crate) fn record_received(&mut self, call: CallId) {
        let Some(RequestOutcome { request, .. }) = self.results.remove(&call) else { return };
        // Only now: forgotten earlier, a key would allow a repetition, and an id would mean two requests.
        if request.generation == self.generation {
            self.used.release_id(request.wire, REMEMBERED);
        }
        self.keys_order.extend(request.key);
        if self.keys_order.len() > REMEMBERED
            && let Some(oldest) = self.keys_order.pop_front()
        {
            self.keys.remove(&oldest);
        }
    }
}

/// Returns the number that a program counted to, if an id, as JSON text, is one or is the text of one.
pub fn counted_number(wire: &str) -> Option<u64> {
    let of_text = || wire.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    parse_number(wire).or_else(|| parse_number(of_text()?))
}

const fn may_have_taken_effect(end: CallEnd) -> bool {
    match end {
        CallEnd::Done { .. } | CallEnd::Unknown => true,
        CallEnd::Failed
        | CallEnd::Denied
        | CallEnd::Refused
        | CallEnd::Expired
        | CallEnd::Limited
        | CallEnd::Skipped
        | CallEnd::Cancelled => false,
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn call(number: usize) -> CallId {
        CallId::new(Uuid::from_u128(number as u128))
    }

    fn request(number: usize) -> RequestRecord {
        let (wire, key) = (format!("\"{number}\"").into(), Some(number.to_string()));
        RequestRecord { wire, generation: 1, key, gate: None, at: Millis(0), asks: None }
    }

    /// Adds many later requests that are received, which make request 0 the oldest by far.
    fn after_many(mut requester: AgentRequests) -> AgentRequests {
        for number in 1..=REMEMBERED + 1 {
            requester.record_request(call(number), request(number));
            requester.record_end(call(number), CallEnd::Done { error: false }, Lsn(1), Lsn(1));
            requester.record_received(call(number));
        }
        requester
    }

    #[test]
    fn the_key_and_id_of_an_open_request_are_never_forgotten() {
        let mut requester = AgentRequests::default();
        requester.record_request(call(0), request(0));
        let requester = after_many(requester);
        assert_eq!(requester.keyed_request("0").map(|keyed| keyed.call), Some(call(0)));
        assert!(requester.has_used("\"0\""));
        assert!(!requester.has_used("\"1\"") && requester.keyed_request("1").is_none(), "a finished one is");
    }

    #[test]
    fn the_key_and_id_of_a_result_are_kept_until_it_is_received() {
        let mut requester = AgentRequests::default();
        requester.record_request(call(0), request(0));
        requester.record_end(call(0), CallEnd::Done { error: false }, Lsn(7), Lsn(6));
        let requester = after_many(requester);
        assert_eq!(
            requester.keyed_request("0").and_then(|keyed| keyed.over),
            Some((CallEnd::Done { error: false }, Lsn(7)))
        );
        assert!(requester.has_used("\"0\""));
    }

    #[test]
    fn a_program_continues_its_count_or_starts_over() {
        let from = ProgramGeneration::From(1);
        for (waits, id, lowest, want) in [
            ("2", "3", Some(3), from),
            ("2", "1", Some(1), ProgramGeneration::Anew),
            ("2", "7", Some(1), ProgramGeneration::Anew),
            ("2", "2", Some(2), ProgramGeneration::Anew),
            ("\"2\"", "\"3\"", Some(3), from),
            ("\"2\"", "\"1\"", Some(1), ProgramGeneration::Anew),
            ("\"a\"", "\"b\"", None, from),
            ("\"a\"", "\"a\"", None, ProgramGeneration::Anew),
            ("\"a\"", "1", Some(1), from),
        ] {
            for is_over in [false, true] {
                let mut requester = AgentRequests::default();
                requester.record_request(call(0), RequestRecord { wire: waits.into(), ..request(0) });
                if is_over {
                    requester.record_end(call(0), CallEnd::Done { error: false }, Lsn(7), Lsn(6));
                }
                assert_eq!(requester.counts_on(id, lowest, |_| false), want, "{waits} waits, {id} asks");
            }
        }
        let mut requester = AgentRequests::default();
        requester.record_request(call(0), RequestRecord { wire: "2".into(), ..request(0) });
        assert_eq!(requester.counts_on("3", Some(1), |own| own == call(0)), from, "it asked for that itself");
    }

    #[test]
    fn of_several_programs_it_is_the_one_that_it_comes_closest_behind() {
        for (first, second, lowest, want) in [
            (5, 1, 6, ProgramGeneration::From(1)),
            (1, 3, 4, ProgramGeneration::From(2)),
            (5, 1, 2, ProgramGeneration::From(2)),
            (1, 1, 2, ProgramGeneration::Unclear),
            (5, 5, 2, ProgramGeneration::Anew),
        ] {
            let mut requester = AgentRequests::default();
            requester.record_request(call(0), RequestRecord { wire: first.to_string().into(), ..request(0) });
            requester.record_request(
                call(1),
                RequestRecord { wire: second.to_string().into(), generation: 2, ..request(1) },
            );
            let generation = requester.counts_on(&lowest.to_string(), Some(lowest), |_| false);
            assert_eq!(generation, want, "{first}, {second}: {lowest}");
        }
    }

    #[test]
    fn of_too_many_results_those_without_effect_go_first() {
        let mut requester = AgentRequests::default();
        for number in 0..=REMEMBERED {
            let end = if number == 9 { CallEnd::Refused } else { CallEnd::Done { error: false } };
            requester.record_request(call(number), request(number));
            requester.record_end(call(number), end, Lsn(1), Lsn(1));
        }
        assert!(requester.results().contains_key(&call(0)) && !requester.results().contains_key(&call(9)));
    }
}
