//! Edits of JSON text that keep its order, its layout and everything else in it.

use std::collections::BTreeSet;

use jsonc_parser::cst::{CstArray, CstInputValue, CstObject};
use serde_json::Value;

use crate::{json_syntax::JsonSyntax, own_entries::OwnEntries, program::SettingsEntry, undo_note::UndoNote};

/// Adds entries to the text of settings. The error names what is in the way.
pub(crate) fn add_entries(text: &str, entries: &[SettingsEntry], syntax: JsonSyntax) -> Result<String, String> {
    let root = syntax.parse_tree(text).map_err(|error| format!("not JSON as the program reads it: {error}"))?;
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
        if settings.to_serde_value().is_some_and(|settings| entry.is_short(&settings)) {
            continue;
        }
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

/// Settings without a guard.
#[derive(Debug)]
pub(crate) struct Removal {
    pub(crate) text: String,
    /// Values of the text.
    pub(crate) settings: Value,
    pub(crate) notes: Vec<UndoNote>,
}

/// Removes the entries of a guard, as they were added or edited since, and what became empty and was not there before. `entries` are
/// those that were added, as far as that is known.
pub(crate) fn remove_entries(
    text: &str,
    entries: &[SettingsEntry],
    before: &Value,
    own: &OwnEntries,
) -> Result<Removal, String> {
    let root = JsonSyntax::Comments.parse_tree(text)?;
    let settings = match text.trim() {
        "" => root.object_value_or_create(),
        _ => root.object_value(),
    };
    let settings = settings.ok_or("expected a JSON object")?;
    let mut notes = Vec::new();
    let mut removed = BTreeSet::new();
    for keys in lists_of(&settings) {
        let added: Vec<&Value> = entries.iter().filter(|entry| entry.keys == keys).map(|entry| &entry.value).collect();
        let Some(list) = list_at(&settings, &keys) else { continue };
        let Some(change) = remove_elements(&list, &added, own) else { continue };
        if change == EntryForm::Edited && !entries.is_empty() {
            notes.push(UndoNote::Edited(keys.join(".")));
        }
        remove_empty(&settings, &keys, before);
        removed.insert(keys);
    }
    for entry in entries {
        let is_gone = match entry.is_list_element {
            true => !removed.iter().any(|keys| entry.keys == *keys),
            false => !remove_value(&settings, entry, before),
        };
        if is_gone {
            notes.push(UndoNote::Gone(entry.keys.join(".")));
        }
    }
    let text = root.to_string();
    let settings = JsonSyntax::Comments.parse_value(&text)?;
    notes.extend(own.find(&settings).into_iter().map(UndoNote::Left));
    Ok(Removal { text, settings, notes })
}

/// Form in which entries of a guard were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryForm {
    AsAdded,
    Edited,
}

/// Returns the keys of all lists that can have entries of a guard.
fn lists_of(settings: &CstObject) -> Vec<Vec<String>> {
    let hooks = settings.object_value("hooks");
    let events = hooks.iter().flat_map(CstObject::properties).filter_map(|event| event.decoded_name());
    let mut lists: Vec<Vec<String>> = events.map(|event| vec!["hooks".to_owned(), event]).collect();
    lists.push(vec!["plugin".to_owned()]);
    lists
}

fn list_at(settings: &CstObject, keys: &[String]) -> Option<CstArray> {
    let (last, above) = keys.split_last()?;
    let object = above.iter().try_fold(settings.clone(), |object, key| object.object_value(key))?;
    object.array_value(last)
}

/// Removes the elements of a guard from a list, and from the lists of hooks in its elements. `None` if there are none.
fn remove_elements(list: &CstArray, added: &[&Value], own: &OwnEntries) -> Option<EntryForm> {
    let is_own = |value: Option<Value>| value.is_some_and(|value| own.is_element(&value));
    let mut found = None;
    for element in list.elements() {
        let value = element.to_serde_value();
        let hooks = element.as_object().and_then(|object| object.array_value("hooks"));
        let hooks = hooks.map(|hooks| hooks.elements()).unwrap_or_default();
        let own_hooks: Vec<_> = hooks.iter().filter(|hook| is_own(hook.to_serde_value())).cloned().collect();
        if own_hooks.is_empty() && !is_own(value.clone()) {
            continue;
        }
        let is_as_added = value.is_some_and(|value| added.contains(&&value)) && found != Some(EntryForm::Edited);
        found = Some(if is_as_added { EntryForm::AsAdded } else { EntryForm::Edited });
        // The user may have put further hooks under the same matcher.
        if own_hooks.len() < hooks.len() {
            own_hooks.into_iter().for_each(|hook| hook.remove());
        } else {
            element.remove();
        }
    }
    found
}

/// Removes a value that was added. False if it is no longer there as it was added.
fn remove_value(settings: &CstObject, entry: &SettingsEntry, before: &Value) -> bool {
    if was_there(before, &entry.keys) || entry.is_short(before) {
        return true;
    }
    let Ok((above, last)) = existing_folder_of(settings, entry) else { return false };
    let Some(property) = above.get(last) else { return false };
    if property.to_serde_value().as_ref() != Some(&entry.value) {
        return false;
    }
    property.remove();
    remove_empty(settings, &entry.keys[..entry.keys.len() - 1], before);
    true
}

/// Removes the list or the object at `keys` and those above it, as far as they are empty and were not there before.
fn remove_empty(settings: &CstObject, keys: &[impl AsRef<str>], before: &Value) {
    for depth in (1..=keys.len()).rev() {
        let keys = &keys[..depth];
        if was_there(before, keys) {
            return;
        }
        let mut object = settings.clone();
        for key in &keys[..depth - 1] {
            let Some(inner) = object.object_value(key.as_ref()) else { return };
            object = inner;
        }
        let Some(property) = object.get(keys[depth - 1].as_ref()) else { return };
        let is_empty = property.array_value().is_some_and(|list| list.elements().is_empty())
            || property.object_value().is_some_and(|object| object.properties().is_empty());
        if !is_empty {
            return;
        }
        property.remove();
    }
}

fn was_there(before: &Value, keys: &[impl AsRef<str>]) -> bool {
    keys.iter().try_fold(before, |value, key| value.get(key.as_ref())).is_some()
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

    use super::{Removal, add_entries, remove_entries};
    use crate::{
        json_syntax::JsonSyntax,
        own_entries::OwnEntries,
        program::{GuardScope, GuardedProgram, SettingsEntry},
        undo_note::UndoNote,
    };

    fn remove(text: &str, before: &Value) -> Removal {
        let own = OwnEntries::new(GuardedProgram::Claude, Some("/bin/countersign hook claude --data '/d'"));
        remove_entries(text, &entries(), before, &own).unwrap()
    }

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
            let added = add_entries(text, &entries(), JsonSyntax::Plain).unwrap();
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
            let removed = remove(&added, &before);
            assert_eq!(serde_json::from_str::<Value>(&removed.text).unwrap(), before, "{removed:?}");
            assert_eq!((removed.settings, removed.notes), (before, Vec::new()));
        }
    }

    #[test]
    fn what_the_user_changed_meanwhile_stays() {
        let before = json!({"model": "opus"});
        let added = add_entries(&before.to_string(), &entries(), JsonSyntax::Plain).unwrap();
        let own = serde_json::from_str::<Value>(&added).unwrap()["hooks"]["PreToolUse"][0]["hooks"][0].clone();
        let mut edited: Value = serde_json::from_str(&added).unwrap();
        edited["model"] = json!("other");
        edited["hooks"]["PreToolUse"].as_array_mut().unwrap().insert(0, json!({"matcher": "Bash", "hooks": []}));
        edited["hooks"]["PostToolUse"][0]["matcher"] = json!("Bash");
        edited["hooks"]["PermissionRequest"][0]["hooks"].as_array_mut().unwrap().push(json!({"command": "mine"}));
        edited["hooks"].as_object_mut().unwrap().remove("PostToolUseFailure");
        edited["hooks"]["Stop"] = json!([{"hooks": [own]}]);
        let removed = remove(&edited.to_string(), &before);
        let want = json!({
            "model": "other",
            "hooks": {
                "PreToolUse": [{"matcher": "Bash", "hooks": []}],
                "PermissionRequest": [{"matcher": "*", "hooks": [{"command": "mine"}]}],
            },
        });
        assert_eq!(removed.settings, want);
        let edited = ["hooks.PermissionRequest", "hooks.PostToolUse", "hooks.Stop"];
        let mut notes: Vec<UndoNote> = edited.map(|key| UndoNote::Edited(key.to_owned())).to_vec();
        notes.push(UndoNote::Gone("hooks.PostToolUseFailure".to_owned()));
        let mut found = removed.notes;
        found.sort();
        notes.sort();
        assert_eq!(found, notes);
    }

    #[test]
    fn a_hook_in_an_unknown_form_is_left_and_named() {
        let text = json!({"hooks": {"Stop": [{"hooks": [{"type": "x", "run": ["/bin/countersign hook claude"]}]}]}});
        let removed = remove(&text.to_string(), &json!({}));
        assert_eq!((&removed.settings, removed.notes.last()), (&text, Some(&UndoNote::Left("hooks.Stop".to_owned()))));
    }

    #[test]
    fn comments_stay_where_the_program_reads_them() {
        let text = "{ \"theme\": \"dark\", // mine\n  \"permission\": { \"edit\": \"allow\" },\n}\n";
        let entries = GuardedProgram::Opencode.entries(GuardScope::User, "/s/countersign.mjs");
        assert!(add_entries(text, &entries, JsonSyntax::Plain).is_err());
        let added = add_entries(text, &entries, JsonSyntax::Comments).unwrap();
        let before = JsonSyntax::Comments.parse_value(text).unwrap();
        assert!(added.contains("// mine") && added.contains("/s/countersign.mjs"), "{added}");
        let own = OwnEntries::new(GuardedProgram::Opencode, None);
        let removed = remove_entries(&added, &entries, &before, &own).unwrap();
        assert!(removed.text.contains("// mine"), "{removed:?}");
        assert_eq!((removed.settings, removed.notes), (before, Vec::new()));
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
            assert!(add_entries(text, &entries(), JsonSyntax::Plain).is_err(), "{text}");
        }
    }
}
