//! Decides whether an answer counts that also says what the run is called which waited for it.

use super::answer;
use crate::{
    decision::{CommandError, DecisionContext, DecisionResult, DecisionView, Event, Fact},
    gate::{Answer, Event as OfGate},
    id::{GateId, PrincipalId},
    run::{Event as Happened, Marks, Run},
};

/// The answer, and if the gate is decided by it, first what its run is called from then on: nothing that it says behind the
/// answer goes out under the old name, and an answer that does not count changes no name.
pub(super) fn answer(
    view: DecisionView<'_>,
    id: GateId,
    answer: &Answer,
    (by, key): (&PrincipalId, Option<&str>),
    reference: String,
    context: &mut DecisionContext,
) -> Result<DecisionResult, CommandError> {
    let mut decision = answer::answer(view, id, answer, by, key, context)?;
    let is_decided = decision.facts.iter().any(|fact| matches!(fact.event, Event::Gate(OfGate::Resolved { .. })));
    let run = view.state.gate(id).and_then(|gate| view.state.run(gate.run()?));
    if let Some(run) = run.filter(|_| is_decided) {
        let marks = Marks { reference: Some(reference), ..run.marks().clone() };
        decision.facts.insert(0, marked(run, marks));
    }
    Ok(decision)
}

fn marked(run: &Run, marks: Marks) -> Fact {
    let event = Event::Run(Happened::Marked { run: run.id(), marks: Box::new(marks) });
    Fact::without_content(event, Some(run.session().clone()))
}
