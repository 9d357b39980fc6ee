//! Path of a setting.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Names on the way to a setting, from the outermost. Never empty if it was made by [`SettingsPath::from_names`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SettingsPath(Vec<String>);

impl SettingsPath {
    /// Creates the path of these names. `None` if there are none, or one is empty.
    pub fn from_names(names: impl IntoIterator<Item = String>) -> Option<Self> {
        let names: Vec<String> = names.into_iter().collect();
        (!names.is_empty() && names.iter().all(|name| !name.is_empty())).then_some(Self(names))
    }

    /// Returns the names.
    pub fn names(&self) -> &[String] {
        &self.0
    }

    /// Reports whether it leads to `other` or to a setting below it.
    pub fn is_within(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }
}

impl fmt::Display for SettingsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}
