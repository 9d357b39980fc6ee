//! Decides whether an answer counts that also renames the run which waited for it.

use super::answer;
use crate::{
    decision::{CommandError, DecisionContext, DecisionResult, DecisionView, Event, Fact},
    gate::{Event as OfGate, GateReply},
    id::{GateId, PrincipalId},
    run::{Event as Happened, Run, RunMetadata},
};

/// Returns the facts of the answer, and if it decides the gate, first the new name of the run: no output after the
/// answer is sent under the old name, and an answer that does not count changes no name.
pub(super) fn answer_as(
    view: DecisionView<'_>,
    id: GateId,
    answer: &GateReply,
    (by, key): (&PrincipalId, Option<&str>),
    reference: String,
    context: &mut DecisionContext,
) -> Result<DecisionResult, CommandError> {
    let mut decision = answer::answer_gate(view, id, answer, by, key, context)?;
    let is_decided = decision.facts.iter().any(|fact| matches!(fact.event, Event::Gate(OfGate::Resolved { .. })));
    let run = view.state.gate(id).and_then(|gate| view.state.run(gate.run()?));
    if let Some(run) = run.filter(|_| is_decided) {
        let marks = RunMetadata { reference: Some(reference), ..run.run_metadata().clone() };
        decision.facts.insert(0, metadata_fact(run, marks));
    }
    Ok(decision)
}

fn metadata_fact(run: &Run, marks: RunMetadata) -> Fact {
    let event = Event::Run(Happened::Marked { run: run.id(), marks: Box::new(marks) });
    Fact::without_content(event, Some(run.session().clone()))
}
