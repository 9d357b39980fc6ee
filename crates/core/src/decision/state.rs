//! All decisions so far, folded from facts.

mod equality;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    event::{Event, FactMeta},
    gate_index::GateIndex,
    meters,
};
use crate::{
    call::{self, Call},
    channel,
    gate::{self, Gate},
    id::{CallId, GateId, Lsn, PeerId, RunId, SessionId},
    peer::{self, PeerLine, PeerMemory, PresentPeer},
    policy,
    run::{self, Run},
    schedule,
    session::{self, BreakerAnswer, RequestRecord, Session},
    settings,
    time::Millis,
    unattended::UnattendedContract,
};

/// All machines. They meet in the settle rules and in the deciders, and nowhere else.
///
/// Two states are equal if their decisions are: it makes no difference whether parts that only the log must keep are
/// loaded.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub(super) head: Lsn,
    pub(super) at: Millis,
    pub(super) boot: u32,
    pub(super) sessions: BTreeMap<SessionId, Session>,
    pub(super) runs: BTreeMap<RunId, Run>,
    pub(super) calls: BTreeMap<CallId, Call>,
    pub(super) gates: GateIndex,
    pub(super) policy: policy::State,
    pub(super) settings: settings::State,
    /// Connections of peers that have one.
    pub(super) peers: BTreeMap<PeerId, PresentPeer>,
    pub(super) channels: channel::State,
    pub(super) schedule: schedule::State,
    /// Sessions whose context is being compacted.
    pub(super) compacting: BTreeSet<SessionId>,
    /// Loaded sessions that have a contract.
    pub(super) contracted: BTreeSet<SessionId>,
    /// Pending gates by the position at which they were opened, which is their age.
    pub(super) pending: BTreeMap<Lsn, GateId>,
    /// Pending gates by deadline, and waiting runs by the time at which they continue.
    pub(super) gate_deadlines: BTreeSet<(Millis, GateId)>,
    pub(super) backoffs: BTreeSet<(Millis, RunId)>,
    /// Calls that wait for their peer, by the time at which the wait ends.
    pub(super) awaiting_peers: BTreeSet<(Millis, CallId)>,
    /// The last gate of each call whose turn is open.
    pub(super) gate_of: BTreeMap<CallId, GateId>,
    /// Resolved gates by time.
    pub(super) resolved: BTreeSet<(Millis, GateId)>,
    /// True if anything was ever unloaded, so that parts may be in the log and not loaded.
    pub(super) is_partial: bool,
}

impl State {
    /// Returns the position of the last fact.
    pub fn head_lsn(&self) -> Lsn {
        self.head
    }

    /// Returns the time of the last fact.
    pub fn last_fact_at(&self) -> Millis {
        self.at
    }

    /// Returns the number of processes that have worked with this log.
    pub fn boot_count(&self) -> u32 {
        self.boot
    }

    /// Returns a session.
    pub fn session(&self, id: &SessionId) -> Option<&Session> {
        self.sessions.get(id)
    }

    /// Returns all sessions by id.
    pub fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.sessions.values()
    }

    /// Returns the sessions whose context is being compacted.
    pub(crate) fn compacting_sessions(&self) -> impl Iterator<Item = &Session> {
        self.compacting.iter().filter_map(|id| self.sessions.get(id))
    }

    /// Returns a run, until it ends.
    pub fn run(&self, id: RunId) -> Option<&Run> {
        self.runs.get(&id)
    }

    /// Returns all runs that have not ended.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.values()
    }

    /// Returns a call, until its turn is closed.
    pub fn call(&self, id: CallId) -> Option<&Call> {
        self.calls.get(&id)
    }

    /// Returns all calls whose turn is open.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.calls.values()
    }

    /// Returns a gate, until some time after it was resolved.
    pub fn gate(&self, id: GateId) -> Option<&Gate> {
        self.gates.get(&id)
    }

    /// Returns all pending gates, oldest first.
    pub fn pending_gates(&self) -> impl Iterator<Item = &Gate> {
        self.pending.values().filter_map(|gate| self.gates.get(gate))
    }

    /// Returns the gate that a call waits for.
    pub fn gate_of(&self, call: CallId) -> Option<&Gate> {
        self.gate_of.get(&call).and_then(|gate| self.gates.get(gate))
    }

    /// Returns the connection over which a peer can be sent work, if it has one.
    pub fn line_of(&self, peer: &PeerId) -> Option<PeerLine> {
        self.peers.get(peer).map(|present| present.line)
    }

    /// Reports whether a connected peer can report on calls of its earlier connections.
    pub(crate) fn memory_of(&self, peer: &PeerId) -> PeerMemory {
        self.peers.get(peer).map(|present| present.memory).unwrap_or_default()
    }

    /// Returns the sessions in which a call waits for its turn at a peer, or for its report.
    pub(crate) fn waiting_for<'a>(&'a self, peer: &'a PeerId) -> impl Iterator<Item = &'a SessionId> {
        let waits = move |call: &&Call| call.peer() == Some(peer) && (call.is_before_start() || call.may_be_asked());
        self.calls.values().filter(waits).map(Call::session)
    }

    /// Returns the state of chat networks.
    pub fn channels(&self) -> &channel::State {
        &self.channels
    }

    /// Returns the state of jobs.
    pub fn schedule(&self) -> &schedule::State {
        &self.schedule
    }

    /// Returns the state of policy: rules, grants and constraints.
    pub fn policy(&self) -> &policy::State {
        &self.policy
    }

    /// Returns the settings that people changed while the gateway ran.
    pub fn settings(&self) -> &settings::State {
        &self.settings
    }

    /// Returns the number of the next gate of a session.
    pub(crate) fn next_ordinal(&self, session: &SessionId) -> u32 {
        self.sessions.get(session).map_or(0, |session| session.gates) + 1
    }

    /// Returns the next instant at which a deadline passes.
    pub fn next_deadline(&self) -> Option<Millis> {
        let gate = self.gate_deadlines.first().map(|(at, _)| *at);
        let run = self.backoffs.first().map(|(at, _)| *at);
        let call = self.awaiting_peers.first().map(|(at, _)| *at);
        let wall = self.contract_deadlines().map(|(at, _)| at).min();
        [gate, run, call, wall, self.schedule.next_due()].into_iter().flatten().min()
    }

    /// Returns the sessions in which a deadline has passed at `now`.
    pub(crate) fn sessions_due(&self, now: Millis) -> BTreeSet<SessionId> {
        let gates = self.gate_deadlines.iter().take_while(|(at, _)| *at <= now);
        let gates = gates.filter_map(|(_, gate)| self.gates.get(gate)?.session().cloned());
        let runs = self.backoffs.iter().take_while(|(at, _)| *at <= now);
        let runs = runs.filter_map(|(_, run)| Some(self.runs.get(run)?.session().clone()));
        let calls = self.awaiting_peers.iter().take_while(|(at, _)| *at <= now);
        let calls = calls.filter_map(|(_, call)| Some(self.calls.get(call)?.session().clone()));
        let walls = self.contract_deadlines().filter(|(at, _)| *at <= now).map(|(_, session)| session.id().clone());
        gates.chain(runs).chain(calls).chain(walls).collect()
    }

    /// Reports whether the deadline of a pending gate, or the time of its reminder, has come.
    pub(crate) fn is_gate_due(&self, now: Millis) -> bool {
        self.gate_deadlines.first().is_some_and(|(at, _)| *at <= now)
    }

    /// Returns the times at which contracts run out, of those sessions in which something works.
    fn contract_deadlines(&self) -> impl Iterator<Item = (Millis, &Session)> {
        let at_work = self.contracted.iter().filter_map(|id| self.sessions.get(id)).filter(|it| !it.is_at_rest());
        at_work.filter_map(|session| Some((session.unattended()?.deadline()?, session)))
    }

    /// Reports whether the call that opened a gate has not ended, or the wait that it is about.
    pub(crate) fn is_awaited(&self, gate: &Gate) -> bool {
        let run = || gate.run().and_then(|run| self.runs.get(&run));
        match gate.call() {
            Some(call) => self.calls.get(&call).is_some_and(|call| !call.is_over()),
            None => run().is_some_and(|run| run.gate == Some(gate.id())),
        }
    }

    /// Returns the sessions in which a gate waits.
    pub(crate) fn sessions_with_pending_gates(&self) -> BTreeSet<SessionId> {
        self.pending_gates().filter_map(|gate| gate.session().cloned()).collect()
    }

    /// Returns all loaded gates, resolved ones too.
    pub fn all_gates(&self) -> impl Iterator<Item = &Gate> {
        self.gates.values()
    }

    /// Applies a recorded fact. Cannot fail, so replay cannot fail.
    pub(crate) fn apply(&mut self, event: &Event, meta: &FactMeta) {
        self.head = meta.lsn;
        self.at = meta.at;
        // Events of surfaces about a gate are recorded whether or not its session is loaded, so nothing of a session may
        // depend on it.
        let is_of_surfaces = matches!(event, Event::Gate(gate::Event::Shown { .. } | gate::Event::Updated { .. }));
        if let Some(session) = meta.session.as_ref().and_then(|id| self.sessions.get_mut(id))
            && !is_of_surfaces
        {
            session.last_at = meta.at;
        }
        match event {
            Event::Booted => {
                self.boot += 1;
                self.peers.clear();
            }
            Event::Session(event) => self.apply_session(event, meta),
            Event::Run(event) => self.apply_run(event, meta),
            Event::Call(event) => self.apply_call(event, meta),
            Event::Gate(event) => self.apply_gate(event, meta),
            Event::Peer(event) => self.apply_peer(event),
            Event::Channel(event) => self.channels.apply_event(event, meta.lsn, meta.at),
            Event::Policy(event) => self.apply_policy(event),
            Event::Settings(event) => self.settings.apply_event(event),
            Event::Unattended(event) => self.apply_unattended(event, meta),
            Event::Schedule(event) => self.schedule.apply_event(event, meta.session.as_ref(), meta.lsn, meta.at),
        }
    }

    fn apply_peer(&mut self, event: &peer::Event) {
        match event {
            peer::Event::Came { peer, line, memory } => {
                self.peers.insert(peer.clone(), PresentPeer { line: *line, memory: *memory });
                // Calls that waited for the peer now only wait for their turn, which has no deadline.
                let waited = |call: &&mut Call| call.peer() == Some(peer) && call.is_before_start();
                for call in self.calls.values_mut().filter(waited) {
                    if let Some(until) = call.until.take() {
                        self.awaiting_peers.remove(&(until, call.id()));
                    }
                }
            }
            peer::Event::Registered { .. } => {}
            peer::Event::Gone { peer } => drop(self.peers.remove(peer)),
        }
    }

    fn apply_session(&mut self, event: &session::Event, meta: &FactMeta) {
        let Some(id) = &meta.session else { return };
        if let Some(session) = Session::from_opened(id, event, meta.at) {
            self.sessions.entry(id.clone()).or_insert(session);
        } else if let Some(session) = self.sessions.get_mut(id) {
            session.apply_event(event, meta.lsn, meta.at, self.boot);
            // A job, or an event elsewhere, is no input of the person.
            let run = session.run().and_then(|run| self.runs.get(&run));
            if run.is_none_or(|run| run.marks.firing.is_none() && !run.marks.ahead) {
                session.record_message(event, meta.lsn);
            }
            if session.active_compaction().is_some() {
                self.compacting.insert(id.clone());
            } else {
                self.compacting.remove(id);
            }
            meters::meter_session(session, event);
            if let session::Event::CompactionEnded { then, .. } = event
                && *then != session::AfterCompaction::Again
            {
                self.lift_contract(id);
            }
        }
    }

    fn apply_run(&mut self, event: &run::Event, meta: &FactMeta) {
        let id = event.run();
        if let (run::Event::Started { trigger, .. }, Some(session)) = (event, &meta.session) {
            let opened = self.sessions.get_mut(session);
            let interrupt = opened.as_ref().map(|session| session.settings.modes.interrupt).unwrap_or_default();
            self.runs.insert(id, Run::start(id, session.clone(), *trigger, interrupt));
            if let Some(session) = opened {
                session.start_run(id, *trigger);
            }
        }
        let Some(run) = self.runs.get_mut(&id) else { return };
        if let run::RunPhase::Backoff { until } = run.phase() {
            self.backoffs.remove(&(*until, id));
        }
        if matches!(event, run::Event::TurnClosed { .. } | run::Event::Ended { .. }) {
            for call in std::mem::take(&mut run.calls) {
                if let Some(until) = self.calls.remove(&call).and_then(|call| call.until) {
                    self.awaiting_peers.remove(&(until, call));
                }
                self.gate_of.remove(&call);
            }
        }
        run.apply_event(event);
        if let (Some(firing), run::Event::Marked { .. }) = (&run.marks.firing, event) {
            self.schedule.record_run(firing, id);
        }
        if let run::Event::ModelRequested { .. } = event {
            run.asked_at = meta.at;
        }
        if let Some(session) = self.sessions.get_mut(run.session()) {
            meters::meter_run(session, event);
        }
        if let run::RunPhase::Backoff { until } = run.phase() {
            self.backoffs.insert((*until, id));
        }
        if let run::RunPhase::Ended(end) = run.phase() {
            let end = *end;
            if let Some(session) = self.sessions.get_mut(run.session()) {
                session.run = None;
                let words = run.last.as_ref().and_then(|(entry, ..)| session.entry(entry)).map(|entry| entry.content);
                if let Some(firing) = &run.marks.firing {
                    let breach = session.unattended().and_then(UnattendedContract::final_breach);
                    self.schedule.record_run_end(firing, id, (end, words, breach));
                }
            }
            // A request that was too long is repeated under the same contract.
            if end != run::RunOutcome::Overflowed {
                let session = run.session().clone();
                self.lift_contract(&session);
            }
            self.runs.remove(&id);
        }
    }

    fn apply_call(&mut self, event: &call::Event, meta: &FactMeta) {
        let id = event.call();
        if let (Some(session), call::Event::Proposed { run, .. }) = (&meta.session, event)
            && let Some(call) = Call::from_event(event, session.clone(), meta.lsn)
        {
            self.calls.insert(id, call);
            match run.and_then(|run| self.runs.get_mut(&run)) {
                Some(run) => run.calls.push(id),
                None if self.calls[&id].is_request() => {}
                None => {
                    if let Some(session) = self.sessions.get_mut(session) {
                        session.commands.insert(id);
                    }
                }
            }
        }
        if let Some(session) = meta.session.as_ref().and_then(|session| self.sessions.get_mut(session)) {
            match event {
                call::Event::Requested { wire, key, generation, asks, .. } => {
                    let request = RequestRecord {
                        wire: Arc::clone(wire),
                        generation: *generation,
                        key: key.clone(),
                        gate: None,
                        at: meta.at,
                        asks: *asks,
                    };
                    session.requester.get_or_insert_default().record_request(id, request);
                }
                call::Event::Started { .. } => {
                    session.is_shell_used |= self.calls.get(&id).is_some_and(Call::acts_here)
                }
                call::Event::Allowed { by: Some(by), .. } => {
                    session.requester.iter_mut().for_each(|requester| requester.breaker.record_approval(by));
                }
                call::Event::Ended { end: call::CallEnd::Refused, .. } => {
                    let gate = self.gate_of.get(&id).and_then(|gate| self.gates.get(gate));
                    let content = self.calls.get(&id).map(Call::content_lsn);
                    if let Some(((requester, by), content)) =
                        session.requester.as_mut().zip(gate.and_then(Gate::resolved_by)).zip(content)
                    {
                        requester.breaker.record_denial(by.clone(), content, (meta.lsn, meta.at));
                    }
                }
                call::Event::Received { .. } => {
                    if let Some(requester) = &mut session.requester {
                        requester.record_received(id);
                    }
                }
                _ => {}
            }
        }
        let Some(call) = self.calls.get_mut(&id) else { return };
        if let Some(until) = call.until {
            self.awaiting_peers.remove(&(until, id));
        }
        call.apply_event(event, meta.lsn);
        if let Some(until) = call.until {
            self.awaiting_peers.insert((until, id));
        }
        if let Some(session) = self.sessions.get_mut(call.session()) {
            meters::meter_call(session, call, event);
        }
        if let (call::CallPhase::Ended(end), None) = (call.phase(), call.run()) {
            if let Some(session) = self.sessions.get_mut(call.session()) {
                session.commands.remove(&id);
                if let Some(requester) = &mut session.requester {
                    requester.record_end(id, *end, meta.lsn, call.content_lsn());
                }
            }
            self.calls.remove(&id);
            self.gate_of.remove(&id);
        }
    }

    fn apply_policy(&mut self, event: &policy::Event) {
        // The revocation of a denial lets the agent be asked about again. An agent's session has its name.
        if let policy::Event::Lifted { principal, .. } = event
            && let Some(session) = self.sessions.get_mut(&SessionId::new(principal.as_str()))
            && let Some(requester) = &mut session.requester
        {
            requester.breaker.reset();
        }
        self.policy.apply(event);
    }

    fn apply_gate(&mut self, event: &gate::Event, meta: &FactMeta) {
        let id = event.gate();
        if let Some(gate) = Gate::from_opened(event, meta.session.clone(), meta.lsn, meta.at) {
            if let Some(session) = meta.session.as_ref().and_then(|id| self.sessions.get_mut(id)) {
                session.gates = gate.ordinal();
                session.count_gate(&gate);
                let is_contracts = session.unattended().is_some_and(|it| it.gate_ids().any(|gate| gate == id));
                match (session.requester.as_mut().filter(|_| !is_contracts), gate.call()) {
                    (Some(requester), Some(call)) => requester.record_gate(call, id),
                    (Some(requester), None) => requester.breaker.open_question(id),
                    (None, _) => {}
                }
            }
            self.pending.insert(gate.content_lsn(), id);
            if let Some(call) = gate.call() {
                self.gate_of.insert(call, id);
            }
            self.gates.insert(id, gate);
        }
        let Some(gate) = self.gates.get_mut(&id) else { return };
        if let Some(due) = gate.due_at() {
            self.gate_deadlines.remove(&(due, id));
        }
        gate.apply_event(event, meta.lsn, meta.at);
        if let gate::Event::Resolved { decision: Some(decision), .. } = event
            && let Some(session) = meta.session.as_ref().and_then(|id| self.sessions.get_mut(id))
        {
            session.record_decision(gate, *decision, meta.lsn);
        }
        if let (gate::Event::Resolved { resolution, .. }, None) = (event, gate.call())
            && let Some(session) = meta.session.as_ref().and_then(|id| self.sessions.get_mut(id))
            && let Some(requester) = &mut session.requester
        {
            let answered = match resolution {
                gate::GateResolution::Allowed { .. } | gate::GateResolution::Granted => BreakerAnswer::Yes,
                gate::GateResolution::Denied | gate::GateResolution::Declined | gate::GateResolution::Answered => {
                    BreakerAnswer::No
                }
                gate::GateResolution::Expired | gate::GateResolution::Withdrawn => BreakerAnswer::Nothing,
            };
            requester.breaker.record_answer(id, answered, meta.at);
        }
        if let Some(due) = gate.due_at() {
            self.gate_deadlines.insert((due, id));
        }
        if !gate.is_pending() {
            self.pending.remove(&gate.content_lsn());
            self.resolved.insert((meta.at, id));
        }
    }
}
