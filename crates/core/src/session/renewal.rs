//! Restart of a conversation, and removal of its old messages. The log keeps all of it.

use super::{event::SessionEntryKind, state::Session};
use crate::{id::EntryId, run::RunMetadata, time::Millis};

impl Session {
    /// Returns the number of restarts.
    pub fn renewal_count(&self) -> u32 {
        self.renewals.0
    }

    /// Returns the time of the last restart.
    pub fn renewed_at(&self) -> Option<Millis> {
        self.renewals.1
    }

    /// Returns the time of the last event in it.
    pub fn last_at(&self) -> Millis {
        self.last_at
    }

    /// Returns the metadata of the messages that wait for runs of their own.
    pub fn waiting_metadata(&self) -> impl Iterator<Item = &RunMetadata> + '_ {
        self.next.iter().filter_map(|queued| queued.marks.as_deref())
    }

    pub(super) fn start_anew(&mut self, at: Millis) {
        self.entries.clear();
        self.by_id.clear();
        self.leaf = None;
        self.began = None;
        self.open_tasks = 0;
        self.renewals = (self.renewals.0 + 1, Some(at));
    }

    pub(super) fn trim_before(&mut self, first_kept: &EntryId) {
        let from = self.by_id.get(first_kept).copied().unwrap_or_default();
        self.entries.drain(..from);
        // A summary comes before the entries that it kept, and is removed with the entries before it.
        for entry in self.entries.iter_mut().filter(|entry| matches!(entry.kind, SessionEntryKind::Compaction { .. })) {
            entry.shown = false;
        }
        self.index();
    }
}
