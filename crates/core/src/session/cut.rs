//! Position at which a compaction cuts a context.

use super::{
    context::find_start,
    event::SessionEntryKind,
    state::{Session, SessionEntry},
};
use crate::id::EntryId;

/// Position of the cut: everything before is summarised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionCut {
    /// The oldest entry that is kept.
    pub first_kept: EntryId,
    /// The first entry of the turn that the cut goes through, if it goes through one.
    pub split_from: Option<EntryId>,
    /// Tokens of the context before.
    pub tokens_before: u64,
}

/// Number of newest result tokens that are never replaced by a notice.
const PRUNE_KEEP: u64 = 40_000;
/// Minimum number of tokens that pruning must save.
const PRUNE_WORTH: u64 = 20_000;

impl Session {
    /// Finds the cut that keeps about the newest `keep` tokens, or `None` if there is nothing before it to summarise.
    pub fn find_cut(&self) -> Option<CompactionCut> {
        self.cut_without(None)
    }

    /// Returns the cut as if the entry `without` were no longer shown.
    pub(crate) fn cut_without(&self, without: Option<&EntryId>) -> Option<CompactionCut> {
        let counts = |entry: &SessionEntry| is_counted(entry) && Some(&entry.id) != without;
        let may_begin = |entry: &SessionEntry| may_begin(entry) && Some(&entry.id) != without;
        let tokens_before = self.context_tokens();
        let path = self.path_entries();
        let part = &path[find_start(&path).first..];
        let estimated: u64 = part.iter().filter(|entry| counts(entry)).map(|entry| entry.tokens).sum();
        // If the provider counts more than the estimate, less is kept.
        let settings = self.settings();
        let limit = settings.model.as_ref().map(|model| settings.thresholds.token_limit(model.context_window));
        let limit = limit.unwrap_or(u64::MAX);
        // All of it was too long, despite the settings of the model: at most half of that is worth another try.
        let limit = if without.is_some() { limit.min(tokens_before / 2) } else { limit };
        let scaled = |tokens: u64| {
            let is_more = estimated > 0 && tokens_before > estimated;
            let part = || u128::from(tokens) * u128::from(estimated) / u128::from(tokens_before);
            is_more.then(part).and_then(|part| u64::try_from(part).ok()).unwrap_or(tokens)
        };
        // The kept part must leave room below the limit, or the next check would cut again.
        let keep = scaled(settings.thresholds.keep_recent.min((limit / 2).max(1)));

        let mut kept = 0;
        let mut at = part.len();
        for (index, entry) in part.iter().enumerate().rev() {
            if !counts(entry) {
                continue;
            }
            kept += entry.tokens;
            at = index;
            if kept >= keep {
                break;
            }
        }
        if kept < keep {
            return None;
        }
        let after = |at: usize| (at..part.len()).find(|&index| may_begin(part[index]));
        // A message that leaves no room is summarised, too, unless it is the last: a request with it would be refused.
        let behind = (kept > scaled(limit)).then(|| after(at + 1)).flatten();
        // There may be results alone, which stay with the message of their calls.
        let ahead = behind.or_else(|| after(at));
        let mut cut = ahead.or_else(|| (0..at).rev().find(|&index| may_begin(part[index])))?;
        while cut > 0
            && !part[cut - 1].kind.is_message()
            && !matches!(part[cut - 1].kind, SessionEntryKind::Compaction { .. })
        {
            cut -= 1;
        }
        if !part[..cut].iter().any(|entry| counts(entry)) {
            return None;
        }
        let begins_turn = part[cut..].iter().find(|entry| entry.kind.is_message()).is_none_or(|entry| {
            !matches!(entry.kind, SessionEntryKind::Assistant { .. } | SessionEntryKind::ToolResult { .. })
        });
        let split_from = if begins_turn {
            None
        } else {
            part[..cut]
                .iter()
                .rev()
                .find(|entry| matches!(entry.kind, SessionEntryKind::User | SessionEntryKind::Developer))
                .map(|entry| entry.id.clone())
        };
        Some(CompactionCut { first_kept: part[cut].id.clone(), split_from, tokens_before })
    }

    /// Returns the old results that are worth replacing by a notice; empty if that would save too little.
    pub(crate) fn prunable_results(&self) -> Vec<EntryId> {
        let mut newest = 0;
        let mut saved = 0;
        let mut entries = Vec::new();
        for piece in self.model_context().iter().rev() {
            let entry = piece.entry();
            if let SessionEntryKind::ToolResult { prunable } = entry.kind
                && entry.pruned.is_none()
            {
                newest += entry.tokens;
                if newest > PRUNE_KEEP && prunable {
                    saved += entry.tokens;
                    entries.push(entry.id.clone());
                }
            }
        }
        if saved >= PRUNE_WORTH { entries } else { Vec::new() }
    }
}

fn is_counted(entry: &SessionEntry) -> bool {
    entry.shown && entry.kind.is_message()
}

fn may_begin(entry: &SessionEntry) -> bool {
    is_counted(entry) && !matches!(entry.kind, SessionEntryKind::ToolResult { .. })
}
