//! The lists of docs/reference/configuration.md hold exactly the keys that the readers of the files know.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::ConfigFixture;
use crate::{ConfigFault, ConfigProblem, read_permissions};

const CONFIGURATION: &str = include_str!("../reference/configuration.txt");
const RULES: &str = include_str!("../reference/rules.txt");
const TOOLS: &str = include_str!("../reference/tools.txt");

/// An unknown key.
const STRANGE: &str = "strange";

/// Returns the keys of a list, each with the value that holds without it.
fn keys(list: &'static str) -> Vec<(&'static str, &'static str)> {
    list.lines()
        .map(|line| line.split(" | "))
        .map(|mut parts| (parts.next().unwrap(), parts.nth(1).unwrap().trim()))
        .collect()
}

/// Returns the keys of each mapping of a list, by the mapping's own key; those whose members are named by the author aside.
fn levels(list: &'static str) -> BTreeMap<String, BTreeSet<&'static str>> {
    let mut levels: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (key, _) in keys(list) {
        let mut above = String::new();
        for part in key.split('.') {
            if part != "*" {
                levels.entry(above.clone()).or_default().insert(part.trim_end_matches("[]"));
            }
            above = if above.is_empty() { part.to_owned() } else { format!("{above}.{part}") };
        }
    }
    levels
}

/// Returns a file in which every mapping of `levels` is there and has a strange key.
fn strange<'a>(levels: impl Iterator<Item = &'a String>) -> Value {
    let mut file = json!({});
    for level in levels {
        let mut at = &mut file;
        for part in level.split('.').filter(|part| !part.is_empty()) {
            let members = at.as_object_mut().unwrap();
            let (name, is_list) = part.strip_suffix("[]").map_or((part, false), |name| (name, true));
            let inner = members
                .entry(name.replace('*', "any"))
                .or_insert_with(|| if is_list { json!([{}]) } else { json!({}) });
            at = if is_list { &mut inner[0] } else { inner };
        }
        at.as_object_mut().unwrap().insert(STRANGE.to_owned(), json!(0));
    }
    file
}

/// Returns the problem that names the strange key of a level.
fn strange_key(level: &str) -> String {
    let level = level.replace("[]", "[0]").replace('*', "any");
    if level.is_empty() { STRANGE.to_owned() } else { format!("{level}.{STRANGE}") }
}

fn check(list: &'static str, problems: &[ConfigProblem]) {
    for (level, want) in levels(list) {
        let key = strange_key(&level);
        let known = problems.iter().find_map(|problem| match &problem.fault {
            ConfigFault::UnknownKey(known) if problem.key == key => {
                Some(known.iter().copied().collect::<BTreeSet<_>>())
            }
            _ => None,
        });
        assert_eq!(known, Some(want), "the keys of {level:?}");
    }
}

fn with(mut file: Value, pointer: &str, value: Value) -> Value {
    let (above, key) = pointer.rsplit_once('/').unwrap();
    file.pointer_mut(above).unwrap().as_object_mut().unwrap().insert(key.to_owned(), value);
    file
}

#[test]
fn every_key_of_the_configuration_is_in_its_list_and_no_other() {
    let file = strange(levels(CONFIGURATION).keys());
    let file = with(file, "/messenger/type", json!("telegram"));
    let scene = ConfigFixture::new(&file.to_string());
    check(CONFIGURATION, &scene.load().unwrap_err().0);
}

#[test]
fn every_key_of_rules_is_in_its_list_and_no_other() {
    let file = strange(levels(RULES).keys());
    let file = with(with(file, "/rules/0/pattern", json!("turn(*)")), "/rules/0/action", json!("ask"));
    let scene = ConfigFixture::new("{}");
    scene.write("permissions.yaml", &file.to_string());
    let path = scene.path().join("permissions.yaml");
    let errors = read_permissions(&path, countersign_core::policy::RuleLayer::Main).unwrap_err();
    check(RULES, &errors.0);
}

#[test]
fn every_key_of_tools_is_in_its_list_and_no_other() {
    let scene =
        ConfigFixture::new("services: { any: { url: 'http://127.0.0.1:1', auth: { type: none }, tools: tools.yaml } }");
    scene.write("tools.yaml", &strange(levels(TOOLS).keys()).to_string());
    check(TOOLS, &scene.load().unwrap_err().0);
}

#[test]
fn what_holds_without_a_key_is_what_the_list_says() {
    let scene = ConfigFixture::new("{}");
    let shown = scene.load().unwrap().config.redacted_json();
    let mut compared = 0;
    for (key, usual) in keys(CONFIGURATION) {
        let found = shown.pointer(&format!("/{}", key.replace('.', "/")));
        let Some(found) = found.filter(|_| !usual.is_empty()) else { continue };
        let folder = format!("{}/", scene.path().display());
        let found = match found {
            Value::String(text) => text.replace(&folder, ""),
            other => other.to_string(),
        };
        assert_eq!(found, usual, "{key}");
        compared += 1;
    }
    assert!(compared > 15, "{compared}");
}

#[test]
fn the_scripted_model_needs_no_name() {
    let model = ConfigFixture::new("model: { provider: demo }").load().unwrap().config.model.unwrap();
    assert_eq!((model.provider.as_str(), model.id.as_str()), ("demo", countersign_runtime::models::demo::MODEL));
}

#[test]
fn a_strange_file_has_a_strange_key_in_every_mapping() {
    let levels = ["", "a", "a.b[]", "c.*.d"].map(str::to_owned);
    let want: Map<String, Value> =
        serde_json::from_str(r#"{"strange":0,"a":{"strange":0,"b":[{"strange":0}]},"c":{"any":{"d":{"strange":0}}}}"#)
            .unwrap();
    assert_eq!(strange(levels.iter()), Value::Object(want));
}
