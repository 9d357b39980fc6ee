//! The tree of settings: paths, defaults, what each of them can be, and what of it is never shown.

#[cfg(feature = "fuzzing")]
mod fuzz;
mod table;

use serde::Serialize;
use serde_json::{Map, Value};

#[cfg(feature = "fuzzing")]
pub use fuzz::fuzz;
pub use table::{DEFAULTS, default_settings};

use super::GsvError;
use super::fields::ParamFields;
use super::key::agent_id;
use crate::json::wire_values;
use table::{SettingKind, TABLE};

/// Text shown in place of a secret.
pub const MASK: &str = "***";

/// Parameters of `config.get`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigGetParams {
    /// Requested path. Absent is everything.
    pub path: Option<SettingPath>,
}

impl ConfigGetParams {
    pub(super) fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        let path = fields.take_text("path")?.filter(|path| !path.is_empty());
        Ok(Self { path: path.map(|path| SettingPath::from_text(&path)).transpose()? })
    }
}

/// Parameters of `config.set`.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigSetParams {
    /// Path to set.
    pub path: SettingPath,
    /// New value. Null removes it, so that the default counts.
    pub value: Value,
}

impl ConfigSetParams {
    pub(super) fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        let path = SettingPath::from_text(&fields.require_text("path", "path required")?)?;
        let value = fields.take_any("value").ok_or_else(|| GsvError::bad_request("value required"))?;
        Ok(Self { path, value })
    }
}

/// The answer to `config.get`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ConfigGetResult {
    /// Everything.
    All {
        /// The whole tree without its secrets.
        config: Value,
    },
    /// One thing.
    One {
        /// Requested path.
        path: String,
        /// The value, without secrets. Absent if it is not set and has no default.
        #[serde(skip_serializing_if = "Option::is_none")]
        value: Option<Value>,
    },
}

/// The answer to `config.set`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigSetResult {
    ok: bool,
    path: String,
}

impl ConfigSetResult {
    /// Creates the answer for a path that was set.
    pub fn for_path(path: &SettingPath) -> Self {
        Self { ok: true, path: path.to_text() }
    }
}

/// The way to a setting: names joined by points, such as `timeouts.toolMs`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SettingPath(Vec<String>);

impl SettingPath {
    /// Reads a path.
    ///
    /// # Errors
    /// 400 if a name in it is empty, or could be taken for something of JavaScript's.
    pub fn from_text(text: &str) -> Result<Self, GsvError> {
        let names: Vec<String> = text.trim().split('.').map(str::to_owned).collect();
        let is_bad = |name: &String| {
            name.is_empty()
                || name.len() > 256
                || name.contains('\0')
                || matches!(name.as_str(), "__proto__" | "constructor" | "prototype")
        };
        if names.len() > 16 || names.iter().any(is_bad) {
            return Err(GsvError::bad_request(format!("Invalid config path: {text}")));
        }
        Ok(Self(names))
    }

    /// Returns its text.
    pub fn to_text(&self) -> String {
        self.0.join(".")
    }

    /// Returns its names, of which there is at least one.
    pub fn names(&self) -> &[String] {
        &self.0
    }
}

/// Returns the value at a path in a tree.
pub fn get_value<'a>(tree: &'a Value, path: &SettingPath) -> Option<&'a Value> {
    path.0.iter().try_fold(tree, |at, name| match at {
        Value::Object(members) => members.get(name),
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

/// Answers a request for a tree without its secrets, whether they are requested or nested.
pub fn get_masked(tree: &Value, path: Option<&SettingPath>) -> ConfigGetResult {
    let Some(path) = path else { return ConfigGetResult::All { config: mask_secrets(tree.clone(), &mut Vec::new()) } };
    let value = get_value(tree, path).cloned().map(|value| mask_secrets(value, &mut path.0.clone()));
    ConfigGetResult::One { path: path.to_text(), value }
}

/// Returns `tree`, whose path is `at`, without its secrets.
fn mask_secrets(tree: Value, at: &mut Vec<String>) -> Value {
    if !tree.is_null() && is_secret(at) {
        return Value::from(MASK);
    }
    let mut under = |name: String, value: Value| {
        at.push(name);
        let value = mask_secrets(value, at);
        at.pop();
        value
    };
    match tree {
        Value::Object(members) => {
            members.into_iter().map(|(name, value)| (name.clone(), under(name, value))).collect::<Map<_, _>>().into()
        }
        Value::Array(items) => {
            items.into_iter().enumerate().map(|(place, value)| under(place.to_string(), value)).collect()
        }
        value @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => value,
    }
}

fn is_secret(path: &[String]) -> bool {
    let names_one = path.last().is_some_and(|name| {
        let name = name.to_ascii_lowercase();
        ["token", "secret", "password", "apikey", "api_key"].iter().any(|word| name.ends_with(word))
    });
    names_one || (path.len() >= 2 && path[0] == "apiKeys")
}

/// Result of setting a value, after its checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GsvSettingChange {
    /// The value, without secrets and without nulls. `None` if it is removed.
    pub value: Option<Value>,
    /// The secrets in it, by their paths. Not to be logged.
    pub secrets: Vec<(SettingPath, String)>,
}

impl GsvSettingChange {
    /// Checks a value that is to be set at a path, and splits it.
    ///
    /// # Errors
    /// 400 for a setting that there is not, and for a value that it cannot have, with what it can.
    pub fn for_value(path: &SettingPath, value: &Value) -> Result<Self, GsvError> {
        if let Some(list) = (1..path.0.len()).map(|end| &path.0[..end]).find(|way| is_list(way)) {
            return Err(GsvError::bad_request(format!("{} is set as a whole", list.join("."))));
        }
        check_value(&path.0, value)?;
        let mut change = Self::default();
        change.value = change.split_secrets(&mut path.0.clone(), value);
        Ok(change)
    }

    fn split_secrets(&mut self, at: &mut Vec<String>, value: &Value) -> Option<Value> {
        match value {
            Value::Null => None,
            Value::Object(members) => {
                let mut left = Map::new();
                for (name, value) in members {
                    at.push(name.clone());
                    if let Some(value) = self.split_secrets(at, value) {
                        left.insert(name.clone(), value);
                    }
                    at.pop();
                }
                Some(left.into())
            }
            Value::String(secret) if is_kept_apart(at) => {
                self.secrets.push((SettingPath(at.clone()), secret.clone()));
                None
            }
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Some(value.clone()),
        }
    }
}

fn is_kept_apart(path: &[String]) -> bool {
    matches!(setting_kind(path), Some(SettingKind::Secret | SettingKind::Signing))
}

fn is_list(path: &[String]) -> bool {
    matches!(setting_kind(path), Some(SettingKind::Items(_) | SettingKind::Texts))
}

fn setting_kind(path: &[String]) -> Option<SettingKind> {
    TABLE.iter().find(|(pattern, _)| pattern_matches(pattern, path, true)).map(|(_, kind)| *kind)
}

/// Sets a value in a tree, or takes it out if it is null, and makes what is missing on the way.
///
/// # Errors
/// As [`GsvSettingChange::for_value`]. Nothing is changed then.
pub fn set_value(tree: &mut Value, path: &SettingPath, value: &Value) -> Result<(), GsvError> {
    GsvSettingChange::for_value(path, value)?;
    put_value(tree, path, value);
    Ok(())
}

/// Does the same without a check.
pub fn put_value(tree: &mut Value, path: &SettingPath, value: &Value) {
    let mut at = tree;
    let Some((last, way)) = path.0.split_last() else { return };
    for name in way {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        let Value::Object(members) = at else { return };
        at = members.entry(name.clone()).or_insert_with(|| Value::Object(Map::new()));
    }
    if !at.is_object() {
        *at = Value::Object(Map::new());
    }
    if let Value::Object(members) = at {
        if value.is_null() {
            members.remove(last);
        } else {
            members.insert(last.clone(), value.clone());
        }
    }
}

/// Rejects a value that is not allowed at a path.
fn check_value(path: &[String], value: &Value) -> Result<(), GsvError> {
    let shown = || path.join(".");
    if let Some(kind) = setting_kind(path) {
        if matches!(kind, SettingKind::Secret | SettingKind::Signing) && value.as_str() == Some(MASK) {
            let what = "*** stands for the secret, and is not the secret itself";
            return Err(GsvError::bad_request(format!("Invalid value for {}: {what}", shown())));
        }
        if !value.is_null() && !kind.accepts_value(value) {
            let expected = kind.expected_form();
            return Err(GsvError::bad_request(format!("Invalid value for {}: {expected} is wanted", shown())));
        }
        return match (kind, value) {
            (SettingKind::Items(needed), Value::Array(items)) => check_items(path, needed, items),
            _ => Ok(()),
        };
    }
    if !TABLE.iter().any(|(pattern, _)| pattern_matches(pattern, path, false)) {
        return Err(GsvError::bad_request(format!("Unknown setting: {}", shown())));
    }
    match value {
        Value::Null => Ok(()),
        Value::Object(given) if given.is_empty() && !may_be_empty(path) => {
            let members = members_of(path).join(", ");
            let what =
                format!("an object with at least one of {members} is wanted, not {{}}; null restores the default");
            Err(GsvError::bad_request(format!("Invalid value for {}: {what}", shown())))
        }
        Value::Object(members) => members.iter().try_for_each(|(name, value)| {
            let mut path = path.to_vec();
            path.push(name.clone());
            check_value(&path, value)
        }),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(GsvError::bad_request(format!("Invalid value for {}: an object is wanted", shown())))
        }
    }
}

/// Returns true if an empty object means something at a path: where any name is allowed, and where none exists by default.
fn may_be_empty(path: &[String]) -> bool {
    let defaults = default_settings();
    let usual = get_value(&defaults, &SettingPath(path.to_vec())).and_then(Value::as_object);
    usual.is_none_or(Map::is_empty) || members_of(path).contains(&"*")
}

/// Returns the names that there are right below a path, each once.
fn members_of(path: &[String]) -> Vec<&'static str> {
    let below = TABLE.iter().filter(|(pattern, _)| pattern_matches(pattern, path, false));
    let mut names: Vec<&str> = below.filter_map(|(pattern, _)| pattern.split('.').nth(path.len())).collect();
    names.dedup();
    names
}

fn check_items(path: &[String], needed: &str, items: &[Value]) -> Result<(), GsvError> {
    for (place, item) in items.iter().enumerate() {
        let mut at = path.to_vec();
        at.push(place.to_string());
        check_value(&at, item)?;
        let named = item[needed].as_str();
        at.push(needed.to_owned());
        if named.is_none() {
            return Err(GsvError::bad_request(format!("Invalid value for {}: it is missing", at.join("."))));
        }
        // Ids of agents are compared without regard to case.
        let id = |item: &Value| item[needed].as_str().map(agent_id);
        let is_again = items[..place].iter().any(|before| id(before) == id(item));
        if needed == "id" && is_again {
            return Err(GsvError::bad_request(format!("Invalid value for {}: another one has it", at.join("."))));
        }
    }
    Ok(())
}

/// Reports whether a pattern matches this path, or, if not `whole`, something below it. `*` is any name.
fn pattern_matches(pattern: &str, path: &[String], whole: bool) -> bool {
    let mut names = pattern.split('.');
    let begins = path.iter().all(|name| names.next().is_some_and(|part| part == "*" || part == name));
    begins && (!whole || names.next().is_none())
}

/// Merges one tree over another: objects member by member, everything else as a whole.
pub fn merge_trees(under: &Value, over: &Value) -> Value {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            let mut members = under.clone();
            for (name, value) in over {
                let value = under.get(name).map_or_else(|| value.clone(), |under| merge_trees(under, value));
                members.insert(name.clone(), value);
            }
            members.into()
        }
        (_, over) => over.clone(),
    }
}

wire_values! { ConfigGetResult, ConfigSetResult }
