//! Content that decisions need: of gates that wait and of calls that have not ended.
//!
//! It is kept next to the state and is not part of it: it comes from the command that caused it, or from the log before
//! recovery.

use std::{collections::BTreeMap, sync::Arc};

use super::{event::Event, state::State};
use crate::{
    call,
    gate::{self, Gate},
    id::{CallId, GateId, Lsn},
    run,
};

/// Content that settling may read in addition to the state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdmittedContent {
    calls: BTreeMap<CallId, Arc<call::CallDetails>>,
    gates: BTreeMap<GateId, Arc<gate::GateContent>>,
    /// Answers to the questions of a call that has not ended, in the order of the questions.
    answers: BTreeMap<CallId, Vec<GateId>>,
    answer_texts: BTreeMap<GateId, Arc<str>>,
}

impl AdmittedContent {
    /// Returns the content of a call, word for word.
    pub fn call_content(&self, id: CallId) -> Option<&Arc<call::CallDetails>> {
        self.calls.get(&id)
    }

    /// Returns the content of a gate, word for word.
    pub fn gate_content(&self, id: GateId) -> Option<&Arc<gate::GateContent>> {
        self.gates.get(&id)
    }

    /// Returns the content of the answer to a gate, while the call that asked has not ended.
    pub fn answer_text(&self, gate: GateId) -> Option<&Arc<str>> {
        self.answer_texts.get(&gate)
    }

    /// Returns the gates that a call has opened, in order.
    pub fn gates_of(&self, call: CallId) -> &[GateId] {
        self.answers.get(&call).map_or(&[], Vec::as_slice)
    }

    /// Takes the content of a fact that was just decided.
    pub(crate) fn admit_content(&mut self, event: &Event, content: &Arc<str>) {
        match event {
            Event::Call(call::Event::Proposed { call, .. }) => {
                if let Ok(content) = serde_json::from_str(content) {
                    self.calls.insert(*call, Arc::new(content));
                }
            }
            Event::Gate(gate::Event::Opened { gate, call, .. }) => {
                if let Ok(content) = serde_json::from_str(content) {
                    self.gates.insert(*gate, Arc::new(content));
                    if let Some(call) = call {
                        self.answers.entry(*call).or_default().push(*gate);
                    }
                }
            }
            Event::Gate(gate::Event::Resolved { gate, .. }) => {
                if self.gates.contains_key(gate) {
                    self.answer_texts.insert(*gate, Arc::clone(content));
                }
            }
            Event::Gate(
                gate::Event::Extended { .. }
                | gate::Event::Voted { .. }
                | gate::Event::Escalated { .. }
                | gate::Event::Reminded { .. }
                | gate::Event::Shown { .. }
                | gate::Event::Updated { .. },
            )
            | Event::Booted
            | Event::Session(_)
            | Event::Run(_)
            | Event::Call(_)
            | Event::Peer(_)
            | Event::Channel(_)
            | Event::Policy(_)
            | Event::Settings(_)
            | Event::Unattended(_)
            | Event::Schedule(_) => {}
        }
    }

    /// Drops content that is not needed after `event`.
    pub(crate) fn forget_after(&mut self, state: &State, event: &Event) {
        if let Event::Gate(gate::Event::Resolved { gate, .. }) = event
            && state.gate(*gate).is_some_and(|gate| gate.call().is_none() && !state.is_awaited(gate))
        {
            self.gates.remove(gate);
        }
        if let Event::Run(run::Event::Resumed { run } | run::Event::Ended { run, .. }) = event
            && let Some(gate) = state.run(*run).and_then(|run| run.gate)
        {
            self.gates.remove(&gate);
            self.answer_texts.remove(&gate);
        }
        if let Event::Call(call::Event::Ended { call, .. }) = event {
            self.calls.remove(call);
            for gate in self.answers.remove(call).unwrap_or_default() {
                self.gates.remove(&gate);
                self.answer_texts.remove(&gate);
            }
        }
    }

    /// Drops the content of gates that `state` has dropped.
    pub(crate) fn forget_gates(&mut self, state: &State) {
        self.gates.retain(|gate, _| state.gate(*gate).is_some());
        self.answer_texts.retain(|gate, _| state.gate(*gate).is_some());
    }

    /// Takes contents from the log, before recovery.
    ///
    /// # Errors
    /// The position of the first content that does not match its record, and the cause.
    pub(crate) fn restore_content<T: AsRef<str>>(
        &mut self,
        state: &State,
        contents: impl IntoIterator<Item = (Lsn, T)>,
    ) -> Result<(), (Lsn, serde_json::Error)> {
        let places = ContentPositions::from_state(state);
        for (lsn, content) in contents {
            let content = content.as_ref();
            for call in places.calls.get(&lsn).into_iter().flatten() {
                self.calls.insert(*call, Arc::new(serde_json::from_str(content).map_err(|error| (lsn, error))?));
            }
            for gate in places.gates.get(&lsn).into_iter().flatten() {
                let shown = serde_json::from_str(content).map_err(|error| (lsn, error))?;
                self.gates.insert(gate.id(), Arc::new(shown));
                if let Some(call) = gate.call() {
                    self.answers.entry(call).or_default().push(gate.id());
                }
            }
            for gate in places.answers.get(&lsn).into_iter().flatten() {
                self.answer_texts.insert(*gate, content.into());
            }
        }
        for gates in self.answers.values_mut() {
            // Ids of one millisecond have no order of their own; positions in the log do.
            gates.sort_unstable_by_key(|gate| state.gate(*gate).map(Gate::content_lsn));
        }
        Ok(())
    }
}

/// Positions of contents in the log.
#[derive(Default)]
struct ContentPositions<'a> {
    calls: BTreeMap<Lsn, Vec<CallId>>,
    gates: BTreeMap<Lsn, Vec<&'a Gate>>,
    answers: BTreeMap<Lsn, Vec<GateId>>,
}

impl<'a> ContentPositions<'a> {
    fn from_state(state: &'a State) -> Self {
        let mut places = Self::default();
        for call in state.calls().filter(|call| !call.is_over()) {
            places.calls.entry(call.content_lsn()).or_default().push(call.id());
        }
        for gate in state.all_gates() {
            places.gates.entry(gate.content_lsn()).or_default().push(gate);
            if let Some(answer) = gate.answer_content() {
                places.answers.entry(answer).or_default().push(gate.id());
            }
        }
        places
    }
}
