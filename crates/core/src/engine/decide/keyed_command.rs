//! Commands with an idempotency key, which are executed once.

use crate::{
    decision::{CommandError, DecisionContext, DecisionResult, DecisionView, EngineReply, Event, Fact},
    id::SessionId,
    session::{Command, Event as Happened, IdempotencyKey, KeyedOutcome},
};

/// Maximum length of a key, in bytes.
const LONGEST_KEY: usize = 512;

pub(super) fn run_once(
    view: DecisionView<'_>,
    id: SessionId,
    key: IdempotencyKey,
    command: Command,
    context: &mut DecisionContext,
) -> Result<DecisionResult, CommandError> {
    if key.name.len() > LONGEST_KEY {
        return Err(CommandError::TooLong { what: "a key", limit: LONGEST_KEY });
    }
    if let Some(known) = view.state.session(&id).and_then(|session| session.idempotency_keys().get(&key.name)) {
        if known.asks != key.asks {
            return Err(CommandError::KeyTaken(key.name));
        }
        return Ok(DecisionResult { facts: Vec::new(), reply: keyed_reply(known.came_to) });
    }
    let opens = matches!(command, Command::Open { .. });
    let DecisionResult { mut facts, reply } = super::decide_session(view, id.clone(), command, context)?;
    let came_to = match reply {
        EngineReply::Done if opens => KeyedOutcome::Opened,
        EngineReply::Started(run) => KeyedOutcome::Started(run),
        EngineReply::Queued => KeyedOutcome::Queued,
        EngineReply::BehindCompaction(run) => KeyedOutcome::Behind(run),
        EngineReply::Steering(run) => KeyedOutcome::Steering(run),
        // Nothing happened that must not happen twice.
        EngineReply::Idle => return Ok(DecisionResult { facts, reply }),
        _ => return Err(CommandError::OutOfPlace("only opening a session and sending a message accept a key")),
    };
    let keyed = Happened::Keyed { name: key.name, asks: key.asks, came_to };
    facts.push(Fact::without_content(Event::Session(keyed), Some(id)));
    Ok(DecisionResult { facts, reply })
}

const fn keyed_reply(came_to: KeyedOutcome) -> EngineReply {
    match came_to {
        KeyedOutcome::Opened => EngineReply::Done,
        KeyedOutcome::Started(run) => EngineReply::Started(run),
        KeyedOutcome::Queued => EngineReply::Queued,
        KeyedOutcome::Behind(run) => EngineReply::BehindCompaction(run),
        KeyedOutcome::Steering(run) => EngineReply::Steering(run),
    }
}
