//! What is asked for under a key happens once.

use crate::{
    decision::{Context, Decision, Event, Fact, Refusal, Reply, View},
    id::SessionId,
    session::{CameTo, Command, Event as Happened, Key},
};

/// How long a key may be, in bytes.
const LONGEST_KEY: usize = 512;

pub(super) fn once(
    view: View<'_>,
    id: SessionId,
    key: Key,
    command: Command,
    context: &mut Context,
) -> Result<Decision, Refusal> {
    if key.name.len() > LONGEST_KEY {
        return Err(Refusal::TooLong { what: "a key", limit: LONGEST_KEY });
    }
    if let Some(known) = view.state.session(&id).and_then(|session| session.keys().get(&key.name)) {
        if known.asks != key.asks {
            return Err(Refusal::KeyTaken(key.name));
        }
        return Ok(Decision { facts: Vec::new(), reply: reply(known.came_to) });
    }
    let opens = matches!(command, Command::Open { .. });
    let Decision { mut facts, reply } = super::decide_session(view, id.clone(), command, context)?;
    let came_to = match reply {
        Reply::Done if opens => CameTo::Opened,
        Reply::Started(run) => CameTo::Started(run),
        Reply::Queued => CameTo::Queued,
        Reply::BehindCompaction(run) => CameTo::Behind(run),
        Reply::Steering(run) => CameTo::Steering(run),
        // Nothing happened that could happen twice.
        Reply::Idle => return Ok(Decision { facts, reply }),
        _ => return Err(Refusal::OutOfPlace("only opening and what is said are known by a key")),
    };
    let keyed = Happened::Keyed { name: key.name, asks: key.asks, came_to };
    facts.push(Fact::plain(Event::Session(keyed), Some(id)));
    Ok(Decision { facts, reply })
}

const fn reply(came_to: CameTo) -> Reply {
    match came_to {
        CameTo::Opened => Reply::Done,
        CameTo::Started(run) => Reply::Started(run),
        CameTo::Queued => Reply::Queued,
        CameTo::Behind(run) => Reply::BehindCompaction(run),
        CameTo::Steering(run) => Reply::Steering(run),
    }
}
