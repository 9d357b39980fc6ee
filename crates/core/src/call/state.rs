//! Where a call stands.

use serde::{Deserialize, Serialize};

use super::event::{CallEnd, DoubtCause, Event, Executor};
use crate::{
    digest::Digest,
    id::{CallId, Lsn, PeerId, RunId, SessionId},
    peer::{PeerLine, PeerMemory},
    time::Millis,
    tool::{Lane, RepeatMode, ToolEffect},
};

/// What a call waits for or is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallPhase {
    /// It has to be judged.
    #[serde(rename = "wanted")]
    Proposed,
    /// A gate decides.
    Gated,
    /// It may start when its turn comes.
    Ready,
    /// It runs.
    Started {
        /// In which process.
        boot: u32,
    },
    /// It is not known what became of it.
    InDoubt(DoubtCause),
    /// It is over.
    Ended(CallEnd),
}

/// One use of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    pub(crate) id: CallId,
    pub(crate) session: SessionId,
    pub(crate) run: Option<RunId>,
    pub(crate) executor: Executor,
    pub(crate) lane: Lane,
    pub(crate) repeat: RepeatMode,
    pub(crate) effect: ToolEffect,
    pub(crate) arguments: Digest,
    pub(crate) content: Lsn,
    pub(crate) phase: CallPhase,
    pub(crate) aborting: bool,
    /// True once a person allowed it; a rule that denies still wins at the start.
    pub(crate) approved: bool,
    /// The record that let it through its gate. It starts only once that is durable.
    pub(crate) let_through: Option<Lsn>,
    /// How often it was started.
    #[serde(default)]
    pub(crate) starts: u32,
    /// The line of the peer that has it.
    #[serde(default)]
    pub(crate) line: Option<PeerLine>,
    /// When it is given up, while it waits for its peer or for word of it.
    #[serde(default)]
    pub(crate) until: Option<Millis>,
    /// Whether the peer that has it can be asked about it over another line.
    #[serde(default)]
    pub(crate) memory: PeerMemory,
    /// Whether its peer is only asked what became of it.
    #[serde(default)]
    pub(crate) is_asking: bool,
    /// Of what it would run from disk, as it was when it was wanted.
    #[serde(default)]
    pub(crate) pins: Option<Digest>,
}

impl Call {
    /// Whether it may use the session's shell: it works here, and may change something.
    pub(crate) fn acts_here(&self) -> bool {
        matches!(self.executor, Executor::Builtin | Executor::Shell) && self.effect != ToolEffect::Reads
    }

    pub(crate) fn from_event(event: &Event, session: SessionId, lsn: Lsn) -> Option<Self> {
        let Event::Proposed { call, run, executor, lane, repeat, effect, arguments, pins } = event else { return None };
        Some(Self {
            id: *call,
            session,
            run: *run,
            executor: executor.clone(),
            lane: *lane,
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

    /// Of what it would run from disk, as it was when it was wanted.
    pub fn pins_digest(&self) -> Option<Digest> {
        self.pins
    }

    /// True once a person allowed it.
    pub fn is_approved(&self) -> bool {
        self.approved
    }

    /// Its id.
    pub fn id(&self) -> CallId {
        self.id
    }

    /// The session that it belongs to.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// The run that wants it; absent for a person's own command.
    pub fn run(&self) -> Option<RunId> {
        self.run
    }

    /// Who runs it.
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// The peer that does it, where one does.
    pub fn peer(&self) -> Option<&PeerId> {
        match &self.executor {
            Executor::Peer(peer) => Some(peer),
            Executor::Builtin | Executor::Person | Executor::Shell | Executor::Service => None,
        }
    }

    /// The line of the peer that has it, or had it last.
    pub fn peer_line(&self) -> Option<PeerLine> {
        self.line
    }

    /// How often it was started.
    pub fn start_count(&self) -> u32 {
        self.starts
    }

    /// Where its content lies.
    pub fn content_lsn(&self) -> Lsn {
        self.content
    }

    /// The digest that the arguments in its content must have.
    pub fn arguments_digest(&self) -> Digest {
        self.arguments
    }

    /// Where it stands.
    pub fn phase(&self) -> &CallPhase {
        &self.phase
    }

    /// Whether its peer, which was given it on an earlier line, is only asked what became of it.
    pub fn is_asking(&self) -> bool {
        self.is_asking
    }

    /// Whether it is not known what became of it, and its peer may yet say so.
    pub fn may_be_asked(&self) -> bool {
        matches!(self.phase, CallPhase::InDoubt(_)) && self.until.is_some()
    }

    /// Whether a person has a peer do it, beside any run and without a place in the conversation.
    pub fn is_act(&self) -> bool {
        self.run.is_none() && matches!(self.executor, Executor::Peer(_))
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, CallPhase::Ended(_))
    }

    /// Whether nothing of it has happened yet.
    pub fn is_before_start(&self) -> bool {
        matches!(self.phase, CallPhase::Proposed | CallPhase::Gated | CallPhase::Ready)
    }

    /// Whether it was started, whatever became of it.
    pub fn has_begun(&self) -> bool {
        matches!(self.phase, CallPhase::Started { .. } | CallPhase::InDoubt(_))
    }

    /// Folds a recorded event in. Cannot fail, so replay cannot fail.
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
