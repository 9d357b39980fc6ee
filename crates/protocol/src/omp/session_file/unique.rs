//! Gives every entry of a file an id of its own.
//!
//! It must not lose an entry, nor lead one to another parent than its line meant.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{
    Map, Value,
    value::{RawValue, to_raw_value},
};

use super::links::{EntryLinks, EntryReference};
use crate::RawJson;

/// Result of the check of a file's ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdUniqueness {
    /// Each stood there once.
    Unique,
    /// Some stood there again, and their entries have new ones.
    Separated,
}

/// Gives each entry whose id occurred before a new one of `fresh`. Later references to that id mean the nearest entry before them
/// that had it. Adds the places of the entries that changed to `changed`.
pub(super) fn separate_ids(
    links: &mut [EntryLinks],
    mut fresh: impl FnMut() -> String,
    changed: &mut BTreeSet<usize>,
) -> IdUniqueness {
    {
        let ids: BTreeSet<&str> = links.iter().map(|entry| entry.id.as_str()).collect();
        if ids.len() == links.len() {
            return IdUniqueness::Unique;
        }
    }
    let mut taken: BTreeSet<String> = links.iter().map(|entry| entry.id.clone()).collect();
    let mut seen = BTreeSet::new();
    let mut renamed: BTreeMap<String, String> = BTreeMap::new();
    for (at, entry) in links.iter_mut().enumerate() {
        let old = entry.id.clone();
        let mut is_changed = update_references(entry, &renamed);
        if seen.contains(&old) {
            let mut new = fresh();
            while !taken.insert(new.clone()) {
                new = fresh();
            }
            entry.id.clone_from(&new);
            renamed.insert(old, new);
            is_changed = true;
        } else {
            seen.insert(old);
        }
        if is_changed {
            changed.insert(at);
        }
    }
    IdUniqueness::Separated
}

/// Returns a line of an unread type with these ids in it.
pub(super) fn with_ids(line: &RawJson, id: &str, parent: Option<&str>) -> Option<RawJson> {
    if let Ok(mut members) = line.decode_as::<Map<String, Value>>() {
        members.insert("id".to_owned(), id.into());
        members.insert("parentId".to_owned(), parent.into());
        return Some(Value::Object(members).into());
    }
    // It holds a number that no number of ours can, which stays as it is written.
    let mut members = line.decode_as::<BTreeMap<String, Box<RawValue>>>().ok()?;
    members.insert("id".to_owned(), to_raw_value(id).ok()?);
    members.insert("parentId".to_owned(), to_raw_value(&parent).ok()?);
    to_raw_value(&members).ok().map(RawJson::from)
}

/// Has `entry` name others as they are called now. True if that changed it.
fn update_references(entry: &mut EntryLinks, renamed: &BTreeMap<String, String>) -> bool {
    let mut is_changed = false;
    let mut name = |id: &mut String| {
        if let Some(new) = renamed.get(id) {
            id.clone_from(new);
            is_changed = true;
        }
    };
    entry.parent_id.iter_mut().for_each(&mut name);
    match &mut entry.reference {
        EntryReference::FirstKept(id) | EntryReference::Target(id) => name(id),
        EntryReference::None => {}
    }
    is_changed
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{IdUniqueness, separate_ids};
    use crate::omp::session_file::{ParentMember, SessionFileEntry};

    fn separated(lines: &[&str]) -> (IdUniqueness, Vec<String>) {
        let mut entries: Vec<SessionFileEntry> =
            lines.iter().map(|line| SessionFileEntry::parse(line).unwrap()).collect();
        let mut links: Vec<_> = entries.iter().map(|entry| entry.links(ParentMember::Named)).collect();
        let mut ids = ["a", "n1", "n2", "n3"].into_iter().map(str::to_owned);
        let mut changed = BTreeSet::new();
        let found = separate_ids(&mut links, || ids.next().unwrap(), &mut changed);
        for at in changed {
            entries[at].set_links(&links[at]);
        }
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
        assert_eq!(separated(&lines), (IdUniqueness::Separated, want.to_vec()));
        let unique = [lines[0], lines[1]];
        assert_eq!(separated(&unique), (IdUniqueness::Unique, unique.map(str::to_owned).to_vec()));
    }
}
