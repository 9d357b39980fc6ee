//! Facts with which compactions begin, and the pruning that is tried before one.

use super::{BranchBuilder, Event};
use crate::{
    id::RunId,
    ledger::BudgetBreach,
    run::RunMetadata,
    session::{AfterCompaction, CompactionCause, CompactionCut, Event as Happened, Session},
    time::Millis,
    unattended::ContractStatus,
};

/// Maximum number of entries that one fact names.
const PRUNED_AT_ONCE: usize = 500;

/// Returns the fact that begins a compaction.
pub(crate) fn compaction_started(
    session: &Session,
    reason: CompactionCause,
    cut: CompactionCut,
    then: AfterCompaction,
) -> Event {
    compaction_event(session, reason, cut, then, None, None)
}

/// Returns the fact that begins a compaction for a request that was too long: `run` repeats it, and continues the one before.
pub(crate) fn compaction_started_again(
    session: &Session,
    cut: CompactionCut,
    run: RunId,
    marks: &RunMetadata,
) -> Event {
    let marks = (!marks.is_empty()).then(|| Box::new(marks.clone()));
    compaction_event(session, CompactionCause::Overflow, cut, AfterCompaction::Again, Some(run), marks)
}

/// Returns the fact that begins a compaction which a prompt waits for: `run` begins with it, and is marked so.
pub(crate) fn compaction_started_for(
    session: &Session,
    cut: CompactionCut,
    run: RunId,
    marks: Option<Box<RunMetadata>>,
) -> Event {
    compaction_event(session, CompactionCause::Threshold, cut, AfterCompaction::Prompt, Some(run), marks)
}

fn compaction_event(
    session: &Session,
    reason: CompactionCause,
    cut: CompactionCut,
    then: AfterCompaction,
    run: Option<RunId>,
    marks: Option<Box<RunMetadata>>,
) -> Event {
    Event::Session(Happened::CompactionStarted {
        epoch: session.compactions + 1,
        reason,
        first_kept: cut.first_kept,
        split_from: cut.split_from,
        tokens_before: cut.tokens_before,
        then,
        run,
        marks,
    })
}

/// Checks that the budget of a session leaves enough for a compaction.
pub(crate) fn check_compaction_budget(session: &Session, cut: &CompactionCut, now: Millis) -> Result<(), BudgetBreach> {
    let Some(contract) = session.unattended() else { return Ok(()) };
    match contract.status() {
        ContractStatus::InForce => contract.check_compaction(cut.tokens_before, session.settings().model.as_ref(), now),
        ContractStatus::AwaitingDecision { breach, .. }
        | ContractStatus::Over { breach }
        | ContractStatus::Settled { breach } => Err(breach),
    }
}

/// Replaces old results by notices if that saves enough. True if no compaction is needed then.
pub(crate) fn prune_entries(branch: &mut BranchBuilder<'_>) -> bool {
    let session = branch.session();
    let prunable = session.prunable_results();
    let saved: u64 = prunable.iter().filter_map(|entry| session.entry(entry)).map(|entry| entry.tokens).sum();
    let window = session.settings().model.as_ref().map_or(0, |model| model.context_window);
    for entries in prunable.chunks(PRUNED_AT_ONCE) {
        branch.push_event(Event::Session(Happened::Pruned { entries: entries.to_vec() }));
    }
    session.context_tokens().saturating_sub(saved) <= session.settings().thresholds.token_limit(window)
}
