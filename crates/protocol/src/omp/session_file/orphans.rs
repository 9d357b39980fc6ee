//! Gives entries a parent whose own is not in the file, so that what came before them is not lost with one line.
//!
//! It must not touch an entry whose parent is there.

use std::collections::{BTreeMap, BTreeSet};

use super::{Body, Entry, unique::called};

/// Hangs each entry whose parent is not in the file on the entry before it, and returns how many there were. The first entry
/// becomes a root, and so do all of them in a file whose entries name parents that come later: there the entry before may be
/// a descendant.
pub(super) fn reattach(entries: &mut [Entry]) -> usize {
    let ids: BTreeSet<String> = entries.iter().map(|entry| entry.id.clone()).collect();
    let is_orphan = |entry: &Entry| entry.parent_id.as_ref().is_some_and(|parent| !ids.contains(parent));
    if !entries.iter().any(is_orphan) {
        return 0;
    }
    let is_in_order = is_in_order(entries);
    let mut before: Option<String> = None;
    let mut reattached = 0;
    let mut followers: BTreeMap<String, String> = BTreeMap::new();
    for entry in &mut *entries {
        if is_orphan(entry) {
            reattached += 1;
            if let Some(missing) = entry.parent_id.take() {
                followers.entry(missing).or_insert_with(|| entry.id.clone());
            }
            entry.parent_id = before.clone().filter(|_| is_in_order);
            if let Body::Unknown(line) = &mut entry.body
                && let Some(again) = called(line, &entry.id, entry.parent_id.as_deref())
            {
                *line = again;
            }
        }
        before = Some(entry.id.clone());
    }
    // A summary keeps what follows an entry that is gone.
    for entry in entries {
        if let Body::Compaction(compaction) = &mut entry.body
            && let Some(follower) = followers.get(&compaction.first_kept_entry_id)
        {
            compaction.first_kept_entry_id.clone_from(follower);
        }
    }
    reattached
}

/// True if every parent that is there stands before its children.
fn is_in_order(entries: &[Entry]) -> bool {
    let places: BTreeMap<&str, usize> = entries.iter().enumerate().map(|(at, entry)| (entry.id.as_str(), at)).collect();
    entries.iter().enumerate().all(|(at, entry)| {
        let parent = entry.parent_id.as_deref().and_then(|parent| places.get(parent));
        parent.is_none_or(|parent| *parent < at)
    })
}

#[cfg(test)]
mod tests {
    use crate::omp::session_file::{Body, Header, read};

    /// The parents of what is read from a header and these lines, with how many were unreadable and how many hang elsewhere.
    fn parents(lines: &[&str]) -> (Vec<Option<String>>, usize, usize) {
        let header = r#"{"type":"session","version":3,"id":"s","timestamp":"","cwd":"/"}"#;
        let text = [header].iter().chain(lines).copied().collect::<Vec<_>>().join("\n");
        let mut fresh = 0..;
        let file = read(&text, || format!("fresh{}", fresh.next().unwrap_or(0))).unwrap();
        (file.entries.iter().map(|entry| entry.parent_id.clone()).collect(), file.unreadable, file.reattached)
    }

    fn entry(id: &str, parent: &str) -> String {
        let parent = if parent.is_empty() { "null".to_owned() } else { format!("\"{parent}\"") };
        format!(r#"{{"type":"label","id":"{id}","parentId":{parent},"timestamp":"","targetId":"x"}}"#)
    }

    #[test]
    fn an_entry_whose_parent_is_not_there_hangs_on_the_one_before_it() {
        let lines = [entry("a", ""), entry("b", "a"), entry("c", "b"), entry("d", "c"), entry("e", "d")];
        let cut = &lines[2][..20];
        let got = parents(&[&lines[0], &lines[1], cut, &lines[3], &lines[4]]);
        let want = ["", "a", "b", "d"].map(|id| Some(id.to_owned()).filter(|id| !id.is_empty()));
        assert_eq!(got, (want.to_vec(), 1, 1));
    }

    #[test]
    fn without_an_entry_before_it_and_among_parents_that_come_later_it_is_a_root() {
        assert_eq!(parents(&[&entry("a", "gone"), &entry("b", "a")]).0, [None, Some("a".to_owned())]);
        // The entry before is a child of the orphan.
        let (parents, _, reattached) = parents(&[&entry("a", "b"), &entry("b", "gone")]);
        assert_eq!((parents, reattached), (vec![Some("b".to_owned()), None], 1));
    }

    #[test]
    fn a_summary_that_kept_an_entry_which_is_gone_keeps_what_followed_it() {
        let compaction = r#"{"type":"compaction","id":"s","parentId":"c","timestamp":"","summary":"x","firstKeptEntryId":"b","tokensBefore":1}"#;
        let header = r#"{"type":"session","version":3,"id":"s","timestamp":"","cwd":"/"}"#;
        let lines = [header, &entry("a", ""), &entry("b", "a")[..20], &entry("c", "b"), compaction];
        let file = read(&lines.join("\n"), String::new).unwrap();
        let Body::Compaction(kept) = &file.entries[2].body else { panic!("{file:?}") };
        assert_eq!(kept.first_kept_entry_id, "c");
    }

    #[test]
    fn an_entry_of_an_unknown_type_names_its_new_parent_in_its_line() {
        let unknown = r#"{"type":"later","id":"b","parentId":"gone","x":1}"#;
        let header = r#"{"type":"session","version":3,"id":"s","timestamp":"","cwd":"/"}"#;
        let file = read(&[header, &entry("a", ""), unknown].join("\n"), String::new).unwrap();
        let written = String::from_utf8(crate::encode(&file.entries[1]).to_vec()).unwrap();
        assert!(written.contains(r#""parentId":"a""#), "{written}");
    }

    #[test]
    fn a_byte_order_mark_before_the_header_is_no_part_of_it() {
        let text = "\u{feff}{\"type\":\"session\",\"version\":3,\"id\":\"s\",\"timestamp\":\"\",\"cwd\":\"/\"}\n";
        let Header { id, .. } = read(text, String::new).unwrap().header;
        assert_eq!(id, "s");
    }
}
