//! Deciders that stop work: a run, its retries, a person's commands.

use super::find;
use crate::{
    call,
    decision::{Branch, Decision, Event, Fact, Refusal, Reply, View},
    gate::{self, Gate},
    id::{RunId, SessionId},
    run::{Abort, End, Event as Happened, Phase},
    session::{self, Queue},
    settle,
    unattended::Unattended,
};

pub(super) fn abort(view: View<'_>, id: &SessionId) -> Result<Decision, Refusal> {
    let session = find(view, id)?;
    // Whoever stops what works waits for nobody's leave to go on.
    let gates = session.unattended().into_iter().flat_map(Unattended::gates).filter_map(|gate| view.state.gate(gate));
    let withdrawn = |gate: &Gate| {
        let (gate, resolution) = (gate.id(), gate::Resolution::Withdrawn);
        let event = gate::Event::ended(gate, resolution);
        Fact::plain(Event::Gate(event), Some(id.clone()))
    };
    let mut facts: Vec<Fact> = gates.filter(|gate| gate.is_pending()).map(withdrawn).collect();
    let Some(run) = session.run().and_then(|run| view.state.run(run)) else {
        // The run that waits for a compaction with a prompt begins behind it, and ends. One that would ask again does not begin.
        let awaited = session.awaited_run().filter(|_| session.awaited_prompt().is_some());
        let is_followed = |compaction: &session::Compaction| {
            compaction.then != session::Then::Rest || session.behind_compaction().is_some()
        };
        // Behind such a one the agent would go on by itself.
        if session.compaction().is_some_and(|compaction| is_followed(compaction) && !compaction.aborting) {
            facts.push(Fact::plain(Event::Session(session::Event::CompactionAborting), Some(id.clone())));
        }
        let idle = if facts.is_empty() { Reply::Idle } else { Reply::Done };
        return Ok(Decision { facts, reply: awaited.map_or(idle, Reply::Stopping) });
    };
    let event = match (run.phase(), run.abort()) {
        (Phase::Backoff { .. }, _) => Happened::Ended { run: run.id(), end: End::Aborted, attempts: run.attempt },
        (_, Abort::Asked) => return Ok(Decision { facts, reply: Reply::Stopping(run.id()) }),
        (_, Abort::No) => Happened::Aborting { run: run.id() },
    };
    let mut branch = Branch::new(session);
    if let Happened::Ended { .. } = event {
        settle::forget(&mut branch);
        if let Some(withdrawn) = settle::withdrawn_wait(view, run) {
            branch.push(withdrawn);
        }
    }
    branch.push(Event::Run(event));
    facts.extend(branch.finish());
    Ok(Decision { facts, reply: Reply::Stopping(run.id()) })
}

pub(super) fn stop(view: View<'_>, id: &SessionId, run: RunId) -> Result<Decision, Refusal> {
    let session = find(view, id)?;
    if session.run() == Some(run) {
        return abort(view, id);
    }
    if session.awaited_run() != Some(run) {
        return Ok(Decision { facts: Vec::new(), reply: Reply::Idle });
    }
    let is_stopping = session.compaction().is_some_and(|compaction| compaction.aborting);
    let aborting = (!is_stopping).then_some(session::Event::CompactionAborting);
    // What it would begin with is taken back, and what it was told on its way. Other messages wait for another.
    let taken_back = [Queue::Prompt, Queue::Steering]
        .into_iter()
        .flat_map(|queue| session.queue(queue).iter().map(move |_| session::Event::Dequeued { queue }));
    let events = taken_back.chain(aborting);
    let facts = events.map(|event| Fact::plain(Event::Session(event), Some(id.clone()))).collect();
    Ok(Decision { facts, reply: Reply::Stopping(run) })
}

pub(super) fn abort_retry(view: View<'_>, id: &SessionId) -> Result<Decision, Refusal> {
    let session = find(view, id)?;
    let run = session.run().and_then(|run| view.state.run(run));
    let Some(run) = run.filter(|run| matches!(run.phase(), Phase::Backoff { .. })) else {
        return Ok(Decision { facts: Vec::new(), reply: Reply::Idle });
    };
    let event = Happened::Ended { run: run.id(), end: End::RetryCancelled, attempts: run.attempt };
    let withdrawn = settle::withdrawn_wait(view, run);
    let facts = withdrawn.into_iter().chain([Event::Run(event)]).map(|event| Fact::plain(event, Some(id.clone())));
    Ok(Decision { facts: facts.collect(), reply: Reply::Stopping(run.id()) })
}

pub(super) fn abort_commands(view: View<'_>, id: &SessionId) -> Result<Decision, Refusal> {
    let session = find(view, id)?;
    let calls = session.commands().filter_map(|call| view.state.call(call)).filter(|call| !call.aborting);
    let facts: Vec<Fact> = calls
        .map(|call| Fact::plain(Event::Call(call::Event::Aborting { call: call.id() }), Some(id.clone())))
        .collect();
    let reply = if facts.is_empty() { Reply::Idle } else { Reply::Done };
    Ok(Decision { facts, reply })
}
