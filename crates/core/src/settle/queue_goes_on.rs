//! Begin of a run: its subject, and the messages that waited before it.

use crate::{
    decision::{BranchBuilder, DecisionContext, Event},
    id::RunId,
    ledger::BudgetAmount,
    run::{Event as Happened, RunMetadata, RunTrigger},
    session::{MessageContent, MessageQueue, SessionEntryKind, TakeMode},
    unattended::Event as Declared,
};

/// Returns the facts that begin a run for one message alone, after others of its session: `said`, or the first that waits for a
/// run of its own.
pub(crate) fn begin_own(
    branch: &mut BranchBuilder<'_>,
    message: Option<MessageContent>,
    marks: RunMetadata,
    context: &mut DecisionContext,
) -> RunId {
    let run = RunId::new(context.fresh.next_uuid(context.now));
    if let Some(terms) = marks.terms.clone().filter(|_| branch.session().unattended().is_none()) {
        let (under, firing) = (branch.session().id().clone(), marks.firing.clone());
        let spent = BudgetAmount::default();
        let declared = Declared::Declared { under, terms, began: context.now, spent, firing, declared: None };
        branch.push_event(Event::Unattended(declared));
    }
    branch.push_event(Event::Run(Happened::Started { run, trigger: RunTrigger::Prompt }));
    if !marks.is_empty() {
        branch.push_event(Event::Run(Happened::Marked { run, marks: Box::new(marks) }));
    }
    branch.push_event(Event::Run(Happened::TurnOpened { run, turn: 1 }));
    branch.drain_queue(MessageQueue::Held, TakeMode::All, context);
    match message {
        Some(message) => drop(branch.push_message(SessionEntryKind::User, message, context)),
        None => drop(branch.drain_queue(MessageQueue::Next, TakeMode::One, context)),
    }
    run
}

/// Returns the facts that begin a run, after others of its session: its turn, held commands, prompts that waited, `opening`,
/// and what the steering queue has.
///
/// `awaited` is the run that was promised to the waiting client; without one it is a new one.
pub(crate) fn continue_with(
    branch: &mut BranchBuilder<'_>,
    awaited: Option<RunId>,
    trigger: RunTrigger,
    opening: Vec<(SessionEntryKind, MessageContent)>,
    context: &mut DecisionContext,
) -> RunId {
    let run = awaited.unwrap_or_else(|| RunId::new(context.fresh.next_uuid(context.now)));
    branch.push_event(Event::Run(Happened::Started { run, trigger }));
    branch.push_event(Event::Run(Happened::TurnOpened { run, turn: 1 }));
    branch.drain_queue(MessageQueue::Held, TakeMode::All, context);
    let is_prompted = branch.drain_queue(MessageQueue::Prompt, TakeMode::All, context);
    let is_empty = opening.is_empty();
    for (kind, message) in opening {
        branch.push_message(kind, message, context);
    }
    let steering = branch.session().settings().modes.steering;
    let is_steered = branch.drain_queue(MessageQueue::Steering, steering, context);
    if is_empty && !is_prompted && !is_steered && trigger == RunTrigger::Prompt {
        let follow_up = branch.session().settings().modes.follow_up;
        branch.drain_queue(MessageQueue::FollowUp, follow_up, context);
    }
    run
}
