//! A set of patterns that finds the first match without trying them all. Knows nothing of their decisions.

mod bucket;

use patricia_tree::PatriciaMap;

use self::bucket::{PrefixBucket, RankedPattern};
use crate::policy::fnmatch::GlobPattern;

/// Patterns by their literal prefix, each with the rank that its owner gave it.
///
/// A look-up walks the text once, for any number of prefixes. Of the patterns whose prefix matches it tries those with
/// another text, as rare a one as possible, that is in the text too.
#[derive(Clone, Debug, Default)]
pub(crate) struct PatternSet {
    by_prefix: PatriciaMap<PrefixBucket>,
    /// The lowest rank of a bare `*`.
    everything: Option<usize>,
}

impl PatternSet {
    /// Adds a pattern. A compiled bucket is scanned again until the next [`Self::compile`].
    pub(crate) fn insert(&mut self, rank: usize, pattern: GlobPattern) {
        if pattern.is_everything() {
            self.everything = Some(self.everything.map_or(rank, |known| known.min(rank)));
        }
        let prefix = pattern.literal_prefix();
        if self.by_prefix.get(&prefix).is_none() {
            self.by_prefix.insert(&prefix, PrefixBucket::default());
        }
        if let Some(bucket) = self.by_prefix.get_mut(&prefix) {
            bucket.insert(rank, pattern);
        }
    }

    /// Compiles the crowded buckets.
    pub(crate) fn compile(&mut self) {
        self.by_prefix.values_mut().for_each(PrefixBucket::compile);
    }

    /// Returns the lowest rank among the patterns that match `text`.
    pub(crate) fn first_match(&self, text: &str) -> Option<usize> {
        self.matching_ranks(text).min()
    }

    /// Returns the lowest rank that `predicate` accepts among the patterns that match `text`.
    pub(crate) fn first_where(&self, text: &str, predicate: impl Fn(usize) -> bool) -> Option<usize> {
        self.matching_ranks(text).filter(|rank| predicate(*rank)).min()
    }

    /// Returns the lowest rank of a bare `*`.
    pub(crate) const fn everything_rank(&self) -> Option<usize> {
        self.everything
    }

    /// Reports whether one of the patterns may match a text that begins with `begun`, as far as its literal prefix shows.
    pub(crate) fn may_begin(&self, begun: &str) -> bool {
        self.by_prefix.common_prefixes(begun.as_bytes()).next().is_some()
            || self.by_prefix.iter_prefix(begun.as_bytes()).next().is_some()
    }

    /// Reports whether one of the patterns may match a text that begins with `begun`. A pattern with a shorter prefix counts only
    /// if it names a command and continues.
    pub(crate) fn may_go_on(&self, begun: &str) -> bool {
        self.by_prefix.common_prefixes(begun.as_bytes()).any(|(prefix, _)| names_command(prefix))
            || self.by_prefix.iter_prefix(begun.as_bytes()).next().is_some()
    }

    /// Returns the lowest rank among the patterns for which [`Self::may_go_on`] holds.
    pub(crate) fn first_going_on(&self, begun: &str) -> Option<usize> {
        let shorter = self.by_prefix.common_prefixes(begun.as_bytes()).filter(|(prefix, _)| names_command(prefix));
        let longer = self.by_prefix.iter_prefix(begun.as_bytes()).map(|(_, bucket)| bucket);
        let buckets = shorter.map(|(_, bucket)| bucket).chain(longer);
        buckets.flat_map(|bucket| &bucket.members).map(|member| member.ranks[0]).min()
    }

    /// Reports whether one of the patterns that name a command may match `text`, in which `wild` stands for an expansion by file names.
    pub(crate) fn may_match(&self, text: &str, wild: char, covers: impl Fn(char) -> bool) -> bool {
        let known = text.split(wild).next().unwrap_or_default().as_bytes();
        let shorter = self.by_prefix.common_prefixes(known).filter(|(prefix, _)| names_command(prefix));
        let longer = self.by_prefix.iter_prefix(known).map(|(_, bucket)| bucket);
        let mut members = shorter.map(|(_, bucket)| bucket).chain(longer).flat_map(|bucket| &bucket.members);
        members.any(|member| member.pattern.may_match(text, wild, &covers))
    }

    /// Returns the lowest rank among the patterns that may match `text`, in which `unknown` stands for any run of letters that `covers`
    /// accepts.
    pub(crate) fn first_possible(&self, text: &str, unknown: char, covers: impl Fn(char) -> bool) -> Option<usize> {
        // A completely known text is looked up as in any decision: a scan at each service call would be slow.
        if !text.contains(unknown) {
            return self.first_match(text);
        }
        let known = text.split(unknown).next().unwrap_or_default().as_bytes();
        let shorter = self.by_prefix.common_prefixes(known).map(|(_, bucket)| bucket);
        let longer = self.by_prefix.iter_prefix(known).map(|(_, bucket)| bucket);
        let members = shorter.chain(longer).flat_map(|bucket| &bucket.members);
        members.fold(None, |first, RankedPattern { pattern, ranks }| {
            let is_before = first.is_none_or(|first| ranks[0] < first);
            if is_before && pattern.may_match(text, unknown, &covers) { Some(ranks[0]) } else { first }
        })
    }

    /// Returns the ranks of all patterns that match `text`, in no order.
    pub(crate) fn matching_ranks(&self, text: &str) -> impl Iterator<Item = usize> {
        self.matching_counted(text, &mut 0)
    }

    /// Returns the same. `steps` grows by the number of patterns tried.
    pub(crate) fn matching_counted(&self, text: &str, steps: &mut usize) -> impl Iterator<Item = usize> + use<> {
        let buckets = self.by_prefix.common_prefixes(text.as_bytes());
        let found: Vec<usize> = buckets
            .flat_map(|(_, bucket)| bucket.matching_members(text, steps))
            .flat_map(|one| &one.ranks)
            .copied()
            .collect();
        found.into_iter()
    }

    /// Returns the lowest rank that `predicate` accepts among the patterns that match `text`. `steps` grows by the number of patterns
    /// and ranks visited.
    pub(crate) fn first_counted(
        &self,
        text: &str,
        steps: &mut usize,
        predicate: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let mut first: Option<usize> = None;
        for (_, bucket) in self.by_prefix.common_prefixes(text.as_bytes()) {
            *steps += 1;
            for member in bucket.matching_members(text, steps) {
                for rank in member.ranks.iter().take_while(|rank| first.is_none_or(|first| **rank < first)) {
                    *steps += 1;
                    if predicate(*rank) {
                        first = Some(*rank);
                        break;
                    }
                }
            }
        }
        first
    }
}

fn names_command(prefix: &[u8]) -> bool {
    prefix.contains(&b'(') && prefix.contains(&b' ')
}

#[cfg(test)]
mod tests {
    use super::PatternSet;
    use crate::policy::fnmatch::GlobPattern;

    #[test]
    fn the_first_rank_wins_over_specificity_and_prefix() {
        let mut patterns = PatternSet::default();
        for (rank, pattern) in ["t(x", "t*", "t(x)", "*", "t(?)"].into_iter().enumerate() {
            patterns.insert(rank, GlobPattern::new(pattern));
        }
        assert_eq!(patterns.first_match("t(x)"), Some(1));
        assert_eq!(patterns.first_match("u"), Some(3));
        assert_eq!(patterns.first_where("t(x)", |rank| rank > 1), Some(2));
        assert_eq!(patterns.everything_rank(), Some(3));
    }

    #[test]
    fn a_text_that_goes_on_may_meet_what_says_more_and_what_names_its_command() {
        let mut patterns = PatternSet::default();
        for (rank, pattern) in ["bash(git push*)", "bash(rm * -r*)", "bash(*.pem*)", "*"].into_iter().enumerate() {
            patterns.insert(rank, GlobPattern::new(pattern));
        }
        for (begun, want) in [
            ("bash(git ", true),
            ("bash(git pu", true),
            ("bash(git push -", true),
            ("bash(git status ", false),
            ("bash(rm x", true),
            ("bash(cat k", false),
            ("bash(", true),
        ] {
            assert_eq!(patterns.may_go_on(begun), want, "{begun}");
        }
    }

    #[test]
    fn among_a_hundred_thousand_patterns_the_first_that_is_possible_is_found() {
        let unknown = '\u{10ffff}';
        for count in [10, 1_000, 100_000] {
            let mut patterns = PatternSet::default();
            for rank in 0..count {
                patterns.insert(rank, GlobPattern::new(&format!("call(*, switch.s{rank})")));
            }
            let first = |text: &str| {
                let text = text.replace('…', &unknown.to_string());
                patterns.first_possible(&text, unknown, |c| c.is_alphanumeric() || c == '_')
            };
            for text in ["call(light.off, light.…)", "call(light.…, light.x)", "call(scene.…, switch.s)"] {
                assert_eq!(first(text), None, "{text} among {count}");
            }
            assert_eq!(first("call(switch.off, switch.…)"), Some(0), "{count}");
            assert_eq!(first("call(….off, ….…)"), Some(0), "{count}");
            assert_eq!(first(&format!("call(scene.…, switch.s{})", count - 1)), Some(count - 1));
        }
    }

    #[test]
    fn a_crowd_answers_alike_compiled_and_not() {
        let mut scanned = PatternSet::default();
        for rank in 0..200 {
            scanned.insert(rank, GlobPattern::new(&format!("*x{rank}?[!a]*")));
        }
        let mut compiled = scanned.clone();
        compiled.compile();
        for text in ["ax17bb", "x199..", "x1", "zz", "x17a", "x17ba", "x1777"] {
            assert_eq!(scanned.first_match(text), compiled.first_match(text), "{text}");
        }
        assert_eq!(compiled.first_match("_x17_b"), Some(1));
    }

    proptest::proptest! {
        #[test]
        fn an_index_hides_no_match(
            patterns in proptest::collection::vec(r"[ab.é*?\[\]!-]{0,7}", 16..80),
            text in r"[ab.é]{0,8}",
        ) {
            let mut scanned = PatternSet::default();
            for (rank, pattern) in patterns.iter().enumerate() {
                scanned.insert(rank, GlobPattern::new(&format!("*{pattern}")));
            }
            let mut indexed = scanned.clone();
            indexed.compile();
            let all = |patterns: &PatternSet| patterns.matching_ranks(&text).collect::<std::collections::BTreeSet<_>>();
            proptest::prop_assert_eq!(all(&scanned), all(&indexed));
            proptest::prop_assert_eq!(scanned.first_match(&text), indexed.first_match(&text));
            proptest::prop_assert_eq!(scanned.first_match(&text), indexed.first_counted(&text, &mut 0, |_| true));
        }
    }
}
