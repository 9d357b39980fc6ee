//! Gives entries a parent whose own is not in the file or leads back to them, so that what came before them is not lost
//! with one line.
//!
//! It must not touch an entry whose parents lead to the beginning.

use std::collections::{BTreeMap, BTreeSet};

use super::links::EntryLinks;

/// Number of entries whose parent differs from the one in their line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReattachedCounts {
    /// Entries whose parent is not in the file.
    pub(super) orphans: usize,
    /// Entries whose parents led back to them.
    pub(super) looped: usize,
}

/// Result of [`reattach_orphans`].
pub(super) struct ReattachedOrphans {
    pub(super) counts: ReattachedCounts,
    /// For each parent that is not in the file, the place of the first entry that named it.
    pub(super) first_orphans: BTreeMap<String, usize>,
}

/// Hangs each entry whose parent is not in the file on the entry before it, and so the earliest entry of each circle of
/// parents, of which one that is its own parent is the smallest. An entry becomes a root if there is none before it, or
/// if that one is its descendant, as in a file whose entries name parents that come later. Adds the places of the entries that
/// changed to `changed`.
pub(super) fn reattach_orphans(links: &mut [EntryLinks], changed: &mut BTreeSet<usize>) -> ReattachedOrphans {
    let (moves, counts) = plan_moves(links, &mut || ());
    let mut first_orphans: BTreeMap<String, usize> = BTreeMap::new();
    for ParentMove { at, before } in moves {
        let parent = before.map(|before| links[before].id.clone());
        if let Some(missing) = std::mem::replace(&mut links[at].parent_id, parent) {
            first_orphans.entry(missing).or_insert(at);
        }
        changed.insert(at);
    }
    if !first_orphans.is_empty() {
        // Parents in a circle are in the file.
        let ids: BTreeSet<&str> = links.iter().map(|entry| entry.id.as_str()).collect();
        first_orphans.retain(|missing, _| !ids.contains(missing.as_str()));
    }
    ReattachedOrphans { counts, first_orphans }
}

/// An entry that gets another parent.
struct ParentMove {
    at: usize,
    /// The new parent; none for a root.
    before: Option<usize>,
}

/// Plans the moves after which the parents of every entry lead to a root. `step` is called for every visit of an entry, to
/// measure the work.
fn plan_moves(entries: &[EntryLinks], step: &mut impl FnMut()) -> (Vec<ParentMove>, ReattachedCounts) {
    let places: BTreeMap<&str, usize> = entries.iter().enumerate().map(|(at, entry)| (entry.id.as_str(), at)).collect();
    let place = |entry: &EntryLinks| entry.parent_id.as_deref().and_then(|parent| places.get(parent)).copied();
    let mut parents: Vec<Option<usize>> = entries.iter().map(place).collect();
    let mut is_loose: Vec<bool> =
        entries.iter().zip(&parents).map(|(entry, parent)| entry.parent_id.is_some() && parent.is_none()).collect();
    let orphans = is_loose.iter().filter(|is_loose| **is_loose).count();
    let circles = find_circles(&parents, step);
    for first in &circles {
        parents[*first] = None;
        is_loose[*first] = true;
    }
    let reattached = ReattachedCounts { orphans, looped: circles.len() };
    if reattached == ReattachedCounts::default() {
        return (Vec::new(), reattached);
    }
    let mut trees = UnionFind { up: (0..entries.len()).collect(), sizes: vec![1; entries.len()] };
    for (at, parent) in parents.iter().enumerate() {
        if let Some(parent) = parent {
            trees.union_trees(at, *parent, step);
        }
    }
    let loose = (0..entries.len()).filter(|at| is_loose[*at]);
    // A loose entry is the root of its tree: what is in the same tree is its descendant.
    let moves = loose
        .map(|at| ParentMove { at, before: at.checked_sub(1).filter(|before| trees.union_trees(at, *before, step)) });
    (moves.collect(), reattached)
}

/// Returns the earliest entry of each circle of parents.
fn find_circles(parents: &[Option<usize>], step: &mut impl FnMut()) -> Vec<usize> {
    const UNSEEN: usize = usize::MAX;
    // By which walk an entry was seen first.
    let mut seen = vec![UNSEEN; parents.len()];
    let mut circles = Vec::new();
    for walk in 0..parents.len() {
        let mut at = Some(walk);
        while let Some(here) = at.filter(|here| seen[*here] == UNSEEN) {
            step();
            seen[here] = walk;
            at = parents[here];
        }
        let Some(begin) = at.filter(|here| seen[*here] == walk) else { continue };
        let mut first = begin;
        let mut here = begin;
        while let Some(next) = parents[here].filter(|next| *next != begin) {
            step();
            here = next;
            first = first.min(here);
        }
        circles.push(first);
    }
    circles
}

/// Sets of entries in one tree.
struct UnionFind {
    up: Vec<usize>,
    sizes: Vec<usize>,
}

impl UnionFind {
    /// Makes one tree of two. False if they are one.
    fn union_trees(&mut self, left: usize, right: usize, step: &mut impl FnMut()) -> bool {
        let (left, right) = (self.find_root(left, step), self.find_root(right, step));
        if left == right {
            return false;
        }
        let (small, large) = if self.sizes[left] < self.sizes[right] { (left, right) } else { (right, left) };
        self.up[small] = large;
        self.sizes[large] += self.sizes[small];
        true
    }

    fn find_root(&mut self, mut at: usize, step: &mut impl FnMut()) -> usize {
        while self.up[at] != at {
            step();
            self.up[at] = self.up[self.up[at]];
            at = self.up[at];
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::plan_moves;
    use crate::omp::session_file::{EntryLinks, EntryReference, ParentMember, SessionHeader, read_session_file};

    /// Returns the parents of the entries read from a header and these lines, with the numbers of unreadable and reattached ones.
    fn parents(lines: &[&str]) -> (Vec<Option<String>>, usize, usize) {
        let header = r#"{"type":"session","version":3,"id":"s","timestamp":"","cwd":"/"}"#;
        let text = [header].iter().chain(lines).copied().collect::<Vec<_>>().join("\n");
        let mut fresh = 0..;
        let file = read_session_file(&text, || format!("fresh{}", fresh.next().unwrap_or(0))).unwrap();
        (file.entries.iter().map(|entry| entry.parent_id.clone()).collect(), file.unreadable, file.reattached)
    }

    fn entry(id: &str, parent: &str) -> String {
        let parent = if parent.is_empty() { "null".to_owned() } else { format!("\"{parent}\"") };
        format!(r#"{{"type":"label","id":"{id}","parentId":{parent},"timestamp":"","targetId":"x"}}"#)
    }

    /// A case, the entries with their parents, the parents that they get, and how many circles are cut.
    type CircleCase = (&'static str, &'static [(&'static str, &'static str)], &'static [&'static str], usize);
    /// The parent of the entry at a place.
    type ParentOf = Box<dyn Fn(usize) -> String>;

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
    fn an_entry_of_an_unknown_type_names_its_new_parent_in_its_line() {
        let unknown = r#"{"type":"later","id":"b","parentId":"gone","x":1}"#;
        let header = r#"{"type":"session","version":3,"id":"s","timestamp":"","cwd":"/"}"#;
        let file = read_session_file(&[header, &entry("a", ""), unknown].join("\n"), String::new).unwrap();
        let written = String::from_utf8(crate::encode_line(&file.entries[1]).to_vec()).unwrap();
        assert!(written.contains(r#""parentId":"a""#), "{written}");
    }

    #[test]
    fn a_byte_order_mark_before_the_header_is_no_part_of_it() {
        let text = "\u{feff}{\"type\":\"session\",\"version\":3,\"id\":\"s\",\"timestamp\":\"\",\"cwd\":\"/\"}\n";
        let SessionHeader { id, .. } = read_session_file(text, String::new).unwrap().header;
        assert_eq!(id, "s");
    }

    /// Returns the parents of entries with these names and parents, and the number of circles that were cut.
    fn uncircled(entries: &[(&str, &str)]) -> (Vec<String>, usize) {
        let header = r#"{"type":"session","version":3,"id":"s","timestamp":"","cwd":"/"}"#.to_owned();
        let lines: Vec<_> = [header].into_iter().chain(entries.iter().map(|(id, parent)| entry(id, parent))).collect();
        let file = read_session_file(&lines.join("\n"), String::new).unwrap();
        let again = entries.iter().zip(&file.entries).all(|((id, _), entry)| *id == entry.id);
        assert!(again && file.entries.len() == entries.len(), "every entry stays in its place: {file:?}");
        (file.entries.into_iter().map(|entry| entry.parent_id.unwrap_or_default()).collect(), file.looped)
    }

    #[test]
    fn a_circle_of_parents_is_cut_at_its_earliest_entry() {
        let rows: [CircleCase; 9] = [
            ("none", &[("a", ""), ("b", "a"), ("c", "b")], &["", "a", "b"], 0),
            ("its own parent", &[("a", ""), ("b", "b"), ("c", "b")], &["", "a", "b"], 1),
            ("the first is its own parent", &[("a", "a"), ("b", "a")], &["", "a"], 1),
            ("two", &[("a", ""), ("b", "c"), ("c", "b"), ("d", "c")], &["", "a", "b", "c"], 1),
            ("all", &[("a", "c"), ("b", "a"), ("c", "b")], &["", "a", "b"], 1),
            ("two circles", &[("a", ""), ("b", "c"), ("c", "b"), ("d", "e"), ("e", "d")], &["", "a", "b", "c", "d"], 2),
            ("the entry before is a descendant", &[("x", "b"), ("a", "b"), ("b", "a")], &["b", "", "a"], 1),
            (
                "the entries before two circles are descendants of the other",
                &[("x", "c"), ("a", "b"), ("b", "a"), ("y", "a"), ("c", "d"), ("d", "c")],
                &["c", "x", "a", "a", "", "c"],
                2,
            ),
            ("beside an orphan", &[("a", "gone"), ("b", "b"), ("c", "lost")], &["", "a", "b"], 1),
        ];
        for (case, entries, want, circles) in rows {
            let want: Vec<String> = want.iter().map(|parent| (*parent).to_owned()).collect();
            assert_eq!(uncircled(entries), (want, circles), "{case}");
        }
    }

    #[test]
    fn what_it_takes_grows_with_the_file_and_not_with_its_square() {
        for count in [10_usize, 1000, 100_000] {
            let shapes: [(&str, ParentOf); 6] = [
                ("in a row", Box::new(|at| at.checked_sub(1).map_or_else(|| "gone".to_owned(), |at| at.to_string()))),
                ("in a row, backwards", Box::new(move |at| (at + 1).to_string())),
                ("one circle", Box::new(move |at| ((at + 1) % count).to_string())),
                ("each its own parent", Box::new(|at| at.to_string())),
                ("circles of two", Box::new(|at| (at ^ 1).to_string())),
                ("orphans", Box::new(|_| "gone".to_owned())),
            ];
            for (shape, parent) in shapes {
                let named = |at: usize| EntryLinks {
                    id: at.to_string(),
                    parent_id: Some(parent(at)),
                    parent: ParentMember::Named,
                    reference: EntryReference::None,
                };
                let entries: Vec<EntryLinks> = (0..count).map(named).collect();
                let mut steps = 0;
                plan_moves(&entries, &mut || steps += 1);
                assert!(steps <= 8 * count, "{shape}: {steps} steps for {count} entries");
            }
        }
    }
}
