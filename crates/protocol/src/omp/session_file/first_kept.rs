//! Finds what a compaction keeps if the oldest entry that it keeps is not in the file.
//!
//! It must not touch a compaction that names an entry of the file.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    links::{EntryLinks, EntryReference},
    unreadable::{LineGap, UnreadableLines},
};

/// Makes each compaction that keeps what is not in the file keep the first entry on its path after the missing one. `first_orphans` has
/// the earliest entry of those that named a parent that is not in the file.
///
/// If nothing says which of the missing entries it was, it counts as the first of them: what is kept without need is no loss.
pub(super) fn restore_first_kept(
    links: &mut [EntryLinks],
    first_orphans: &BTreeMap<String, usize>,
    unreadable: &UnreadableLines,
    changed: &mut BTreeSet<usize>,
) {
    if first_orphans.is_empty() && unreadable.gaps.is_empty() {
        return;
    }
    let places: BTreeMap<&str, usize> = links.iter().enumerate().map(|(at, entry)| (entry.id.as_str(), at)).collect();
    let holes = MissingLines::new(first_orphans, &unreadable.gaps);
    let mut searches: Vec<KeptSearch> = Vec::new();
    for (at, entry) in links.iter().enumerate() {
        if let EntryReference::FirstKept(kept) = &entry.reference
            && !places.contains_key(kept.as_str())
            && let Some(from) = holes.place(kept).filter(|from| *from <= at)
        {
            searches.push(KeptSearch { at, from });
        }
    }
    if searches.is_empty() {
        return;
    }
    let parent = |entry: &EntryLinks| places.get(entry.parent_id.as_deref()?).copied();
    let parents: Vec<Option<usize>> = links.iter().map(parent).collect();
    for (at, kept) in find_oldest(&parents, searches, &mut || ()) {
        links[at].reference = EntryReference::FirstKept(links[kept].id.clone());
        changed.insert(at);
    }
}

/// Places where entries are missing: for each the number of entries before it.
struct MissingLines<'a> {
    by_id: BTreeMap<&'a str, usize>,
    by_child: BTreeMap<&'a str, usize>,
    /// The first one of which no id is known.
    first: Option<usize>,
}

impl<'a> MissingLines<'a> {
    fn new(first_orphans: &'a BTreeMap<String, usize>, gaps: &'a [LineGap]) -> Self {
        let mut by_id = BTreeMap::new();
        let mut by_child: BTreeMap<&str, usize> = first_orphans.iter().map(|(id, at)| (id.as_str(), *at)).collect();
        for LineGap { at, id, parent_id } in gaps {
            if let Some(id) = id {
                by_id.entry(id.as_str()).or_insert(*at);
            }
            if let Some(parent) = parent_id {
                by_child.entry(parent).and_modify(|first| *first = (*first).min(*at)).or_insert(*at);
            }
        }
        let nameless = gaps.iter().filter(|gap| gap.id.is_none()).map(|gap| gap.at).min();
        let first = nameless.into_iter().chain(first_orphans.values().copied()).min();
        Self { by_id, by_child, first }
    }

    fn place(&self, missing: &str) -> Option<usize> {
        self.by_id.get(missing).or_else(|| self.by_child.get(missing)).copied().or(self.first)
    }
}

/// A compaction at a place, and the place from which on it keeps the entries.
struct KeptSearch {
    at: usize,
    from: usize,
}

/// Returns for each search the oldest entry on its path before which no entry is older than `from`. `step` is called for every visit of
/// an entry, to measure the work.
fn find_oldest(parents: &[Option<usize>], mut kept: Vec<KeptSearch>, step: &mut impl FnMut()) -> Vec<(usize, usize)> {
    let mut pairs: Vec<(usize, usize)> =
        parents.iter().enumerate().filter_map(|(at, parent)| Some(((*parent)?, at))).collect();
    pairs.sort_unstable();
    kept.sort_unstable_by_key(|search| std::cmp::Reverse(search.from));
    // Each entry leads towards its oldest one among the parents that count so far: fewer and fewer are too old.
    let mut up: Vec<usize> = (0..parents.len()).collect();
    let mut found = Vec::with_capacity(kept.len());
    for KeptSearch { at, from } in kept {
        while let Some((parent, child)) = pairs.pop_if(|(parent, _)| *parent >= from) {
            step();
            up[child] = parent;
        }
        let mut oldest = at;
        while up[oldest] != oldest {
            step();
            up[oldest] = up[up[oldest]];
            oldest = up[oldest];
        }
        found.push((at, oldest));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{KeptSearch, find_oldest};
    use crate::omp::session_file::{SessionEntryBody, read_session_file};

    const HEADER: &str = r#"{"type":"session","version":3,"id":"s","timestamp":"","cwd":"/"}"#;

    fn entry(id: &str, parent: &str) -> String {
        let parent = if parent.is_empty() { "null".to_owned() } else { format!("\"{parent}\"") };
        format!(r#"{{"type":"label","id":"{id}","parentId":{parent},"timestamp":"","targetId":"x"}}"#)
    }

    fn compaction(parent: &str, kept: &str) -> String {
        format!(
            r#"{{"type":"compaction","id":"s","parentId":"{parent}","timestamp":"","summary":"x","firstKeptEntryId":"{kept}","tokensBefore":1}}"#
        )
    }

    /// Returns what a compaction keeps that is the last line.
    fn kept(lines: &[&str]) -> String {
        let file = read_session_file(&[&[HEADER], lines].concat().join("\n"), || "fresh".to_owned()).unwrap();
        match &file.entries.last().unwrap().body {
            SessionEntryBody::Compaction(compaction) => compaction.first_kept_entry_id.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_follows_a_missing_entry_is_kept() {
        let row = ["", "a", "b", "c", "d", "e", "f"];
        let lines: Vec<String> = row.windows(2).map(|pair| entry(pair[1], pair[0])).collect();
        let [a, b, c, d, e, f] = [0, 1, 2, 3, 4, 5].map(|at| lines[at].as_str());
        // A cut after the id, after the parent, and before both.
        let (id, parent, none) = (24, 40, 12);
        let last = |kept: &str| compaction("f", kept);
        for (case, lines, want) in [
            ("nothing is missing", vec![a, b, c, d, e, f, &last("c")], "c"),
            ("one is cut", vec![a, b, &c[..id], d, e, f, &last("c")], "d"),
            ("one is cut before its id", vec![a, b, &c[..none], d, e, f, &last("c")], "d"),
            ("one is not there", vec![a, b, d, e, f, &last("c")], "d"),
            ("two are cut", vec![a, b, &c[..id], &d[..id], e, f, &last("c")], "e"),
            ("two are cut before their ids", vec![a, b, &c[..none], &d[..none], e, f, &last("c")], "e"),
            ("only the next one has ids", vec![a, b, &c[..none], &d[..parent], e, f, &last("c")], "e"),
            ("two are not there", vec![a, b, e, f, &last("c")], "e"),
            ("the beginning is cut", vec![&a[..id], &b[..id], c, d, e, f, &last("a")], "c"),
            ("another place is cut as well", vec![a, &b[..id], c, &d[..id], &e[..id], f, &last("d")], "f"),
            ("it is not known which", vec![a, c, e, f, &last("lost")], "c"),
            ("nothing that is kept is left", vec![a, &b[..id], &c[..id], &compaction("c", "b")], "s"),
            ("it names what is on another branch", vec![a, b, c, &compaction("b", "c")], "c"),
            ("no line is missing", vec![a, b, &compaction("b", "lost")], "lost"),
        ] {
            assert_eq!(kept(&lines), want, "{case}");
        }
    }

    #[test]
    fn an_entry_on_another_branch_is_not_kept() {
        let lines = [entry("a", ""), entry("c", "b"), entry("d", "a"), entry("e", "d"), compaction("e", "b")];
        assert_eq!(kept(&lines.each_ref().map(String::as_str)), "d");
    }

    #[test]
    fn what_it_takes_grows_with_the_file_and_not_with_its_square() {
        for count in [10_usize, 1000, 100_000] {
            for is_branched in [false, true] {
                let parent = |at: usize| at.checked_sub(if is_branched { 2 } else { 1 });
                let parents: Vec<Option<usize>> = (0..count).map(parent).collect();
                for place in [|_: usize| 1, |at: usize| at, |at: usize| at / 2] {
                    let searches = (1..count).map(|at| KeptSearch { at, from: place(at) }).collect();
                    let mut steps = 0;
                    let found = find_oldest(&parents, searches, &mut || steps += 1);
                    assert_eq!(found.len(), count - 1);
                    assert!(steps <= 40 * count, "{steps} steps for {count} entries");
                }
            }
        }
    }
}
