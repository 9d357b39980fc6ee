//! Edits of JSON text that keep its order, its layout and everything else in it.

use std::collections::BTreeSet;

use jsonc_parser::{
    ParseOptions,
    cst::{CstInputValue, CstObject, CstRootNode},
};
use serde_json::Value;

use crate::program::SettingsEntry;

/// Adds entries to the text of settings. The error names what is in the way.
pub(crate) fn add_entries(text: &str, entries: &[SettingsEntry]) -> Result<String, String> {
    let root = parse(text)?;
    let settings = root.object_value_or_create().ok_or("expected a JSON object")?;
    for object in [Some(settings.clone()), settings.object_value("hooks")].into_iter().flatten() {
        let mut names = BTreeSet::new();
        if let Some(twice) =
            object.properties().iter().filter_map(|one| one.decoded_name()).find(|name| !names.insert(name.clone()))
        {
            return Err(format!("{twice} is there twice"));
        }
    }
    for entry in entries {
        let (above, last) = folder_of(&settings, entry)?;
        if entry.is_list_element {
            let list = above
                .array_value_or_create(last)
                .ok_or_else(|| format!("{}: expected a list", entry.keys.join(".")))?;
            list.append(input_of(&entry.value));
        } else {
            match above.get(last).map(|property| property.to_serde_value()) {
                None => drop(above.append(last, input_of(&entry.value))),
                Some(value) if value.as_ref() == Some(&entry.value) => {}
                Some(value) => {
                    let found = value.unwrap_or_default();
                    return Err(format!("{} is {found}: expected {}", entry.keys.join("."), entry.value));
                }
            }
        }
    }
    let changed = root.to_string();
    Ok(if text.is_empty() { format!("{changed}\n") } else { changed })
}

/// Removes the entries that are still as they were added, and what became empty and was not there before. Returns the text, and the keys
/// of the entries that are no longer there.
pub(crate) fn remove_entries(
    text: &str,
    entries: &[SettingsEntry],
    before: &Value,
) -> Result<(String, Vec<String>), String> {
    let root = parse(text)?;
    let settings = root.object_value().ok_or("expected a JSON object")?;
    let mut gone = Vec::new();
    for entry in entries.iter().rev() {
        if !remove_entry(&settings, entry, before) {
            gone.push(entry.keys.join("."));
        }
    }
    gone.reverse();
    Ok((root.to_string(), gone))
}

fn remove_entry(settings: &CstObject, entry: &SettingsEntry, before: &Value) -> bool {
    let Ok((above, last)) = existing_folder_of(settings, entry) else { return false };
    let Some(property) = above.get(last) else { return false };
    if entry.is_list_element {
        let Some(list) = property.array_value() else { return false };
        // The last one: the same entry of the user's own comes before it.
        let found =
            list.elements().into_iter().rev().find(|element| element.to_serde_value().as_ref() == Some(&entry.value));
        let Some(found) = found else { return false };
        found.remove();
        if !list.elements().is_empty() {
            return true;
        }
    } else if was_there(before, &entry.keys) || property.to_serde_value().as_ref() != Some(&entry.value) {
        return was_there(before, &entry.keys);
    }
    // What is empty now goes, unless it was there before.
    for depth in (1..=entry.keys.len()).rev() {
        let keys = &entry.keys[..depth];
        if was_there(before, keys) {
            break;
        }
        let mut object = settings.clone();
        for key in &keys[..depth - 1] {
            let Some(inner) = object.object_value(key) else { return true };
            object = inner;
        }
        let Some(property) = object.get(keys[depth - 1]) else { break };
        let is_empty = property.array_value().is_some_and(|list| list.elements().is_empty())
            || property.object_value().is_some_and(|object| object.properties().is_empty())
            || !entry.is_list_element && depth == entry.keys.len();
        if !is_empty {
            break;
        }
        property.remove();
    }
    true
}

fn was_there(before: &Value, keys: &[&str]) -> bool {
    keys.iter().try_fold(before, |value, key| value.get(key)).is_some()
}

/// Parses text. An empty file is an empty object. The library reads comments and more, which programs do not.
fn parse(text: &str) -> Result<CstRootNode, String> {
    let problem = |error: &dyn std::fmt::Display| format!("not JSON as the program reads it: {error}");
    if !text.trim().is_empty() {
        serde_json::from_str::<Value>(text).map_err(|error| problem(&error))?;
    }
    CstRootNode::parse(text, &ParseOptions::default()).map_err(|error| problem(&error))
}

/// Returns the object that has the last key of an entry. Objects that are missing are created.
fn folder_of<'a>(settings: &CstObject, entry: &'a SettingsEntry) -> Result<(CstObject, &'a str), String> {
    walk(settings, entry, |object, key| object.object_value_or_create(key))
}

fn existing_folder_of<'a>(settings: &CstObject, entry: &'a SettingsEntry) -> Result<(CstObject, &'a str), String> {
    walk(settings, entry, |object, key| object.object_value(key))
}

fn walk<'a>(
    settings: &CstObject,
    entry: &'a SettingsEntry,
    step: impl Fn(&CstObject, &str) -> Option<CstObject>,
) -> Result<(CstObject, &'a str), String> {
    let (last, above) = entry.keys.split_last().ok_or("an entry without keys")?;
    let mut object = settings.clone();
    for key in above {
        object = step(&object, key).ok_or_else(|| format!("{key}: expected an object"))?;
    }
    Ok((object, last))
}

fn input_of(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(input_of).collect()),
        Value::Object(members) => {
            CstInputValue::Object(members.iter().map(|(name, value)| (name.clone(), input_of(value))).collect())
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::{add_entries, remove_entries};
    use crate::program::{GuardScope, GuardedProgram, SettingsEntry};

    fn entries() -> Vec<SettingsEntry> {
        GuardedProgram::Claude.entries(GuardScope::User, "/bin/countersign hook claude --data '/d'")
    }

    /// Settings as people write them.
    pub(crate) const WRITTEN: [&str; 12] = [
        "",
        "{}",
        "{}\n",
        "{\n}\n",
        "{\"model\":\"opus\"}",
        "{\n  \"model\": \"opus\",\n  \"env\": { \"A\": \"1\" }\n}\n",
        "{\n\t\"hooks\": {\n\t\t\"Stop\": []\n\t},\n\t\"model\": \"x\"\n}",
        "{\r\n    \"hooks\": {},\r\n    \"permissions\": {\"allow\": [\"Bash(ls)\"]}\r\n}\r\n",
        "{\"hooks\":{\"PreToolUse\":[]},\"z\":1}",
        "{\n  \"hooks\": {\n    \"PreToolUse\": [\n      { \"matcher\": \"Bash\", \"hooks\": [ { \"type\": \"command\", \"command\": \"x\" } ] }\n    ]\n  }\n}\n",
        "  {  \"a\" : [ 1 , 2 ]  ,  \"b\" : \"\\u00e9\\n\"  }  ",
        "{\"hooks\": {\"PostToolUse\": [{\"matcher\": \"*\", \"hooks\": []}]}, \"hooks2\": null}",
    ];

    #[test]
    fn entries_are_added_after_those_of_the_user_and_everything_else_stays() {
        for text in WRITTEN {
            let before: Value = if text.trim().is_empty() { json!({}) } else { serde_json::from_str(text).unwrap() };
            let added = add_entries(text, &entries()).unwrap();
            let after: Value = serde_json::from_str(&added).unwrap_or_else(|error| panic!("{error}: {added}"));
            for event in ["PreToolUse", "PermissionRequest", "PostToolUse"] {
                let list = after["hooks"][event].as_array().unwrap();
                let old = before["hooks"][event].as_array().cloned().unwrap_or_default();
                assert_eq!((&list[..old.len()], list.len()), (&old[..], old.len() + 1), "{added}");
            }
            let mut rest = after.clone();
            rest.as_object_mut().unwrap().remove("hooks");
            let mut rest_before = before.clone();
            rest_before.as_object_mut().unwrap().remove("hooks");
            assert_eq!(rest, rest_before);
            let (removed, gone) = remove_entries(&added, &entries(), &before).unwrap();
            assert_eq!(serde_json::from_str::<Value>(&removed).unwrap(), before, "{removed}");
            assert!(gone.is_empty());
        }
    }

    #[test]
    fn what_the_user_changed_meanwhile_stays() {
        let before = json!({"model": "opus"});
        let added = add_entries(&before.to_string(), &entries()).unwrap();
        let mut edited: Value = serde_json::from_str(&added).unwrap();
        edited["model"] = json!("other");
        edited["hooks"]["PreToolUse"].as_array_mut().unwrap().insert(0, json!({"matcher": "Bash", "hooks": []}));
        edited["hooks"]["PostToolUse"][0]["matcher"] = json!("Bash");
        let (removed, gone) = remove_entries(&edited.to_string(), &entries(), &before).unwrap();
        let left: Value = serde_json::from_str(&removed).unwrap();
        assert_eq!(left["hooks"]["PreToolUse"], json!([{"matcher": "Bash", "hooks": []}]));
        assert_eq!((left["model"].as_str(), gone), (Some("other"), vec!["hooks.PostToolUse".to_owned()]));
        assert_eq!(left["hooks"].get("PermissionRequest"), None);
    }

    #[test]
    fn text_that_the_program_would_not_read_is_refused() {
        for text in [
            "{ // mine\n }",
            "{\"a\": 1,}",
            "{a: 1}",
            "{'a': 1}",
            "[",
            "[]",
            "{\"hooks\": []}",
            "{\"hooks\": {\"PreToolUse\": {}}}",
            "{} {}",
            "{\"hooks\": {}, \"hooks\": {}}",
            "null",
        ] {
            assert!(add_entries(text, &entries()).is_err(), "{text}");
        }
    }
}
