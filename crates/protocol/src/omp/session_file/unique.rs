//! Gives every entry of a file an id of its own.
//!
//! It must not lose an entry, nor lead one to another parent than its line meant.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{
    Map, Value,
    value::{RawValue, to_raw_value},
};

use super::{Body, Entry};
use crate::Json;

/// What became of the ids of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ids {
    /// Each stood there once.
    Unique,
    /// Some stood there again, and their entries have new ones.
    Separated,
}

/// Gives each entry whose id stands before it already a new one of `fresh`. What follows and names that id means the
/// nearest entry before it that had it.
pub(super) fn separate(entries: &mut [Entry], mut fresh: impl FnMut() -> String) -> Ids {
    let mut taken: BTreeSet<String> = entries.iter().map(|entry| entry.id.clone()).collect();
    if taken.len() == entries.len() {
        return Ids::Unique;
    }
    let mut seen = BTreeSet::new();
    let mut renamed: BTreeMap<String, String> = BTreeMap::new();
    for entry in entries {
        let old = entry.id.clone();
        refer(entry, &renamed);
        if seen.contains(&old) {
            let mut new = fresh();
            while !taken.insert(new.clone()) {
                new = fresh();
            }
            entry.id.clone_from(&new);
            renamed.insert(old, new);
        } else {
            seen.insert(old);
        }
        if let Body::Unknown(line) = &mut entry.body
            && let Some(called) = called(line, &entry.id, entry.parent_id.as_deref())
        {
            *line = called;
        }
    }
    Ids::Separated
}

/// A line that nobody here reads, with these names in it.
pub(super) fn called(line: &Json, id: &str, parent: Option<&str>) -> Option<Json> {
    if let Ok(mut members) = line.read::<Map<String, Value>>() {
        members.insert("id".to_owned(), id.into());
        members.insert("parentId".to_owned(), parent.into());
        return Some(Value::Object(members).into());
    }
    // It holds a number that no number of ours can, which stays as it is written.
    let mut members = line.read::<BTreeMap<String, Box<RawValue>>>().ok()?;
    members.insert("id".to_owned(), to_raw_value(id).ok()?);
    members.insert("parentId".to_owned(), to_raw_value(&parent).ok()?);
    to_raw_value(&members).ok().map(Json::from)
}

/// Has `entry` name others as they are called now.
fn refer(entry: &mut Entry, renamed: &BTreeMap<String, String>) {
    let name = |id: &mut String| {
        if let Some(new) = renamed.get(id) {
            id.clone_from(new);
        }
    };
    entry.parent_id.iter_mut().for_each(name);
    match &mut entry.body {
        Body::Compaction(body) => name(&mut body.first_kept_entry_id),
        Body::BranchSummary(body) => name(&mut body.from_id),
        Body::Label(body) => name(&mut body.target_id),
        Body::Message(_)
        | Body::ModelChange(_)
        | Body::ThinkingLevelChange(_)
        | Body::ServiceTierChange(_)
        | Body::Custom(_)
        | Body::CustomMessage(_)
        | Body::TtsrInjection(_)
        | Body::SessionInit(_)
        | Body::ModeChange(_)
        | Body::SessionInfo(_)
        | Body::Unknown(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, Ids, separate};

    fn separated(lines: &[&str]) -> (Ids, Vec<String>) {
        let mut entries: Vec<Entry> = lines.iter().map(|line| Entry::parse(line).unwrap()).collect();
        let mut ids = ["a", "n1", "n2", "n3"].into_iter().map(str::to_owned);
        let found = separate(&mut entries, || ids.next().unwrap());
        (found, entries.iter().map(|entry| serde_json::to_string(entry).unwrap()).collect())
    }

    #[test]
    fn an_id_that_comes_again_becomes_another_and_what_follows_means_it() {
        let label = |id: &str, parent: &str, target: &str| {
            format!(
                r#"{{"type":"label","id":"{id}","parentId":{parent},"timestamp":"t","targetId":"{target}","label":"l"}}"#
            )
        };
        let alien = |id: &str, parent: &str| format!(r#"{{"type":"alien","id":"{id}","parentId":"{parent}","x":1}}"#);
        let lines = [
            label("a", "null", "a"),
            label("b", r#""a""#, "a"),
            label("a", r#""a""#, "b"),
            alien("c", "a"),
            alien("a", "a"),
            label("d", r#""a""#, "a"),
        ];
        let want = [
            label("a", "null", "a"),
            label("b", r#""a""#, "a"),
            label("n1", r#""a""#, "b"),
            alien("c", "n1"),
            alien("n2", "n1"),
            label("d", r#""n2""#, "n2"),
        ];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert_eq!(separated(&lines), (Ids::Separated, want.to_vec()));
        let unique = [lines[0], lines[1]];
        assert_eq!(separated(&unique), (Ids::Unique, unique.map(str::to_owned).to_vec()));
    }
}
