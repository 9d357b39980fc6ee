//! Remembers how each connection writes the keys of sessions: clients drop events whose key is not the string they sent.

use std::collections::BTreeMap;

/// The keys that one connection wrote, by what they mean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawKeys {
    by_canonical: BTreeMap<String, RawKey>,
    clock: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct RawKey {
    raw: String,
    used: u64,
}

/// Number of sessions of a connection whose names are remembered. The least recently named one is forgotten.
const MOST: usize = 256;

impl RawKeys {
    /// Remembers that the connection wrote `raw`, which means `canonical`. The last spelling counts.
    pub fn remember_key(&mut self, canonical: &str, raw: &str) {
        self.clock += 1;
        if raw == canonical {
            self.by_canonical.remove(canonical);
            return;
        }
        let remembered = RawKey { raw: raw.to_owned(), used: self.clock };
        self.by_canonical.insert(canonical.to_owned(), remembered);
        if self.by_canonical.len() > MOST {
            let oldest = self.by_canonical.iter().min_by_key(|(_, key)| key.used).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                self.by_canonical.remove(&oldest);
            }
        }
    }

    /// Returns the key to put into an event about `canonical`.
    pub fn raw_key<'a>(&'a self, canonical: &'a str) -> &'a str {
        self.by_canonical.get(canonical).map_or(canonical, |key| &key.raw)
    }
}
