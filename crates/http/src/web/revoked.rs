//! Cookies that were revoked before their time, stored with the record until they are out of date.

use std::{
    collections::BTreeMap,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use countersign_core::time::Millis;
use parking_lot::Mutex;

/// The tokens of such cookies, with when they would be out of date.
pub(super) struct RevokedCookies {
    tokens: Mutex<BTreeMap<String, Millis>>,
    file: PathBuf,
    /// One writes at a time, so that the last to write has seen all.
    writing: Mutex<()>,
}

impl RevokedCookies {
    /// Opens `file` and reads the entries that are not out of date by `now`.
    ///
    /// # Errors
    /// The system's error; a missing file is none.
    pub(super) fn open(file: PathBuf, now: Millis) -> io::Result<Self> {
        let tokens = Mutex::new(read_file(&file, now)?);
        Ok(Self { tokens, file, writing: Mutex::new(()) })
    }

    /// Reports whether a token was revoked.
    pub(super) fn contains_token(&self, token: &str) -> bool {
        self.tokens.lock().contains_key(token)
    }

    /// Revokes a token, at once in memory and then in the file.
    ///
    /// # Errors
    /// The system's error about the file.
    pub(super) async fn revoke_token(self: &Arc<Self>, token: String, until: Millis, now: Millis) -> io::Result<()> {
        {
            let mut tokens = self.tokens.lock();
            tokens.retain(|_, until| *until > now);
            tokens.insert(token, until);
        }
        let revoked = Arc::clone(self);
        tokio::task::spawn_blocking(move || revoked.write_file()).await.map_err(io::Error::other)?
    }

    /// Puts all of them in the place of the file.
    fn write_file(&self) -> io::Result<()> {
        let _writing = self.writing.lock();
        let lines: String = self.tokens.lock().iter().map(|(token, until)| format!("{token} {}\n", until.0)).collect();
        let fresh = self.file.with_extension("revoked.new");
        let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(lines.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&fresh, &self.file)
    }
}

fn read_file(path: &Path, now: Millis) -> io::Result<BTreeMap<String, Millis>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
    };
    let lines = text.lines().filter_map(|line| {
        let (token, until) = line.split_once(' ')?;
        Some((token.to_owned(), Millis(until.parse().ok()?)))
    });
    Ok(lines.filter(|(_, until)| *until > now).collect())
}
