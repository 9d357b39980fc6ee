//! Invariants of the simulation: while it works, and when everything has come to rest.

use std::collections::BTreeSet;

use countersign_core::{
    OwedWork, call,
    engine::{Command, CommandError, Engine, EngineReply, Event, RecordedFact, State},
    gate::{self, AnswerError},
    id::{CallId, SessionId},
    run,
    session::{MessageQueue, Session},
};

use super::{BatchMishap, SimOwner};
use crate::sim::{audit::LogAudit, hosts, jobs, world::WorkProgress};

impl SimOwner {
    /// Returns the required outcome of an answer, from the log alone.
    pub(super) fn expected_answer(&self, command: &Command) -> Option<Result<gate::GateResolution, AnswerError>> {
        let Command::Gate(gate::Command::Answer { gate: id, answer, key, .. }) = command else { return None };
        let gate = self.engine.state().gate(*id).or_else(|| self.shadow.state().gate(*id));
        let Some(gate) = gate else { return Some(Err(AnswerError::Unknown(*id))) };
        let gate::GatePhase::Resolved { resolution, by, key: first, form, .. } = gate.phase() else { return None };
        let is_a_votes = key.is_some() && gate.votes().iter().any(|vote| vote.key == *key);
        if key.is_some() && key == first || is_a_votes {
            if answer.form_digest().is_some_and(|given| *form != Some(given)) {
                return Some(Err(AnswerError::KeyTaken(*id)));
            }
            return Some(Ok(resolution.clone()));
        }
        Some(Err(AnswerError::AlreadyResolved { gate: *id, resolution: resolution.clone(), by: by.clone() }))
    }

    /// Checks that a process that opened the log now would have the same state, and the same admitted content.
    pub(super) fn same_as_the_log(&mut self) -> Result<(), String> {
        let again = self.log.replay_engine(self.rules.clone())?;
        let live = &self.engine;
        if *again.state() != *live.state() {
            return Err("a replay results in another state".to_owned());
        }
        self.audit.networks.is_all_there(live.state())?;
        if *again.admitted() != *live.admitted() {
            return Err(format!("a replay admits other content: {:?} is not {:?}", again.admitted(), live.admitted()));
        }
        self.world.confirm_done(&self.audit)
    }

    /// Lets everything come to rest: no more requests are made, and open work ends.
    pub(in crate::sim) fn come_to_rest(&mut self) -> Result<(), String> {
        self.push_trace(|| "-- everything comes to rest".to_owned());
        if !self.hosts.is_there {
            let comes = hosts::attach_command(&mut self.rng);
            self.push_request(comes);
        }
        for command in jobs::closing_commands() {
            self.push_request(command);
        }
        for _ in 0..3_000 {
            self.run_batch(64, BatchMishap::None)?;
            let open: Vec<OwedWork> = self
                .jobs
                .iter()
                .filter(|(_, job)| job.doing != WorkProgress::Reported)
                .map(|(work, _)| work.clone())
                .collect();
            for work in &open {
                self.advance_work(work)?;
            }
            if !open.is_empty() || !self.line.is_empty() || self.engine.is_unsettled() {
                continue;
            }
            self.is_at_rest()?;
            let Some(at) = self.engine.state().next_deadline() else { return self.is_done() };
            self.now = self.now.max(at);
        }
        Err("it does not come to rest".to_owned())
    }

    /// Checks that nothing is in flight: every run waits for a person or for a time.
    fn is_at_rest(&self) -> Result<(), String> {
        let state = self.engine.state();
        for run in state.runs() {
            let waits_for_person =
                run.calls().iter().any(|call| state.gate_of(*call).is_some_and(gate::Gate::is_pending));
            let waits_for_peer = run.calls().iter().any(|call| self.waits_for_peer(*call));
            let contract = state.session(run.session()).and_then(Session::unattended);
            let is_pending = |gate| state.gate(gate).is_some_and(gate::Gate::is_pending);
            let waits_for_more = contract.is_some_and(|contract| contract.gate_ids().any(is_pending));
            let waits = match run.phase() {
                run::RunPhase::Calling => waits_for_person || waits_for_peer || waits_for_more,
                run::RunPhase::Opening => waits_for_more,
                run::RunPhase::Backoff { .. } => true,
                run::RunPhase::Thinking { .. } | run::RunPhase::Between | run::RunPhase::Ended(_) => false,
            };
            if !waits {
                return Err(format!("{} has no work and waits for nothing: {run:?}", run.id()));
            }
        }
        for call in state.calls().filter(|call| call.run().is_none()) {
            if !state.gate_of(call.id()).is_some_and(gate::Gate::is_pending) {
                return Err(format!("a request has no work and waits for nothing: {call:?}"));
            }
        }
        match state
            .sessions()
            .find(|session| session.active_compaction().is_some() || session.commands().next().is_some())
        {
            Some(session) => Err(format!("work in {} does not end", session.id())),
            None => Ok(()),
        }
    }

    fn waits_for_peer(&self, call: CallId) -> bool {
        let state = self.engine.state();
        let Some(call) = state.call(call) else { return false };
        let is_away = call.peer().is_some_and(|peer| state.line_of(peer).is_none());
        // A peer that is back without a journal does not know the outcome.
        call.is_before_start() && is_away || call.may_be_asked()
    }

    fn is_done(&mut self) -> Result<(), String> {
        if let Some(call) = self.engine.state().calls().next() {
            return Err(format!("{} is open at the end and waits for no deadline", call.id()));
        }
        if let Some(run) = self.engine.state().runs().next() {
            return Err(format!("{} is open at the end and waits for no deadline", run.id()));
        }
        if let Some(job) = self.audit.jobs.is_open() {
            return Err(format!("a firing of {job} does not end"));
        }
        if !self.open.is_empty() {
            return Err(format!("{} requests have no reply", self.open.len()));
        }
        self.audit.networks.is_all_there(self.engine.state())?;
        // A session of a host waits for it after every restart.
        let goes_on = |id: &SessionId| id.as_str() != hosts::SESSION || self.audit.boot_number() == 1;
        if !self.has_waited && self.audit.waiting_messages(MessageQueue::Prompt, goes_on) > 0 {
            return Err("an accepted prompt is lost".to_owned());
        }
        self.same_as_the_log()
    }
}

/// Checks that no call starts in the batch that holds the decision of its gate.
pub(super) fn starts_behind_its_decision(batch: &[RecordedFact], audit: &LogAudit) -> Result<(), String> {
    let mut let_through = BTreeSet::new();
    for recorded in batch {
        match &recorded.fact.event {
            Event::Call(call::Event::Allowed { call, .. }) if audit.was_gated(*call) => {
                let_through.insert(*call);
            }
            Event::Call(call::Event::Started { call, .. }) if let_through.contains(call) => {
                return Err(format!("{call} starts in the batch that lets it through"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks that the rules in force are those of the log.
pub(super) fn rules_are_recorded(engine: &Engine) -> Result<(), String> {
    let recorded = engine.state().policy().digest();
    let is_so = recorded.is_none_or(|recorded| recorded == engine.rules().digest());
    if is_so { Ok(()) } else { Err("the rules in force are not in the log".to_owned()) }
}

/// Checks that an error about an earlier approver is backed by the log.
pub(super) fn refusal_is_so(refusal: Option<&CommandError>, durable: &State) -> Result<(), String> {
    if let Some(CommandError::Answer(AnswerError::KeyTaken(gate))) = refusal {
        let waits = durable.gate(*gate).is_none_or(gate::Gate::is_pending);
        return if waits {
            Err(format!("a key is refused as that of an answer to {gate}, which is pending in the log"))
        } else {
            Ok(())
        };
    }
    let Some(CommandError::Answer(AnswerError::AlreadyResolved { gate, resolution, .. })) = refusal else {
        return Ok(());
    };
    let recorded = durable.gate(*gate).and_then(gate::Gate::resolution);
    if recorded == Some(resolution) {
        return Ok(());
    }
    Err(format!("an answer is refused because {gate} was resolved with {resolution:?}, but the log has {recorded:?}"))
}

fn is_answer(recorded: &RecordedFact) -> bool {
    matches!(recorded.fact.event, Event::Gate(gate::Event::Resolved { by: Some(_), .. }))
}

/// Checks the outcome of an answer.
pub(super) fn check_answer(
    expected: &Option<Result<gate::GateResolution, AnswerError>>,
    outcome: &Result<(Vec<RecordedFact>, EngineReply), CommandError>,
) -> Result<(), String> {
    let holds = match (expected, outcome) {
        (None, _) => true,
        // The rest of an earlier batch may come with it, but nothing of the answer's own.
        (Some(Ok(resolution)), Ok((facts, EngineReply::Resolved(got)))) => {
            !facts.iter().any(is_answer) && got == resolution
        }
        (Some(Err(refusal)), Err(CommandError::Answer(got))) => got == refusal,
        (Some(_), _) => false,
    };
    if holds { Ok(()) } else { Err(format!("a late answer returned {outcome:?}, expected {expected:?}")) }
}
