//! Entries of a session's file, staged next to the tree until they replace it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::state::SessionEntry;
use crate::id::EntryId;

/// Entries with their positions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StagedEntries {
    pub(super) entries: Vec<SessionEntry>,
    pub(super) by_id: BTreeMap<EntryId, usize>,
}

impl StagedEntries {
    pub(super) fn push(&mut self, entry: SessionEntry) {
        self.by_id.insert(entry.id.clone(), self.entries.len());
        self.entries.push(entry);
    }

    pub(crate) fn entries(&self) -> &[SessionEntry] {
        &self.entries
    }

    pub(crate) fn entry(&self, id: &EntryId) -> Option<&SessionEntry> {
        self.by_id.get(id).map(|&at| &self.entries[at])
    }

    /// Reports whether `id` is on the way from `leaf` to the root.
    pub(crate) fn is_on_way(&self, leaf: Option<&EntryId>, id: &EntryId) -> bool {
        let mut at = leaf.and_then(|leaf| self.entry(leaf));
        // A file that was edited by hand may contain a cycle.
        for _ in 0..self.entries.len() {
            let Some(entry) = at else { return false };
            if entry.id == *id {
                return true;
            }
            at = entry.parent.as_ref().and_then(|parent| self.entry(parent));
        }
        false
    }
}
