//! Content that decisions need: of gates that wait and of calls that have not ended.
//!
//! It is kept next to the state and is not part of it: it comes from the command that caused it, or from the log before
//! recovery.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

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

    /// Takes contents from the log, before recovery: all that are wanted, or some of them.
    pub(crate) fn admit_parsed(&mut self, state: &State, parsed: ParsedContents) {
        let mut asked = BTreeSet::new();
        for content in parsed.0 {
            match content {
                ParsedContent::Call(call, details) => {
                    self.calls.insert(call, details);
                }
                ParsedContent::Gate(gate, call, shown) => {
                    self.gates.insert(gate, shown);
                    if let Some(call) = call {
                        self.answers.entry(call).or_default().push(gate);
                        asked.insert(call);
                    }
                }
                ParsedContent::Answer(gate, text) => {
                    self.answer_texts.insert(gate, text);
                }
            }
        }
        for call in asked {
            // Ids of one millisecond have no order of their own; positions in the log do.
            let gates = self.answers.entry(call).or_default();
            gates.sort_unstable_by_key(|gate| state.gate(*gate).map(Gate::content_lsn));
        }
    }
}

/// Contents that settling needs: of pending gates, and of calls that have not ended with their gates and answers.
#[derive(Clone, Debug)]
pub struct WantedContents {
    /// In the order of the log.
    users: Arc<[(Lsn, ContentUser)]>,
}

/// What a content belongs to.
#[derive(Clone, Copy, Debug)]
enum ContentUser {
    Call(CallId),
    /// The question of a gate, with the call that opened it.
    Gate(GateId, Option<CallId>),
    Answer(GateId),
}

/// Wanted contents that were read from the log, some or all of them.
#[derive(Debug)]
pub struct ParsedContents(Vec<ParsedContent>);

#[derive(Debug)]
enum ParsedContent {
    Call(CallId, Arc<call::CallDetails>),
    Gate(GateId, Option<CallId>, Arc<gate::GateContent>),
    Answer(GateId, Arc<str>),
}

impl WantedContents {
    pub(crate) fn from_state(state: &State) -> Self {
        let calls = state.calls().filter(|call| !call.is_over());
        let mut users: Vec<_> = calls.map(|call| (call.content_lsn(), ContentUser::Call(call.id()))).collect();
        for gate in state.all_gates().filter(|gate| gate.is_pending() || state.is_awaited(gate)) {
            users.push((gate.content_lsn(), ContentUser::Gate(gate.id(), gate.call())));
            users.extend(gate.answer_content().map(|lsn| (lsn, ContentUser::Answer(gate.id()))));
        }
        users.sort_by_key(|(lsn, _)| *lsn);
        Self { users: users.into() }
    }

    /// Returns the positions, each once and in their order.
    pub fn lsns(&self) -> Vec<Lsn> {
        let mut lsns: Vec<Lsn> = self.users.iter().map(|(lsn, _)| *lsn).collect();
        lsns.dedup();
        lsns
    }

    /// Parses contents of the log, each with its position. Those that are not wanted are skipped.
    ///
    /// # Errors
    /// The position of the first content that does not match its record, and the JSON error.
    pub fn parse_contents<T: AsRef<str>>(
        &self,
        contents: impl IntoIterator<Item = (Lsn, T)>,
    ) -> Result<ParsedContents, (Lsn, serde_json::Error)> {
        let mut parsed = Vec::new();
        for (lsn, content) in contents {
            let content = content.as_ref();
            let first = self.users.partition_point(|(at, _)| *at < lsn);
            for (_, user) in self.users[first..].iter().take_while(|(at, _)| *at == lsn) {
                let refused = |error| (lsn, error);
                parsed.push(match user {
                    ContentUser::Call(call) => {
                        ParsedContent::Call(*call, Arc::new(serde_json::from_str(content).map_err(refused)?))
                    }
                    ContentUser::Gate(gate, call) => {
                        ParsedContent::Gate(*gate, *call, Arc::new(serde_json::from_str(content).map_err(refused)?))
                    }
                    ContentUser::Answer(gate) => ParsedContent::Answer(*gate, content.into()),
                });
            }
        }
        Ok(ParsedContents(parsed))
    }
}

#[cfg(test)]
mod tests {
    use super::{AdmittedContent, WantedContents};
    use crate::{
        decision::{Event, FactMeta, State},
        digest::Digest,
        gate::{self, Fallback, Kind},
        id::{CallId, GateId, Lsn},
        time::Millis,
    };

    fn opened(number: u64, call: Option<CallId>) -> Event {
        Event::Gate(gate::Event::Opened {
            gate: GateId::new(uuid::Uuid::from_u128(number.into())),
            kind: Kind::Approval,
            ordinal: 0,
            number: 0,
            stage: None,
            run: None,
            call,
            subject: Digest::hash_bytes(b""),
            scopes: Vec::new(),
            deadline: None,
            fallback: Fallback::Deny,
            remind_at: None,
            steps: Vec::new(),
        })
    }

    fn apply_at(state: &mut State, lsn: u64, event: &Event) {
        state.apply(event, &FactMeta { lsn: Lsn(lsn), at: Millis(1), session: None });
    }

    #[test]
    fn each_content_is_wanted_once_and_taken_in_any_parts() {
        let text = r#"{"kind":"approval","tool":"t","arguments":{},"signature":"t()","why":"w"}"#;
        for (count, part) in [(10, 3), (1_000, 100), (100_000, 256)] {
            let mut state = State::default();
            (1..=count).for_each(|number| apply_at(&mut state, number, &opened(number, None)));
            let wanted = WantedContents::from_state(&state);
            let lsns = wanted.lsns();
            assert_eq!(lsns, (1..=count).map(Lsn).collect::<Vec<_>>());
            let mut admitted = AdmittedContent::default();
            for part in lsns.chunks(part) {
                let parsed = wanted.parse_contents(part.iter().map(|lsn| (*lsn, text))).unwrap();
                admitted.admit_parsed(&state, parsed);
            }
            assert_eq!(admitted.gates.len(), lsns.len());
        }
    }

    #[test]
    fn gates_of_one_call_are_in_the_order_of_the_log() {
        let call = CallId::new(uuid::Uuid::from_u128(7));
        let text = r#"{"kind":"approval","tool":"t","arguments":{},"signature":"t()","why":"w"}"#;
        let mut state = State::default();
        for (lsn, number) in [(1, 3), (2, 1), (3, 2)] {
            apply_at(&mut state, lsn, &opened(number, Some(call)));
        }
        let wanted = WantedContents::from_state(&state);
        let mut admitted = AdmittedContent::default();
        for lsn in [3, 1, 2] {
            admitted.admit_parsed(&state, wanted.parse_contents([(Lsn(lsn), text)]).unwrap());
        }
        let gates = [3, 1, 2].map(|number| GateId::new(uuid::Uuid::from_u128(number)));
        assert_eq!(admitted.gates_of(call), gates);
    }

    #[test]
    fn a_content_that_does_not_match_is_named() {
        let mut state = State::default();
        apply_at(&mut state, 1, &opened(1, None));
        let wanted = WantedContents::from_state(&state);
        let refused = wanted.parse_contents([(Lsn(9), "{"), (Lsn(1), "{")]);
        assert_eq!(refused.map_err(|(lsn, _)| lsn).err(), Some(Lsn(1)), "nothing is wanted at 9");
    }
}
