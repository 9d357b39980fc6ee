//! Secrets by name: their values, inserted into outgoing data, and removed from all results.
//!
//! It must not know who may use one. A value leaves this module only to be put into a request or the environment of a command.

mod finder;
mod forms;
mod known_secrets;
mod redactor;
mod secret_store;
mod stream;
mod view;

use std::{collections::BTreeMap, fmt, io, path::PathBuf, sync::Arc};

use countersign_core::secret::{self, FillError};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value};

use self::secret_store::SecretStore;
pub use self::{
    redactor::Redactor,
    secret_store::{SecretEntry, StoreError, list_secrets, remove_secret, set_secret},
    stream::RedactingStream,
};

/// The fewest bytes of a value. A shorter one is found in anything, and to hide it would show it.
pub const SHORTEST: usize = 8;
/// The most bytes of a value.
pub const LONGEST: usize = 64 << 10;
/// The folder of secrets in a data directory, a file each.
pub const FOLDER: &str = "secrets";

/// Reason that a secret is not released. Its text holds nothing of it.
#[derive(Debug, thiserror::Error)]
pub enum SecretRefused {
    /// The secret is not set.
    #[error("there is no secret called {0}")]
    Unknown(String),
    /// The secret could not be removed from results.
    #[error(
        "the secret {0} cannot be hidden in outputs: it must have at least {SHORTEST} bytes, and a line of at least 6"
    )]
    Short(String),
    /// The value is no text for a variable or a request.
    #[error("the secret {0} holds a NUL character")]
    Nul(String),
    /// Others may have read it.
    #[error("the file of the secret {name} is open to others (mode {mode:03o}); make it 600")]
    Open {
        /// Name of the secret.
        name: String,
        /// The mode of its file.
        mode: u32,
    },
    /// Its file cannot be read.
    #[error("the secret {name} cannot be read: {problem}")]
    Unreadable {
        /// Name of the secret.
        name: String,
        /// Error of the system.
        problem: io::Error,
    },
}

/// The secrets of one gateway. Clones share them.
#[derive(Clone, Default)]
pub struct GatewaySecrets(Option<Arc<SecretStore>>);

impl fmt::Debug for GatewaySecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GatewaySecrets").field(&self.0.is_some()).finish()
    }
}

impl GatewaySecrets {
    /// Creates the secrets in the files of `folder`, which need not exist, and those of a configuration. A file counts before the
    /// configuration.
    pub fn from_folder(folder: PathBuf, given: BTreeMap<String, SecretString>) -> Self {
        Self(Some(Arc::new(SecretStore::new(folder, given))))
    }

    /// Returns true if there is a store for secrets at all.
    pub const fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the value of the secret `name`, as it is now.
    ///
    /// # Errors
    /// [`SecretRefused`], and nothing may be sent.
    pub fn secret_value(&self, name: &str) -> Result<SecretString, SecretRefused> {
        match &self.0 {
            Some(shelf) => shelf.secret_value(name),
            None => Err(SecretRefused::Unknown(name.to_owned())),
        }
    }

    /// Checks that every secret that `value` requests can be released.
    ///
    /// # Errors
    /// Error text for the caller.
    pub fn check_fillable(&self, value: &Value) -> Result<(), String> {
        self.fill_value(&mut value.clone())
    }

    /// Puts secrets into `value`. [`GatewaySecrets::redactor`] hides them afterwards.
    ///
    /// # Errors
    /// Reason that one is not available; `value` must not be used then.
    pub fn fill_value(&self, value: &mut Value) -> Result<(), String> {
        let filled = secret::fill_value(value, &mut |name| {
            self.secret_value(name).map(|value| value.expose_secret().to_owned())
        });
        filled.map_err(|unfilled: FillError<SecretRefused>| unfilled.to_string())
    }

    /// Does the same for arguments.
    ///
    /// # Errors
    /// As [`GatewaySecrets::fill_value`].
    pub fn fill_arguments(&self, arguments: &Map<String, Value>) -> Result<Map<String, Value>, String> {
        let mut value = Value::Object(arguments.clone());
        self.fill_value(&mut value)?;
        match value {
            Value::Object(filled) => Ok(filled),
            _ => Err("arguments are an object".to_owned()),
        }
    }

    /// Returns the redactor of every secret that this process has seen, including those that were changed or removed since: of
    /// these the last ones, a mebibyte in all.
    pub fn redactor(&self) -> Arc<Redactor> {
        self.0.as_ref().map_or_else(Arc::default, |shelf| shelf.redactor())
    }
}

#[cfg(test)]
mod tests;
