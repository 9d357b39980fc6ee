//! The ids that an agent's program has used in one generation, in bounded space.
//!
//! Programs count their requests. Numbers are kept as ranges, so that one which counts on for months costs as much as one that
//! has just begun, and one that begins at 1 again is known by its first id. Ids of other forms are kept one by one, the last
//! of them.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

/// Maximum number of ranges of numbers: a program with scattered ids has as many of them remembered as one with
/// text ids. Numbers below the lowest of more ranges count as used: a program that returns to them has restarted.
const RANGES: usize = 4096;

/// The ids of a generation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UsedIds {
    /// Ranges of numbers: the first and the last of each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    numbers: BTreeMap<u64, u64>,
    /// The others, and those of them that may be forgotten, in the order of their release.
    texts: BTreeSet<Arc<str>>,
    order: VecDeque<Arc<str>>,
}

impl UsedIds {
    pub(super) fn contains(&self, wire: &str) -> bool {
        match parse_number(wire) {
            Some(number) => self.numbers.range(..=number).next_back().is_some_and(|(_, last)| number <= *last),
            None => self.texts.contains(wire),
        }
    }

    pub(super) fn insert(&mut self, wire: &Arc<str>) {
        match parse_number(wire) {
            Some(number) => self.insert_number(number),
            None => drop(self.texts.insert(Arc::clone(wire))),
        }
    }

    /// Records that an id may be forgotten, once `most` later ones may be.
    pub(super) fn release_id(&mut self, wire: Arc<str>, most: usize) {
        if parse_number(&wire).is_some() {
            return;
        }
        self.order.push_back(wire);
        if self.order.len() > most
            && let Some(oldest) = self.order.pop_front()
        {
            self.texts.remove(&oldest);
        }
    }

    fn insert_number(&mut self, number: u64) {
        let (mut first, mut last) = (number, number);
        if let Some((&from, &to)) = self.numbers.range(..=number).next_back()
            && to >= number.saturating_sub(1)
        {
            (first, last) = (from, to.max(number));
        }
        if let Some(behind) = last.checked_add(1)
            && let Some(to) = self.numbers.remove(&behind)
        {
            last = to;
        }
        self.numbers.insert(first, last);
        if self.numbers.len() > RANGES
            && let Some((lowest, _)) = self.numbers.pop_first()
            && let Some((_, to)) = self.numbers.pop_first()
        {
            self.numbers.insert(lowest, to);
        }
    }
}

/// Returns the number that an id is, as JSON text, if it is one that a program could have counted to.
pub(super) fn parse_number(wire: &str) -> Option<u64> {
    let is_plain = wire.bytes().all(|byte| byte.is_ascii_digit()) && (wire == "0" || !wire.starts_with('0'));
    wire.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::{RANGES, UsedIds};

    fn used(ids: impl IntoIterator<Item = u64>) -> UsedIds {
        let mut used = UsedIds::default();
        ids.into_iter().for_each(|id| used.insert(&id.to_string().into()));
        used
    }

    #[test]
    fn numbers_that_follow_each_other_are_one_range_in_whatever_order_they_come() {
        for (ids, want) in [
            (vec![1, 2, 3], vec![(1, 3)]),
            (vec![3, 1, 2], vec![(1, 3)]),
            (vec![1, 3, 5, 4], vec![(1, 1), (3, 5)]),
            (vec![0, u64::MAX, u64::MAX - 1, 2, 2], vec![(0, 0), (2, 2), (u64::MAX - 1, u64::MAX)]),
        ] {
            let used = used(ids.clone());
            assert_eq!(used.numbers.iter().map(|(first, last)| (*first, *last)).collect::<Vec<_>>(), want, "{ids:?}");
            assert!(ids.iter().all(|id| used.contains(&id.to_string())), "{ids:?}");
        }
    }

    #[test]
    fn what_was_not_used_is_not_known() {
        let used = used([1, 2, 5]);
        for id in ["0", "3", "4", "6", "01", "+1", "1.0", "\"1\"", "-1", "", "99999999999999999999"] {
            assert!(!used.contains(id), "{id}");
        }
    }

    #[test]
    fn what_lies_between_the_oldest_of_many_ranges_counts_as_used() {
        let most = RANGES as u64;
        let used = used((1..=most + 2).map(|at| at * 2));
        assert_eq!((used.numbers.len(), used.numbers.first_key_value()), (RANGES, Some((&2, &6))));
        assert!(used.contains("3") && !used.contains("7") && !used.contains("1"));
    }

    #[test]
    fn ids_of_other_forms_are_forgotten_once_enough_others_may_be() {
        let mut used = UsedIds::default();
        for id in ["\"a\"", "\"b\"", "\"c\""] {
            used.insert(&id.into());
            used.release_id(id.into(), 2);
        }
        assert_eq!(["\"a\"", "\"b\"", "\"c\""].map(|id| used.contains(id)), [false, true, true]);
    }
}
