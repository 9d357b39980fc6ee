//! What happened to settings.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::SettingsPath;
use crate::{digest::Digest, id::PrincipalId};

/// A fact about settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// This is set at a path, and nothing else there or below.
    Set {
        /// Who did.
        by: PrincipalId,
        /// Where.
        path: SettingsPath,
        /// What, without its secrets. Absent: nothing is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<Value>,
        /// Secrets at the path or below, by their digests.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        secrets: Vec<(SettingsPath, Digest)>,
    },
    /// A text stands at the end of a list.
    Added {
        /// Who did.
        by: PrincipalId,
        /// The list.
        path: SettingsPath,
        /// The text.
        item: String,
    },
}

impl Event {
    /// Who changed something.
    pub const fn by(&self) -> &PrincipalId {
        match self {
            Self::Set { by, .. } | Self::Added { by, .. } => by,
        }
    }

    /// Where something changed.
    pub const fn path(&self) -> &SettingsPath {
        match self {
            Self::Set { path, .. } | Self::Added { path, .. } => path,
        }
    }
}
