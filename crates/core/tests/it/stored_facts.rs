//! The stored form of facts: a record that an earlier version wrote is read by the names in it.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::snapshot_form::histories;

/// One line for each form: the kind, the version and the facts as the log keeps them.
const GOLDEN: &str = include_str!("../data/stored_facts.txt");

/// Collects the names of all members, with their paths; texts and numbers are left out, and so are lengths of lists.
fn shape(value: &Value, at: &str, places: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                shape(member, &format!("{at}.{name}"), places);
            }
        }
        Value::Array(items) => {
            for item in items {
                shape(item, &format!("{at}[]"), places);
            }
        }
        _ => {
            places.insert(at.to_owned());
        }
    }
}

#[test]
fn facts_are_stored_under_the_names_that_earlier_versions_wrote() {
    let mut shapes = BTreeSet::new();
    let mut lines = Vec::new();
    for stage in histories() {
        for (kind, version, facts) in stage.stored() {
            let value: Value = serde_json::from_str(&facts).expect("facts are JSON");
            let mut places = BTreeSet::new();
            shape(&value, "", &mut places);
            if shapes.insert((kind, places)) {
                lines.push(format!("{kind} {version} {facts}"));
            }
        }
    }
    lines.sort();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/stored_facts.txt");
        std::fs::write(file, lines.join("\n") + "\n").expect("the golden file can be written");
        return;
    }
    let known: Vec<&str> = GOLDEN.lines().collect();
    for line in &lines {
        assert!(known.contains(&line.as_str()), "no earlier version wrote this (UPDATE_GOLDEN=1 adds it):\n{line}");
    }
    for line in &known {
        assert!(lines.iter().any(|written| written == line), "earlier versions wrote this, and nothing does:\n{line}");
    }
}
