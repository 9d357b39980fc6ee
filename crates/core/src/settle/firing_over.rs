//! The run of a job is over when nothing of it works or waits any more.

use crate::{
    decision::{DecisionView, Event, Fact},
    run::End,
    schedule::{Event as Happened, Firing, FiringId, Job, Over, Stage},
    session::{Queue, Session},
    time::Millis,
};

pub(super) fn rule(view: DecisionView<'_>, session: &Session, now: Millis) -> Option<Vec<Fact>> {
    let mut said = view.state.schedule().said_in(session.id());
    let (firing, over) = said.find_map(|(job, firing)| over(view, session, job, firing, now))?;
    let ran = Event::Schedule(Happened::Ran { firing, over: Box::new(over) });
    Some(vec![Fact::without_content(ran, Some(session.id().clone()))])
}

fn over(
    view: DecisionView<'_>,
    session: &Session,
    job: &Job,
    firing: &Firing,
    now: Millis,
) -> Option<(FiringId, Over)> {
    let Stage::Said { run, end, words, breach, .. } = &firing.stage else { return None };
    let id = FiringId { job: job.id().clone(), number: firing.number };
    let goes_on = match (run, end) {
        (Some(run), None) => view.state.run(*run).is_some(),
        // A summary is made, and another run asks again.
        (Some(_), Some(End::Overflowed)) => session.compaction().is_some(),
        (Some(_), Some(_)) => false,
        (None, _) => {
            let mut waiting = session.queue(Queue::Next).iter().filter_map(|next| next.marks.as_deref());
            waiting.any(|marks| marks.firing.as_ref() == Some(&id))
        }
    };
    let over = Over { session: session.id().clone(), end: *end, words: *words, breach: *breach, at: now };
    (!goes_on).then_some((id, over))
}
