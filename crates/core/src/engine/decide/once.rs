//! What is asked for under a key happens once.

use crate::{
    decision::{CommandError, DecisionContext, DecisionResult, DecisionView, EngineReply, Event, Fact},
    id::SessionId,
    session::{CameTo, Command, Event as Happened, Key},
};

/// How long a key may be, in bytes.
const LONGEST_KEY: usize = 512;

pub(super) fn once(
    view: DecisionView<'_>,
    id: SessionId,
    key: Key,
    command: Command,
    context: &mut DecisionContext,
) -> Result<DecisionResult, CommandError> {
    if key.name.len() > LONGEST_KEY {
        return Err(CommandError::TooLong { what: "a key", limit: LONGEST_KEY });
    }
    if let Some(known) = view.state.session(&id).and_then(|session| session.keys().get(&key.name)) {
        if known.asks != key.asks {
            return Err(CommandError::KeyTaken(key.name));
        }
        return Ok(DecisionResult { facts: Vec::new(), reply: reply(known.came_to) });
    }
    let opens = matches!(command, Command::Open { .. });
    let DecisionResult { mut facts, reply } = super::decide_session(view, id.clone(), command, context)?;
    let came_to = match reply {
        EngineReply::Done if opens => CameTo::Opened,
        EngineReply::Started(run) => CameTo::Started(run),
        EngineReply::Queued => CameTo::Queued,
        EngineReply::BehindCompaction(run) => CameTo::Behind(run),
        EngineReply::Steering(run) => CameTo::Steering(run),
        // Nothing happened that could happen twice.
        EngineReply::Idle => return Ok(DecisionResult { facts, reply }),
        _ => return Err(CommandError::OutOfPlace("only opening and what is said are known by a key")),
    };
    let keyed = Happened::Keyed { name: key.name, asks: key.asks, came_to };
    facts.push(Fact::without_content(Event::Session(keyed), Some(id)));
    Ok(DecisionResult { facts, reply })
}

const fn reply(came_to: CameTo) -> EngineReply {
    match came_to {
        CameTo::Opened => EngineReply::Done,
        CameTo::Started(run) => EngineReply::Started(run),
        CameTo::Queued => EngineReply::Queued,
        CameTo::Behind(run) => EngineReply::BehindCompaction(run),
        CameTo::Steering(run) => EngineReply::Steering(run),
    }
}
