//! What can be asked of an engine, what it answers, and why it may refuse.

use std::sync::Arc;

use super::ActiveRules;
use crate::{
    call, channel,
    digest::Digest,
    gate,
    id::{CallId, Lsn, PeerId, PrincipalId, RunId, SessionId},
    peer,
    policy::{Grant, GrantId},
    run, schedule, session, settings, unattended,
};

/// Whether work that a restart interrupted goes on by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumeMode {
    /// Runs and queues go on.
    Go,
    /// They wait for their host. What people were asked or told of happens all the same: gates, answers, further attempts.
    Wait,
}

/// A command.
#[derive(Clone, Debug)]
pub enum Command {
    /// A process begins to work with this log. The first command after replay and [`Command::UseRules`].
    Recover(ResumeMode),
    /// These rules are in force from now on.
    UseRules(Box<ActiveRules>),
    /// A person is about to change the file of rules, or to have it read again. It is recorded before that happens; a mere
    /// look that finds the rules in force is not.
    EditRules {
        /// Who.
        by: PrincipalId,
        /// Digest of the rules that the file then has.
        to: Digest,
        /// What is changed in it, for people; nothing where it is only read.
        change: Option<Arc<str>>,
    },
    /// A host brings the rules of its session: they are in force there from now on, in place of those of this process. Told
    /// of a session that does not exist, they make it one of a host when it is opened. Such a session works while its rules
    /// are at hand, and waits while they are not.
    UseRulesFor(SessionId, Box<ActiveRules>),
    /// The host of a session has gone, and its rules go too. Refused while something works or waits there.
    Leave(SessionId),
    /// Time has passed.
    Tick,
    /// Nobody could be heard for a while: deadlines that passed meanwhile, or soon will, get a while more.
    Extend,
    /// To a session.
    Session(SessionId, session::Command),
    /// To a run.
    Run(run::Command),
    /// About a call.
    Call(call::Command),
    /// To a gate.
    Gate(gate::Command),
    /// About a peer.
    Peer(peer::Command),
    /// About what people set while the gateway runs.
    Settings(settings::Command),
    /// About chat networks.
    Channel(channel::Command<Command>),
    /// To the contract of a session that works without people.
    Unattended(unattended::Command),
    /// About jobs.
    Schedule(schedule::Command),
    /// Takes over grants that another log gave for good. Those that are known are passed over.
    Adopt(Vec<Grant>),
    /// Takes a person's denial back before its time.
    Lift {
        /// Whose calls it stops.
        principal: PrincipalId,
        /// What it stops: the key of the [constraint](crate::policy::Constraint).
        key: Digest,
        /// The session in which alone it stops that; absent for a denial that binds all sessions.
        session: Option<SessionId>,
        /// Who takes it back. Not the agent.
        by: PrincipalId,
    },
    /// Takes a grant back.
    Revoke {
        /// Which.
        grant: GrantId,
        /// Who takes it back.
        by: PrincipalId,
    },
}

/// What a command came to.
#[derive(Clone, Debug, PartialEq)]
pub enum EngineReply {
    /// It is done.
    Done,
    /// A run works on it.
    Started(RunId),
    /// It waits in a queue.
    Queued,
    /// It waits for a compaction that has to come first; then this run begins with it.
    BehindCompaction(RunId),
    /// This run is told of it on its way.
    Steering(RunId),
    /// The run ends as soon as what is in flight has ended.
    Stopping(RunId),
    /// There was nothing to stop.
    Idle,
    /// A compaction is under way.
    Compacting {
        /// Counts compactions of the session.
        epoch: u32,
    },
    /// A person's command runs.
    Running(CallId),
    /// A request is open, or it was made before under its key and is over.
    Requested {
        /// Which.
        call: CallId,
        /// How it ended and where that is recorded, if it has.
        over: Option<(call::CallEnd, Lsn)>,
    },
    /// The gate was resolved so, now or by the same answer before.
    Resolved(gate::GateResolution),
    /// The answer counts, and more people have to allow.
    Voted {
        /// How many have.
        have: u32,
        /// How many have to.
        need: u32,
    },
    /// What a contract says.
    Unattended(unattended::ContractOutcome),
    /// These firings are to begin.
    Fired(Vec<schedule::FiringId>),
    /// The result came too late and was only recorded.
    Dropped,
    /// It has happened already, under the same key.
    Repeated,
}

/// Why a command was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// There is no such session.
    #[error("no session {0}")]
    NoSession(SessionId),
    /// There is one already.
    #[error("session {0} exists")]
    SessionExists(SessionId),
    /// An entry that was named is not there.
    #[error("no entry {entry} in {session}")]
    NoEntry {
        /// The session.
        session: SessionId,
        /// The entry.
        entry: String,
    },
    /// Something works in the session that must end first.
    #[error("{0} is busy")]
    Busy(SessionId),
    /// Its rules come from its host, and are not at hand in this process.
    #[error("{0} waits for its host, which brings its rules")]
    WaitsForHost(SessionId),
    /// Whoever is to do it has no line.
    #[error("{0} is not connected")]
    PeerAway(PeerId),
    /// A name is empty.
    #[error("a session's name is not empty")]
    EmptyName,
    /// A message or a fact is too large for a record.
    #[error("{what} is longer than {limit} bytes")]
    TooLong {
        /// What.
        what: &'static str,
        /// How long it may be.
        limit: usize,
    },
    /// A prompt was not taken.
    #[error(transparent)]
    Prompt(#[from] session::PromptError),
    /// A compaction was not begun.
    #[error(transparent)]
    Compact(#[from] session::CompactError),
    /// An answer did not count.
    #[error(transparent)]
    Answer(#[from] gate::AnswerError),
    /// A request has the key of another one.
    #[error("the idempotency key {0:?} names another request")]
    KeyTaken(String),
    /// The contract of a session stands in the way.
    #[error(transparent)]
    Unattended(#[from] unattended::DeclareError),
    /// Something about a chat network was not done.
    #[error(transparent)]
    Channel(#[from] channel::ChannelError),
    /// Something about jobs.
    #[error(transparent)]
    Schedule(#[from] schedule::ScheduleError),
    /// Policy refuses a person's own command, or what a command that runs wants beyond it.
    #[error("{0}")]
    Denied(String),
    /// A command that only makes sense otherwise, such as a second recovery.
    #[error("{0}")]
    OutOfPlace(&'static str),
}
