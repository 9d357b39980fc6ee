//! Commands of an engine, its replies, and its errors.

use std::sync::Arc;

use super::ActiveRules;
use crate::{
    call, channel,
    digest::Digest,
    gate,
    id::{CallId, Lsn, PeerId, PrincipalId, RunId, SessionId},
    peer,
    policy::{Grant, GrantId, ServerChange},
    run, schedule, session, settings,
    time::Millis,
    unattended,
};

/// Mode of interrupted work after a restart: whether it continues automatically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumeMode {
    /// Runs and queues continue.
    Go,
    /// Runs and queues wait for their host. Work that people decided or were notified of happens all the same: gates, answers, retries.
    Wait,
}

/// A command.
#[derive(Clone, Debug)]
pub enum Command {
    /// Starts work of a process with this log. The first command after replay and [`Command::UseRules`].
    Recover(ResumeMode),
    /// Puts these rules in force.
    UseRules(Box<ActiveRules>),
    /// Records that a person is about to change the rules file, or to have it read again, before that happens. A mere
    /// read that finds the rules in force is not recorded.
    EditRules {
        /// The person.
        by: PrincipalId,
        /// Digest of the rules that the file then has.
        to: Digest,
        /// Description of the change, for people; absent if the file is only read.
        change: Option<Arc<str>>,
    },
    /// Records that a person changed the approval of a server of tools, which is kept outside of the log.
    NoteServerApproval {
        /// Name of the server.
        server: String,
        /// The change.
        change: ServerChange,
        /// The person.
        by: PrincipalId,
        /// Time of the change.
        at: Millis,
    },
    /// Puts the rules of a session's host in force there, in place of those of this process. Sent
    /// for a session that does not exist, they make it a hosted session when it is opened. Such a session works while its rules
    /// are loaded, and waits while they are not.
    UseRulesFor(SessionId, Box<ActiveRules>),
    /// The host of a session has gone, and its rules go too. Refused while something works or waits there.
    Leave(SessionId),
    /// Reports that time has passed.
    Tick,
    /// Extends the deadlines that passed, or soon will, while no answer could be received.
    Extend,
    /// Command to a session.
    Session(SessionId, session::Command),
    /// Command to a run.
    Run(run::Command),
    /// Command about a call.
    Call(call::Command),
    /// Command to a gate.
    Gate(gate::Command),
    /// Command about a peer.
    Peer(peer::Command),
    /// Command about settings that people change while the gateway runs.
    Settings(settings::Command),
    /// Command about chat networks.
    Channel(channel::Command<Command>),
    /// Command to the contract of a session that works without approvers.
    Unattended(unattended::Command),
    /// Command about jobs.
    Schedule(schedule::Command),
    /// Imports permanent grants from another log. Those that are known are skipped.
    Adopt(Vec<Grant>),
    /// Revokes a person's denial before its time.
    Lift {
        /// The principal whose calls it stops.
        principal: PrincipalId,
        /// Its key: that of the [constraint](crate::policy::Constraint).
        key: Digest,
        /// The only session in which it applies; absent for a denial that binds all sessions.
        session: Option<SessionId>,
        /// The person who revokes it. Not the agent.
        by: PrincipalId,
    },
    /// Revokes a grant.
    Revoke {
        /// The grant.
        grant: GrantId,
        /// The person who revokes it.
        by: PrincipalId,
    },
}

/// Result of a command.
#[derive(Clone, Debug, PartialEq)]
pub enum EngineReply {
    /// The command was executed.
    Done,
    /// A run works on it.
    Started(RunId),
    /// The message waits in a queue.
    Queued,
    /// The message waits for a compaction that has to come first; then this run begins with it.
    BehindCompaction(RunId),
    /// The message goes to this run while it works.
    Steering(RunId),
    /// The run ends when the work in flight has ended.
    Stopping(RunId),
    /// There was nothing to stop.
    Idle,
    /// A compaction is active.
    Compacting {
        /// Number of the compaction in the session.
        epoch: u32,
    },
    /// A person's command runs.
    Running(CallId),
    /// A request is open, or it was made before under its key and is over.
    Requested {
        /// The call.
        call: CallId,
        /// Its outcome and the position of the record of it, if it has ended.
        over: Option<(call::CallEnd, Lsn)>,
    },
    /// The gate was resolved like this, now or by the same answer before.
    Resolved(gate::GateResolution),
    /// The answer counts, and more approvers have to allow.
    Voted {
        /// Number of approvers who allowed.
        have: u32,
        /// Number of approvers who have to allow.
        need: u32,
    },
    /// Result of a command to a contract.
    Unattended(unattended::ContractOutcome),
    /// Firings that are to begin.
    Fired(Vec<schedule::FiringId>),
    /// The result came too late and was only recorded.
    Dropped,
    /// The command was executed before, under the same key.
    Repeated,
}

/// Reason for which a command was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// There is no such session.
    #[error("no session {0}")]
    NoSession(SessionId),
    /// There is one already.
    #[error("session {0} exists")]
    SessionExists(SessionId),
    /// A named entry does not exist.
    #[error("no entry {entry} in {session}")]
    NoEntry {
        /// The session.
        session: SessionId,
        /// The entry.
        entry: String,
    },
    /// Work in the session must end first.
    #[error("{0} is busy")]
    Busy(SessionId),
    /// Its rules come from its host, and are not loaded in this process.
    #[error("{0} waits for its host, which brings its rules")]
    WaitsForHost(SessionId),
    /// The peer that is to do it has no connection.
    #[error("{0} is not connected")]
    PeerAway(PeerId),
    /// A name is empty.
    #[error("a session's name is not empty")]
    EmptyName,
    /// A message or a fact is too large for a record.
    #[error("{what} is longer than {limit} bytes")]
    TooLong {
        /// The value.
        what: &'static str,
        /// Its maximum length.
        limit: usize,
    },
    /// A prompt was not taken.
    #[error(transparent)]
    Prompt(#[from] session::PromptError),
    /// A compaction was not started.
    #[error(transparent)]
    Compact(#[from] session::CompactError),
    /// An answer did not count.
    #[error(transparent)]
    Answer(#[from] gate::AnswerError),
    /// A request has the key of another one.
    #[error("the idempotency key {0:?} names another request")]
    KeyTaken(String),
    /// The contract of a session forbids it.
    #[error(transparent)]
    Unattended(#[from] unattended::DeclareError),
    /// A command about a chat network was refused.
    #[error(transparent)]
    Channel(#[from] channel::ChannelError),
    /// A command about jobs was refused.
    #[error(transparent)]
    Schedule(#[from] schedule::ScheduleError),
    /// Policy refuses a person's own command, or an additional access that a running command requests.
    #[error("{0}")]
    Denied(String),
    /// A command that only makes sense otherwise, such as a second recovery.
    #[error("{0}")]
    OutOfPlace(&'static str),
}
