//! Decides which facts about the surfaces of a gate are recorded.

use crate::{
    decision::{CommandError, DecisionResult, DecisionView, EngineReply, Event, Fact},
    gate::{self, AnswerError, Gate},
    id::GateId,
};

/// Maximum length of the names that a surface gives.
const LONGEST_NAME: usize = 1024;

pub(super) fn mark_shown(
    view: DecisionView<'_>,
    id: GateId,
    surface: &str,
    reference: &str,
) -> Result<DecisionResult, CommandError> {
    let gate = find_gate(view, id, surface, reference)?;
    Ok(event_decision(gate, gate.record_shown(surface, reference)))
}

pub(super) fn mark_updated(
    view: DecisionView<'_>,
    id: GateId,
    surface: &str,
    reference: &str,
) -> Result<DecisionResult, CommandError> {
    let gate = find_gate(view, id, surface, reference)?;
    Ok(event_decision(gate, gate.record_updated(surface, reference)))
}

fn find_gate<'a>(view: DecisionView<'a>, id: GateId, surface: &str, reference: &str) -> Result<&'a Gate, CommandError> {
    if surface.len() + reference.len() > LONGEST_NAME {
        return Err(CommandError::TooLong { what: "the reference of a surface", limit: LONGEST_NAME });
    }
    Ok(view.state.gate(id).ok_or(AnswerError::Unknown(id))?)
}

fn event_decision(gate: &Gate, event: Option<gate::Event>) -> DecisionResult {
    let fact = event.map(|event| Fact::without_content(Event::Gate(event), gate.session().cloned()));
    DecisionResult { facts: fact.into_iter().collect(), reply: EngineReply::Done }
}
