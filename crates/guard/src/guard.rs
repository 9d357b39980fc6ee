//! Installs guards and takes them away.

use std::path::PathBuf;

use countersign_files::replace::FileAccess;

use crate::{
    edit,
    error::GuardError,
    own_entries::OwnEntries,
    places::GuardPlaces,
    presence::{has_guard, has_own_entries},
    program::{CODEX_EVENTS, GuardScope, GuardedProgram, HOOK_LIMIT, SettingsEntry},
    receipt::{self, Addition, FileReceipt, GuardReceipt, text_digest},
    settings_file,
    text_blocks::{self, HookTrust},
    toml_tables,
    undo::{remove_unrecorded, restore_text},
};

/// Change that a guard makes.
#[derive(Clone, Debug)]
pub struct GuardPlan {
    program: GuardedProgram,
    scope: GuardScope,
    command: String,
    settings: FileChange,
    /// Written before the settings.
    others: Vec<FileChange>,
    allowances: Vec<String>,
    /// Keys of the trust of Codex in the hooks of an earlier guard.
    stale_trust: Vec<String>,
}

/// Change of one file.
#[derive(Clone, Debug)]
pub struct FileChange {
    path: PathBuf,
    before: Option<String>,
    /// The text before without the entries of an earlier guard, to which the end of this one returns.
    restored: Option<String>,
    after: String,
    addition: Addition,
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
    /// It is there, and was installed by another user, or its receipt was lost.
    Unrecorded {
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

impl FileChange {
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

    fn receipt(&self) -> FileReceipt {
        FileReceipt {
            path: self.path.clone(),
            before: self.restored.clone(),
            written: text_digest(&self.after),
            folders: GuardPlaces::missing_folders(&self.path),
            addition: self.addition.clone(),
        }
    }
}

impl GuardPlan {
    /// Returns the change of the program's settings.
    pub const fn settings(&self) -> &FileChange {
        &self.settings
    }

    /// Returns the changes of all files, the settings last.
    pub fn files(&self) -> impl Iterator<Item = &FileChange> {
        self.others.iter().chain([&self.settings])
    }

    /// Returns rules of the program itself that allow calls as soon as the hook is off.
    pub fn own_allowances(&self) -> &[String] {
        &self.allowances
    }

    /// Adds the trust in the hooks of Codex to its configuration.
    ///
    /// # Errors
    /// [`GuardError`] if it is there already, or the file cannot be changed.
    pub fn add_trust(&mut self, trust: &[HookTrust], places: &GuardPlaces) -> Result<(), GuardError> {
        let path = places.codex_folder().join("config.toml");
        let before = settings_file::read(&path)?;
        settings_file::check_writable(&path)?;
        let restored = before.as_deref().map(|text| {
            let stale = [self.stale_trust.clone(), toml_tables::commented_keys(text)].concat();
            toml_tables::remove_trust(text, &stale).0
        });
        let (after, block) = text_blocks::add_trust(restored.as_deref().unwrap_or_default(), trust)
            .map_err(|problem| GuardError::of_settings(&path, problem))?;
        self.others.push(FileChange { path, before, restored, after, addition: Addition::Blocks(vec![block]) });
        Ok(())
    }

    /// Adds a file of the guard's own.
    ///
    /// # Errors
    /// [`GuardError`] if another file is in its place.
    pub fn add_file(&mut self, path: PathBuf, text: String) -> Result<(), GuardError> {
        let before = settings_file::read(&path)?;
        // The first line says who wrote it.
        if before.as_ref().is_some_and(|found| found.lines().next() != text.lines().next()) {
            return Err(GuardError::of_settings(path, "is there already, and not as the guard writes it: remove it"));
        }
        self.others.push(FileChange { path, before, restored: None, after: text, addition: Addition::Whole });
        Ok(())
    }

    /// Reports whether it replaces the entries of an earlier guard whose receipt is lost.
    pub fn replaces_earlier(&self) -> bool {
        self.settings.before != self.settings.restored
    }
}

/// Plans the guard of a program, and changes nothing. `command` is the shell command of the hook, or for opencode the path of the plugin.
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
    if GuardReceipt::read(program, places)?.is_some_and(|receipt| !receipt.files().all(FileReceipt::is_untouched)) {
        return Err(GuardError::Installed { program: program.name() });
    }
    if let Some(later) = program.later_settings(&path).filter(|later| later.exists()) {
        let problem = format!("is read after {}, and could undo the guard: move its entries there", path.display());
        return Err(GuardError::of_settings(later, problem));
    }
    let before = settings_file::read(&path)?;
    settings_file::check_writable(&path)?;
    let own = OwnEntries::new(program, None);
    let (mut restored, mut stale_trust) = (before.clone(), Vec::new());
    if let Some(text) = before.as_deref().filter(|text| has_own_entries(program, scope, text, &own)) {
        let removal =
            remove_unrecorded(program, scope, text).map_err(|problem| GuardError::of_settings(&path, problem))?;
        restored = removal.text;
        if let Ok(settings) = program.parse_settings(text) {
            stale_trust = own.trust_keys(&path, &settings);
        }
    }
    let text = restored.as_deref().unwrap_or_default();
    let (after, addition, allowances) = if program.has_toml_settings(scope) {
        let (after, blocks) =
            text_blocks::add_requirements(text, &CODEX_EVENTS, &GuardedProgram::blocking_command(command), HOOK_LIMIT)
                .map_err(|problem| GuardError::of_settings(&path, problem))?;
        (after, Addition::Blocks(blocks), Vec::new())
    } else {
        let settings = program.parse_settings(text).map_err(|problem| GuardError::of_settings(&path, problem))?;
        if let Some(problem) = program.settings_problem(&settings) {
            return Err(GuardError::of_settings(&path, format!("{problem}: {} may ignore the file", program.title())));
        }
        let after = edit::add_entries(text, &program.entries(scope, command), program.syntax())
            .map_err(|problem| GuardError::of_settings(&path, problem))?;
        (after, Addition::Entries, program.own_allowances(&settings))
    };
    let settings = FileChange { path, before, restored, after, addition };
    let (command, others) = (command.to_owned(), Vec::new());
    Ok(GuardPlan { program, scope, command, settings, others, allowances, stale_trust })
}

/// Returns the path of the settings, and the text with the guard and nothing else, for a file that its user has to change: one that is a
/// link, for example.
///
/// # Errors
/// [`GuardError`] if the program has no such settings.
pub fn manual_entries(
    program: GuardedProgram,
    scope: GuardScope,
    command: &str,
    places: &GuardPlaces,
) -> Result<(PathBuf, String), GuardError> {
    let path = program.settings_path(scope, places)?;
    let text = if program.has_toml_settings(scope) {
        let command = GuardedProgram::blocking_command(command);
        text_blocks::add_requirements("", &CODEX_EVENTS, &command, HOOK_LIMIT).map(|(text, _)| text)
    } else {
        edit::add_entries("", &program.entries(scope, command), program.syntax())
    };
    match text {
        Ok(text) => Ok((path, text)),
        Err(problem) => Err(GuardError::of_settings(path, problem)),
    }
}

/// Makes the change of a plan. The receipt comes first, so that a crash in between leaves nothing that cannot be taken away.
///
/// # Errors
/// [`GuardError`] if a file changed since the plan, or cannot be written; then all are as they were.
pub fn apply_guard(plan: &GuardPlan, places: &GuardPlaces) -> Result<(), GuardError> {
    for file in plan.files() {
        if settings_file::read(&file.path)? != file.before {
            return Err(GuardError::ChangedMeanwhile { path: file.path.clone() });
        }
    }
    let earlier = GuardReceipt::read(plan.program, places)?;
    let receipt_path = places.receipts().join("receipt");
    let receipt = GuardReceipt {
        is_managed: plan.scope == GuardScope::Managed,
        command: plan.command.clone(),
        own_folders: match earlier {
            Some(earlier) => earlier.own_folders,
            None => GuardPlaces::missing_folders(&receipt_path),
        },
        // Those of the receipt exist by the time of the files.
        others: Vec::new(),
        settings: plan.settings.receipt(),
    };
    receipt::create_folders(&receipt.own_folders)?;
    let receipt = GuardReceipt { others: plan.others.iter().map(FileChange::receipt).collect(), ..receipt };
    receipt.write(plan.program, places)?;
    let written = plan.files().zip(receipt.files()).try_for_each(|(file, receipt)| file.write(receipt, plan.scope));
    if written.is_err() {
        let files: Vec<_> = plan.files().zip(receipt.files()).collect();
        let _ = files.into_iter().rev().try_for_each(|(file, receipt)| restore_text(receipt, file.before.as_ref()));
        let _ = receipt.remove(plan.program, places);
    }
    written
}

impl FileChange {
    fn write(&self, receipt: &FileReceipt, scope: GuardScope) -> Result<(), GuardError> {
        receipt::create_folders(&receipt.folders)?;
        let is_shared = scope == GuardScope::Managed;
        let access = if is_shared { FileAccess::Shared } else { FileAccess::Private };
        settings_file::write(&self.path, &self.after, access)?;
        // Every user's program reads managed settings, whatever the mask of this process.
        if is_shared { settings_file::share(&receipt.folders, &self.path) } else { Ok(()) }
    }
}

/// Returns the state of the guard of a program.
///
/// # Errors
/// [`GuardError`] if its receipt or a file cannot be read.
pub fn guard_state(program: GuardedProgram, places: &GuardPlaces) -> Result<GuardState, GuardError> {
    let Some(receipt) = GuardReceipt::read(program, places)? else { return find_unrecorded(program, places) };
    let current = program.settings_path(receipt.scope(), places)?;
    if current != receipt.settings.path {
        let problem = format!("{} reads {} now", program.title(), current.display());
        return Ok(GuardState::Damaged { path: receipt.settings.path, problem });
    }
    for file in receipt.files() {
        if let Some(problem) = file_problem(file, program, &receipt)? {
            return Ok(GuardState::Damaged { path: file.path.clone(), problem });
        }
    }
    Ok(GuardState::Installed { path: receipt.settings.path.clone(), scope: receipt.scope() })
}

/// Returns the shell command of the installed hook, or for opencode the path of the plugin.
///
/// # Errors
/// [`GuardError`] if there is no guard.
pub fn guard_command(program: GuardedProgram, places: &GuardPlaces) -> Result<String, GuardError> {
    let receipt = GuardReceipt::read(program, places)?;
    receipt.map(|receipt| receipt.command).ok_or_else(|| GuardError::NotInstalled { program: program.name() })
}

/// Returns the text of a configuration of Codex with the trust in hooks at its end.
///
/// # Errors
/// The key that is there already.
pub fn trust_tables(config: &str, trust: &[HookTrust]) -> Result<String, String> {
    text_blocks::add_trust(config, trust).map(|(text, _)| text)
}

/// Finds a guard without a receipt: that of the machine first, which the administrator installed.
fn find_unrecorded(program: GuardedProgram, places: &GuardPlaces) -> Result<GuardState, GuardError> {
    for scope in [GuardScope::Managed, GuardScope::User] {
        let Ok(path) = program.settings_path(scope, places) else { continue };
        if settings_file::read(&path)?.is_some_and(|text| has_guard(program, scope, &text)) {
            return Ok(GuardState::Unrecorded { path, scope });
        }
    }
    Ok(GuardState::Absent)
}

/// Returns the damage of one file of a guard.
fn file_problem(
    file: &FileReceipt,
    program: GuardedProgram,
    receipt: &GuardReceipt,
) -> Result<Option<String>, GuardError> {
    let Some(text) = settings_file::read(&file.path)? else { return Ok(Some("the file is missing".to_owned())) };
    let is_changed = || Some("the part of the guard is missing or changed".to_owned());
    Ok(match &file.addition {
        Addition::Whole => is_changed().filter(|_| text_digest(&text) != file.written),
        Addition::Blocks(blocks) => is_changed().filter(|_| !text_blocks::remove_blocks(&text, blocks).1.is_empty()),
        Addition::Entries => {
            let Ok(settings) = program.parse_settings(&text) else {
                return Ok(Some("the file is not JSON".to_owned()));
            };
            program.settings_problem(&settings).or_else(|| {
                let lacking = receipt.entries(program).into_iter().find(|entry| !entry.is_in(&settings))?;
                Some(format!("the entry {} is missing or changed", lacking.keys.join(".")))
            })
        }
    })
}

impl GuardReceipt {
    pub(crate) const fn scope(&self) -> GuardScope {
        if self.is_managed { GuardScope::Managed } else { GuardScope::User }
    }

    pub(crate) fn entries(&self, program: GuardedProgram) -> Vec<SettingsEntry> {
        program.entries(self.scope(), &self.command)
    }
}

#[cfg(test)]
mod tests;
