//! Storage of secret values: a folder with a file each, readable only by its owner, and the values of the configuration.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use countersign_core::secret::is_name;
use secrecy::{ExposeSecret as _, SecretString};

use super::{
    LONGEST, Redactor, SHORTEST, SecretRefused,
    forms::can_be_hidden,
    known_secrets::{KnownSecrets, RedactorChange},
};
use crate::regular;

/// A secret that is kept, without its value.
#[derive(Debug)]
pub struct SecretEntry {
    /// Its name.
    pub name: String,
    /// Reason that it would not be released; none if it would.
    pub lack: Option<SecretRefused>,
}

/// Reason that a secret was not set or removed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The name is invalid.
    #[error(
        "invalid secret name {0:?}: expected a letter or _, then letters, digits, _, - and dots, at most 64 characters"
    )]
    Name(String),
    /// The value is shorter or longer than allowed, or holds a NUL character.
    #[error("a secret must have between {SHORTEST} and {LONGEST} bytes and no NUL character")]
    Value,
    /// The secret is not set.
    #[error("there is no secret called {name} in {}", folder.display())]
    Unknown {
        /// The name.
        name: String,
        /// Folder of secrets.
        folder: PathBuf,
    },
    /// The system returned an error.
    #[error("cannot {action} {}: {problem}", path.display())]
    Io {
        /// Failed action: `read`, `write` or `remove`.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The error.
        problem: io::Error,
    },
}

/// Stamp that distinguishes states of a file.
type SecretFileStamp = (u64, i64, i64, u64, u32);

type FileStamps = BTreeMap<String, SecretFileStamp>;

pub(super) struct SecretStore {
    folder: PathBuf,
    given: BTreeMap<String, SecretString>,
    /// Held while a redactor is built. Callers that the latest one suffices for do not wait for it.
    ever: Mutex<KnownSecrets>,
    /// Taken for a moment, also by who holds the other.
    latest: Mutex<LatestRedactor>,
}

/// The redactor that was built last.
#[derive(Default)]
struct LatestRedactor {
    /// The folder as it was; none before it was looked at.
    files: Option<FileStamps>,
    redactor: Arc<Redactor>,
}

impl SecretStore {
    pub(super) fn new(folder: PathBuf, given: BTreeMap<String, SecretString>) -> Self {
        Self { folder, given, ever: Mutex::default(), latest: Mutex::default() }
    }

    /// Returns the value, which [`SecretStore::redactor`] hides from here on.
    pub(super) fn secret_value(&self, name: &str) -> Result<SecretString, SecretRefused> {
        let unknown = || SecretRefused::Unknown(name.to_owned());
        if !is_name(name) {
            return Err(unknown());
        }
        let value = match read_secret(&self.folder, name)? {
            Some(value) => value,
            None => self.given.get(name).cloned().ok_or_else(unknown)?,
        };
        check_secret(name, value.expose_secret())?;
        let mut ever = lock_mutex(&self.ever);
        if ever.note_value(name, &value) == RedactorChange::Values {
            let veil = Arc::new(ever.build_redactor());
            lock_mutex(&self.latest).redactor = veil;
        }
        Ok(value)
    }

    pub(super) fn redactor(&self) -> Arc<Redactor> {
        let files = file_stamps(&self.folder);
        if let Some(veil) = self.latest_redactor(&files) {
            return veil;
        }
        let mut ever = lock_mutex(&self.ever);
        // Another thread may have built it first.
        if let Some(veil) = self.latest_redactor(&files) {
            return veil;
        }
        // A file that is open to others is not released, and hidden all the same.
        let read = |name: &String| {
            let text = regular::read_text(&self.folder.join(name), LONGEST as u64).ok()?;
            Some((name.clone(), SecretString::from(trim_line_end(text))))
        };
        let kept: Vec<(String, SecretString)> = files.keys().filter_map(read).collect();
        let kept = kept.iter().map(|(name, value)| (name.as_str(), value));
        let given = self.given.iter().map(|(name, value)| (name.as_str(), value));
        let made =
            (ever.refresh_values(given.chain(kept)) == RedactorChange::Values).then(|| Arc::new(ever.build_redactor()));
        let mut latest = lock_mutex(&self.latest);
        latest.files = Some(files);
        if let Some(made) = made {
            latest.redactor = made;
        }
        Arc::clone(&latest.redactor)
    }

    /// Returns the latest redactor, if it is one for `files`.
    fn latest_redactor(&self, files: &FileStamps) -> Option<Arc<Redactor>> {
        let latest = lock_mutex(&self.latest);
        (latest.files.as_ref() == Some(files)).then(|| Arc::clone(&latest.redactor))
    }
}

fn lock_mutex<T>(owned: &Mutex<T>) -> MutexGuard<'_, T> {
    owned.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check_secret(name: &str, value: &str) -> Result<(), SecretRefused> {
    if value.len() < SHORTEST || !can_be_hidden(value) {
        return Err(SecretRefused::Short(name.to_owned()));
    }
    if value.contains('\0') {
        return Err(SecretRefused::Nul(name.to_owned()));
    }
    Ok(())
}

/// Reads a file of the folder; none if there is no such file.
fn read_secret(folder: &Path, name: &str) -> Result<Option<SecretString>, SecretRefused> {
    let path = folder.join(name);
    let unreadable = |problem| SecretRefused::Unreadable { name: name.to_owned(), problem };
    let found = match fs::metadata(&path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let mode = found.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(SecretRefused::Open { name: name.to_owned(), mode });
    }
    let text = regular::read_text(&path, LONGEST as u64).map_err(unreadable)?;
    Ok(Some(trim_line_end(text).into()))
}

/// Removes the line end that editors and `echo` append.
fn trim_line_end(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    text
}

/// Returns the files that could be secrets, as they are now. A folder that cannot be read has none.
fn file_stamps(folder: &Path) -> FileStamps {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeMap::new() };
    let named = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).filter(|name| is_name(name));
    named
        .filter_map(|name| {
            let found = fs::metadata(folder.join(&name)).ok().filter(fs::Metadata::is_file)?;
            Some((name, (found.ino(), found.mtime(), found.mtime_nsec(), found.len(), found.mode())))
        })
        .collect()
}

/// Returns the secrets that are kept in `folder`, by name. A folder that is not there has none.
///
/// # Errors
/// [`StoreError::Io`] if it cannot be read.
pub fn list_secrets(folder: &Path) -> Result<Vec<SecretEntry>, StoreError> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(problem) => return Err(StoreError::Io { action: "read", path: folder.to_owned(), problem }),
        Ok(_) => {}
    }
    let kept = |name: String| {
        let lack = match read_secret(folder, &name) {
            Ok(Some(value)) => check_secret(&name, value.expose_secret()).err(),
            Ok(None) => Some(SecretRefused::Unknown(name.clone())),
            Err(lack) => Some(lack),
        };
        SecretEntry { name, lack }
    };
    Ok(file_stamps(folder).into_keys().map(kept).collect())
}

/// Keeps `value` as the secret `name`, in place of one that was there. Gives whether there was one.
///
/// # Errors
/// [`StoreError`]; what was there is as it was.
pub fn set_secret(folder: &Path, name: &str, value: &SecretString) -> Result<bool, StoreError> {
    if !is_name(name) {
        return Err(StoreError::Name(name.to_owned()));
    }
    let text = trim_line_end(value.expose_secret().to_owned());
    if check_secret(name, &text).is_err() || text.len() > LONGEST {
        return Err(StoreError::Value);
    }
    let io = |path: &Path| {
        let path = path.to_owned();
        move |problem| StoreError::Io { action: "write", path, problem }
    };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io(folder))?;
    let path = folder.join(name);
    let was_there = path.exists();
    // No secret is called so: none begins with a dot.
    let new = folder.join(format!(".{name}.{}", std::process::id()));
    let written = || {
        let _ = fs::remove_file(&new);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        fs::File::open(folder)?.sync_all()
    };
    written().map_err(|problem| {
        let _ = fs::remove_file(&new);
        io(&path)(problem)
    })?;
    Ok(was_there)
}

/// Removes the secret `name`.
///
/// # Errors
/// [`StoreError`], if there is none, too.
pub fn remove_secret(folder: &Path, name: &str) -> Result<(), StoreError> {
    if !is_name(name) {
        return Err(StoreError::Name(name.to_owned()));
    }
    let path = folder.join(name);
    match fs::remove_file(&path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(StoreError::Unknown { name: name.to_owned(), folder: folder.to_owned() })
        }
        Err(problem) => Err(StoreError::Io { action: "remove", path, problem }),
    }
}
