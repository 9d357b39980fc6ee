//! Facts: the content of the log, from which state is made.

use std::sync::Arc;

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    call, channel, gate,
    id::{Lsn, SessionId},
    peer, policy, run, schedule, session, settings,
    time::Millis,
    unattended,
};

/// An event, by machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A process began to work with this log.
    Booted,
    /// Event of a session.
    Session(session::Event),
    /// Event of a run.
    Run(run::Event),
    /// Event of a call.
    Call(call::Event),
    /// Event of a gate.
    Gate(gate::Event),
    /// Event of a peer.
    Peer(peer::Event),
    /// Event of a chat network.
    Channel(channel::Event),
    /// Event of rules, grants and constraints.
    Policy(policy::Event),
    /// Event of settings that people change while the gateway runs.
    Settings(settings::Event),
    /// Event of the contract of a session that works without approvers.
    Unattended(unattended::Event),
    /// Event of jobs.
    Schedule(schedule::Event),
}

/// An event, with its session and its content.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// The event. State may read nothing else.
    pub event: Event,
    /// The session that it is about.
    pub session: Option<SessionId>,
    /// Text that state never holds.
    pub content: Option<Arc<str>>,
}

impl Fact {
    pub(crate) const fn without_content(event: Event, session: Option<SessionId>) -> Self {
        Self { event, session, content: None }
    }

    /// Reports whether a log has to be made for it. Facts that every process records again when it starts do not need a file.
    pub const fn is_worth_a_file(&self) -> bool {
        match &self.event {
            // The author of a change is lost with the process otherwise.
            Event::Policy(policy::Event::Edited { .. } | policy::Event::ServerApproval { .. }) => true,
            // The next process has to know the registered nodes.
            Event::Peer(peer::Event::Registered { .. }) => true,
            Event::Booted | Event::Policy(_) | Event::Peer(_) => false,
            Event::Session(event) => match event {
                session::Event::Opened { .. }
                | session::Event::Hosted { .. }
                | session::Event::Set(session::SessionSetting::All(_))
                | session::Event::Moved { .. }
                | session::Event::FileWritten { .. } => false,
                session::Event::Entry { kind, .. } => {
                    !matches!(kind, session::SessionEntryKind::ModelChange | session::SessionEntryKind::ThinkingChange)
                }
                _ => true,
            },
            Event::Run(_)
            | Event::Call(_)
            | Event::Gate(_)
            | Event::Channel(_)
            | Event::Settings(_)
            | Event::Unattended(_)
            | Event::Schedule(_) => true,
        }
    }
}

/// Metadata of a fact in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactMeta {
    /// Its position.
    pub lsn: Lsn,
    /// Time of the fact.
    pub at: Millis,
    /// The session that it is about.
    pub session: Option<SessionId>,
}

/// Reason for which a record of the log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum EventDecodeError {
    /// A later version of this program wrote it.
    #[error("record of unknown kind {kind:?} version {version}: it was written by a later version of this program")]
    Unknown {
        /// The kind as it was written.
        kind: String,
        /// Its version.
        version: u16,
    },
    /// The record does not match its kind.
    #[error("record of kind {kind:?} cannot be read")]
    Malformed {
        /// The kind as it was written.
        kind: String,
        /// The JSON error.
        #[source]
        source: serde_json::Error,
    },
}

/// The version that is written.
const VERSION: u16 = 1;

impl Event {
    /// Every kind, the most searched first.
    pub const KINDS: [&str; 11] =
        ["session", "run", "call", "gate", "policy", "schedule", "unattended", "channel", "peer", "settings", "booted"];

    /// Returns the kind under which the log keeps it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Booted => "booted",
            Self::Session(_) => "session",
            Self::Run(_) => "run",
            Self::Call(_) => "call",
            Self::Gate(_) => "gate",
            Self::Peer(_) => "peer",
            Self::Channel(_) => "channel",
            Self::Policy(_) => "policy",
            Self::Settings(_) => "settings",
            Self::Unattended(_) => "unattended",
            Self::Schedule(_) => "schedule",
        }
    }

    /// Returns the form that the log keeps: kind, version and JSON.
    pub fn encode(&self) -> (&'static str, u16, String) {
        fn to_json(event: &impl Serialize) -> String {
            serde_json::to_string(event).expect("facts are plain data with text keys")
        }
        let facts = match self {
            Self::Booted => "{}".to_owned(),
            Self::Session(event) => to_json(event),
            Self::Run(event) => to_json(event),
            Self::Call(event) => to_json(event),
            Self::Gate(event) => to_json(event),
            Self::Peer(event) => to_json(event),
            Self::Channel(event) => to_json(event),
            Self::Policy(event) => to_json(event),
            Self::Settings(event) => to_json(event),
            Self::Unattended(event) => to_json(event),
            Self::Schedule(event) => to_json(event),
        };
        (self.kind(), VERSION, facts)
    }

    /// Reads, for a fuzz loop, the first line of `bytes` as a kind and the rest as facts, and checks that the result is
    /// written and read again as the same.
    ///
    /// # Panics
    /// If the written form differs: a finding.
    #[cfg(feature = "fuzzing")]
    pub fn fuzz(bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        let (kind, facts) = text.split_once('\n').unwrap_or((&text, "null"));
        let Ok(event) = Self::decode(kind, VERSION, facts) else { return };
        let (same, version, written) = event.encode();
        assert_eq!(same, kind);
        let again = Self::decode(kind, version, &written).unwrap_or_else(|error| panic!("{error}: {written:?}"));
        assert_eq!(again, event, "{written:?}");
        assert_eq!(again.encode().2, written);
    }

    /// Reads the form that the log keeps.
    ///
    /// # Errors
    /// [`EventDecodeError::Unknown`] for a record that a later version wrote.
    pub fn decode(kind: &str, version: u16, facts: &str) -> Result<Self, EventDecodeError> {
        fn read_event<T: DeserializeOwned>(kind: &str, facts: &str) -> Result<T, EventDecodeError> {
            serde_json::from_str(facts).map_err(|source| EventDecodeError::Malformed { kind: kind.to_owned(), source })
        }
        if version != VERSION {
            return Err(EventDecodeError::Unknown { kind: kind.to_owned(), version });
        }
        match kind {
            "booted" => Ok(Self::Booted),
            "session" => read_event(kind, facts).map(Self::Session),
            "run" => read_event(kind, facts).map(Self::Run),
            "call" => read_event(kind, facts).map(Self::Call),
            "gate" => read_event(kind, facts).map(Self::Gate),
            "peer" => read_event(kind, facts).map(Self::Peer),
            "channel" => read_event(kind, facts).map(Self::Channel),
            "policy" => read_event(kind, facts).map(Self::Policy),
            "settings" => read_event(kind, facts).map(Self::Settings),
            "unattended" => read_event(kind, facts).map(Self::Unattended),
            "schedule" => read_event(kind, facts).map(Self::Schedule),
            _ => Err(EventDecodeError::Unknown { kind: kind.to_owned(), version }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, EventDecodeError, VERSION};

    #[test]
    fn every_kind_is_read() {
        for kind in Event::KINDS {
            let read = Event::decode(kind, VERSION, "null");
            assert!(!matches!(read, Err(EventDecodeError::Unknown { .. })), "{kind}: {read:?}");
        }
        assert!(matches!(Event::decode("tool", VERSION, "null"), Err(EventDecodeError::Unknown { .. })));
    }
}
