//! Options of a session that the editor shows.

use serde::Serialize;

/// An option of a session, one of whose values is chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigOption {
    /// Its id.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// `mode`, `model` or `thought_level`.
    pub category: &'static str,
    /// Always `select`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The value in force.
    pub current_value: String,
    /// The values.
    pub options: Vec<ConfigSelectOption>,
}

/// A value of an option.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigSelectOption {
    /// The value.
    pub value: String,
    /// Its name for people.
    pub name: String,
    /// Its effect, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}
