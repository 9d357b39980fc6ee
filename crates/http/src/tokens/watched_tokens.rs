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

use super::{ApiToken, FILE, TokenScope, TokensError, list_tokens};
use crate::web::auth::TokenLookup;

/// Time for which the last reading is taken for the content of the file.
const FRESH: Duration = Duration::from_secs(1);

/// Stamp that distinguishes one version of a file from another: it is replaced as a whole, so each has a number of its own.
type TokenFileStamp = (u64, i64, i64, u64);

#[derive(Default)]
struct CachedTokens {
    stamp: Option<TokenFileStamp>,
    /// Of the version that the system did not let us read. It is tried again: who may read it and how many files may be open
    /// changes without making it another.
    unread: Option<TokenFileStamp>,
    looked: Option<Millis>,
    tokens: Vec<ApiToken>,
}

/// The file of tokens in a data directory.
pub struct WatchedTokens {
    folder: PathBuf,
    clock: Clock,
    known: Mutex<CachedTokens>,
}

impl WatchedTokens {
    /// Watches the tokens of `folder`.
    pub fn new(folder: &Path, clock: Clock) -> Self {
        Self { folder: folder.to_owned(), clock, known: Mutex::default() }
    }

    fn file_stamp(&self) -> Option<TokenFileStamp> {
        let found = fs::metadata(self.folder.join(FILE)).ok()?;
        Some((found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
    }

    fn reload_if_changed(&self, known: &mut CachedTokens, now: Millis) {
        known.looked = Some(now);
        let stamp = self.file_stamp();
        if stamp == known.stamp && known.unread.is_none() {
            return;
        }
        let read = list_tokens(&self.folder);
        let unread = stamp.filter(|_| matches!(read, Err(TokensError::Io { .. })));
        let is_told = unread.is_some() && unread == known.unread;
        // An unreadable file admits no token.
        known.tokens = read.unwrap_or_else(|error| {
            if !is_told {
                tracing::error!(%error, "all tokens are rejected: the token file cannot be read");
            }
            Vec::new()
        });
        (known.stamp, known.unread) = (stamp, unread);
    }
}

impl TokenLookup for WatchedTokens {
    fn find_token(&self, token: &str) -> Option<(String, Vec<TokenScope>)> {
        let digest = Digest::hash_bytes(token.as_bytes());
        let now = self.clock.now();
        let mut known = self.known.lock();
        let is_fresh = known.looked.is_some_and(|looked| now < looked + FRESH);
        if !is_fresh {
            self.reload_if_changed(&mut known, now);
        }
        if let Some(found) = find_by_digest(&known.tokens, &digest, now) {
            return Some(found);
        }
        if is_fresh {
            // It may have been made a moment ago.
            self.reload_if_changed(&mut known, now);
            return find_by_digest(&known.tokens, &digest, now);
        }
        None
    }
}

/// Finds a token by its digest. All are looked at, so that the time taken reveals nothing.
fn find_by_digest(tokens: &[ApiToken], digest: &Digest, now: Millis) -> Option<(String, Vec<TokenScope>)> {
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

    use super::{FRESH, TokenScope, WatchedTokens};
    use crate::{
        tokens::{add_token, remove_token},
        web::auth::TokenLookup as _,
    };

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_runs_knows_what_was_added_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let start = Millis(1_000_000);
        let watched = WatchedTokens::new(folder.path(), Clock::starting_at(start));
        assert_eq!(watched.find_token("cst_nothing"), None);
        let day = Some(Duration::from_secs(86_400));
        let text = add_token(folder.path(), "ci", &[TokenScope::Read, TokenScope::Answer], day, start).unwrap();
        assert_eq!(
            watched.find_token(&text),
            Some(("ci".to_owned(), vec![TokenScope::Read, TokenScope::Answer])),
            "at once"
        );
        assert_eq!(watched.find_token(&text[..text.len() - 1]), None);
        remove_token(folder.path(), "ci").unwrap();
        tokio::time::advance(FRESH).await;
        assert_eq!(watched.find_token(&text), None, "within a second");
        let text = add_token(folder.path(), "ci", &[TokenScope::Read], day, start).unwrap();
        assert!(watched.find_token(&text).is_some());
        tokio::time::advance(Duration::from_secs(86_400)).await;
        assert_eq!(watched.find_token(&text), None, "out of date");
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_cannot_be_read_lets_nobody_in() {
        let folder = tempfile::tempdir().unwrap();
        let watched = WatchedTokens::new(folder.path(), Clock::starting_at(Millis(1)));
        let text = add_token(folder.path(), "ci", &[TokenScope::Read], None, Millis(1)).unwrap();
        assert!(watched.find_token(&text).is_some());
        std::fs::write(folder.path().join(super::FILE), "no JSON").unwrap();
        tokio::time::advance(FRESH).await;
        assert_eq!(watched.find_token(&text), None);
    }
}
