//! Deciders that stop work: a run, its retries, a person's commands.

use super::find_session;
use crate::{
    call,
    decision::{BranchBuilder, CommandError, DecisionResult, DecisionView, EngineReply, Event, Fact},
    gate::{self, Gate},
    id::{RunId, SessionId},
    run::{AbortState, Event as Happened, RunOutcome, RunPhase},
    session::{self, MessageQueue},
    settle,
    unattended::UnattendedContract,
};

pub(super) fn abort_run(view: DecisionView<'_>, id: &SessionId) -> Result<DecisionResult, CommandError> {
    let session = find_session(view, id)?;
    // A stop of the work also withdraws its pending breaker gates.
    let gates = session
        .unattended()
        .into_iter()
        .flat_map(UnattendedContract::gate_ids)
        .filter_map(|gate| view.state.gate(gate));
    let withdrawn = |gate: &Gate| {
        let (gate, resolution) = (gate.id(), gate::GateResolution::Withdrawn);
        let event = gate::Event::auto_resolved(gate, resolution);
        Fact::without_content(Event::Gate(event), Some(id.clone()))
    };
    let mut facts: Vec<Fact> = gates.filter(|gate| gate.is_pending()).map(withdrawn).collect();
    let Some(run) = session.run().and_then(|run| view.state.run(run)) else {
        // The run that waits for a compaction with a prompt begins after it, and ends. One that would repeat its request does not begin.
        let awaited = session.awaited_run().filter(|_| session.awaited_prompt().is_some());
        let is_followed = |compaction: &session::ActiveCompaction| {
            compaction.then != session::AfterCompaction::Rest || session.behind_compaction().is_some()
        };
        // After such a compaction the agent would continue automatically.
        if session.active_compaction().is_some_and(|compaction| is_followed(compaction) && !compaction.aborting) {
            facts.push(Fact::without_content(Event::Session(session::Event::CompactionAborting), Some(id.clone())));
        }
        let idle = if facts.is_empty() { EngineReply::Idle } else { EngineReply::Done };
        return Ok(DecisionResult { facts, reply: awaited.map_or(idle, EngineReply::Stopping) });
    };
    let event = match (run.phase(), run.abort_state()) {
        (RunPhase::Backoff { .. }, _) => {
            Happened::Ended { run: run.id(), end: RunOutcome::Aborted, attempts: run.attempt }
        }
        (_, AbortState::Requested) => return Ok(DecisionResult { facts, reply: EngineReply::Stopping(run.id()) }),
        (_, AbortState::No) => Happened::Aborting { run: run.id() },
    };
    let mut branch = BranchBuilder::new(session);
    if let Happened::Ended { .. } = event {
        settle::forget_run(&mut branch);
        if let Some(withdrawn) = settle::withdrawn_wait(view, run) {
            branch.push_event(withdrawn);
        }
    }
    branch.push_event(Event::Run(event));
    facts.extend(branch.into_facts());
    Ok(DecisionResult { facts, reply: EngineReply::Stopping(run.id()) })
}

pub(super) fn stop_run(view: DecisionView<'_>, id: &SessionId, run: RunId) -> Result<DecisionResult, CommandError> {
    let session = find_session(view, id)?;
    if session.run() == Some(run) {
        return abort_run(view, id);
    }
    if session.awaited_run() != Some(run) {
        return Ok(DecisionResult { facts: Vec::new(), reply: EngineReply::Idle });
    }
    let is_stopping = session.active_compaction().is_some_and(|compaction| compaction.aborting);
    let aborting = (!is_stopping).then_some(session::Event::CompactionAborting);
    // Its first messages and its steering messages are taken back. Other messages wait for another run.
    let taken_back = [MessageQueue::Prompt, MessageQueue::Steering]
        .into_iter()
        .flat_map(|queue| session.queue(queue).iter().map(move |_| session::Event::Dequeued { queue }));
    let events = taken_back.chain(aborting);
    let facts = events.map(|event| Fact::without_content(Event::Session(event), Some(id.clone()))).collect();
    Ok(DecisionResult { facts, reply: EngineReply::Stopping(run) })
}

pub(super) fn abort_retry(view: DecisionView<'_>, id: &SessionId) -> Result<DecisionResult, CommandError> {
    let session = find_session(view, id)?;
    let run = session.run().and_then(|run| view.state.run(run));
    let Some(run) = run.filter(|run| matches!(run.phase(), RunPhase::Backoff { .. })) else {
        return Ok(DecisionResult { facts: Vec::new(), reply: EngineReply::Idle });
    };
    let event = Happened::Ended { run: run.id(), end: RunOutcome::RetryCancelled, attempts: run.attempt };
    let withdrawn = settle::withdrawn_wait(view, run);
    let facts =
        withdrawn.into_iter().chain([Event::Run(event)]).map(|event| Fact::without_content(event, Some(id.clone())));
    Ok(DecisionResult { facts: facts.collect(), reply: EngineReply::Stopping(run.id()) })
}

pub(super) fn abort_commands(view: DecisionView<'_>, id: &SessionId) -> Result<DecisionResult, CommandError> {
    let session = find_session(view, id)?;
    let calls = session.commands().filter_map(|call| view.state.call(call)).filter(|call| !call.aborting);
    let facts: Vec<Fact> = calls
        .map(|call| Fact::without_content(Event::Call(call::Event::Aborting { call: call.id() }), Some(id.clone())))
        .collect();
    let reply = if facts.is_empty() { EngineReply::Idle } else { EngineReply::Done };
    Ok(DecisionResult { facts, reply })
}
