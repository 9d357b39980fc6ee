//! How a run begins: what it is about, and what waited to be said first.

use crate::{
    decision::{BranchBuilder, DecisionContext, Event},
    id::RunId,
    ledger::Amount,
    run::{Event as Happened, Marks, Trigger},
    session::{Kind, Queue, Said, Take},
    unattended::Event as Declared,
};

/// The facts that begin a run for one message alone, behind others of its session: `said`, or the first that waits for a
/// run of its own.
pub(crate) fn begin_own(
    branch: &mut BranchBuilder<'_>,
    said: Option<Said>,
    marks: Marks,
    context: &mut DecisionContext,
) -> RunId {
    let run = RunId::new(context.fresh.uuid(context.now));
    if let Some(terms) = marks.terms.clone().filter(|_| branch.session().unattended().is_none()) {
        let (under, firing) = (branch.session().id().clone(), marks.firing.clone());
        let spent = Amount::default();
        let declared = Declared::Declared { under, terms, began: context.now, spent, firing, declared: None };
        branch.push_event(Event::Unattended(declared));
    }
    branch.push_event(Event::Run(Happened::Started { run, trigger: Trigger::Prompt }));
    if !marks.is_empty() {
        branch.push_event(Event::Run(Happened::Marked { run, marks: Box::new(marks) }));
    }
    branch.push_event(Event::Run(Happened::TurnOpened { run, turn: 1 }));
    branch.drain_queue(Queue::Held, Take::All, context);
    match said {
        Some(said) => drop(branch.push_message(Kind::User, said, context)),
        None => drop(branch.drain_queue(Queue::Next, Take::One, context)),
    }
    run
}

/// The facts that begin a run, behind others of its session: its turn, held commands, prompts that waited, `opening`,
/// and what the steering queue has.
///
/// `awaited` is the run that was promised to whoever waits for it; without one it is a new one.
pub(crate) fn continue_with(
    branch: &mut BranchBuilder<'_>,
    awaited: Option<RunId>,
    trigger: Trigger,
    opening: Vec<(Kind, Said)>,
    context: &mut DecisionContext,
) -> RunId {
    let run = awaited.unwrap_or_else(|| RunId::new(context.fresh.uuid(context.now)));
    branch.push_event(Event::Run(Happened::Started { run, trigger }));
    branch.push_event(Event::Run(Happened::TurnOpened { run, turn: 1 }));
    branch.drain_queue(Queue::Held, Take::All, context);
    let is_prompted = branch.drain_queue(Queue::Prompt, Take::All, context);
    let is_empty = opening.is_empty();
    for (kind, said) in opening {
        branch.push_message(kind, said, context);
    }
    let steering = branch.session().settings().modes.steering;
    let is_steered = branch.drain_queue(Queue::Steering, steering, context);
    if is_empty && !is_prompted && !is_steered && trigger == Trigger::Prompt {
        let follow_up = branch.session().settings().modes.follow_up;
        branch.drain_queue(Queue::FollowUp, follow_up, context);
    }
    run
}
