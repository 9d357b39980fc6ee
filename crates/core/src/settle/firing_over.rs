//! The run of a job is over when no part of it works or waits any more.

use crate::{
    decision::{DecisionView, Event, Fact},
    run::RunOutcome,
    schedule::{Event as Happened, FinishedRun, Firing, FiringId, FiringStage, Job},
    session::{MessageQueue, Session},
    time::Millis,
};

pub(super) fn due_facts(view: DecisionView<'_>, session: &Session, now: Millis) -> Option<Vec<Fact>> {
    let mut firings = view.state.schedule().firings_in(session.id());
    let (firing, over) = firings.find_map(|(job, firing)| finished_firing(view, session, job, firing, now))?;
    let ran = Event::Schedule(Happened::Ran { firing, over: Box::new(over) });
    Some(vec![Fact::without_content(ran, Some(session.id().clone()))])
}

fn finished_firing(
    view: DecisionView<'_>,
    session: &Session,
    job: &Job,
    firing: &Firing,
    now: Millis,
) -> Option<(FiringId, FinishedRun)> {
    let FiringStage::MessageSent { run, end, words, breach, .. } = &firing.stage else { return None };
    let id = FiringId { job: job.id().clone(), number: firing.number };
    let goes_on = match (run, end) {
        (Some(run), None) => view.state.run(*run).is_some(),
        // A summary is made, and another run repeats the request.
        (Some(_), Some(RunOutcome::Overflowed)) => session.active_compaction().is_some(),
        (Some(_), Some(_)) => false,
        (None, _) => {
            let mut waiting = session.queue(MessageQueue::Next).iter().filter_map(|next| next.marks.as_deref());
            waiting.any(|marks| marks.firing.as_ref() == Some(&id))
        }
    };
    let over = FinishedRun { session: session.id().clone(), end: *end, words: *words, breach: *breach, at: now };
    (!goes_on).then_some((id, over))
}
