//! The tokens as a gateway that runs knows them: read again when the file is another.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use countersign_core::{digest::Digest, time::Millis};
use countersign_runtime::Clock;
use parking_lot::Mutex;
use subtle::ConstantTimeEq as _;

use super::{FILE, Scope, Token, TokensError, list};
use crate::web::auth::Tokens;

/// How long what was read is taken for what the file says.
const FRESH: Duration = Duration::from_secs(1);

/// What tells one version of a file from another: it is replaced as a whole, so each has a number of its own.
type Stamp = (u64, i64, i64, u64);

#[derive(Default)]
struct Known {
    stamp: Option<Stamp>,
    /// Of the version that the system did not let us read. It is tried again: who may read it and how many files may be open
    /// changes without making it another.
    unread: Option<Stamp>,
    looked: Option<Millis>,
    tokens: Vec<Token>,
}

/// The file of tokens in a data directory.
pub struct Watched {
    folder: PathBuf,
    clock: Clock,
    known: Mutex<Known>,
}

impl Watched {
    /// That of `folder`.
    pub fn new(folder: &Path, clock: Clock) -> Self {
        Self { folder: folder.to_owned(), clock, known: Mutex::default() }
    }

    fn stamp(&self) -> Option<Stamp> {
        let found = fs::metadata(self.folder.join(FILE)).ok()?;
        Some((found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
    }

    fn look(&self, known: &mut Known, now: Millis) {
        known.looked = Some(now);
        let stamp = self.stamp();
        if stamp == known.stamp && known.unread.is_none() {
            return;
        }
        let read = list(&self.folder);
        let unread = stamp.filter(|_| matches!(read, Err(TokensError::Io { .. })));
        let is_told = unread.is_some() && unread == known.unread;
        // What cannot be read lets nobody in.
        known.tokens = read.unwrap_or_else(|error| {
            if !is_told {
                tracing::error!(%error, "no token is good while this file cannot be read");
            }
            Vec::new()
        });
        (known.stamp, known.unread) = (stamp, unread);
    }
}

impl Tokens for Watched {
    fn find(&self, token: &str) -> Option<(String, Vec<Scope>)> {
        let digest = Digest::hash_bytes(token.as_bytes());
        let now = self.clock.now();
        let mut known = self.known.lock();
        let is_fresh = known.looked.is_some_and(|looked| now < looked + FRESH);
        if !is_fresh {
            self.look(&mut known, now);
        }
        if let Some(found) = among(&known.tokens, &digest, now) {
            return Some(found);
        }
        if is_fresh {
            // It may have been made a moment ago.
            self.look(&mut known, now);
            return among(&known.tokens, &digest, now);
        }
        None
    }
}

/// All are looked at, so that the time taken tells nothing.
fn among(tokens: &[Token], digest: &Digest, now: Millis) -> Option<(String, Vec<Scope>)> {
    let mut found = None;
    for token in tokens {
        if bool::from(token.sha256.as_bytes().ct_eq(digest.as_bytes())) && token.is_good(now) {
            found = Some((token.name.clone(), token.scopes.clone()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use countersign_core::time::Millis;
    use countersign_runtime::Clock;

    use super::{FRESH, Scope, Watched};
    use crate::{
        tokens::{add, remove},
        web::auth::Tokens as _,
    };

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_runs_knows_what_was_added_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let start = Millis(1_000_000);
        let watched = Watched::new(folder.path(), Clock::starting_at(start));
        assert_eq!(watched.find("cst_nothing"), None);
        let day = Some(Duration::from_secs(86_400));
        let text = add(folder.path(), "ci", &[Scope::Read, Scope::Answer], day, start).unwrap();
        assert_eq!(watched.find(&text), Some(("ci".to_owned(), vec![Scope::Read, Scope::Answer])), "at once");
        assert_eq!(watched.find(&text[..text.len() - 1]), None);
        remove(folder.path(), "ci").unwrap();
        tokio::time::advance(FRESH).await;
        assert_eq!(watched.find(&text), None, "within a second");
        let text = add(folder.path(), "ci", &[Scope::Read], day, start).unwrap();
        assert!(watched.find(&text).is_some());
        tokio::time::advance(Duration::from_secs(86_400)).await;
        assert_eq!(watched.find(&text), None, "out of date");
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_cannot_be_read_lets_nobody_in() {
        let folder = tempfile::tempdir().unwrap();
        let watched = Watched::new(folder.path(), Clock::starting_at(Millis(1)));
        let text = add(folder.path(), "ci", &[Scope::Read], None, Millis(1)).unwrap();
        assert!(watched.find(&text).is_some());
        std::fs::write(folder.path().join(super::FILE), "no JSON").unwrap();
        tokio::time::advance(FRESH).await;
        assert_eq!(watched.find(&text), None);
    }
}
