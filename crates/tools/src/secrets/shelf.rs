//! Where values are kept: a folder with a file each, readable by nobody else, and what a configuration gives.

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
    LONGEST, Lack, SHORTEST, Veil,
    ever::{Change, Ever},
    forms::can_be_hidden,
};
use crate::regular;

/// A secret that is kept, without its value.
#[derive(Debug)]
pub struct Kept {
    /// Its name.
    pub name: String,
    /// Why it would not be released, if it would not.
    pub lack: Option<Lack>,
}

/// Why a secret was not set or removed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be named so.
    #[error("{0:?} cannot name a secret: a letter or _, then letters, digits, _, - and dots, at most 64 of them")]
    Name(String),
    /// It is shorter or longer than it may be, or holds a NUL character.
    #[error("a secret has between {SHORTEST} and {LONGEST} bytes and no NUL character")]
    Value,
    /// Nobody set it.
    #[error("there is no secret called {name} in {}", folder.display())]
    Unknown {
        /// The name.
        name: String,
        /// Where.
        folder: PathBuf,
    },
    /// The system says no.
    #[error("{}: {problem}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What it says.
        problem: io::Error,
    },
}

/// What tells one state of a file from another.
type Stamp = (u64, i64, i64, u64, u32);

type Files = BTreeMap<String, Stamp>;

pub(super) struct Shelf {
    folder: PathBuf,
    given: BTreeMap<String, SecretString>,
    /// Held while a veil is made. Who needs none other than the latest does not wait for it.
    ever: Mutex<Ever>,
    /// Taken for a moment, also by who holds the other.
    latest: Mutex<Latest>,
}

/// The veil that was made last.
#[derive(Default)]
struct Latest {
    /// The folder as it was; none before it was looked at.
    files: Option<Files>,
    veil: Arc<Veil>,
}

impl Shelf {
    pub(super) fn new(folder: PathBuf, given: BTreeMap<String, SecretString>) -> Self {
        Self { folder, given, ever: Mutex::default(), latest: Mutex::default() }
    }

    /// The value, which [`Shelf::veil`] hides from here on.
    pub(super) fn value(&self, name: &str) -> Result<SecretString, Lack> {
        let unknown = || Lack::Unknown(name.to_owned());
        if !is_name(name) {
            return Err(unknown());
        }
        let value = match read(&self.folder, name)? {
            Some(value) => value,
            None => self.given.get(name).cloned().ok_or_else(unknown)?,
        };
        check(name, value.expose_secret())?;
        let mut ever = locked(&self.ever);
        if ever.note(name, &value) == Change::Values {
            let veil = Arc::new(ever.veil());
            locked(&self.latest).veil = veil;
        }
        Ok(value)
    }

    pub(super) fn veil(&self) -> Arc<Veil> {
        let files = stamps(&self.folder);
        if let Some(veil) = self.latest(&files) {
            return veil;
        }
        let mut ever = locked(&self.ever);
        // Somebody else may have been here first.
        if let Some(veil) = self.latest(&files) {
            return veil;
        }
        // A file that is open to others is not released, and hidden all the same.
        let read = |name: &String| {
            let text = regular::read_text(&self.folder.join(name), LONGEST as u64).ok()?;
            Some((name.clone(), SecretString::from(trimmed(text))))
        };
        let kept: Vec<(String, SecretString)> = files.keys().filter_map(read).collect();
        let kept = kept.iter().map(|(name, value)| (name.as_str(), value));
        let given = self.given.iter().map(|(name, value)| (name.as_str(), value));
        let made = (ever.look(given.chain(kept)) == Change::Values).then(|| Arc::new(ever.veil()));
        let mut latest = locked(&self.latest);
        latest.files = Some(files);
        if let Some(made) = made {
            latest.veil = made;
        }
        Arc::clone(&latest.veil)
    }

    /// The latest veil, if it is one over `files`.
    fn latest(&self, files: &Files) -> Option<Arc<Veil>> {
        let latest = locked(&self.latest);
        (latest.files.as_ref() == Some(files)).then(|| Arc::clone(&latest.veil))
    }
}

fn locked<T>(owned: &Mutex<T>) -> MutexGuard<'_, T> {
    owned.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check(name: &str, value: &str) -> Result<(), Lack> {
    if value.len() < SHORTEST || !can_be_hidden(value) {
        return Err(Lack::Short(name.to_owned()));
    }
    if value.contains('\0') {
        return Err(Lack::Nul(name.to_owned()));
    }
    Ok(())
}

/// What a file of the folder holds; none if there is no such file.
fn read(folder: &Path, name: &str) -> Result<Option<SecretString>, Lack> {
    let path = folder.join(name);
    let unreadable = |problem| Lack::Unreadable { name: name.to_owned(), problem };
    let found = match fs::metadata(&path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    let mode = found.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(Lack::Open { name: name.to_owned(), mode });
    }
    let text = regular::read_text(&path, LONGEST as u64).map_err(unreadable)?;
    Ok(Some(trimmed(text).into()))
}

/// Without the line end that editors and `echo` put behind it.
fn trimmed(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    text
}

/// The files that could be secrets, as they are now. A folder that cannot be read has none.
fn stamps(folder: &Path) -> Files {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeMap::new() };
    let named = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).filter(|name| is_name(name));
    named
        .filter_map(|name| {
            let found = fs::metadata(folder.join(&name)).ok().filter(fs::Metadata::is_file)?;
            Some((name, (found.ino(), found.mtime(), found.mtime_nsec(), found.len(), found.mode())))
        })
        .collect()
}

/// The secrets that are kept in `folder`, by name. A folder that is not there has none.
///
/// # Errors
/// [`StoreError::Io`] if it cannot be read.
pub fn list(folder: &Path) -> Result<Vec<Kept>, StoreError> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(problem) => return Err(StoreError::Io { path: folder.to_owned(), problem }),
        Ok(_) => {}
    }
    let kept = |name: String| {
        let lack = match read(folder, &name) {
            Ok(Some(value)) => check(&name, value.expose_secret()).err(),
            Ok(None) => Some(Lack::Unknown(name.clone())),
            Err(lack) => Some(lack),
        };
        Kept { name, lack }
    };
    Ok(stamps(folder).into_keys().map(kept).collect())
}

/// Keeps `value` as the secret `name`, in place of one that was there. Gives whether there was one.
///
/// # Errors
/// [`StoreError`]; what was there is as it was.
pub fn set(folder: &Path, name: &str, value: &SecretString) -> Result<bool, StoreError> {
    if !is_name(name) {
        return Err(StoreError::Name(name.to_owned()));
    }
    let text = trimmed(value.expose_secret().to_owned());
    if check(name, &text).is_err() || text.len() > LONGEST {
        return Err(StoreError::Value);
    }
    let io = |path: &Path| {
        let path = path.to_owned();
        move |problem| StoreError::Io { path, problem }
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
pub fn remove(folder: &Path, name: &str) -> Result<(), StoreError> {
    if !is_name(name) {
        return Err(StoreError::Name(name.to_owned()));
    }
    let path = folder.join(name);
    match fs::remove_file(&path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(StoreError::Unknown { name: name.to_owned(), folder: folder.to_owned() })
        }
        Err(problem) => Err(StoreError::Io { path, problem }),
    }
}
