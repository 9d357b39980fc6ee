//! The state as one text, so that a restart need not read the whole log. A cache: the log can always rebuild it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::state::State;
use crate::{
    call::Call,
    channel,
    digest::Digest,
    gate::{self, Gate},
    id::{Lsn, PeerId},
    peer::PresentPeer,
    policy::{self, Constraint, Grant},
    run::{Run, RunPhase},
    schedule::{self, Job},
    session::Session,
    settings,
    time::Millis,
};

/// The version of this form and of what facts mean. Another one makes every snapshot worthless, and that is all.
pub const SNAPSHOT_VERSION: u32 = 30;

/// Written form: the machines alone. Indexes are rebuilt.
#[derive(Serialize, Deserialize)]
struct StateSnapshot<S, R, C, G, P, D, T, N, J> {
    head: Lsn,
    at: Millis,
    boot: u32,
    sessions: Vec<S>,
    runs: Vec<R>,
    calls: Vec<C>,
    gates: Vec<G>,
    rules: Option<Digest>,
    grants: Vec<P>,
    constraints: Vec<D>,
    settings: T,
    peers: BTreeMap<PeerId, PresentPeer>,
    channels: N,
    limits: schedule::JobLimits,
    ahead: i64,
    jobs: Vec<J>,
    is_partial: bool,
}

impl State {
    /// Returns the state as text.
    pub(crate) fn to_snapshot(&self) -> String {
        let (limits, ahead, jobs) = self.schedule.to_parts();
        let form = StateSnapshot {
            head: self.head,
            at: self.at,
            boot: self.boot,
            sessions: self.sessions.values().collect(),
            runs: self.runs.values().collect(),
            calls: self.calls.values().collect(),
            gates: self.gates.values().collect(),
            rules: self.policy.digest(),
            grants: self.policy.grants().iter().collect(),
            constraints: self.policy.constraints().iter().collect(),
            settings: &self.settings,
            peers: self.peers.clone(),
            channels: &self.channels,
            limits,
            ahead,
            jobs: jobs.collect(),
            is_partial: self.is_partial,
        };
        serde_json::to_string(&form).expect("state is plain data with text keys")
    }

    /// Reads the text of [`State::to_snapshot`].
    pub(crate) fn from_snapshot(text: &str) -> Result<Self, serde_json::Error> {
        let form: StateSnapshot<Session, Run, Call, Gate, Grant, Constraint, settings::State, channel::State, Job> =
            serde_json::from_str(text)?;
        let mut state = Self {
            head: form.head,
            at: form.at,
            boot: form.boot,
            settings: form.settings,
            peers: form.peers,
            channels: form.channels,
            schedule: schedule::State::from_parts(form.limits, form.ahead, form.jobs),
            is_partial: form.is_partial,
            ..Self::default()
        };
        let compiled = form.rules.map(|digest| policy::Event::Compiled { digest });
        let grants = form.grants.into_iter().map(policy::Event::Granted);
        let constraints = form.constraints.into_iter().map(policy::Event::Constrained);
        for event in compiled.into_iter().chain(grants).chain(constraints) {
            state.policy.apply(&event);
        }
        for mut session in form.sessions {
            session.index();
            if session.active_compaction().is_some() {
                state.compacting.insert(session.id().clone());
            }
            if session.unattended().is_some() {
                state.contracted.insert(session.id().clone());
            }
            state.sessions.insert(session.id().clone(), session);
        }
        for run in form.runs {
            if let RunPhase::Backoff { until } = run.phase() {
                state.backoffs.insert((*until, run.id()));
            }
            state.runs.insert(run.id(), run);
        }
        let waits = |call: &Call| Some((call.until?, call.id()));
        state.awaiting_peers = form.calls.iter().filter_map(waits).collect();
        state.calls = form.calls.into_iter().map(|call| (call.id(), call)).collect();
        // A call may have opened several gates: its last gate is the one that counts.
        let by_age: BTreeMap<Lsn, Gate> = form.gates.into_iter().map(|gate| (gate.content_lsn(), gate)).collect();
        for (opened, gate) in by_age {
            let id = gate.id();
            if let Some(call) = gate.call().filter(|call| state.calls.contains_key(call)) {
                state.gate_of.insert(call, id);
            }
            match gate.phase() {
                gate::GatePhase::Pending => {
                    state.pending.insert(opened, id);
                    state.gate_deadlines.extend(gate.due_at().map(|due| (due, id)));
                }
                gate::GatePhase::Resolved { at, .. } => {
                    state.resolved.insert((*at, id));
                }
            }
            state.gates.insert(id, gate);
        }
        Ok(state)
    }
}
