//! The ids by which the entries of a file name each other, apart from what the entries say.
//!
//! It must not know what a context is made of.

use std::collections::BTreeSet;

use super::{
    FileForm, ParentMember, SessionEntryBody, SessionFileEntry,
    first_kept::restore_first_kept,
    orphans::{ReattachedCounts, reattach_orphans},
    unique::{IdUniqueness, separate_ids, with_ids},
    unreadable::UnreadableLines,
};

/// The ids in an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryLinks {
    /// Id of the entry.
    pub id: String,
    /// The entry before it; none for a root.
    pub parent_id: Option<String>,
    /// Whether the line of the entry names a parent.
    pub parent: ParentMember,
    /// The other entry that it names.
    pub reference: EntryReference,
}

/// The entry that another one names besides its parent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EntryReference {
    /// None.
    #[default]
    None,
    /// The oldest entry that a compaction keeps.
    FirstKept(String),
    /// The entry that a label or the summary of a branch is about.
    Target(String),
}

/// Result of [`repair_links`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkRepair {
    /// [`FileForm::Older`] if an id occurred twice or a line named no parent.
    pub form: FileForm,
    /// Number of entries that named a parent that is not in the file.
    pub reattached: usize,
    /// Number of circles of parents that were cut.
    pub looped: usize,
    /// Places of the entries whose links differ from those in their lines.
    pub changed: BTreeSet<usize>,
}

/// Gives every entry of a file an id of its own and a parent that leads to a root. `links` are those of all entries in their order.
/// `fresh` gives new ids; it must not repeat itself.
///
/// An entry that names no parent, or one that is not in the file, follows the entry before it, and so does the earliest of a circle of
/// parents. A compaction that keeps what is not in the file keeps the first entry after the missing one.
pub fn repair_links(
    links: &mut [EntryLinks],
    unreadable: &UnreadableLines,
    fresh: impl FnMut() -> String,
) -> LinkRepair {
    let mut repair = LinkRepair { form: FileForm::Current, reattached: 0, looped: 0, changed: BTreeSet::new() };
    for at in 0..links.len() {
        if links[at].parent == ParentMember::Missing {
            links[at].parent_id = at.checked_sub(1).map(|before| links[before].id.clone());
            links[at].parent = ParentMember::Named;
            repair.changed.insert(at);
            repair.form = FileForm::Older;
        }
    }
    if separate_ids(links, fresh, &mut repair.changed) == IdUniqueness::Separated {
        repair.form = FileForm::Older;
    }
    let orphans = reattach_orphans(links, &mut repair.changed);
    let ReattachedCounts { orphans: reattached, looped } = orphans.counts;
    (repair.reattached, repair.looped) = (reattached, looped);
    restore_first_kept(links, &orphans.first_orphans, unreadable, &mut repair.changed);
    repair
}

impl SessionFileEntry {
    /// Returns the ids in an entry. `parent` is what its line says.
    pub fn links(&self, parent: ParentMember) -> EntryLinks {
        let reference = match &self.body {
            SessionEntryBody::Compaction(body) => EntryReference::FirstKept(body.first_kept_entry_id.clone()),
            SessionEntryBody::BranchSummary(body) => EntryReference::Target(body.from_id.clone()),
            SessionEntryBody::Label(body) => EntryReference::Target(body.target_id.clone()),
            SessionEntryBody::Message(_)
            | SessionEntryBody::ModelChange(_)
            | SessionEntryBody::ThinkingLevelChange(_)
            | SessionEntryBody::ServiceTierChange(_)
            | SessionEntryBody::Custom(_)
            | SessionEntryBody::CustomMessage(_)
            | SessionEntryBody::TtsrInjection(_)
            | SessionEntryBody::SessionInit(_)
            | SessionEntryBody::ModeChange(_)
            | SessionEntryBody::SessionInfo(_)
            | SessionEntryBody::Unknown(_) => EntryReference::None,
        };
        EntryLinks { id: self.id.clone(), parent_id: self.parent_id.clone(), parent, reference }
    }

    /// Puts other ids into an entry.
    pub fn set_links(&mut self, links: &EntryLinks) {
        self.id.clone_from(&links.id);
        self.parent_id.clone_from(&links.parent_id);
        match (&mut self.body, &links.reference) {
            (SessionEntryBody::Compaction(body), EntryReference::FirstKept(id)) => {
                body.first_kept_entry_id.clone_from(id);
            }
            (SessionEntryBody::BranchSummary(body), EntryReference::Target(id)) => body.from_id.clone_from(id),
            (SessionEntryBody::Label(body), EntryReference::Target(id)) => body.target_id.clone_from(id),
            (SessionEntryBody::Unknown(line), _) => {
                if let Some(again) = with_ids(line, &links.id, links.parent_id.as_deref()) {
                    *line = again;
                }
            }
            _ => {}
        }
    }
}
