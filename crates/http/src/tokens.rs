//! Tokens of programs that use the gateway over HTTP: their names, scopes and expiry.
//!
//! A token is shown once, when it is made; only its digest is kept. It must not know the requests that use one.

mod watched_tokens;

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use countersign_core::{digest::Digest, time::Millis};
use serde::{Deserialize, Serialize};

pub use crate::web::TokenScope;
pub use watched_tokens::WatchedTokens;

use countersign_config as config;
use countersign_files::replace::{FileAccess, replace_file};

/// The file's name in the data directory.
pub const FILE: &str = config::TOKENS_FILE;
/// Prefix of every token, so that one is recognised wherever it turns up.
const PREFIX: &str = "cst_";
/// Longest name, in characters.
const LONGEST_NAME: usize = 64;
/// The form of the file.
const VERSION: u32 = 1;

/// One token, without its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiToken {
    /// Its name; the record calls its holder `token:<name>`.
    pub name: String,
    /// SHA-256 of its text.
    sha256: Digest,
    /// Its scopes, each once.
    pub scopes: Vec<TokenScope>,
    /// When it was made, in milliseconds since 1970.
    pub created: Millis,
    /// From when on it is good no longer; none means never.
    pub expires: Option<Millis>,
}

impl ApiToken {
    /// Reports whether it is still valid.
    pub fn is_good(&self, now: Millis) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }
}

/// The whole file.
#[derive(Serialize, Deserialize)]
struct TokenFile {
    version: u32,
    tokens: Vec<ApiToken>,
}

/// Why tokens were not listed or changed. The file is as it was.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// The file cannot be read or replaced.
    #[error("cannot {action} {}: {source}", file.display())]
    Io {
        /// Failed action: `read` or `write`.
        action: &'static str,
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not in this program's format.
    #[error("{}: not a token file: {why}", file.display())]
    Form {
        /// The file.
        file: PathBuf,
        /// The problem with it.
        why: String,
    },
    /// The token exists already.
    #[error("token {0} already exists; remove it with `countersign tokens remove {0}`")]
    Known(String),
    /// The token does not exist.
    #[error("token {0} does not exist; list tokens with `countersign tokens list`")]
    Unknown(String),
    /// The name cannot be used.
    #[error("invalid token name {0:?}: expected 1 to 64 letters, digits, -, _ or .")]
    Name(String),
    /// The token would have no scope.
    #[error("a token needs at least one scope: read, answer, chat, admin, metrics or call")]
    NoScope,
    /// The system gives no random bytes.
    #[error("cannot generate a token: the system gave no random bytes: {0}")]
    Dice(String),
}

/// Lists the tokens of the data directory `folder`, in the order in which they were made; those that are out of date as well.
///
/// # Errors
/// [`TokensError::Io`], [`TokensError::Form`].
pub fn list_tokens(folder: &Path) -> Result<Vec<ApiToken>, TokensError> {
    let file = folder.join(FILE);
    let text = match fs::read(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(TokensError::Io { action: "read", file, source }),
    };
    match serde_json::from_slice::<TokenFile>(&text) {
        Ok(kept) if kept.version == VERSION => Ok(kept.tokens),
        Ok(kept) => Err(TokensError::Form { file, why: format!("unsupported version {}", kept.version) }),
        Err(error) => Err(TokensError::Form { file, why: error.to_string() }),
    }
}

/// Makes a token and gives its text, which is kept nowhere.
///
/// # Errors
/// [`TokensError`].
pub fn add_token(
    folder: &Path,
    name: &str,
    scopes: &[TokenScope],
    lasts: Option<Duration>,
    now: Millis,
) -> Result<String, TokensError> {
    let is_name = (1..=LONGEST_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if !is_name {
        return Err(TokensError::Name(name.to_owned()));
    }
    let mut scopes = scopes.to_vec();
    scopes.sort_unstable();
    scopes.dedup();
    if scopes.is_empty() {
        return Err(TokensError::NoScope);
    }
    let random = config::new_token().map_err(|error| TokensError::Dice(error.to_string()))?;
    let text = format!("{PREFIX}{random}");
    let token = ApiToken {
        name: name.to_owned(),
        sha256: Digest::hash_bytes(text.as_bytes()),
        scopes,
        created: now,
        expires: lasts.map(|lasts| now + lasts),
    };
    edit_tokens(folder, |tokens| {
        if tokens.iter().any(|known| known.name == name) {
            return Err(TokensError::Known(name.to_owned()));
        }
        tokens.push(token);
        Ok(())
    })?;
    Ok(text)
}

/// Takes a token back. A gateway that runs knows it within a second.
///
/// # Errors
/// [`TokensError`].
pub fn remove_token(folder: &Path, name: &str) -> Result<(), TokensError> {
    edit_tokens(folder, |tokens| {
        let before = tokens.len();
        tokens.retain(|token| token.name != name);
        if tokens.len() == before { Err(TokensError::Unknown(name.to_owned())) } else { Ok(()) }
    })
}

fn edit_tokens(
    folder: &Path,
    edit: impl FnOnce(&mut Vec<ApiToken>) -> Result<(), TokensError>,
) -> Result<(), TokensError> {
    let file = folder.join(FILE);
    let failed = |source| TokensError::Io { action: "write", file: file.clone(), source };
    fs::create_dir_all(folder).map_err(failed)?;
    // Two commands at once would each leave out the other's change.
    let _lock = lock_file(&folder.join(format!("{FILE}.lock"))).map_err(failed)?;
    let mut tokens = list_tokens(folder)?;
    edit(&mut tokens)?;
    let text = serde_json::to_vec_pretty(&TokenFile { version: VERSION, tokens })
        .map_err(|error| TokensError::Form { file: file.clone(), why: error.to_string() })?;
    replace_file(&file, &text, FileAccess::Private).map_err(failed)
}

fn lock_file(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    file.lock()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt as _, time::Duration};

    use countersign_core::time::Millis;

    use super::{FILE, TokenScope, TokensError, add_token, list_tokens, remove_token};

    #[test]
    fn a_token_is_kept_as_a_digest_and_nobody_else_can_read_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let scopes = [TokenScope::Chat, TokenScope::Read, TokenScope::Read];
        let text = add_token(&data, "ci", &scopes, Some(Duration::from_secs(60)), Millis(1_000)).unwrap();
        assert!(text.starts_with("cst_") && text.len() >= 4 + 43, "{text}");
        let file = data.join(FILE);
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!std::fs::read_to_string(&file).unwrap().contains(&text[4..]));
        let listed = list_tokens(&data).unwrap();
        assert_eq!((listed[0].name.as_str(), &listed[0].scopes[..]), ("ci", &[TokenScope::Read, TokenScope::Chat][..]));
        assert!(listed[0].is_good(Millis(60_999)) && !listed[0].is_good(Millis(61_000)));
        remove_token(&data, "ci").unwrap();
        assert_eq!(list_tokens(&data).unwrap(), []);
    }

    #[test]
    fn what_makes_no_sense_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path();
        add_token(data, "a", &[TokenScope::Read], None, Millis(1)).unwrap();
        let again = add_token(data, "a", &[TokenScope::Admin], None, Millis(1));
        assert!(matches!(again, Err(TokensError::Known(name)) if name == "a"));
        for name in ["", "a b", "é", &"x".repeat(65)] {
            assert!(
                matches!(add_token(data, name, &[TokenScope::Read], None, Millis(1)), Err(TokensError::Name(_))),
                "{name}"
            );
        }
        assert!(matches!(add_token(data, "b", &[], None, Millis(1)), Err(TokensError::NoScope)));
        assert!(matches!(remove_token(data, "b"), Err(TokensError::Unknown(_))));
        assert_eq!(list_tokens(data).unwrap().len(), 1);
        for text in ["{", "[]", r#"{"version":2,"tokens":[]}"#] {
            std::fs::write(data.join(FILE), text).unwrap();
            assert!(
                matches!(add_token(data, "b", &[TokenScope::Read], None, Millis(1)), Err(TokensError::Form { .. })),
                "{text}"
            );
            assert_eq!(std::fs::read_to_string(data.join(FILE)).unwrap(), text);
        }
    }
}
