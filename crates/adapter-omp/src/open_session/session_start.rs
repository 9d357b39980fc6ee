//! Initial state of a session, with its first entries.
//!
//! It must not know logs, owners or files.

use std::path::PathBuf;

use countersign_core::{
    id::EntryId,
    session::{ImportedEntry, MessageContent, SessionEntryKind, Settings},
};

use crate::entries;

/// Initial state of a session.
pub struct SessionStart {
    /// Planned path of its file; absent means by the usual rule.
    pub path: Option<PathBuf>,
    /// The session that it came from.
    pub parent: Option<String>,
    /// Its name for people.
    pub name: Option<String>,
    /// Initial settings.
    pub settings: Settings,
    /// Entries that it begins with, in order.
    pub entries: Vec<ImportedEntry>,
}

/// Returns the first entries of a new session: which model, and how much it thinks.
pub(crate) fn first_entries(settings: &Settings) -> Vec<ImportedEntry> {
    let mut parent = None;
    let mut entries = Vec::new();
    let mut add = |kind, message: MessageContent| {
        let mut seed = [0; 4];
        let _ = getrandom::fill(&mut seed);
        let id = EntryId::new(hex::encode(seed));
        entries.push(ImportedEntry { id: id.clone(), parent: parent.replace(id), kind, message, made_at: None });
    };
    if let Some(model) = &settings.model {
        add(SessionEntryKind::ModelChange, entries::model_change(&model.provider, &model.id));
    }
    add(SessionEntryKind::ThinkingChange, entries::thinking_change(settings.thinking.as_deref()));
    entries
}
