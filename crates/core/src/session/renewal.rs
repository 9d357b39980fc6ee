//! How a conversation begins anew, and how what is old leaves it. The log keeps all of it.

use super::{event::SessionEntryKind, state::Session};
use crate::{id::EntryId, run::RunMetadata, time::Millis};

impl Session {
    /// How often it began anew.
    pub fn renewal_count(&self) -> u32 {
        self.renewals.0
    }

    /// When it last began anew.
    pub fn renewed_at(&self) -> Option<Millis> {
        self.renewals.1
    }

    /// When something last happened in it.
    pub fn last_at(&self) -> Millis {
        self.last_at
    }

    /// What the messages say of their runs that wait for runs of their own.
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
        // A summary stands before whatever it kept, and goes with what is before the entry.
        for entry in self.entries.iter_mut().filter(|entry| matches!(entry.kind, SessionEntryKind::Compaction { .. })) {
            entry.shown = false;
        }
        self.index();
    }
}
