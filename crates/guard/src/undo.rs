//! Takes guards away.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use countersign_files::replace::FileAccess;
use serde_json::Value;

use crate::{
    edit,
    error::GuardError,
    own_entries::OwnEntries,
    places::GuardPlaces,
    presence::{has_guard, has_own_entries},
    program::{GuardScope, GuardedProgram, SettingsEntry},
    receipt::{self, Addition, FileReceipt, GuardReceipt, text_digest},
    settings_file, text_blocks, toml_tables,
    undo_note::UndoNote,
};

/// Outcome of the end of a guard, for one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UndoOutcome {
    /// The file is as it was before, byte by byte.
    Restored {
        /// The file.
        path: PathBuf,
    },
    /// The file was edited since, or the receipt is lost. The guard's entries are gone except those that the notes name, and the edits
    /// stay.
    Removed {
        /// The file.
        path: PathBuf,
        /// Entries that were not as the guard added them.
        notes: Vec<UndoNote>,
    },
}

impl UndoOutcome {
    /// Reports whether a part of the guard is still there.
    pub fn is_incomplete(&self) -> bool {
        match self {
            Self::Restored { .. } => false,
            Self::Removed { notes, .. } => notes.iter().any(|note| matches!(note, UndoNote::Left(_))),
        }
    }
}

/// Takes the guard of a program away, also one whose receipt is lost. Returns the outcome for each file, that of the settings first. If a
/// part is left, the receipt stays.
///
/// # Errors
/// [`GuardError`] if there is none, or a file cannot be changed.
pub fn undo_guard(program: GuardedProgram, places: &GuardPlaces) -> Result<Vec<UndoOutcome>, GuardError> {
    let Some(receipt) = GuardReceipt::read(program, places)? else { return undo_unrecorded(program, places) };
    let undo = FileUndo {
        entries: receipt.entries(program),
        own: OwnEntries::new(program, Some(&receipt.command)),
        is_managed: receipt.is_managed,
    };
    let outcomes = receipt.files().rev().map(|file| undo.undo_file(file)).collect::<Result<Vec<_>, _>>()?;
    if !outcomes.iter().any(UndoOutcome::is_incomplete) {
        receipt.remove(program, places)?;
    }
    Ok(outcomes)
}

/// End of a guard with a receipt.
struct FileUndo {
    entries: Vec<SettingsEntry>,
    own: OwnEntries,
    is_managed: bool,
}

impl FileUndo {
    fn undo_file(&self, receipt: &FileReceipt) -> Result<UndoOutcome, GuardError> {
        let path = receipt.path.clone();
        let found = settings_file::read(&path)?;
        if found == receipt.before {
            receipt::remove_empty(&receipt.folders);
            return Ok(UndoOutcome::Restored { path });
        }
        if let Some(text) = &found {
            settings_file::check_writable(&path)?;
            if text_digest(text) == receipt.written {
                restore_text(receipt, receipt.before.as_ref())?;
                return Ok(UndoOutcome::Restored { path });
            }
        }
        let (left, notes) = match (&found, &receipt.addition) {
            (_, Addition::Whole) => {
                let note = found.as_ref().map(|_| UndoNote::Edited("the whole file".to_owned()));
                (None, note.into_iter().collect())
            }
            (_, Addition::Entries) => {
                let text = found.as_deref().unwrap_or_default();
                let removal = edit::remove_entries(text, &self.entries, &receipt.value_before(), &self.own);
                let removal = removal.map_err(|problem| GuardError::of_settings(&path, problem))?;
                let is_empty = removal.settings.as_object().is_some_and(serde_json::Map::is_empty);
                (Some(removal.text).filter(|_| !is_empty || receipt.before.is_some()), removal.notes)
            }
            (_, Addition::Blocks(blocks)) => {
                let (left, notes) = self.remove_blocks(found.as_deref().unwrap_or_default(), blocks);
                (Some(left).filter(|left| !left.trim().is_empty() || receipt.before.is_some()), notes)
            }
        };
        match (left, found) {
            (Some(left), Some(found)) if left != found => settings_file::write(&path, &left, FileAccess::Private)?,
            (None, Some(_)) => remove_file(&path)?,
            _ => {}
        }
        if settings_file::read(&path)?.is_none() {
            receipt::remove_empty(&receipt.folders);
        }
        Ok(UndoOutcome::Removed { path, notes })
    }

    fn remove_blocks(&self, text: &str, blocks: &[String]) -> (String, Vec<UndoNote>) {
        let (mut left, gone) = text_blocks::remove_blocks(text, blocks);
        if gone.is_empty() {
            return (left, Vec::new());
        }
        let keys: Vec<String> = blocks.iter().flat_map(|block| toml_tables::trust_keys(block)).collect();
        let is_edited;
        (left, is_edited) = match self.is_managed {
            true => toml_tables::remove_requirements(&left, &self.own),
            false => toml_tables::remove_trust(&left, &keys),
        };
        let is_left = match self.is_managed {
            true => toml_tables::has_requirements(&left, &self.own),
            false => toml_tables::has_trust(&left, &keys),
        };
        let note = match (is_left, is_edited) {
            (true, _) => UndoNote::Left,
            (false, true) => UndoNote::Edited,
            (false, false) => UndoNote::Gone,
        };
        (left, gone.into_iter().map(note).collect())
    }
}

/// Takes away the guard whose receipt is lost: that of the user, or else that of the machine.
fn undo_unrecorded(program: GuardedProgram, places: &GuardPlaces) -> Result<Vec<UndoOutcome>, GuardError> {
    for scope in [GuardScope::User, GuardScope::Managed] {
        let Ok(path) = program.settings_path(scope, places) else { continue };
        let Some(text) = settings_file::read(&path)? else { continue };
        let own = OwnEntries::new(program, None);
        if !has_own_entries(program, scope, &text, &own) {
            if has_guard(program, scope, &text) {
                let problem = "has the rule of a guard, but no receipt says who added it: remove it yourself";
                return Err(GuardError::of_settings(&path, problem));
            }
            continue;
        }
        settings_file::check_writable(&path)?;
        let keys =
            program.parse_settings(&text).map_or_else(|_| Vec::new(), |settings| own.trust_keys(&path, &settings));
        let removal = remove_unrecorded(program, scope, &text);
        let removal = removal.map_err(|problem| GuardError::of_settings(&path, problem))?;
        match &removal.text {
            Some(left) => settings_file::write(&path, left, FileAccess::Private)?,
            None => remove_file(&path)?,
        }
        let mut outcomes = vec![UndoOutcome::Removed { path, notes: removal.notes }];
        match (program, scope) {
            (GuardedProgram::Codex, GuardScope::User) => outcomes.extend(undo_trust(&keys, places)?),
            (GuardedProgram::Opencode, GuardScope::User) => {
                let path = places.opencode_plugin();
                if settings_file::read(&path)?.is_some() {
                    remove_file(&path)?;
                    receipt::remove_empty(&path.parent().map(Path::to_owned).into_iter().collect::<Vec<_>>());
                    outcomes.push(UndoOutcome::Removed { path, notes: Vec::new() });
                }
            }
            _ => {}
        }
        return Ok(outcomes);
    }
    Err(GuardError::NotInstalled { program: program.name() })
}

fn undo_trust(keys: &[String], places: &GuardPlaces) -> Result<Option<UndoOutcome>, GuardError> {
    let path = places.codex_folder().join("config.toml");
    let Some(text) = settings_file::read(&path)? else { return Ok(None) };
    let keys = [keys, &toml_tables::commented_keys(&text)].concat();
    if !toml_tables::has_trust(&text, &keys) {
        return Ok(None);
    }
    settings_file::check_writable(&path)?;
    let (left, _) = toml_tables::remove_trust(&text, &keys);
    settings_file::write(&path, &left, FileAccess::Private)?;
    let is_left = toml_tables::has_trust(&left, &keys);
    let notes = is_left.then(|| UndoNote::Left("hooks.state".to_owned())).into_iter().collect();
    Ok(Some(UndoOutcome::Removed { path, notes }))
}

/// Settings without the guard whose receipt is lost.
pub(crate) struct UnrecordedRemoval {
    /// `None` if nothing but the guard was in the file.
    pub(crate) text: Option<String>,
    pub(crate) notes: Vec<UndoNote>,
}

/// Removes what is recognisably of a guard from the text of settings.
///
/// # Errors
/// The problem of the text.
pub(crate) fn remove_unrecorded(
    program: GuardedProgram,
    scope: GuardScope,
    text: &str,
) -> Result<UnrecordedRemoval, String> {
    let own = OwnEntries::new(program, None);
    if program.has_toml_settings(scope) {
        let (left, _) = toml_tables::remove_requirements(text, &own);
        let is_left = toml_tables::has_requirements(&left, &own);
        let notes = is_left.then(|| UndoNote::Left("hooks".to_owned())).into_iter().collect();
        return Ok(UnrecordedRemoval { text: Some(left).filter(|left| !left.is_empty()), notes });
    }
    let removal = edit::remove_entries(text, &[], &Value::Null, &own)?;
    let mut notes = removal.notes;
    let values: Vec<SettingsEntry> = program
        .entries(scope, "")
        .into_iter()
        .filter(|entry| !entry.is_list_element && entry.is_in(&removal.settings))
        .collect();
    let rest = removal.settings.as_object().map_or(0, serde_json::Map::len);
    if program.is_settings_file_own(scope) && rest == values.len() {
        return Ok(UnrecordedRemoval { text: None, notes });
    }
    notes.extend(values.into_iter().map(|entry| UndoNote::Unclear(entry.keys.join("."))));
    Ok(UnrecordedRemoval { text: Some(removal.text), notes })
}

/// Writes the text that a file had before, or removes the file if there was none.
pub(crate) fn restore_text(receipt: &FileReceipt, before: Option<&String>) -> Result<(), GuardError> {
    if let Some(before) = before {
        return match settings_file::read(&receipt.path)?.as_ref() == Some(before) {
            true => Ok(()),
            false => settings_file::write(&receipt.path, before, FileAccess::Private),
        };
    }
    remove_file(&receipt.path)?;
    receipt::remove_empty(&receipt.folders);
    Ok(())
}

fn remove_file(path: &Path) -> Result<(), GuardError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(GuardError::of_file(path)(error)),
        _ => Ok(()),
    }
}
