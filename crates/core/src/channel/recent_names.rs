//! Names of recent events, which reveal duplicates.

use std::collections::{BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::time::Millis;

/// Names with their times, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "VecDeque<(Millis, String)>", into = "VecDeque<(Millis, String)>")]
pub(super) struct RecentNames {
    order: VecDeque<(Millis, String)>,
    names: BTreeSet<String>,
}

impl From<VecDeque<(Millis, String)>> for RecentNames {
    fn from(order: VecDeque<(Millis, String)>) -> Self {
        let names = order.iter().map(|(_, name)| name.clone()).collect();
        Self { order, names }
    }
}

impl From<RecentNames> for VecDeque<(Millis, String)> {
    fn from(recent: RecentNames) -> Self {
        recent.order
    }
}

impl RecentNames {
    pub(super) fn contains(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Returns the time of the oldest, if there are `most` of them, so that one more takes its place.
    pub(super) fn oldest_of(&self, most: usize) -> Option<Millis> {
        self.order.front().filter(|_| self.order.len() >= most).map(|(at, _)| *at)
    }

    /// Returns the time of the newest.
    pub(super) fn newest_at(&self) -> Option<Millis> {
        self.order.back().map(|(at, _)| *at)
    }

    /// Records a name; of more than `most` the oldest is forgotten.
    pub(super) fn record_name(&mut self, name: &str, at: Millis, most: usize) {
        if !self.names.insert(name.to_owned()) {
            return;
        }
        self.order.push_back((at, name.to_owned()));
        if self.order.len() > most
            && let Some((_, oldest)) = self.order.pop_front()
        {
            self.names.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Millis, RecentNames};

    #[test]
    fn the_oldest_name_makes_room_and_a_name_counts_once() {
        let mut recent = RecentNames::default();
        for name in ["a", "b", "b", "c"] {
            recent.record_name(name, Millis(7), 2);
        }
        let known = ["a", "b", "c"].map(|name| recent.contains(name));
        assert_eq!((known, recent.oldest_of(2), recent.oldest_of(3)), ([false, true, true], Some(Millis(7)), None));
        let text = serde_json::to_string(&recent).expect("it is plain data");
        assert_eq!(serde_json::from_str::<RecentNames>(&text).expect("it was written"), recent);
    }
}
