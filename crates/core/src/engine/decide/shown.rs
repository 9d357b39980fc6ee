//! Decides what is recorded of where people can see a gate.

use crate::{
    decision::{Decision, Event, Fact, Refusal, Reply, View},
    gate::{self, AnswerRefusal, Gate},
    id::GateId,
};

/// How long the names may be that a surface gives.
const LONGEST_NAME: usize = 1024;

pub(super) fn shown(view: View<'_>, id: GateId, surface: &str, reference: &str) -> Result<Decision, Refusal> {
    let gate = named(view, id, surface, reference)?;
    Ok(decision(gate, gate.show(surface, reference)))
}

pub(super) fn updated(view: View<'_>, id: GateId, surface: &str, reference: &str) -> Result<Decision, Refusal> {
    let gate = named(view, id, surface, reference)?;
    Ok(decision(gate, gate.update(surface, reference)))
}

fn named<'a>(view: View<'a>, id: GateId, surface: &str, reference: &str) -> Result<&'a Gate, Refusal> {
    if surface.len() + reference.len() > LONGEST_NAME {
        return Err(Refusal::TooLong { what: "the reference of a surface", limit: LONGEST_NAME });
    }
    Ok(view.state.gate(id).ok_or(AnswerRefusal::Unknown(id))?)
}

fn decision(gate: &Gate, event: Option<gate::Event>) -> Decision {
    let fact = event.map(|event| Fact::plain(Event::Gate(event), gate.session().cloned()));
    Decision { facts: fact.into_iter().collect(), reply: Reply::Done }
}
