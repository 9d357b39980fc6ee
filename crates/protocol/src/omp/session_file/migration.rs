//! Brings session files of versions 1 and 2 up to version 3.
//!
//! It must not know more of a line than what the versions changed.

use std::mem;

use serde_json::{Map, Value};

use super::VERSION;

type LineMembers = Map<String, Value>;

/// Result of the migration of a file's lines.
#[derive(Clone, Debug, PartialEq)]
pub enum MigrationResult {
    /// The lines were up to date, or of a version that we do not know.
    Unchanged(Vec<Option<LineMembers>>),
    /// The lines were brought up to date.
    Migrated(Vec<Option<LineMembers>>),
}

impl MigrationResult {
    /// Returns the lines as they are now, each in its place.
    pub fn into_lines(self) -> Vec<Option<LineMembers>> {
        match self {
            Self::Unchanged(lines) | Self::Migrated(lines) => lines,
        }
    }
}

/// Brings the lines of one file, the header first, up to version 3. A line that cannot be read is `None` and keeps its place. `fresh`
/// gives ids for entries and must not repeat itself.
///
/// Version 2 gave entries an `id` and a `parentId`, each entry following the one before it, and put
/// `firstKeptEntryId` in the place of `firstKeptEntryIndex`, which counts lines from the header at 0. If that line
/// cannot be read, the next one that can is kept. Version 3 renamed
/// the message role `hookMessage` to `custom`.
pub fn migrate_lines(mut lines: Vec<Option<LineMembers>>, fresh: impl FnMut() -> String) -> MigrationResult {
    let Some(Some(header)) = lines.first() else { return MigrationResult::Unchanged(lines) };
    let version = header.get("version").map_or(Some(1), Value::as_u64);
    match version {
        Some(0 | 1) => {
            give_ids(&mut lines, fresh);
            rename_hook_messages(&mut lines);
        }
        Some(2) => rename_hook_messages(&mut lines),
        Some(_) | None => return MigrationResult::Unchanged(lines),
    }
    if let Some(Some(header)) = lines.first_mut() {
        header.insert("version".to_owned(), VERSION.into());
    }
    MigrationResult::Migrated(lines)
}

fn give_ids(lines: &mut [Option<LineMembers>], mut fresh: impl FnMut() -> String) {
    let mut ids: Vec<Option<String>> = Vec::with_capacity(lines.len());
    let mut parent = Value::Null;
    for (index, line) in lines.iter_mut().enumerate() {
        let Some(line) = line else {
            ids.push(None);
            continue;
        };
        let id = fresh();
        if index > 0 {
            if let Some(first_kept) = line.remove("firstKeptEntryIndex") {
                // A place that does not exist keeps nothing but the summary itself.
                let kept = first_kept.as_u64().and_then(|at| usize::try_from(at).ok()).filter(|&at| at > 0);
                let kept = kept.and_then(|at| ids.get(at..)?.iter().flatten().next()).unwrap_or(&id).clone();
                line.insert("firstKeptEntryId".to_owned(), kept.into());
            }
            set_ids(line, &id, mem::replace(&mut parent, id.as_str().into()));
        }
        ids.push(Some(id));
    }
}

/// Puts `id` and `parentId` where entries have them: after the type.
fn set_ids(line: &mut LineMembers, id: &str, parent: Value) {
    let rest = mem::take(line);
    line.extend(rest.get_key_value("type").map(|(name, value)| (name.clone(), value.clone())));
    line.insert("id".to_owned(), id.into());
    line.insert("parentId".to_owned(), parent);
    line.extend(rest.into_iter().filter(|(name, _)| !["type", "id", "parentId"].contains(&name.as_str())));
}

fn rename_hook_messages(lines: &mut [Option<LineMembers>]) {
    for line in lines.iter_mut().flatten() {
        if let Some(role) = line.get_mut("message").and_then(|message| message.get_mut("role"))
            && role == "hookMessage"
        {
            *role = "custom".into();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(text: &str) -> Vec<Option<LineMembers>> {
        text.lines().map(|line| serde_json::from_str(line).ok()).collect()
    }

    fn counted() -> impl FnMut() -> String {
        let mut ids = 0..;
        move || format!("id{}", ids.next().unwrap_or(0))
    }

    const V1: &str = r#"{"type":"session","id":"s","timestamp":"t","cwd":"/w"}
{"type":"message","timestamp":"t","message":{"role":"hookMessage","content":"x"}}
{"type":"message","timestamp":"t","message":{"role":"user","content":"y"}}
{"type":"compaction","timestamp":"t","summary":"s","firstKeptEntryIndex":2,"tokensBefore":1}
{"type":"compaction","timestamp":"t","summary":"s","firstKeptEntryIndex":99,"tokensBefore":1}"#;

    const V3: &str = r#"{"type":"session","id":"s","timestamp":"t","cwd":"/w","version":3}
{"type":"message","id":"id1","parentId":null,"timestamp":"t","message":{"role":"custom","content":"x"}}
{"type":"message","id":"id2","parentId":"id1","timestamp":"t","message":{"role":"user","content":"y"}}
{"type":"compaction","id":"id3","parentId":"id2","timestamp":"t","summary":"s","tokensBefore":1,"firstKeptEntryId":"id2"}
{"type":"compaction","id":"id4","parentId":"id3","timestamp":"t","summary":"s","tokensBefore":1,"firstKeptEntryId":"id4"}"#;

    #[test]
    fn version_1_gets_ids_in_a_row_and_no_hook_messages() {
        let migrated = migrate_lines(lines(V1), counted()).into_lines();
        let text: Vec<String> = migrated.into_iter().flatten().map(|line| Value::Object(line).to_string()).collect();
        assert_eq!(text.join("\n"), V3);
    }

    #[test]
    fn a_line_of_version_1_that_cannot_be_read_counts() {
        for (unreadable, want) in [(&[1][..], "id1"), (&[2], "id2"), (&[1, 2], "id1")] {
            let cut = |(at, line): (usize, &str)| {
                if unreadable.contains(&at) { line[..40].to_owned() } else { line.to_owned() }
            };
            let text: Vec<String> = V1.lines().enumerate().map(cut).collect();
            let migrated = migrate_lines(lines(&text.join("\n")), counted()).into_lines();
            assert_eq!(migrated.iter().filter(|line| line.is_none()).count(), unreadable.len());
            let compaction = migrated[3].as_ref().unwrap();
            assert_eq!(compaction["firstKeptEntryId"], want, "{unreadable:?}");
            let mut parent = Value::Null;
            for line in migrated.iter().skip(1).flatten() {
                assert_eq!(line["parentId"], std::mem::replace(&mut parent, line["id"].clone()));
            }
        }
    }

    #[test]
    fn version_2_keeps_its_ids() {
        let mut old = lines(V3);
        old[0].as_mut().unwrap().insert("version".to_owned(), 2.into());
        old[1].as_mut().unwrap()["message"]["role"] = "hookMessage".into();
        assert_eq!(migrate_lines(old, counted()), MigrationResult::Migrated(lines(V3)));
    }

    #[test]
    fn what_is_up_to_date_or_newer_is_left_alone() {
        for version in [3, 4] {
            let mut lines = lines(V3);
            lines[0].as_mut().unwrap().insert("version".to_owned(), version.into());
            assert_eq!(migrate_lines(lines.clone(), counted()), MigrationResult::Unchanged(lines), "version {version}");
        }
        assert_eq!(migrate_lines(Vec::new(), counted()), MigrationResult::Unchanged(Vec::new()));
    }

    proptest! {
        #[test]
        fn migrating_twice_is_migrating_once(index in any::<u64>(), old in any::<bool>()) {
            let mut lines = lines(V1);
            lines[3].as_mut().unwrap().insert("firstKeptEntryIndex".to_owned(), index.into());
            if old {
                lines[0].as_mut().unwrap().insert("version".to_owned(), 1.into());
            }
            let once = migrate_lines(lines, counted()).into_lines();
            prop_assert_eq!(migrate_lines(once.clone(), counted()), MigrationResult::Unchanged(once));
        }
    }
}
