//! The state of a call.

use serde::{Deserialize, Serialize};

use super::event::{CallEnd, DoubtCause, Event, Executor};
use crate::{
    digest::Digest,
    id::{CallId, Lsn, PeerId, RunId, SessionId},
    peer::{PeerLine, PeerMemory},
    time::Millis,
    tool::{CallConcurrency, RepeatMode, ToolEffect},
};

/// Phase of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallPhase {
    /// Waiting for its verdict.
    #[serde(rename = "wanted")]
    Proposed,
    /// A gate decides.
    Gated,
    /// Ready to start when its turn comes.
    Ready,
    /// Running.
    Started {
        /// The process in which it runs.
        boot: u32,
    },
    /// Its outcome is unknown.
    InDoubt(DoubtCause),
    /// Ended.
    Ended(CallEnd),
}

/// One use of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    pub(crate) id: CallId,
    pub(crate) session: SessionId,
    pub(crate) run: Option<RunId>,
    pub(crate) executor: Executor,
    #[serde(rename = "lane")]
    pub(crate) concurrency: CallConcurrency,
    pub(crate) repeat: RepeatMode,
    pub(crate) effect: ToolEffect,
    pub(crate) arguments: Digest,
    pub(crate) content: Lsn,
    pub(crate) phase: CallPhase,
    pub(crate) aborting: bool,
    /// True once a person allowed it; a rule that denies still wins at the start.
    pub(crate) approved: bool,
    /// Position of the record that resolved its gate. The call starts only once that record is durable.
    pub(crate) let_through: Option<Lsn>,
    /// Number of starts.
    #[serde(default)]
    pub(crate) starts: u32,
    /// The connection of the peer that has it.
    #[serde(default)]
    pub(crate) line: Option<PeerLine>,
    /// Time at which the wait for its peer, or for a report on it, ends.
    #[serde(default)]
    pub(crate) until: Option<Millis>,
    /// Ability of the peer that has it to report on it over another connection.
    #[serde(default)]
    pub(crate) memory: PeerMemory,
    /// True if its peer is only asked for the outcome.
    #[serde(default)]
    pub(crate) is_asking: bool,
    /// Digest of the files that it would run from disk, as they were when it was proposed.
    #[serde(default)]
    pub(crate) pins: Option<Digest>,
}

impl Call {
    /// Reports whether it may use the session's shell: it works here, and may change something.
    pub(crate) fn acts_here(&self) -> bool {
        matches!(self.executor, Executor::Builtin | Executor::Shell) && self.effect != ToolEffect::Reads
    }

    pub(crate) fn from_event(event: &Event, session: SessionId, lsn: Lsn) -> Option<Self> {
        let Event::Proposed { call, run, executor, concurrency, repeat, effect, arguments, pins } = event else {
            return None;
        };
        Some(Self {
            id: *call,
            session,
            run: *run,
            executor: executor.clone(),
            concurrency: *concurrency,
            repeat: *repeat,
            effect: *effect,
            arguments: *arguments,
            content: lsn,
            phase: CallPhase::Proposed,
            aborting: false,
            approved: false,
            let_through: None,
            starts: 0,
            line: None,
            until: None,
            memory: PeerMemory::Forgets,
            is_asking: false,
            pins: *pins,
        })
    }

    /// Returns the digest of the files that it would run from disk, as they were when it was proposed.
    pub fn pins_digest(&self) -> Option<Digest> {
        self.pins
    }

    /// Reports whether a person allowed it.
    pub fn is_approved(&self) -> bool {
        self.approved
    }

    /// Returns its id.
    pub fn id(&self) -> CallId {
        self.id
    }

    /// Returns the session that it belongs to.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Returns the run that proposed it; absent for a person's own command.
    pub fn run(&self) -> Option<RunId> {
        self.run
    }

    /// Returns the executor that runs it.
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// Returns the peer that does it, if a peer does.
    pub fn peer(&self) -> Option<&PeerId> {
        match &self.executor {
            Executor::Peer(peer) => Some(peer),
            Executor::Builtin | Executor::Person | Executor::Shell | Executor::Service => None,
        }
    }

    /// Returns the connection of the peer that has it, or had it last.
    pub fn peer_line(&self) -> Option<PeerLine> {
        self.line
    }

    /// Returns the number of starts.
    pub fn start_count(&self) -> u32 {
        self.starts
    }

    /// Returns the position of its content.
    pub fn content_lsn(&self) -> Lsn {
        self.content
    }

    /// Returns the digest that the arguments in its content must have.
    pub fn arguments_digest(&self) -> Digest {
        self.arguments
    }

    /// Returns its phase.
    pub fn phase(&self) -> &CallPhase {
        &self.phase
    }

    /// Reports whether its peer, which got it over an earlier connection, is only asked for the outcome.
    pub fn is_asking(&self) -> bool {
        self.is_asking
    }

    /// Reports whether its outcome is unknown and its peer may still report it.
    pub fn may_be_asked(&self) -> bool {
        matches!(self.phase, CallPhase::InDoubt(_)) && self.until.is_some()
    }

    /// Reports whether a person has a peer do it, outside of any run and without an entry in the conversation.
    pub fn is_act(&self) -> bool {
        self.run.is_none() && matches!(self.executor, Executor::Peer(_))
    }

    /// Reports whether an agent without a run requested it.
    pub fn is_request(&self) -> bool {
        self.run.is_none() && matches!(self.executor, Executor::Service | Executor::Person)
    }

    /// Reports whether it has ended.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, CallPhase::Ended(_))
    }

    /// Reports whether nothing of it has happened yet.
    pub fn is_before_start(&self) -> bool {
        matches!(self.phase, CallPhase::Proposed | CallPhase::Gated | CallPhase::Ready)
    }

    /// Reports whether it was started, in any outcome.
    pub fn has_begun(&self) -> bool {
        matches!(self.phase, CallPhase::Started { .. } | CallPhase::InDoubt(_))
    }

    /// Applies a recorded event. Cannot fail, so replay cannot fail.
    pub(crate) fn apply_event(&mut self, event: &Event, lsn: Lsn) {
        match event {
            Event::Proposed { .. }
            | Event::Requested { .. }
            | Event::Received { .. }
            | Event::LeftBehind { .. }
            | Event::ResultDropped { .. } => {}
            Event::Allowed { by, .. } => {
                if self.phase == CallPhase::Gated {
                    self.let_through = Some(lsn);
                }
                self.phase = CallPhase::Ready;
                self.approved = by.is_some();
            }
            Event::Again { .. } => self.phase = CallPhase::Ready,
            Event::Gated { .. } => self.phase = CallPhase::Gated,
            Event::Waits { until, .. } => self.until = Some(*until),
            Event::Started { boot, line, memory, .. } => {
                self.phase = CallPhase::Started { boot: *boot };
                self.starts += 1;
                self.line = *line;
                self.until = None;
                self.memory = *memory;
            }
            Event::AskedAgain { boot, line, .. } => {
                self.phase = CallPhase::Started { boot: *boot };
                self.starts += 1;
                self.line = Some(*line);
                self.until = None;
                self.is_asking = true;
            }
            Event::Aborting { .. } => self.aborting = true,
            Event::InDoubt { since, until, .. } => {
                self.phase = CallPhase::InDoubt(*since);
                self.until = *until;
            }
            Event::Ended { end, .. } => {
                self.phase = CallPhase::Ended(*end);
                self.until = None;
            }
        }
    }
}
