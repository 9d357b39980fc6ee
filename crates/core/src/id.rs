//! Identifiers. An id is made only from its inputs, so that a decision can be repeated.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::{Builder, Uuid};

use crate::time::Millis;

/// Position of a record in a log. The first record has 1; 0 is the position before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Returns the position after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps a UUID that the caller made.
            pub const fn new(id: Uuid) -> Self {
                Self(id)
            }

            /// Returns the UUID itself.
            pub const fn uuid(self) -> Uuid {
                self.0
            }

            /// Reads the text form, with or without its prefix.
            pub fn parse(text: &str) -> Option<Self> {
                Uuid::try_parse(text.strip_prefix($prefix).unwrap_or(text)).ok().map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0.simple())
            }
        }
    };
}

uuid_id! {
    /// Identifies one gate for its whole life, across restarts and on every surface.
    ///
    /// The text form is `gate_` and 32 hex digits. Wire ids of the adapters are computed from it or recorded next to it;
    /// this one never changes.
    GateId, "gate_"
}
uuid_id! {
    /// Identifies one run of an agent, through all its turns, retries and continuations.
    RunId, "run_"
}
uuid_id! {
    /// Identifies one call of a tool. Not the id that a model gave it, which need not be unique.
    CallId, "call_"
}
uuid_id! {
    /// Identifies one outbound message to a chat network, through all attempts of its delivery.
    OutboundId, "letter_"
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps the text as it is.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// Returns the text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id! {
    /// Identifies one session: its conversation and its files. Opaque text.
    SessionId
}
text_id! {
    /// Identifies one entry of a session's tree. Eight hex digits if it was created here, opaque if it was imported.
    EntryId
}
text_id! {
    /// Identifies a requester or an approver: an agent, a person, a host, the system itself.
    PrincipalId
}

text_id! {
    /// Identifies a program that does work at the other end of a connection: the tools of a session's host, a node. Opaque text of
    /// its adapter, the same on every connection of the same peer.
    PeerId
}
text_id! {
    /// Identifies a job. Opaque text of its adapter.
    JobId
}

impl PrincipalId {
    /// Reports whether this is the principal of a gateway adapter without authentication, such as `web:open`.
    pub fn is_open(&self) -> bool {
        self.0.ends_with(":open")
    }
}

/// A source of ids that gives the same ids for the same seed: a repeated decision has the same result.
#[derive(Clone, Debug)]
pub struct IdGenerator {
    seed: [u8; 16],
    drawn: u32,
}

impl IdGenerator {
    /// Starts at the beginning of the sequence of `seed`. The caller provides the randomness.
    pub const fn new(seed: [u8; 16]) -> Self {
        Self { seed, drawn: 0 }
    }

    fn draw_bytes(&mut self) -> [u8; 32] {
        self.drawn += 1;
        let mut hash = Sha256::new();
        hash.update(self.seed);
        hash.update(self.drawn.to_be_bytes());
        hash.finalize().into()
    }

    /// Returns a UUIDv7: the time at which it was made, then random digits.
    pub fn next_uuid(&mut self, now: Millis) -> Uuid {
        let drawn = self.draw_bytes();
        let mut tail = [0; 10];
        tail.copy_from_slice(&drawn[..10]);
        Builder::from_unix_timestamp_millis(now.0, &tail).into_uuid()
    }

    /// Returns `2 * bytes` hex digits, at most 64.
    pub fn next_hex(&mut self, bytes: usize) -> String {
        hex::encode(&self.draw_bytes()[..bytes.min(32)])
    }
}

/// One firing of a job. A firing of this name begins once and ends once, even if processes die in between.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FiringId {
    /// The job.
    pub job: JobId,
    /// Number of the firing of the job, from 1.
    pub number: u64,
}

#[cfg(test)]
mod tests {
    use super::{GateId, IdGenerator};
    use crate::time::Millis;

    #[test]
    fn the_same_seed_gives_the_same_ids_and_none_twice() {
        let (mut left, mut right) = (IdGenerator::new([7; 16]), IdGenerator::new([7; 16]));
        let first = left.next_uuid(Millis(1_700_000_000_000));
        assert_eq!(first, right.next_uuid(Millis(1_700_000_000_000)));
        assert_ne!(first, left.next_uuid(Millis(1_700_000_000_000)));
        assert_eq!(first.get_version_num(), 7);
    }

    #[test]
    fn an_id_reads_back_from_its_text() {
        let id = GateId::new(IdGenerator::new([1; 16]).next_uuid(Millis(5)));
        assert_eq!(GateId::parse(&id.to_string()), Some(id));
        assert_eq!(GateId::parse("gate_"), None);
    }
}
