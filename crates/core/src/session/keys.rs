//! What a session has done under keys: whatever is asked for again has happened already.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::event::CameTo;
use crate::digest::Digest;

/// How many keys of what was said are remembered. What opened the session is never forgotten.
const REMEMBERED: usize = 128;

/// What was done under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Of what was asked for.
    pub asks: Digest,
    /// What it came to.
    pub came_to: CameTo,
}

/// The keys of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    done: BTreeMap<String, Done>,
    /// Those that may be forgotten, the oldest first.
    order: VecDeque<String>,
}

impl Keys {
    /// What was done under a key, if it is remembered.
    pub fn get(&self, name: &str) -> Option<&Done> {
        self.done.get(name)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.done.is_empty()
    }

    pub(crate) fn note(&mut self, name: &str, done: Done) {
        if self.done.insert(name.to_owned(), done).is_none() && done.came_to != CameTo::Opened {
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
    use super::{CameTo, Digest, Done, Keys, REMEMBERED};

    #[test]
    fn the_oldest_key_is_forgotten_but_never_that_of_the_opening() {
        let done = |came_to| Done { asks: Digest::of(b"x"), came_to };
        let mut keys = Keys::default();
        keys.note("opening", done(CameTo::Opened));
        for at in 0..=REMEMBERED {
            keys.note(&format!("k{at}"), done(CameTo::Queued));
        }
        let known: Vec<bool> = ["opening", "k0", "k1"].iter().map(|name| keys.get(name).is_some()).collect();
        assert_eq!(known, [true, false, true]);
    }
}
