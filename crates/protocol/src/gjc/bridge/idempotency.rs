//! Says whether a request that comes again under the same key is the same request.
//!
//! It must not know what was answered, nor keep anything.

use sha2::{Digest as _, Sha256};

/// The most keys that are kept; the oldest that is answered goes first.
pub const MOST_KEYS: usize = 1000;

/// What tells a request from others under the same key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    route: String,
    owner: Option<String>,
    body: [u8; 32],
}

/// What a request under a known key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// The same: it gets the answer of the first, or waits for it.
    Same,
    /// Another one: 409.
    Conflict,
    /// The same of somebody else: 403.
    NotController,
}

impl Fingerprint {
    /// Takes the fingerprint of a request to `route`, with the owner token that it came with.
    pub fn of(route: &str, body: &[u8], owner: Option<&str>) -> Self {
        Self { route: route.to_owned(), owner: owner.map(str::to_owned), body: Sha256::digest(body).into() }
    }

    /// Says what `self` is under a key that `first` was sent under.
    pub fn repeats(&self, first: &Self) -> Repeat {
        match (self.owner == first.owner, self.route == first.route && self.body == first.body) {
            (false, _) => Repeat::NotController,
            (true, true) => Repeat::Same,
            (true, false) => Repeat::Conflict,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_request_of_the_same_owner_is_the_same() {
        let first = Fingerprint::of("commands", b"{}", Some("t"));
        for (route, body, owner, want) in [
            ("commands", &b"{}"[..], Some("t"), Repeat::Same),
            ("commands", b"{ }", Some("t"), Repeat::Conflict),
            ("ui-responses/1", b"{}", Some("t"), Repeat::Conflict),
            ("commands", b"{}", Some("u"), Repeat::NotController),
            ("commands", b"{}", None, Repeat::NotController),
        ] {
            assert_eq!(Fingerprint::of(route, body, owner).repeats(&first), want, "{route} {owner:?}");
        }
    }
}
