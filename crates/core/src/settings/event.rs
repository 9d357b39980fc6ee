//! Events of settings.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::SettingsPath;
use crate::{digest::Digest, id::PrincipalId};

/// A fact about settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A value was set at a path, replacing everything there and below.
    Set {
        /// The person.
        by: PrincipalId,
        /// The path.
        path: SettingsPath,
        /// The value, without its secrets. Absent: it was removed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<Value>,
        /// Secrets at the path or below, by their digests.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        secrets: Vec<(SettingsPath, Digest)>,
    },
    /// A text was appended to a list.
    Added {
        /// The person.
        by: PrincipalId,
        /// The list.
        path: SettingsPath,
        /// The text.
        item: String,
    },
}

impl Event {
    /// Returns the person who made the change.
    pub const fn by(&self) -> &PrincipalId {
        match self {
            Self::Set { by, .. } | Self::Added { by, .. } => by,
        }
    }

    /// Returns the path of the change.
    pub const fn path(&self) -> &SettingsPath {
        match self {
            Self::Set { path, .. } | Self::Added { path, .. } => path,
        }
    }
}
