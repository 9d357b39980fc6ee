//! Everything that was decided so far, folded from facts.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::event::{Event, Meta};
use crate::{
    call::{self, Call},
    gate::{self, Gate},
    id::{CallId, GateId, Lsn, RunId, SessionId},
    policy,
    run::{self, Run},
    session::{self, Session},
    time::Millis,
};

/// How long a resolved gate stays at hand, so that whoever comes later can be told what became of it.
const RESIDENT: Duration = Duration::from_secs(600);

/// All machines. They meet in the settle rules and in the deciders, and nowhere else.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    head: Lsn,
    at: Millis,
    boot: u32,
    sessions: BTreeMap<SessionId, Session>,
    runs: BTreeMap<RunId, Run>,
    calls: BTreeMap<CallId, Call>,
    gates: BTreeMap<GateId, Gate>,
    policy: policy::State,
    /// How many gates each session has had.
    ordinals: BTreeMap<SessionId, u32>,
    /// Sessions whose context is being compacted.
    compacting: BTreeSet<SessionId>,
    /// Pending gates by deadline, and runs that wait by the time at which they go on.
    gate_deadlines: BTreeSet<(Millis, GateId)>,
    backoffs: BTreeSet<(Millis, RunId)>,
    /// Pending gates by the call that waits for them.
    gate_of: BTreeMap<CallId, GateId>,
    /// Resolved gates by when.
    resolved: BTreeSet<(Millis, GateId)>,
}

impl State {
    /// The position of the last fact.
    pub fn head(&self) -> Lsn {
        self.head
    }

    /// The time of the last fact.
    pub fn at(&self) -> Millis {
        self.at
    }

    /// How many processes have worked with this log.
    pub fn boot(&self) -> u32 {
        self.boot
    }

    /// One session.
    pub fn session(&self, id: &SessionId) -> Option<&Session> {
        self.sessions.get(id)
    }

    /// All sessions by id.
    pub fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.sessions.values()
    }

    /// The sessions whose context is being compacted.
    pub(crate) fn compacting(&self) -> impl Iterator<Item = &Session> {
        self.compacting.iter().filter_map(|id| self.sessions.get(id))
    }

    /// One run, until it ends.
    pub fn run(&self, id: RunId) -> Option<&Run> {
        self.runs.get(&id)
    }

    /// All runs that have not ended.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.values()
    }

    /// One call, until its turn is closed.
    pub fn call(&self, id: CallId) -> Option<&Call> {
        self.calls.get(&id)
    }

    /// All calls whose turn is open.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.calls.values()
    }

    /// One gate, until some time after it was resolved.
    pub fn gate(&self, id: GateId) -> Option<&Gate> {
        self.gates.get(&id)
    }

    /// All gates that wait, oldest first.
    pub fn pending_gates(&self) -> impl Iterator<Item = &Gate> {
        self.gates.values().filter(|gate| gate.is_pending())
    }

    /// The gate that a call waits for.
    pub fn gate_of(&self, call: CallId) -> Option<&Gate> {
        self.gate_of.get(&call).and_then(|gate| self.gates.get(gate))
    }

    /// Rules, grants and constraints.
    pub fn policy(&self) -> &policy::State {
        &self.policy
    }

    /// The number of the next gate of a session.
    pub(crate) fn next_ordinal(&self, session: &SessionId) -> u32 {
        self.ordinals.get(session).map_or(1, |last| last + 1)
    }

    /// The next instant at which a deadline passes.
    pub fn next_deadline(&self) -> Option<Millis> {
        let gate = self.gate_deadlines.first().map(|(at, _)| *at);
        let run = self.backoffs.first().map(|(at, _)| *at);
        [gate, run].into_iter().flatten().min()
    }

    /// The sessions in which a deadline has passed at `now`.
    pub(crate) fn due(&self, now: Millis) -> BTreeSet<SessionId> {
        let gates = self.gate_deadlines.iter().take_while(|(at, _)| *at <= now);
        let gates = gates.filter_map(|(_, gate)| self.gates.get(gate)?.session().cloned());
        let runs = self.backoffs.iter().take_while(|(at, _)| *at <= now);
        gates.chain(runs.filter_map(|(_, run)| Some(self.runs.get(run)?.session().clone()))).collect()
    }

    /// Where the content lies that settling needs: of gates that wait and of calls that have not started.
    pub(crate) fn unsettled_content(&self) -> Vec<Lsn> {
        let calls = self.calls.values().filter(|call| !call.is_over()).map(Call::content);
        let gates = self.gates.values().filter(|gate| gate.is_pending() || self.is_awaited(gate));
        let gates = gates.flat_map(|gate| [Some(gate.content()), gate.answer_content()].into_iter().flatten());
        calls.chain(gates).collect()
    }

    /// Whether the call that opened a gate has not ended.
    fn is_awaited(&self, gate: &Gate) -> bool {
        gate.call().and_then(|call| self.calls.get(&call)).is_some_and(|call| !call.is_over())
    }

    /// All gates at hand, resolved ones too.
    pub(crate) fn all_gates(&self) -> impl Iterator<Item = &Gate> {
        self.gates.values()
    }

    /// Folds a recorded fact in. Cannot fail, so replay cannot fail.
    pub(crate) fn apply(&mut self, event: &Event, meta: &Meta) {
        self.head = meta.lsn;
        self.at = meta.at;
        match event {
            Event::Booted => self.boot += 1,
            Event::Session(event) => self.apply_session(event, meta),
            Event::Run(event) => self.apply_run(event, meta),
            Event::Call(event) => self.apply_call(event, meta),
            Event::Gate(event) => self.apply_gate(event, meta),
            Event::Policy(event) => self.policy.apply(event),
        }
    }

    fn apply_session(&mut self, event: &session::Event, meta: &Meta) {
        let Some(id) = &meta.session else { return };
        if let session::Event::Opened { cwd, name, parent } = event {
            let session = Session::open(id.clone(), cwd.clone(), name.clone(), parent.clone(), meta.at);
            self.sessions.entry(id.clone()).or_insert(session);
        } else if let Some(session) = self.sessions.get_mut(id) {
            session.apply(event, meta.lsn, meta.at, self.boot);
            if session.compaction().is_some() {
                self.compacting.insert(id.clone());
            } else {
                self.compacting.remove(id);
            }
        }
    }

    fn apply_run(&mut self, event: &run::Event, meta: &Meta) {
        let id = event.run();
        if let (run::Event::Started { trigger, .. }, Some(session)) = (event, &meta.session) {
            self.runs.insert(id, Run::start(id, session.clone(), *trigger));
            if let Some(session) = self.sessions.get_mut(session) {
                session.run = Some(id);
            }
        }
        let Some(run) = self.runs.get_mut(&id) else { return };
        if let run::Phase::Backoff { until } = run.phase() {
            self.backoffs.remove(&(*until, id));
        }
        if matches!(event, run::Event::TurnClosed { .. } | run::Event::Ended { .. }) {
            for call in std::mem::take(&mut run.calls) {
                self.calls.remove(&call);
                self.gate_of.remove(&call);
            }
        }
        run.apply(event);
        if let run::Phase::Backoff { until } = run.phase() {
            self.backoffs.insert((*until, id));
        }
        if let run::Phase::Ended(_) = run.phase() {
            if let Some(session) = self.sessions.get_mut(run.session()) {
                session.run = None;
            }
            self.runs.remove(&id);
        }
    }

    fn apply_call(&mut self, event: &call::Event, meta: &Meta) {
        let id = event.call();
        if let (Some(session), call::Event::Wanted { run, .. }) = (&meta.session, event)
            && let Some(call) = Call::want(event, session.clone(), meta.lsn)
        {
            self.calls.insert(id, call);
            match run.and_then(|run| self.runs.get_mut(&run)) {
                Some(run) => run.calls.push(id),
                None => {
                    if let Some(session) = self.sessions.get_mut(session) {
                        session.commands.insert(id);
                    }
                }
            }
        }
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.apply(event);
        if call.is_over() && call.run().is_none() {
            if let Some(session) = self.sessions.get_mut(call.session()) {
                session.commands.remove(&id);
            }
            self.calls.remove(&id);
        }
    }

    fn apply_gate(&mut self, event: &gate::Event, meta: &Meta) {
        let id = event.gate();
        if let Some(gate) = Gate::open(event, meta.session.clone(), meta.lsn, meta.at) {
            if let Some(session) = &meta.session {
                self.ordinals.insert(session.clone(), gate.ordinal());
            }
            if let Some(call) = gate.call() {
                self.gate_of.insert(call, id);
            }
            self.gates.insert(id, gate);
        }
        let Some(gate) = self.gates.get_mut(&id) else { return };
        if let Some(deadline) = gate.deadline() {
            self.gate_deadlines.remove(&(deadline, id));
        }
        gate.apply(event, meta.lsn, meta.at);
        match (gate.is_pending(), gate.deadline()) {
            (true, Some(deadline)) => {
                self.gate_deadlines.insert((deadline, id));
            }
            (true, None) => {}
            (false, _) => {
                self.resolved.insert((meta.at, id));
            }
        }
    }

    /// Forgets gates that were resolved a while before `now`. What is at hand is not part of what was decided.
    pub(crate) fn evict(&mut self, now: Millis) {
        let old: Vec<_> = self.resolved.iter().copied().take_while(|(at, _)| *at + RESIDENT <= now).collect();
        for (at, id) in old {
            if self.gates.get(&id).is_none_or(|gate| !self.is_awaited(gate)) {
                self.resolved.remove(&(at, id));
                self.gates.remove(&id);
            }
        }
    }
}
