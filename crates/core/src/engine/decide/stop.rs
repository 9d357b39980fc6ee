//! Deciders that stop work: a run, its retries, a person's commands.

use super::find;
use crate::{
    call,
    engine::{Decision, Event, Fact, Refusal, Reply, View},
    id::SessionId,
    run::{Abort, End, Event as Happened, Phase},
};

pub(super) fn abort(view: View<'_>, id: &SessionId) -> Result<Decision, Refusal> {
    let session = find(view, id)?;
    let Some(run) = session.run().and_then(|run| view.state.run(run)) else {
        return Ok(Decision { facts: Vec::new(), reply: Reply::Idle });
    };
    let event = match (run.phase(), run.abort()) {
        (Phase::Backoff { .. }, _) => Happened::Ended { run: run.id(), end: End::Aborted, attempts: run.attempt },
        (_, Abort::Asked) => return Ok(Decision { facts: Vec::new(), reply: Reply::Stopping(run.id()) }),
        (_, Abort::No) => Happened::Aborting { run: run.id() },
    };
    Ok(Decision { facts: vec![Fact::plain(Event::Run(event), Some(id.clone()))], reply: Reply::Stopping(run.id()) })
}

pub(super) fn abort_retry(view: View<'_>, id: &SessionId) -> Result<Decision, Refusal> {
    let session = find(view, id)?;
    let run = session.run().and_then(|run| view.state.run(run));
    let Some(run) = run.filter(|run| matches!(run.phase(), Phase::Backoff { .. })) else {
        return Ok(Decision { facts: Vec::new(), reply: Reply::Idle });
    };
    let event = Happened::Ended { run: run.id(), end: End::RetryCancelled, attempts: run.attempt };
    Ok(Decision { facts: vec![Fact::plain(Event::Run(event), Some(id.clone()))], reply: Reply::Stopping(run.id()) })
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
