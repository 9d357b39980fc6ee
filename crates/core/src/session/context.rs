//! Entries that the model is shown.

use super::{
    event::SessionEntryKind,
    state::{Session, SessionEntry},
};
use crate::{id::EntryId, message::StopReason};

/// One piece of a context, in order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ContextPiece<'a> {
    /// The summary of a compaction: always first.
    Summary(&'a SessionEntry),
    /// An entry as it is, or as a notice if it is pruned.
    Entry(&'a SessionEntry),
}

impl<'a> ContextPiece<'a> {
    /// Returns the entry.
    pub const fn entry(self) -> &'a SessionEntry {
        match self {
            Self::Summary(entry) | Self::Entry(entry) => entry,
        }
    }
}

/// Start of a context on a path.
pub(super) struct ContextStart {
    /// The place of its summary, if it has one.
    pub(super) summary: Option<usize>,
    /// The place of the oldest entry that is shown as it is.
    pub(super) first: usize,
}

/// Finds the start of the context of a path: after its latest reset, or at a summary after that and the entries that it keeps.
pub(super) fn find_start(path: &[&SessionEntry]) -> ContextStart {
    let reset = path.iter().rposition(|entry| entry.shown && entry.kind == SessionEntryKind::ContextReset);
    let begun = reset.map_or(0, |at| at + 1);
    let summary = path[begun..].iter().enumerate().rev().find_map(|(at, entry)| match &entry.kind {
        SessionEntryKind::Compaction { first_kept, .. } if entry.shown => Some((begun + at, first_kept)),
        _ => None,
    });
    let Some((summary, first_kept)) = summary else { return ContextStart { summary: None, first: begun } };
    // The kept entries may be gone, or come before the reset.
    let kept = path.iter().position(|entry| entry.id == *first_kept).map_or(summary, |kept| kept.min(summary));
    ContextStart { summary: Some(summary), first: kept.max(begun) }
}

impl Session {
    /// Returns the entries from the first to the leaf, in order.
    pub fn path_entries(&self) -> Vec<&SessionEntry> {
        self.path_to(self.leaf())
    }

    /// Returns the number of messages of people and of the model on the way to `leaf`. A failed answer that was requested
    /// again is none.
    pub(crate) fn messages_to(&self, leaf: Option<&EntryId>) -> u64 {
        let is_failure =
            |kind: &SessionEntryKind| matches!(kind, SessionEntryKind::Assistant { stop: StopReason::Error, .. });
        let is_message = |entry: &&&SessionEntry| {
            matches!(entry.kind, SessionEntryKind::User | SessionEntryKind::Assistant { .. })
                && (entry.shown || !is_failure(&entry.kind))
        };
        self.path_to(leaf).iter().filter(is_message).count() as u64
    }

    fn path_to(&self, leaf: Option<&EntryId>) -> Vec<&SessionEntry> {
        let mut path = Vec::new();
        // A file that was edited by hand may contain a cycle: the path ends before it repeats.
        let mut is_on_it = vec![false; self.entries.len()];
        let mut at = leaf.and_then(|leaf| self.by_id.get(leaf));
        while let Some(&index) = at.filter(|index| !is_on_it[**index]) {
            is_on_it[index] = true;
            let entry = &self.entries[index];
            path.push(entry);
            at = entry.parent.as_ref().and_then(|parent| self.by_id.get(parent));
        }
        path.reverse();
        path
    }

    /// Returns the context of the model: the latest summary on the path, then the entries that it kept, then the rest.
    pub fn model_context(&self) -> Vec<ContextPiece<'_>> {
        let path = self.path_entries();
        let ContextStart { summary, first } = find_start(&path);
        let mut pieces = Vec::with_capacity(path.len());
        pieces.extend(summary.map(|at| ContextPiece::Summary(path[at])));
        pieces.extend(
            path[first..]
                .iter()
                .filter(|entry| entry.shown && entry.kind.is_message())
                .map(|entry| ContextPiece::Entry(entry)),
        );
        pieces
    }

    /// Returns the number of tokens of the context: the last count of the provider and an estimate of later entries.
    pub fn context_tokens(&self) -> u64 {
        let context = self.model_context();
        let (base, from) = self.provider_counted(&context);
        let since = context[..from].last().map(|piece| piece.entry().lsn);
        let saved = context[..from].iter().map(|piece| piece.entry()).filter(|entry| entry.pruned > since);
        let saved: u64 = saved.map(|entry| entry.tokens).sum();
        let new = context[from..].iter().map(|piece| piece.entry()).filter(|entry| entry.pruned.is_none());
        base.saturating_sub(saved) + new.map(|entry| entry.tokens).sum::<u64>()
    }

    /// Returns the number of tokens of the next request. The count of a provider includes the preamble.
    pub(crate) fn request_tokens(&self) -> u64 {
        let (_, from) = self.provider_counted(&self.model_context());
        let preamble = if from == 0 { self.settings().preamble } else { 0 };
        self.context_tokens().saturating_add(preamble)
    }

    /// Returns the last count of a provider, and the number of pieces in it.
    fn provider_counted(&self, context: &[ContextPiece<'_>]) -> (u64, usize) {
        let counted = context.iter().rposition(|piece| match (piece, &piece.entry().kind) {
            (ContextPiece::Entry(_), SessionEntryKind::Assistant { stop, total_tokens }) => {
                *total_tokens > 0 && !matches!(stop, StopReason::Error | StopReason::Aborted)
            }
            _ => false,
        });
        let after_summary = context.iter().rposition(|piece| matches!(piece, ContextPiece::Summary(_)));
        // A count from before a compaction does not apply to the context after it.
        let counted = counted
            .filter(|&at| after_summary.is_none_or(|summary| context[at].entry().lsn > context[summary].entry().lsn));
        match counted {
            Some(at) => match &context[at].entry().kind {
                SessionEntryKind::Assistant { total_tokens, .. } => (*total_tokens, at + 1),
                _ => (0, 0),
            },
            None => (0, 0),
        }
    }

    /// Reports whether the context has grown past the limit of its model.
    pub(crate) fn is_over_limit(&self) -> bool {
        let settings = self.settings();
        settings.thresholds.auto
            && settings
                .model
                .as_ref()
                .is_some_and(|model| self.context_tokens() > settings.thresholds.token_limit(model.context_window))
    }
}
