//! Patterns with a common prefix, indexed by the texts inside of them. Knows nothing of their decisions.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use patricia_tree::PatriciaMap;
use regex::{RegexSet, RegexSetBuilder};

use crate::policy::fnmatch::GlobPattern;

/// Number of patterns from which on an index is worth its memory.
const CROWD: usize = 16;

/// Number of texts of a pattern that an index uses, one after the other.
const DEPTH: usize = 3;

/// Maximum memory of one compiled set, for its program and for its states, in bytes.
const SET_BYTES: usize = 1 << 28;

/// A pattern, and the ranks of all that have it.
#[derive(Clone, Debug)]
pub(super) struct RankedPattern {
    pub(super) pattern: GlobPattern,
    /// Never empty, lowest first.
    pub(super) ranks: Vec<usize>,
}

/// Patterns with one prefix.
#[derive(Clone, Debug, Default)]
pub(super) struct PrefixBucket {
    pub(super) members: Vec<RankedPattern>,
    index: Option<BucketIndex>,
}

/// Members, by position, and the index that finds candidates for a text.
#[derive(Clone, Debug)]
enum BucketIndex {
    Few(Vec<usize>),
    Set { members: Vec<usize>, set: RegexSet },
    Pieces(Box<PieceIndex>),
}

/// Members by a text that everything contains that they match.
#[derive(Clone, Debug)]
struct PieceIndex {
    by_piece: PatriciaMap<usize>,
    /// The bytes that pieces begin with.
    begins: [bool; 256],
    parts: Vec<BucketIndex>,
    /// Those without a distinctive piece.
    rest: BucketIndex,
}

impl PrefixBucket {
    /// Adds a pattern, which is scanned until the next [`Self::compile`].
    pub(super) fn insert(&mut self, rank: usize, pattern: GlobPattern) {
        self.index = None;
        self.members.push(RankedPattern { pattern, ranks: vec![rank] });
    }

    /// Builds the index of a crowded bucket.
    pub(super) fn compile(&mut self) {
        if self.members.len() < CROWD {
            return;
        }
        self.merge_duplicates();
        let pieces: Vec<BTreeSet<String>> = self.members.iter().map(|member| member.pattern.literal_pieces()).collect();
        self.index = Some(self.build_index((0..self.members.len()).collect(), &pieces, DEPTH));
    }

    /// Merges all members with the same pattern.
    fn merge_duplicates(&mut self) {
        let mut known: BTreeMap<GlobPattern, usize> = BTreeMap::new();
        let mut merged: Vec<RankedPattern> = Vec::new();
        for RankedPattern { pattern, mut ranks } in self.members.drain(..) {
            match known.get(&pattern) {
                Some(at) => merged[*at].ranks.append(&mut ranks),
                None => {
                    known.insert(pattern.clone(), merged.len());
                    merged.push(RankedPattern { pattern, ranks });
                }
            }
        }
        merged.iter_mut().for_each(|member| member.ranks.sort_unstable());
        self.members = merged;
    }

    fn build_index(&self, members: Vec<usize>, pieces: &[BTreeSet<String>], depth: usize) -> BucketIndex {
        if members.len() < CROWD {
            return BucketIndex::Few(members);
        }
        if depth == 0 {
            return self.compile_set(members);
        }
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for piece in members.iter().flat_map(|at| &pieces[*at]) {
            *counts.entry(piece).or_default() += 1;
        }
        let (mut groups, mut rest): (BTreeMap<&str, Vec<usize>>, _) = (BTreeMap::new(), Vec::new());
        for at in &members {
            // The rarer a text, the fewer members are tried if it is found.
            let rare = pieces[*at].iter().map(|piece| (counts[piece.as_str()], Reverse(piece.len()), piece.as_str()));
            match rare.min().filter(|(count, ..)| *count < members.len()) {
                Some((_, _, piece)) => groups.entry(piece).or_default().push(*at),
                None => rest.push(*at),
            }
        }
        if groups.is_empty() {
            return self.compile_set(members);
        }
        let (mut by_piece, mut begins, mut parts) = (PatriciaMap::new(), [false; 256], Vec::new());
        for (piece, group) in groups {
            piece.bytes().take(1).for_each(|byte| begins[usize::from(byte)] = true);
            by_piece.insert(piece, parts.len());
            parts.push(self.build_index(group, pieces, depth - 1));
        }
        let rest = self.build_index(rest, pieces, 0);
        BucketIndex::Pieces(Box::new(PieceIndex { by_piece, begins, parts, rest }))
    }

    /// Compiles a set. One that is too large is scanned.
    fn compile_set(&self, members: Vec<usize>) -> BucketIndex {
        let sources = members.iter().map(|at| self.members[*at].pattern.to_regex());
        match RegexSetBuilder::new(sources).size_limit(SET_BYTES).dfa_size_limit(SET_BYTES).build() {
            Ok(set) => BucketIndex::Set { members, set },
            Err(_) => BucketIndex::Few(members),
        }
    }

    /// Returns the members that match `text`, in no order. `steps` grows by the number of members tried.
    pub(super) fn matching_members(&self, text: &str, steps: &mut usize) -> Vec<&RankedPattern> {
        match &self.index {
            Some(index) => {
                let mut found = Vec::new();
                self.search_index(index, text, &mut found, steps);
                found
            }
            None => {
                *steps += self.members.len();
                self.members.iter().filter(|member| member.pattern.matches(text)).collect()
            }
        }
    }

    fn search_index<'a>(
        &'a self,
        index: &BucketIndex,
        text: &str,
        found: &mut Vec<&'a RankedPattern>,
        steps: &mut usize,
    ) {
        match index {
            BucketIndex::Few(members) => {
                *steps += members.len();
                found.extend(members.iter().map(|at| &self.members[*at]).filter(|one| one.pattern.matches(text)));
            }
            BucketIndex::Set { members, set } => {
                *steps += members.len();
                // A check that none matches is far cheaper than finding those that do.
                if set.is_match(text) {
                    found.extend(set.matches(text).iter().map(|at| &self.members[members[at]]));
                }
            }
            BucketIndex::Pieces(pieces) => {
                for part in pieces.parts_in(text) {
                    self.search_index(&pieces.parts[part], text, found, steps);
                }
                self.search_index(&pieces.rest, text, found, steps);
            }
        }
    }
}

impl PieceIndex {
    /// Returns the parts whose piece is somewhere in `text`.
    fn parts_in(&self, text: &str) -> BTreeSet<usize> {
        let bytes = text.as_bytes();
        let starts = bytes.iter().enumerate().filter(|(_, byte)| self.begins[usize::from(**byte)]);
        starts.flat_map(|(at, _)| self.by_piece.common_prefixes(&bytes[at..]).map(|(_, part)| *part)).collect()
    }
}
