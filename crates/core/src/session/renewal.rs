//! How a conversation begins anew, and how what is old leaves it. The log keeps all of it.

use super::{event::Kind, state::Session};
use crate::{id::EntryId, run::Marks, time::Millis};

impl Session {
    /// How often it began anew.
    pub fn renewals(&self) -> u32 {
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
    pub fn next(&self) -> impl Iterator<Item = &Marks> + '_ {
        self.next.iter().filter_map(|queued| queued.marks.as_deref())
    }

    pub(super) fn renew(&mut self, at: Millis) {
        self.entries.clear();
        self.by_id.clear();
        self.leaf = None;
        self.began = None;
        self.open_tasks = 0;
        self.renewals = (self.renewals.0 + 1, Some(at));
    }

    pub(super) fn trim(&mut self, first_kept: &EntryId) {
        let from = self.by_id.get(first_kept).copied().unwrap_or_default();
        self.entries.drain(..from);
        // A summary stands before whatever it kept, and goes with what is before the entry.
        for entry in self.entries.iter_mut().filter(|entry| matches!(entry.kind, Kind::Compaction { .. })) {
            entry.shown = false;
        }
        self.index();
    }
}
