//! Events of a call.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::pins::Pins;
use crate::{
    digest::Digest,
    id::{CallId, EntryId, PeerId, PrincipalId, RunId, SessionId},
    peer::{PeerLine, PeerMemory},
    time::Millis,
    tool::{CallConcurrency, RepeatMode, ShellInput, ToolEffect},
};
use countersign_shell_analysis::ActionClass as Class;

/// Executor of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Executor {
    /// A tool of this process.
    Builtin,
    /// A person: the answers to questions are the result.
    Person,
    /// The shell of the session, for a person's own command.
    Shell,
    /// A service that only the gateway can reach.
    Service,
    /// A peer at the other end of a connection.
    Peer(PeerId),
}

/// Outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallEnd {
    /// The executor answered, its errors included, or it was a builtin that we stopped ourselves.
    Done {
        /// True if the executor reported a failure.
        error: bool,
    },
    /// Failure to run it: no such tool, arguments that do not fit, or a failure before anything was sent.
    Failed,
    /// Policy refused it, or a person did and the run gets that answer.
    Denied,
    /// A person refused what an agent requested.
    Refused,
    /// No approver decided in time about a request of an agent.
    Expired,
    /// The agent has too many pending approvals already.
    Limited,
    /// A queued message made it pointless before it began.
    Skipped,
    /// The run was stopped before it began.
    Cancelled,
    /// Unknown outcome: it may have taken effect, and is not run again.
    Unknown,
}

impl CallEnd {
    /// Reports whether the model gets a failure for it.
    pub const fn is_error(self) -> bool {
        !matches!(self, Self::Done { error: false })
    }
}

/// Cause for which the outcome of a call is no longer known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DoubtCause {
    /// The process that ran it ended.
    ProcessEnded,
    /// The task that ran it was interrupted.
    TaskBroke,
    /// The connection on which a peer had it is gone.
    LineGone,
    /// The peer that has it does not report on it.
    PeerSilent,
    /// Stop while a peer had it, which did not report its progress.
    Stopped,
    /// The peer that has it reports that it began and that its outcome is unknown there.
    PeerLost,
}

/// Content of a call, word for word.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallDetails {
    /// The tool.
    pub tool: Arc<str>,
    /// The model's id of the call.
    pub tool_call_id: Arc<str>,
    /// The arguments, without the intent.
    pub arguments: Map<String, Value>,
    /// Intent that the model gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<Arc<str>>,
    /// Signature that rules match and an approver is shown.
    pub signature: String,
    /// The arguments that the signature names; empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<String>,
    /// Its class beyond its tool's name, for calls that a host does. Its effect is then beyond the files of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// The part of it that a shell reads; absent is the known input of an own tool with this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<ShellInput>,
    /// Reason for which it cannot be run at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Arc<str>>,
    /// The additional content of an agent's request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Box<RequestContent>>,
    /// Files that it would run from disk, as they were when it was proposed; absent if it runs no files, and in earlier records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pins: Option<Box<Pins>>,
    /// Absolute target of the path that it names, as it was when it was proposed; absent if its text is that path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leads_to: Option<Arc<str>>,
}

/// Content that an agent's request has in addition to that of a run's call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestContent {
    /// The principal that requests it.
    pub principal: PrincipalId,
    /// The adapter through which it came; records made before adapters were recorded have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub door: Option<Arc<str>>,
    /// The session to which its session grants are bound.
    pub session: SessionId,
    /// The service that the tool calls; absent for a tool without a definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Arc<str>>,
    /// Signatures beyond the first, one for every further element where an argument is a list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further_signatures: Vec<String>,
    /// Arguments that the tool does not declare.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undeclared: Vec<String>,
    /// Paths of files that it uses: the floor holds for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Current folder of the requester; empty if it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cwd: String,
    /// Principals on whose behalf it is made. None of them may answer it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub for_principals: Vec<PrincipalId>,
}

/// A fact about one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Proposal of a call. The content is a [`CallDetails`].
    #[serde(rename = "wanted")]
    Proposed {
        /// The call.
        call: CallId,
        /// The run that proposes it; absent for a person's own command.
        run: Option<RunId>,
        /// The executor that runs it.
        executor: Executor,
        /// Concurrency with other calls.
        #[serde(rename = "lane")]
        concurrency: CallConcurrency,
        /// Repeat mode: whether it may be repeated.
        repeat: RepeatMode,
        /// Effect of the tool: whether it changes anything.
        effect: ToolEffect,
        /// Digest of the canonical arguments: the arguments that are run must match it.
        arguments: Digest,
        /// Digest of the files that it would run from disk, as in the content; absent if no file was read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pins: Option<Digest>,
    },
    /// An agent requests it. The next record holds the request.
    Requested {
        /// The call.
        call: CallId,
        /// The agent's own id of it, as JSON text.
        wire: Arc<str>,
        /// The key under which a repeated request is the same request.
        key: Option<String>,
        /// The generation of the agent's ids.
        generation: u32,
        /// Digest of tool and arguments, which reveals a key that is used for another request.
        #[serde(default)]
        asks: Option<Digest>,
    },
    /// Its result reached the requester.
    Received {
        /// The call.
        call: CallId,
    },
    /// Policy allows it.
    Allowed {
        /// The call.
        call: CallId,
        /// Reason, for the record.
        why: String,
        /// The policy that was in force.
        policy: Digest,
        /// The person who allowed it; absent where rules did.
        by: Option<PrincipalId>,
    },
    /// Policy requires an approval.
    Gated {
        /// The call.
        call: CallId,
        /// Reason, for the record.
        why: String,
        /// The policy that was in force.
        policy: Digest,
    },
    /// Wait for the peer that is to do it and has no connection, though its turn has come.
    Waits {
        /// The call.
        call: CallId,
        /// Time at which the wait ends.
        until: Millis,
    },
    /// Start of the call.
    Started {
        /// The call.
        call: CallId,
        /// The process that runs it.
        boot: u32,
        /// The connection of the peer that does it, if a peer does. It is never sent over another.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        line: Option<PeerLine>,
        /// Ability of that peer to report on it over another connection.
        #[serde(default, skip_serializing_if = "PeerMemory::is_none")]
        memory: PeerMemory,
    },
    /// Its peer is asked for the outcome over another connection. The call is not executed again.
    AskedAgain {
        /// The call.
        call: CallId,
        /// The process that asks.
        boot: u32,
        /// The connection.
        line: PeerLine,
    },
    /// Request to stop it.
    Aborting {
        /// The call.
        call: CallId,
    },
    /// Its outcome is unknown.
    InDoubt {
        /// The call.
        call: CallId,
        /// Cause of the doubt.
        since: DoubtCause,
        /// Time at which the wait ends, if its peer may still report the outcome.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Millis>,
    },
    /// Work that it began continues at its peer, which will report its end.
    LeftBehind {
        /// The call.
        call: CallId,
        /// The peer.
        peer: PeerId,
        /// Name of the continuing work at the peer.
        execution: Arc<str>,
    },
    /// Permission to start once more: the call is idempotent and its requester still waits for it, or nothing of it was sent to its
    /// peer.
    Again {
        /// The call.
        call: CallId,
    },
    /// End of the call. The result for the model is the entry in an earlier record, if there is a run.
    Ended {
        /// The call.
        call: CallId,
        /// The outcome.
        end: CallEnd,
        /// The result's entry.
        entry: Option<EntryId>,
    },
    /// A result came after the end. It is kept as content and changes nothing.
    ResultDropped {
        /// The call.
        call: CallId,
    },
}

impl Event {
    /// Returns the call that it is about.
    pub const fn call(&self) -> CallId {
        match self {
            Self::Proposed { call, .. }
            | Self::Requested { call, .. }
            | Self::Received { call }
            | Self::Allowed { call, .. }
            | Self::Gated { call, .. }
            | Self::Waits { call, .. }
            | Self::Started { call, .. }
            | Self::AskedAgain { call, .. }
            | Self::LeftBehind { call, .. }
            | Self::Aborting { call }
            | Self::InDoubt { call, .. }
            | Self::Again { call }
            | Self::Ended { call, .. }
            | Self::ResultDropped { call } => *call,
        }
    }
}
