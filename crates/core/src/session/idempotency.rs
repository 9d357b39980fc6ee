//! Commands that a session has executed under keys: a repetition is not executed again.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::event::KeyedOutcome;
use crate::digest::Digest;

/// Number of keys of messages that are remembered. The key of the opening is never forgotten.
const REMEMBERED: usize = 128;

/// Command that was executed under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyedRecord {
    /// Digest of the command.
    pub asks: Digest,
    /// Its outcome.
    pub came_to: KeyedOutcome,
}

/// The keys of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdempotencyKeys {
    done: BTreeMap<String, KeyedRecord>,
    /// Those that may be forgotten, the oldest first.
    order: VecDeque<String>,
}

impl IdempotencyKeys {
    /// Returns the command that was executed under a key, if it is remembered.
    pub fn get(&self, name: &str) -> Option<&KeyedRecord> {
        self.done.get(name)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.done.is_empty()
    }

    pub(crate) fn record_key(&mut self, name: &str, done: KeyedRecord) {
        if self.done.insert(name.to_owned(), done).is_none() && done.came_to != KeyedOutcome::Opened {
            self.order.push_back(name.to_owned());
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.done.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Digest, IdempotencyKeys, KeyedOutcome, KeyedRecord, REMEMBERED};

    #[test]
    fn the_oldest_key_is_forgotten_but_never_that_of_the_opening() {
        let done = |came_to| KeyedRecord { asks: Digest::hash_bytes(b"x"), came_to };
        let mut keys = IdempotencyKeys::default();
        keys.record_key("opening", done(KeyedOutcome::Opened));
        for at in 0..=REMEMBERED {
            keys.record_key(&format!("k{at}"), done(KeyedOutcome::Queued));
        }
        let known: Vec<bool> = ["opening", "k0", "k1"].iter().map(|name| keys.get(name).is_some()).collect();
        assert_eq!(known, [true, false, true]);
    }
}
