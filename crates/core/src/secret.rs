//! Secrets by name: the placeholder in an argument, and its replacement by the value.
//!
//! It must not know the storage of values, nor the permissions to use one: policy decides these.

use std::{collections::BTreeSet, fmt};

use countersign_shell_analysis::secret::OPENING;
pub use countersign_shell_analysis::secret::is_asked_for;
use serde_json::{Map, Value};

const CLOSING: &str = "}}";

/// Maximum number of characters of a name.
const LONGEST: usize = 64;

/// A text that begins like a placeholder and is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedPlaceholder {
    /// No name follows, or no closing braces do.
    #[error("{{{{secret: is not followed by the name of a secret (letters, digits, _, - and dots) and }}}}")]
    Name,
    /// The placeholder is in the place of a key, where no value can be.
    #[error("a secret cannot stand in the name of an argument")]
    Key,
}

/// Reason for which a text could not be filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FillError<E> {
    /// A malformed placeholder.
    Malformed(MalformedPlaceholder),
    /// An unavailable secret.
    Lacking(E),
}

impl<E: fmt::Display> fmt::Display for FillError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(malformed) => write!(f, "{malformed}"),
            Self::Lacking(lacking) => write!(f, "{lacking}"),
        }
    }
}

/// Reports whether `text` can name a secret: a letter or `_`, then letters, digits, `_`, `-` and dots, at most 64 of them.
pub fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    text.len() <= LONGEST
        && bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

/// Adds the names of the secrets in the placeholders of `value`, in its texts at any depth.
///
/// # Errors
/// [`MalformedPlaceholder`] for the first text that begins like a placeholder and is none.
pub fn collect_names(value: &Value, found: &mut BTreeSet<String>) -> Result<(), MalformedPlaceholder> {
    match value {
        Value::String(text) => {
            let noted = fill_text(text, |name| {
                found.insert(name.to_owned());
                Ok::<_, MalformedPlaceholder>(String::new())
            });
            match noted {
                Ok(_) => Ok(()),
                Err(FillError::Malformed(malformed) | FillError::Lacking(malformed)) => Err(malformed),
            }
        }
        Value::Array(items) => items.iter().try_for_each(|item| collect_names(item, found)),
        Value::Object(members) => collect_member_names(members, found),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

/// Adds the names for the members of an object, such as arguments.
///
/// # Errors
/// As [`collect_names`], and if the name of a member contains the beginning of a placeholder.
pub fn collect_member_names(
    members: &Map<String, Value>,
    found: &mut BTreeSet<String>,
) -> Result<(), MalformedPlaceholder> {
    members.iter().try_for_each(|(key, member)| {
        if key.contains(OPENING) { Err(MalformedPlaceholder::Key) } else { collect_names(member, found) }
    })
}

/// Replaces every placeholder in the texts of `value` by the result of `value_of`. Inserted values are not scanned again.
///
/// # Errors
/// [`FillError`] for the first that cannot be filled in; `value` is then filled in part and must not be used.
pub fn fill_value<E>(
    value: &mut Value,
    value_of: &mut dyn FnMut(&str) -> Result<String, E>,
) -> Result<(), FillError<E>> {
    match value {
        Value::String(text) if text.contains(OPENING) => {
            *text = fill_text(text, value_of)?;
            Ok(())
        }
        Value::Array(items) => items.iter_mut().try_for_each(|item| fill_value(item, value_of)),
        Value::Object(members) => members.iter_mut().try_for_each(|(key, member)| {
            if key.contains(OPENING) {
                Err(FillError::Malformed(MalformedPlaceholder::Key))
            } else {
                fill_value(member, value_of)
            }
        }),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

/// Replaces the placeholders of one text.
///
/// # Errors
/// [`FillError`] for the first placeholder that cannot be filled in.
pub fn fill_text<E>(text: &str, mut value_of: impl FnMut(&str) -> Result<String, E>) -> Result<String, FillError<E>> {
    let (mut filled, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once(OPENING) {
        let named = behind.split_once(CLOSING).filter(|(name, _)| is_name(name));
        let (name, after) = named.ok_or(FillError::Malformed(MalformedPlaceholder::Name))?;
        filled.push_str(before);
        filled.push_str(&value_of(name).map_err(FillError::Lacking)?);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::{FillError, MalformedPlaceholder, collect_names, fill_value, is_name};

    fn found(value: &Value) -> Result<Vec<String>, MalformedPlaceholder> {
        let mut found = BTreeSet::new();
        collect_names(value, &mut found).map(|()| found.into_iter().collect())
    }

    #[test]
    fn secrets_are_found_wherever_a_text_names_them() {
        for (value, want) in [
            (json!("plain {{secret}} {secret:A} {{ secret:A }}"), Ok(vec![])),
            (json!("{{secret:A}}"), Ok(vec!["A"])),
            (json!({"a": ["Bearer {{secret:B.c-1}}", {"b": "{{secret:A}}{{secret:B.c-1}}"}]}), Ok(vec!["A", "B.c-1"])),
            (json!("{{secret:}}"), Err(MalformedPlaceholder::Name)),
            (json!("{{secret:A B}}"), Err(MalformedPlaceholder::Name)),
            (json!("{{secret:1}}"), Err(MalformedPlaceholder::Name)),
            (json!("{{secret:A}"), Err(MalformedPlaceholder::Name)),
            (json!("{{secret:../x}}"), Err(MalformedPlaceholder::Name)),
            (json!({"{{secret:A}}": 1}), Err(MalformedPlaceholder::Key)),
        ] {
            let want = want.map(|names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(found(&value), want, "{value}");
        }
    }

    #[test]
    fn a_name_is_short_and_plain() {
        for (name, want) in [("A", true), ("_a.b-c9", true), ("", false), ("9a", false), ("-a", false), ("a/b", false)]
        {
            assert_eq!(is_name(name), want, "{name}");
        }
        assert!(is_name(&"a".repeat(64)) && !is_name(&"a".repeat(65)));
    }

    #[test]
    fn what_was_put_in_is_not_looked_at_again() {
        let mut value = json!({"a": ["x{{secret:A}}y"], "b": 1});
        let filled = fill_value(&mut value, &mut |name| Ok::<_, String>(format!("{{{{secret:{name}{name}}}}}")));
        assert_eq!((filled, value), (Ok(()), json!({"a": ["x{{secret:AA}}y"], "b": 1})));
        let missing = fill_value(&mut json!("{{secret:A}}"), &mut |name| Err(name.to_owned()));
        assert_eq!(missing, Err(FillError::Lacking("A".to_owned())));
    }
}
