//! Commands about settings.

use serde_json::Value;

use super::SettingsPath;
use crate::{digest::Digest, id::PrincipalId};

/// Secrets by the paths at which they are set, each as a digest that identifies it to its store.
pub type SecretDigests = Vec<(SettingsPath, Digest)>;

/// A command about settings. The caller, which knows their meaning, checks values and paths before.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Sets the value at a path, replacing everything that was set there and below, secrets too.
    Set {
        /// The person.
        by: PrincipalId,
        /// The path.
        path: SettingsPath,
        /// The value, without its secrets. `None` removes it.
        value: Option<Value>,
        /// Secrets at the path or below.
        secrets: SecretDigests,
    },
    /// Appends a text to a list, if it is not in it. The list is created if nothing is set there.
    Add {
        /// The person.
        by: PrincipalId,
        /// The list.
        path: SettingsPath,
        /// The text.
        item: String,
    },
}
