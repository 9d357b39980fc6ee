//! Installs guards and takes them away.

use std::{fs, io::ErrorKind, path::PathBuf};

use countersign_files::replace::FileAccess;
use serde_json::Value;

use crate::{
    edit,
    error::GuardError,
    places::GuardPlaces,
    program::{GuardScope, GuardedProgram, SettingsEntry},
    receipt::{self, GuardReceipt, text_digest},
    settings_file,
};

/// Change that a guard makes.
#[derive(Clone, Debug)]
pub struct GuardPlan {
    program: GuardedProgram,
    scope: GuardScope,
    command: String,
    path: PathBuf,
    before: Option<String>,
    after: String,
    allowances: Vec<String>,
}

/// State of a guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardState {
    /// Nothing of it is there.
    Absent,
    /// All of it is there.
    Installed {
        /// The settings file.
        path: PathBuf,
        /// The settings.
        scope: GuardScope,
    },
    /// It was installed, and somebody has changed it since.
    Damaged {
        /// The settings file.
        path: PathBuf,
        /// The damage.
        problem: String,
    },
}

/// Outcome of the end of a guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UndoOutcome {
    /// The file is as it was before, byte by byte.
    Restored {
        /// The settings file.
        path: PathBuf,
    },
    /// The file was edited since. What the guard added is gone, and the edits stay.
    Removed {
        /// The settings file.
        path: PathBuf,
        /// Keys of entries that were not there any more.
        gone: Vec<String>,
    },
}

impl GuardPlan {
    /// Returns the file that changes.
    pub const fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Returns its text before; empty if it does not exist.
    pub fn before(&self) -> &str {
        self.before.as_deref().unwrap_or_default()
    }

    /// Returns its text after.
    pub fn after(&self) -> &str {
        &self.after
    }

    /// Returns rules of the program itself that allow calls as soon as the hook is off.
    pub fn own_allowances(&self) -> &[String] {
        &self.allowances
    }
}

/// Plans the guard of a program, and changes nothing. `command` is the shell command of the hook.
///
/// # Errors
/// [`GuardError`] if there is one already, or its file cannot be changed.
pub fn plan_guard(
    program: GuardedProgram,
    scope: GuardScope,
    command: &str,
    places: &GuardPlaces,
) -> Result<GuardPlan, GuardError> {
    let path = program.settings_path(scope, places)?;
    if GuardReceipt::read(program, places)?.is_some_and(|receipt| !is_untouched(&receipt)) {
        return Err(GuardError::Installed { program: program.name() });
    }
    let before = settings_file::read(&path)?;
    settings_file::check_writable(&path)?;
    let text = before.as_deref().unwrap_or_default();
    let settings: Value = match text.trim() {
        "" => Value::Object(serde_json::Map::new()),
        _ => serde_json::from_str(text).map_err(|error| {
            GuardError::of_settings(&path, format!("is not JSON as {} reads it: {error}", program.title()))
        })?,
    };
    if let Some(problem) = program.settings_problem(&settings) {
        return Err(GuardError::of_settings(&path, format!("{problem}: {} may ignore the file", program.title())));
    }
    let after = edit::add_entries(text, &program.entries(scope, command))
        .map_err(|problem| GuardError::of_settings(&path, problem))?;
    let (allowances, command) = (program.own_allowances(&settings), command.to_owned());
    Ok(GuardPlan { program, scope, command, path, before, after, allowances })
}

/// Reports whether the file of a receipt is as it was before the guard: the process ended before it wrote.
fn is_untouched(receipt: &GuardReceipt) -> bool {
    settings_file::read(&receipt.path).is_ok_and(|text| text == receipt.before)
}

/// Makes the change of a plan. The receipt comes first, so that a crash in between leaves nothing that cannot be taken away.
///
/// # Errors
/// [`GuardError`] if the file changed since the plan, or cannot be written; then the settings are as they were.
pub fn apply_guard(plan: &GuardPlan, places: &GuardPlaces) -> Result<(), GuardError> {
    if settings_file::read(&plan.path)? != plan.before {
        return Err(GuardError::ChangedMeanwhile { path: plan.path.clone() });
    }
    let earlier = GuardReceipt::read(plan.program, places)?;
    let receipt_path = places.receipts().join("receipt");
    let receipt = GuardReceipt {
        path: plan.path.clone(),
        is_managed: plan.scope == GuardScope::Managed,
        command: plan.command.clone(),
        before: plan.before.clone(),
        written: text_digest(&plan.after),
        folders: GuardPlaces::missing_folders(&plan.path),
        own_folders: match earlier {
            Some(earlier) => earlier.own_folders,
            None => GuardPlaces::missing_folders(&receipt_path),
        },
    };
    receipt.write(plan.program, places)?;
    let is_shared = plan.scope == GuardScope::Managed;
    let written = receipt::create_folders(&receipt.folders).and_then(|()| {
        let access = if plan.scope == GuardScope::Managed { FileAccess::Shared } else { FileAccess::Private };
        settings_file::write(&plan.path, &plan.after, access)?;
        // Every user's program reads managed settings, whatever the mask of this process.
        if is_shared { settings_file::share(&receipt.folders, &plan.path) } else { Ok(()) }
    });
    if written.is_err() {
        receipt::remove_empty(&receipt.folders);
        let _ = receipt.remove(plan.program, places);
    }
    written
}

/// Takes the guard of a program away.
///
/// # Errors
/// [`GuardError`] if there is none, or its file cannot be changed.
pub fn undo_guard(program: GuardedProgram, places: &GuardPlaces) -> Result<UndoOutcome, GuardError> {
    let missing = || GuardError::NotInstalled { program: program.name() };
    let receipt = GuardReceipt::read(program, places)?.ok_or_else(missing)?;
    let path = receipt.path.clone();
    let found = settings_file::read(&path)?;
    let is_as_written = found.as_deref().is_some_and(|text| text_digest(text) == receipt.written);
    let outcome = if found == receipt.before {
        UndoOutcome::Restored { path }
    } else if is_as_written {
        settings_file::check_writable(&path)?;
        restore(&receipt)?;
        UndoOutcome::Restored { path }
    } else {
        let entries = receipt.entries(program);
        let gone = match &found {
            None => entries.iter().map(|entry| entry.keys.join(".")).collect(),
            Some(text) => {
                settings_file::check_writable(&path)?;
                let (left, gone) = edit::remove_entries(text, &entries, &receipt.value_before())
                    .map_err(|problem| GuardError::of_settings(&path, problem))?;
                settings_file::write(&path, &left, FileAccess::Private)?;
                gone
            }
        };
        UndoOutcome::Removed { path, gone }
    };
    receipt.remove(program, places)?;
    Ok(outcome)
}

fn restore(receipt: &GuardReceipt) -> Result<(), GuardError> {
    if let Some(before) = &receipt.before {
        return settings_file::write(&receipt.path, before, FileAccess::Private);
    }
    match fs::remove_file(&receipt.path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(GuardError::of_file(&receipt.path)(error)),
        _ => {
            receipt::remove_empty(&receipt.folders);
            Ok(())
        }
    }
}

/// Returns the state of the guard of a program.
///
/// # Errors
/// [`GuardError`] if its receipt or its file cannot be read.
pub fn guard_state(program: GuardedProgram, places: &GuardPlaces) -> Result<GuardState, GuardError> {
    let Some(receipt) = GuardReceipt::read(program, places)? else { return Ok(GuardState::Absent) };
    let path = receipt.path.clone();
    let damaged = |problem: String| Ok(GuardState::Damaged { path: receipt.path.clone(), problem });
    let Some(text) = settings_file::read(&path)? else { return damaged("the file is missing".to_owned()) };
    let Ok(settings) = serde_json::from_str::<Value>(&text) else { return damaged("the file is not JSON".to_owned()) };
    if let Some(problem) = program.settings_problem(&settings) {
        return damaged(problem);
    }
    if let Some(entry) = receipt.entries(program).iter().find(|entry| !entry.is_in(&settings)) {
        return damaged(format!("the entry {} is missing or changed", entry.keys.join(".")));
    }
    Ok(GuardState::Installed { path, scope: receipt.scope() })
}

impl GuardReceipt {
    const fn scope(&self) -> GuardScope {
        if self.is_managed { GuardScope::Managed } else { GuardScope::User }
    }

    fn entries(&self, program: GuardedProgram) -> Vec<SettingsEntry> {
        program.entries(self.scope(), &self.command)
    }
}

impl SettingsEntry {
    fn is_in(&self, settings: &Value) -> bool {
        let found = self.keys.iter().try_fold(settings, |value, key| value.get(key));
        match found {
            Some(Value::Array(elements)) if self.is_list_element => elements.contains(&self.value),
            Some(value) => *value == self.value,
            None => false,
        }
    }
}

#[cfg(test)]
mod tests;
