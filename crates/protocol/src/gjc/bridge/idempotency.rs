//! Compares a request that comes again under the same key with the first one.
//!
//! It must not know any answer, nor keep anything.

use sha2::{Digest as _, Sha256};

/// The most keys that are kept; the oldest that is answered goes first.
pub const MOST_KEYS: usize = 1000;

/// Fingerprint that distinguishes a request from others under the same key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestFingerprint {
    route: String,
    owner: Option<String>,
    body: [u8; 32],
}

/// Relation of a request to an earlier one under the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepeatOutcome {
    /// The same: it gets the answer of the first, or waits for it.
    Same,
    /// Another one: 409.
    Conflict,
    /// The same request of another owner: 403.
    NotController,
}

impl RequestFingerprint {
    /// Takes the fingerprint of a request to `route`, with the owner token that it came with.
    pub fn for_request(route: &str, body: &[u8], owner: Option<&str>) -> Self {
        Self { route: route.to_owned(), owner: owner.map(str::to_owned), body: Sha256::digest(body).into() }
    }

    /// Compares `self` with `first`, which was sent earlier under the same key.
    pub fn compare_with(&self, first: &Self) -> RepeatOutcome {
        match (self.owner == first.owner, self.route == first.route && self.body == first.body) {
            (false, _) => RepeatOutcome::NotController,
            (true, true) => RepeatOutcome::Same,
            (true, false) => RepeatOutcome::Conflict,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_request_of_the_same_owner_is_the_same() {
        let first = RequestFingerprint::for_request("commands", b"{}", Some("t"));
        for (route, body, owner, want) in [
            ("commands", &b"{}"[..], Some("t"), RepeatOutcome::Same),
            ("commands", b"{ }", Some("t"), RepeatOutcome::Conflict),
            ("ui-responses/1", b"{}", Some("t"), RepeatOutcome::Conflict),
            ("commands", b"{}", Some("u"), RepeatOutcome::NotController),
            ("commands", b"{}", None, RepeatOutcome::NotController),
        ] {
            assert_eq!(
                RequestFingerprint::for_request(route, body, owner).compare_with(&first),
                want,
                "{route} {owner:?}"
            );
        }
    }
}
