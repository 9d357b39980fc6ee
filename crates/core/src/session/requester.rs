//! What an agent has asked for: what is open, whose results it has not received, which of its ids were used.
//!
//! An agent's program counts its ids from 1 again when it starts anew. An id that is seen again begins a new
//! generation: results of an older one are never answered by their id, for it now means something else.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::breaker::Breaker;
use crate::{
    call::End,
    digest::Digest,
    id::{CallId, GateId, Lsn},
    time::Millis,
};

/// How many ids of a generation, and how many keys, are remembered.
const REMEMBERED: usize = 4096;

/// One request of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The agent's own id of it, as JSON text.
    pub wire: Arc<str>,
    /// The generation of the id.
    pub generation: u32,
    /// The key under which a repetition is the same request.
    pub key: Option<String>,
    /// The gate that decides it, if a person does.
    #[serde(default)]
    pub gate: Option<GateId>,
    /// When it was asked.
    pub at: Millis,
    /// Of tool and arguments.
    pub asks: Option<Digest>,
}

/// A request that is over and whose result the agent has not received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// What was asked.
    pub asked: Asked,
    /// How it ended.
    pub end: End,
    /// The record that says so, with the result as its content.
    pub lsn: Lsn,
    /// The record that says what was wanted, with its content.
    pub wanted: Lsn,
}

/// What became of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keyed {
    /// The request that it named first.
    pub call: CallId,
    /// Of that request's tool and arguments.
    pub asks: Option<Digest>,
    /// The gate that decided it, if a person did.
    #[serde(default)]
    pub gate: Option<GateId>,
    /// How that ended and where that is recorded, once it has.
    pub over: Option<(End, Lsn)>,
}

/// An agent's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requester {
    generation: u32,
    open: BTreeMap<CallId, Asked>,
    results: BTreeMap<CallId, Outcome>,
    /// Ids of this generation, and in which order they came.
    used: BTreeSet<Arc<str>>,
    used_order: VecDeque<Arc<str>>,
    keys: BTreeMap<String, Keyed>,
    keys_order: VecDeque<String>,
    #[serde(default)]
    pub(crate) breaker: Breaker,
}

impl Requester {
    /// The generation of the last id.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Whether an id was used in this generation.
    pub fn has_used(&self, wire: &str) -> bool {
        self.used.contains(wire)
    }

    /// The generation that an id belongs to that comes now.
    pub fn generation_of(&self, wire: &str) -> u32 {
        if self.used.contains(wire) { self.generation + 1 } else { self.generation.max(1) }
    }

    /// Requests that are not over.
    pub fn open(&self) -> &BTreeMap<CallId, Asked> {
        &self.open
    }

    /// Results that were not received, in the order in which they were asked for.
    pub fn results(&self) -> &BTreeMap<CallId, Outcome> {
        &self.results
    }

    /// Whether people are asked about its requests.
    pub fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// The request that a key named.
    pub fn keyed(&self, key: &str) -> Option<&Keyed> {
        self.keys.get(key)
    }

    pub(crate) fn requested(&mut self, call: CallId, asked: Asked) {
        if asked.generation > self.generation {
            self.generation = asked.generation;
            self.used.clear();
            self.used_order.clear();
        }
        if self.used.insert(Arc::clone(&asked.wire)) {
            self.used_order.push_back(Arc::clone(&asked.wire));
        }
        if self.used_order.len() > REMEMBERED
            && let Some(oldest) = self.used_order.pop_front()
        {
            self.used.remove(&oldest);
        }
        if let Some(key) = &asked.key {
            self.keys.insert(key.clone(), Keyed { call, asks: asked.asks, gate: asked.gate, over: None });
            self.keys_order.push_back(key.clone());
            if self.keys_order.len() > REMEMBERED
                && let Some(oldest) = self.keys_order.pop_front()
            {
                self.keys.remove(&oldest);
            }
        }
        self.open.insert(call, asked);
    }

    pub(crate) fn ended(&mut self, call: CallId, end: End, lsn: Lsn, wanted: Lsn) {
        let Some(asked) = self.open.remove(&call) else { return };
        if let Some(keyed) =
            asked.key.as_ref().and_then(|key| self.keys.get_mut(key)).filter(|keyed| keyed.call == call)
        {
            keyed.over = Some((end, lsn));
        }
        self.results.insert(call, Outcome { asked, end, lsn, wanted });
        // An agent that never fetches anything costs a bounded amount; what is forgotten here is still in the log.
        if self.results.len() > REMEMBERED {
            self.results.pop_first();
        }
    }

    /// The gate that decides a request, or did, for as long as anything of it is remembered.
    pub fn gate_of(&self, call: CallId) -> Option<GateId> {
        let asked = self.open.get(&call).or_else(|| self.results.get(&call).map(|result| &result.asked));
        asked.and_then(|asked| asked.gate).or_else(|| self.keys.values().find(|keyed| keyed.call == call)?.gate)
    }

    pub(crate) fn gated(&mut self, call: CallId, gate: GateId) {
        let Some(asked) = self.open.get_mut(&call) else { return };
        asked.gate = Some(gate);
        if let Some(keyed) = asked.key.as_ref().and_then(|key| self.keys.get_mut(key)) {
            keyed.gate = Some(gate);
        }
    }

    pub(crate) fn received(&mut self, call: CallId) {
        self.results.remove(&call);
    }
}
