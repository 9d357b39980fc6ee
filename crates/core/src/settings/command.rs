//! What people ask of the settings.

use serde_json::Value;

use super::SettingsPath;
use crate::{digest::Digest, id::PrincipalId};

/// Secrets by the paths at which they are set, each as a digest that whoever keeps them can tell them by.
pub type SecretDigests = Vec<(SettingsPath, Digest)>;

/// A command about settings. What may be set where is looked at before by whoever knows what they mean.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Sets what is at a path, in the place of everything that was set there and below, secrets too.
    Set {
        /// Who.
        by: PrincipalId,
        /// Where.
        path: SettingsPath,
        /// To what, without its secrets. `None` takes it out.
        value: Option<Value>,
        /// Secrets at the path or below.
        secrets: SecretDigests,
    },
    /// Puts a text at the end of a list, if it is not in it. The list is made if nothing is set there.
    Add {
        /// Who.
        by: PrincipalId,
        /// The list.
        path: SettingsPath,
        /// The text.
        item: String,
    },
}
