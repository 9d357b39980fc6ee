//! State of settings, folded from facts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Event, SettingsPath};
use crate::digest::Digest;

/// Everything that people have set. Default values are not part of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    tree: Map<String, Value>,
    /// As pairs: a path is no name of a member.
    #[serde(with = "pairs")]
    secrets: BTreeMap<SettingsPath, Digest>,
}

mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::{Digest, SettingsPath};

    pub(super) fn serialize<S: Serializer>(map: &BTreeMap<SettingsPath, Digest>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<SettingsPath, Digest>, D::Error> {
        Ok(Vec::deserialize(from)?.into_iter().collect())
    }
}

impl State {
    /// Returns the values, as a tree without secrets.
    pub const fn tree(&self) -> &Map<String, Value> {
        &self.tree
    }

    /// Returns the secrets that are set.
    pub fn secrets(&self) -> impl Iterator<Item = (&SettingsPath, Digest)> {
        self.secrets.iter().map(|(path, digest)| (path, *digest))
    }

    /// Returns the value at a path. Elements of lists have no path.
    pub fn get(&self, path: &SettingsPath) -> Option<&Value> {
        let (first, rest) = path.names().split_first()?;
        rest.iter().try_fold(self.tree.get(first)?, |at, name| at.get(name.as_str()))
    }

    /// Returns the secrets at a path or below.
    pub(crate) fn secrets_within(&self, path: &SettingsPath) -> impl Iterator<Item = (&SettingsPath, Digest)> {
        self.secrets().filter(move |(at, _)| at.is_within(path))
    }

    /// Applies a recorded event. Cannot fail, so replay cannot fail.
    pub fn apply_event(&mut self, event: &Event) {
        match event {
            Event::Set { path, value, secrets, .. } => {
                self.set_value(path, value.clone());
                self.secrets.retain(|at, _| !at.is_within(path));
                self.secrets.extend(secrets.iter().cloned());
            }
            Event::Added { path, item, .. } => {
                let mut list = match self.get(path) {
                    Some(Value::Array(list)) => list.clone(),
                    Some(_) | None => Vec::new(),
                };
                list.push(item.as_str().into());
                self.set_value(path, Some(list.into()));
            }
        }
    }

    fn set_value(&mut self, path: &SettingsPath, value: Option<Value>) {
        let Some((last, way)) = path.names().split_last() else { return };
        let mut at = &mut self.tree;
        for name in way {
            let next = at.entry(name.clone()).or_insert_with(|| Value::Object(Map::new()));
            if !next.is_object() {
                *next = Value::Object(Map::new());
            }
            let Value::Object(members) = next else { return };
            at = members;
        }
        match value {
            Some(value) => drop(at.insert(last.clone(), value)),
            None => drop(at.shift_remove(last)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Event, SettingsPath, State};
    use crate::{digest::Digest, id::PrincipalId};

    fn path(text: &str) -> SettingsPath {
        SettingsPath::from_names(text.split('.').map(str::to_owned)).unwrap()
    }

    fn set(at: &str, value: Option<Value>, secrets: &[&str]) -> Event {
        let secrets = secrets.iter().map(|at| (path(at), Digest::hash_bytes(at.as_bytes()))).collect();
        Event::Set { by: PrincipalId::new("ana"), path: path(at), value, secrets }
    }

    fn added(at: &str, item: &str) -> Event {
        Event::Added { by: PrincipalId::new("ana"), path: path(at), item: item.to_owned() }
    }

    #[test]
    fn what_is_set_takes_the_place_of_all_that_was_there() {
        let mut state = State::default();
        for (case, event, tree, secrets) in [
            ("a value", set("a.b", Some(json!(1)), &[]), json!({"a": {"b": 1}}), vec![]),
            ("beside it", set("a.c", Some(json!({"d": [2]})), &[]), json!({"a": {"b": 1, "c": {"d": [2]}}}), vec![]),
            ("a text for a list", added("a.c.d", "x"), json!({"a": {"b": 1, "c": {"d": [2, "x"]}}}), vec![]),
            ("a list that is new", added("l", "x"), json!({"a": {"b": 1, "c": {"d": [2, "x"]}}, "l": ["x"]}), vec![]),
            (
                "a secret below",
                set("a", Some(json!({"b": 3})), &["a.key"]),
                json!({"a": {"b": 3}, "l": ["x"]}),
                vec!["a.key"],
            ),
            ("a sibling leaves it", set("a.b", None, &[]), json!({"a": {}, "l": ["x"]}), vec!["a.key"]),
            ("a path through a value", set("l.m", Some(json!(1)), &[]), json!({"a": {}, "l": {"m": 1}}), vec!["a.key"]),
            ("above takes it out", set("a", None, &[]), json!({"l": {"m": 1}}), vec![]),
        ] {
            let written = serde_json::to_string(&event).unwrap();
            state.apply_event(&serde_json::from_str(&written).unwrap());
            assert_eq!(Value::Object(state.tree().clone()), tree, "{case}");
            let got: Vec<String> = state.secrets().map(|(path, _)| path.to_string()).collect();
            assert_eq!(got, secrets, "{case}");
            let written = serde_json::to_string(&state).unwrap();
            assert_eq!(serde_json::from_str::<State>(&written).unwrap(), state, "{case}");
        }
    }

    #[test]
    fn a_path_has_names_and_knows_what_is_below_it() {
        assert_eq!(SettingsPath::from_names([]), None);
        assert_eq!(SettingsPath::from_names(["a".to_owned(), String::new()]), None);
        assert!(path("a.b").is_within(&path("a")) && path("a").is_within(&path("a")));
        assert!(!path("ab").is_within(&path("a")) && !path("a").is_within(&path("a.b")));
    }
}
