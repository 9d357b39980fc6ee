//! Sessions and gates that are loaded, and those that are only in the log. Unloading and fetching them decides nothing.
//!
//! A session in which nothing works or waits, and a gate that was resolved a while ago, need not be in memory. No event
//! of theirs is ever recorded while they are not loaded, so fetched state cannot be stale.

use std::{collections::BTreeMap, time::Duration};

use super::{
    command::Command,
    event::{Event, FactMeta},
    rules::HostedRules,
    state::State,
};
use crate::{
    call, channel,
    gate::{self, Gate},
    id::{GateId, SessionId},
    run, schedule,
    time::Millis,
};

/// Time for which a resolved gate stays loaded, so that later requests for it get its outcome.
const RESOLVED_STAYS: Duration = Duration::from_secs(600);

/// Time for which a resolved gate stays loaded if a surface that showed it does not show its end yet.
const OWED_STAYS: Duration = Duration::from_secs(86_400);

/// Session or gate that may be in the log and not loaded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResidencyScope {
    /// A session with all its entries.
    Session(SessionId),
    /// A resolved gate.
    Gate(GateId),
}

/// Time of the last use of each fetched session.
#[derive(Clone, Debug, Default)]
pub(crate) struct FetchTimes(BTreeMap<SessionId, Millis>);

/// Returns the scope that has to be loaded when `command` is decided.
pub(crate) fn scope_of(command: &Command) -> Option<ResidencyScope> {
    let session = match command {
        Command::Session(session, _)
        | Command::UseRulesFor(session, _)
        | Command::Leave(session)
        | Command::Run(
            run::Command::Abort { session } | run::Command::AbortRetry { session } | run::Command::Stop { session, .. },
        )
        | Command::Call(
            call::Command::Run { session, .. }
            | call::Command::Abort { session }
            | call::Command::Received { session, .. },
        ) => session,
        Command::Unattended(command) => command.session(),
        Command::Channel(channel::Command::Hear(inbound)) => return scope_of(inbound.then.as_ref()?),
        Command::Schedule(schedule::Command::Say { message, .. }) => &message.session,
        Command::Call(call::Command::Request(request)) => &request.session,
        Command::Call(call::Command::Act(act)) => &act.session,
        Command::Gate(command) => return Some(ResidencyScope::Gate(command.gate())),
        // Active work is loaded, and so is all of policy.
        Command::Run(run::Command::Answered { .. } | run::Command::Forgive { .. })
        | Command::Call(call::Command::Ended { .. } | call::Command::Reach { .. })
        | Command::Peer(_)
        | Command::Channel(_)
        | Command::Schedule(_)
        | Command::Recover(_)
        | Command::UseRules(_)
        | Command::EditRules { .. }
        | Command::NoteServerApproval { .. }
        | Command::Settings(_)
        | Command::Tick
        | Command::Extend
        | Command::Adopt(_)
        | Command::Lift { .. }
        | Command::Revoke { .. } => return None,
    };
    Some(ResidencyScope::Session(session.clone()))
}

impl State {
    /// Reports whether `scope` is not loaded and may be in the log.
    pub(crate) fn needs_fetch(&self, scope: &ResidencyScope) -> bool {
        // In this order: a replay asks at each record, and mostly everything is loaded.
        self.is_partial
            && match scope {
                ResidencyScope::Session(id) => !self.sessions.contains_key(id),
                ResidencyScope::Gate(id) => !self.gates.contains_key(id),
            }
    }

    /// Applies the records of `scope`, in order. Other records are skipped.
    pub(crate) fn fetch_records(
        &mut self,
        scope: &ResidencyScope,
        records: impl IntoIterator<Item = (Event, FactMeta)>,
    ) {
        let mut alone = Self::default();
        for (event, meta) in records {
            alone.apply(&event, &meta);
        }
        match scope {
            ResidencyScope::Session(id) => {
                if let Some(session) = alone.sessions.remove(id) {
                    if session.unattended().is_some() {
                        self.contracted.insert(id.clone());
                    }
                    self.sessions.entry(id.clone()).or_insert(session);
                }
            }
            ResidencyScope::Gate(id) => {
                if let Some(gate) = alone.gates.remove(id)
                    && let gate::GatePhase::Resolved { at, .. } = gate.phase()
                {
                    self.resolved.insert((*at, *id));
                    if !self.gates.contains_key(id) {
                        self.gates.insert(*id, gate);
                    }
                }
            }
        }
    }

    /// Unloads gates that were resolved a while before `now`.
    pub(crate) fn evict_gates(&mut self, now: Millis) {
        let old: Vec<_> = self.resolved.iter().copied().take_while(|(at, _)| *at + RESOLVED_STAYS <= now).collect();
        for (at, id) in old {
            let is_needed = |gate: &Gate| self.is_awaited(gate) || gate.owes_update() && at + OWED_STAYS > now;
            if !self.gates.get(&id).is_some_and(is_needed) {
                self.resolved.remove(&(at, id));
                self.is_partial |= self.gates.remove(&id).is_some();
            }
        }
    }

    /// Unloads sessions in which nothing works, waits or has happened for `idle` before `now`, but none of `guests`:
    /// their hosts read them at any time.
    pub(crate) fn park_sessions(
        &mut self,
        now: Millis,
        idle: Duration,
        guests: &HostedRules,
        fetched: &mut FetchTimes,
    ) {
        let before = self.sessions.len();
        self.sessions.retain(|id, session| {
            let last = fetched.0.get(id).map_or(session.last_at, |at| session.last_at.max(*at));
            !session.may_park() || guests.contains_session(id) || last + idle > now
        });
        self.is_partial |= self.sessions.len() < before;
        self.contracted.retain(|id| self.sessions.contains_key(id));
        fetched.0.retain(|id, _| self.sessions.contains_key(id));
    }
}

impl FetchTimes {
    /// Records a use of a fetched session.
    pub(crate) fn note_fetch(&mut self, scope: &ResidencyScope, now: Millis) {
        if let ResidencyScope::Session(id) = scope {
            self.0.insert(id.clone(), now);
        }
    }
}
