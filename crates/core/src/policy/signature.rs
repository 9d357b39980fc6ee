//! Signatures of tools that were declared by template or not at all. Source: the signatures of agent-gate; ARCHITECTURE.md, Policy.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};

use crate::{digest::canonical_json, policy::indirect::UNKNOWN, tool::value_text};

/// Maximum number of signatures of one call.
pub const MOST: usize = 256;

/// Lists among the arguments that would need more than [`MOST`] signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("lists among the arguments make more than {MOST} combinations")]
pub struct TooManySignatures;

/// Returns the signatures of a tool with a definition: with `template` its parts with every `{name}` replaced, without one its bare
/// name.
///
/// An argument that is a list gives one signature an element, several lists every combination.
///
/// # Errors
/// [`TooManySignatures`] for too many combinations.
pub fn declared_signatures(
    tool: &str,
    template: Option<&str>,
    arguments: &Map<String, Value>,
) -> Result<Vec<String>, TooManySignatures> {
    let Some(template) = template.filter(|template| !template.is_empty()) else { return Ok(vec![tool.to_owned()]) };
    let named: Vec<&str> = template_names(template);
    let values = value_combinations(arguments.iter().filter(|(name, _)| named.contains(&name.as_str())))?;
    Ok(values
        .into_iter()
        .map(|values| {
            let parts: Vec<String> = template.split(',').map(|part| fill_template(part.trim(), &values)).collect();
            format!("{tool}({})", parts.join(", "))
        })
        .collect())
}

/// Returns the signatures of a tool without a definition: the values of its arguments by sorted key, or its bare name.
///
/// # Errors
/// [`TooManySignatures`] for too many combinations.
pub fn undeclared_signatures(tool: &str, arguments: &Map<String, Value>) -> Result<Vec<String>, TooManySignatures> {
    if arguments.is_empty() {
        return Ok(vec![tool.to_owned()]);
    }
    Ok(value_combinations(arguments.iter())?
        .into_iter()
        .map(|values| format!("{tool}({})", values.into_values().collect::<Vec<_>>().join(", ")))
        .collect())
}

/// Returns signatures to which a call of a tool may expand by the lists among its arguments, if its first one has them unchanged: with
/// an item
/// of each in its place, and with all of its items in a row, as a command in words has them.
///
/// [`UNKNOWN`] replaces lists that make more than [`MOST`]. None for signatures that were made from a template.
pub(crate) fn of_lists(tool: &str, named: &[String], arguments: &Map<String, Value>, signature: &str) -> Vec<String> {
    if !arguments.values().any(Value::is_array) {
        return Vec::new();
    }
    let mut keys: Vec<&String> = if named.is_empty() { arguments.keys().collect() } else { named.iter().collect() };
    if named.is_empty() {
        keys.sort_unstable();
    }
    let whole = |value: Option<&Value>| value.map(value_text).unwrap_or_default();
    let written = |values: &[String]| format!("{tool}({})", values.join(", "));
    let values: Vec<Option<&Value>> = keys.into_iter().map(|key| arguments.get(key)).collect();
    if written(&values.iter().map(|value| whole(*value)).collect::<Vec<_>>()) != signature {
        return Vec::new();
    }
    let options: Vec<Vec<String>> = values
        .iter()
        .map(|value| match value {
            Some(Value::Array(items)) if !items.is_empty() => {
                items.iter().map(value_text).chain(value.and_then(joined_items)).collect()
            }
            _ => vec![whole(*value)],
        })
        .collect();
    if options.iter().try_fold(1_usize, |all, one| all.checked_mul(one.len())).is_none_or(|all| all > MOST) {
        let unknown = |mut one: Vec<String>| if one.len() > 1 { UNKNOWN.to_string() } else { one.remove(0) };
        return vec![written(&options.into_iter().map(unknown).collect::<Vec<_>>())];
    }
    let mut all = vec![Vec::new()];
    for options in options {
        all = all
            .iter()
            .flat_map(|known| options.iter().map(move |option| [known.clone(), vec![option.clone()]].concat()))
            .collect();
    }
    all.iter().map(|values| written(values)).collect()
}

/// Joins the items of a list with spaces; `None` for anything but a list of two items or more.
pub(crate) fn joined_items(value: &Value) -> Option<String> {
    let items = value.as_array().filter(|items| items.len() > 1)?;
    Some(items.iter().map(value_text).collect::<Vec<_>>().join(" "))
}

/// Returns the names that a template mentions, in order.
pub fn template_names(template: &str) -> Vec<&str> {
    template.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name).collect()
}

/// Returns the first argument with a text, at any depth, that has a character with a meaning in patterns or signatures. Arguments
/// that are
/// `free` of the rule are skipped.
pub fn forbidden_argument(arguments: &Map<String, Value>, free: impl Fn(&str) -> bool) -> Option<&str> {
    arguments.iter().find(|(name, value)| !free(name) && has_forbidden(value)).map(|(name, _)| name.as_str())
}

fn has_forbidden(value: &Value) -> bool {
    match value {
        Value::String(text) => text.chars().any(|c| c < ' ' || "*?[](),".contains(c)),
        Value::Array(items) => items.iter().any(has_forbidden),
        Value::Object(map) => map.values().any(has_forbidden),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn value_combinations<'a>(
    arguments: impl Iterator<Item = (&'a String, &'a Value)>,
) -> Result<Vec<BTreeMap<&'a str, String>>, TooManySignatures> {
    let mut all = vec![BTreeMap::new()];
    for (name, value) in arguments {
        let options: Vec<String> = match value {
            Value::Array(items) if !items.is_empty() => items.iter().map(text_of).collect(),
            Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                vec![text_of(value)]
            }
        };
        if all.len().saturating_mul(options.len()) > MOST {
            return Err(TooManySignatures);
        }
        let extend = |known: &BTreeMap<&'a str, String>, option: &String| {
            let mut longer = known.clone();
            longer.insert(name.as_str(), option.clone());
            longer
        };
        all = all.iter().flat_map(|known| options.iter().map(move |option| extend(known, option))).collect();
    }
    Ok(all)
}

fn fill_template(part: &str, values: &BTreeMap<&str, String>) -> String {
    let mut text = String::new();
    let mut rest = part;
    while let Some((before, after)) = rest.split_once('{') {
        text.push_str(before);
        match after.split_once('}') {
            Some((name, behind)) => {
                text.push_str(values.get(name).map_or("", String::as_str));
                rest = behind;
            }
            None => {
                text.push('{');
                rest = after;
            }
        }
    }
    text.push_str(rest);
    text
}

/// Returns the text of a value in signatures: as Python's `str` writes it; lists and objects as canonical JSON.
pub fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Null => "None".to_owned(),
        Value::Number(number) => python_number(number),
        Value::Array(_) | Value::Object(_) => canonical_json(value),
    }
}

fn python_number(number: &Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else { return number.to_string() };
    let scientific = format!("{float:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(exponent) if (-4..16).contains(&exponent) => format!("{float:?}"),
        Ok(exponent) => format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()),
        Err(_) => scientific,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{TooManySignatures, declared_signatures, undeclared_signatures};

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn values_read_as_python_writes_them() {
        for (value, want) in [
            (json!(1e16), "t(1e+16)"),
            (json!(1e-5), "t(1e-05)"),
            (json!(21.5), "t(21.5)"),
            (json!(2.0), "t(2.0)"),
            (json!(true), "t(True)"),
            (json!(null), "t(None)"),
            (json!([]), "t([])"),
            (json!({"b": 1, "a": "x"}), r#"t({"a":"x","b":1})"#),
        ] {
            assert_eq!(undeclared_signatures("t", &map(json!({"n": value}))), Ok(vec![want.to_owned()]));
        }
    }

    #[test]
    fn every_element_of_a_list_has_its_signature() {
        let arguments = map(json!({"d": "light", "s": "on", "e": ["a", "b"], "x": "unnamed"}));
        assert_eq!(
            declared_signatures("c", Some("{d}.{s}, {e}"), &arguments),
            Ok(vec!["c(light.on, a)".to_owned(), "c(light.on, b)".to_owned()])
        );
        let many: Vec<u32> = (0..17).collect();
        assert_eq!(undeclared_signatures("t", &map(json!({"a": many, "b": many}))), Err(TooManySignatures));
    }
}
