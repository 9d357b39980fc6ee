//! A message that waits for a run of its own gets it as soon as the session rests. A context that has grown too long is
//! compacted first.

use super::begin_own;
use crate::{
    decision::{BranchBuilder, DecisionContext, DecisionView, Fact, compaction_started, prune_entries},
    session::{AfterCompaction, CompactionCause, MessageQueue, Session},
};

pub(super) fn due_facts(view: DecisionView<'_>, session: &Session, context: &mut DecisionContext) -> Option<Vec<Fact>> {
    let next = session.queue(MessageQueue::Next).front()?;
    if view.closing || !session.is_at_rest() {
        return None;
    }
    let mut branch = BranchBuilder::new(session);
    if session.is_over_limit()
        && !session.sum_tried
        && !prune_entries(&mut branch)
        && let Some(cut) = session.find_cut()
    {
        branch.push_event(compaction_started(session, CompactionCause::Threshold, cut, AfterCompaction::Rest));
        return Some(branch.into_facts());
    }
    let marks = next.marks.as_deref().cloned().unwrap_or_default();
    begin_own(&mut branch, None, marks, context);
    Some(branch.into_facts())
}
