//! Receipts: what a guard added to which files, and what was there before.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use countersign_files::replace::FileAccess;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::{error::GuardError, json_syntax::JsonSyntax, places::GuardPlaces, program::GuardedProgram, settings_file};

/// Receipt of one guard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct GuardReceipt {
    /// The settings file.
    #[serde(flatten)]
    pub(crate) settings: FileReceipt,
    /// True if it is in the settings of the machine.
    pub(crate) is_managed: bool,
    /// Shell command of the hook, or the path of the plugin that runs it.
    pub(crate) command: String,
    /// Folders that were created for this receipt, the highest first.
    pub(crate) own_folders: Vec<PathBuf>,
    /// Further files, in the order in which they were written before the settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) others: Vec<FileReceipt>,
}

/// Receipt of one file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FileReceipt {
    pub(crate) path: PathBuf,
    /// Its text before, without the entries of an earlier guard; absent if there was none.
    pub(crate) before: Option<String>,
    /// SHA-256 of the text that the guard wrote.
    pub(crate) written: String,
    /// Folders that were created for the file, the highest first.
    pub(crate) folders: Vec<PathBuf>,
    #[serde(default)]
    pub(crate) addition: Addition,
}

/// What was added to a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Addition {
    /// The entries of the program's settings, in JSON.
    #[default]
    Entries,
    /// These texts, each as it stands.
    Blocks(Vec<String>),
    /// Everything: the file is the guard's own.
    Whole,
}

/// Returns the SHA-256 of a text.
pub(crate) fn text_digest(text: &str) -> String {
    hex::encode(Sha256::digest(text.as_bytes()))
}

fn path_of(program: GuardedProgram, places: &GuardPlaces) -> PathBuf {
    places.receipts().join(format!("{}.json", program.name()))
}

impl GuardReceipt {
    /// Reads the receipt of a program; `None` if it has none.
    pub(crate) fn read(program: GuardedProgram, places: &GuardPlaces) -> Result<Option<Self>, GuardError> {
        let path = path_of(program, places);
        let Some(text) = settings_file::read(&path)? else { return Ok(None) };
        let receipt = serde_json::from_str(&text);
        receipt.map(Some).map_err(|error| GuardError::of_settings(path, format!("is no receipt of a guard: {error}")))
    }

    /// Writes the receipt, before the settings change.
    pub(crate) fn write(&self, program: GuardedProgram, places: &GuardPlaces) -> Result<(), GuardError> {
        let path = path_of(program, places);
        create_folders(&GuardPlaces::missing_folders(&path))?;
        let text = serde_json::to_string_pretty(self).expect("a receipt is plain data with text keys");
        // It has the settings of the user in it.
        settings_file::write(&path, &text, FileAccess::Private)
    }

    /// Removes the receipt, and the folders that were created for it.
    pub(crate) fn remove(&self, program: GuardedProgram, places: &GuardPlaces) -> Result<(), GuardError> {
        let path = path_of(program, places);
        fs::remove_file(&path).map_err(GuardError::of_file(&path))?;
        remove_empty(&self.own_folders);
        Ok(())
    }

    /// Returns the receipts of all files, in the order in which they are written.
    pub(crate) fn files(&self) -> impl DoubleEndedIterator<Item = &FileReceipt> {
        self.others.iter().chain([&self.settings])
    }
}

impl FileReceipt {
    /// Returns the settings before the guard.
    pub(crate) fn value_before(&self) -> Value {
        let text = self.before.as_deref().unwrap_or_default();
        JsonSyntax::Comments.parse_value(text).unwrap_or_else(|_| Value::Object(serde_json::Map::new()))
    }

    /// Reports whether the file is as it was before the guard.
    pub(crate) fn is_untouched(&self) -> bool {
        settings_file::read(&self.path).is_ok_and(|text| text == self.before)
    }
}

/// Creates folders, the highest first.
pub(crate) fn create_folders(folders: &[PathBuf]) -> Result<(), GuardError> {
    for folder in folders {
        match fs::create_dir(folder) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(GuardError::of_file(folder)(error)),
            _ => {}
        }
    }
    Ok(())
}

/// Removes those of the folders that are empty.
pub(crate) fn remove_empty(folders: &[PathBuf]) {
    for folder in folders.iter().rev() {
        // Somebody else has put something into it.
        if fs::remove_dir(Path::new(folder)).is_err() {
            return;
        }
    }
}
