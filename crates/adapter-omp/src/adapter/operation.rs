//! The ordered commands, which are done one after the other, and what they wait for.

use countersign_core::id::CallId;
use countersign_protocol::{RawJson, omp::OmpRequestId};

use crate::open_session::OpenSession;

/// A command that takes long: later ordered commands wait for it.
pub(crate) enum ActiveOperation {
    Free,
    /// Until the work is stopped, so that a compaction can begin, unless it was cancelled meanwhile.
    ToCompact {
        is_given_up: bool,
    },
    /// Until a person's command has begun.
    ToCommand,
    /// Until work is handed over, up to where the session gives way.
    HandOff,
    /// Until a compaction has ended; its answer is due to this id.
    Compaction(Option<OmpRequestId>),
    /// Until a person's command has ended; its answer is due to this id.
    Command(CallId, Option<OmpRequestId>),
    /// Until the session has given way to another one, which is open.
    Session(Box<SessionSwitch>),
    /// Until something short is done.
    Short,
}

/// End for which a command waits outside of the order; meanwhile no ordered command starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitUntil {
    RunEnded,
    CompactionEnded,
}

/// Another session, open already, that is to take the place of the one before.
pub(crate) struct SessionSwitch {
    pub(crate) id: Option<OmpRequestId>,
    pub(crate) command: &'static str,
    pub(crate) seat: OpenSession,
    /// Answer to the command once it is there.
    pub(crate) data: RawJson,
}

impl SessionSwitch {
    /// Creates it from an open session, and the answer to the command that requested it.
    pub(crate) const fn new(id: Option<OmpRequestId>, command: &'static str, seat: OpenSession, data: RawJson) -> Self {
        Self { id, command, seat, data }
    }

    /// Returns the name of the command that requested it.
    pub(crate) const fn command_name(&self) -> &'static str {
        self.command
    }

    /// Gives up: returns the command with its id, and the session that is no longer needed.
    pub(crate) fn into_parts(self) -> (Option<OmpRequestId>, &'static str, OpenSession) {
        (self.id, self.command, self.seat)
    }
}
