//! Decides what a run is called that waits for an answer.

use crate::{
    engine::{Decision, Event, Fact, Refusal, Reply, View},
    gate::{AnswerRefusal, Gate},
    id::{GateId, RunId},
    run::{Event as Happened, Marks, Run},
};

/// The run is called so from now on. `Idle` if it is over.
pub(super) fn refer(view: View<'_>, run: RunId, gate: GateId, reference: String) -> Result<Decision, Refusal> {
    let Some(run) = view.state.run(run) else { return Ok(Decision { facts: Vec::new(), reply: Reply::Idle }) };
    if !view.state.gate(gate).is_some_and(Gate::is_pending) {
        return Err(AnswerRefusal::Unknown(gate).into());
    }
    let marks = Marks { reference: Some(reference), ..run.marks().clone() };
    Ok(Decision { facts: vec![marked(run, marks)], reply: Reply::Done })
}

fn marked(run: &Run, marks: Marks) -> Fact {
    let event = Event::Run(Happened::Marked { run: run.id(), marks: Box::new(marks) });
    Fact::plain(event, Some(run.session().clone()))
}
