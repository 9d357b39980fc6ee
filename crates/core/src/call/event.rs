//! What happened to a call.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::pins::Pins;
use crate::{
    digest::Digest,
    id::{CallId, EntryId, PeerId, PrincipalId, RunId, SessionId},
    peer::{PeerLine, PeerMemory},
    time::Millis,
    tool::{Lane, RepeatMode, ShellInput, ToolEffect},
};
use countersign_shell_analysis::ActionClass as Class;

/// Who runs a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Executor {
    /// A tool of this process.
    Builtin,
    /// A person: questions are asked and their answers are the result.
    Person,
    /// The shell of the session, for a person's own command.
    Shell,
    /// A service that only the gateway can reach.
    Service,
    /// Somebody at the other end of a connection.
    Peer(PeerId),
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallEnd {
    /// The executor answered, its errors included, or it was a builtin that we stopped ourselves.
    Done {
        /// True if the executor says that it failed.
        error: bool,
    },
    /// It could not be run: no such tool, arguments that do not fit, or a failure before anything left.
    Failed,
    /// Policy refused it, or a person whose answer a run is told of.
    Denied,
    /// A person refused what an agent requested.
    Refused,
    /// Nobody decided in time about what an agent requested.
    Expired,
    /// The agent has too much waiting for people already.
    Limited,
    /// A queued message made it pointless before it began.
    Skipped,
    /// The run was stopped before it began.
    Cancelled,
    /// It is not known whether it took effect, and it will not be run again.
    Unknown,
}

impl CallEnd {
    /// Whether the model is told of a failure.
    pub const fn is_error(self) -> bool {
        !matches!(self, Self::Done { error: false })
    }
}

/// Why it is no longer known what became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DoubtCause {
    /// The process that ran it ended.
    ProcessEnded,
    /// The task that ran it broke off.
    TaskBroke,
    /// The connection on which a peer had it is gone.
    LineGone,
    /// The peer that has it says nothing of it.
    PeerSilent,
    /// It was stopped while a peer had it, which did not say how far it got.
    Stopped,
    /// The peer that has it says that it began, and that it does not know what became of it.
    PeerLost,
}

/// The content of a call: what was wanted, word for word.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallDetails {
    /// The tool.
    pub tool: Arc<str>,
    /// The model's id of the call.
    pub tool_call_id: Arc<str>,
    /// The arguments, without the intent.
    pub arguments: Map<String, Value>,
    /// What the model says it wants with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<Arc<str>>,
    /// What rules are matched against and a person is shown.
    pub signature: String,
    /// The arguments that the signature names; empty means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<String>,
    /// What it is beyond its tool's name: of calls that a host does. Its effect then lies beyond the files of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// What of it a shell reads; absent is what is known of a tool of our own with this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<ShellInput>,
    /// Why it cannot be run at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Arc<str>>,
    /// What an agent's request has beyond a run's call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Box<RequestContent>>,
    /// What it would run from disk, as it was when it was wanted; absent where nothing is looked at, and in records of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pins: Option<Box<Pins>>,
    /// Where the path that it names led when it was wanted, absolute; absent where that is what its text says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leads_to: Option<Arc<str>>,
}

/// What the content of an agent's request has beyond that of a run's call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestContent {
    /// Who asks.
    pub principal: PrincipalId,
    /// The door through which it came; records of before doors were recorded have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub door: Option<Arc<str>>,
    /// What grants for a session are bound to.
    pub session: SessionId,
    /// The service that is asked; absent for a tool that nobody defined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Arc<str>>,
    /// Signatures beyond the first, one for every further element where an argument is a list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further_signatures: Vec<String>,
    /// Arguments that the tool does not declare.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undeclared: Vec<String>,
}

/// A fact about one call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// It is wanted. The content is a [`Content`].
    #[serde(rename = "wanted")]
    Proposed {
        /// Which.
        call: CallId,
        /// The run that wants it; absent for a person's own command.
        run: Option<RunId>,
        /// Who runs it.
        executor: Executor,
        /// How it lines up.
        lane: Lane,
        /// Whether it may be repeated.
        repeat: RepeatMode,
        /// Whether it changes anything.
        effect: ToolEffect,
        /// Of the canonical arguments: what is run must have it.
        arguments: Digest,
        /// Of what it would run from disk, as the content has it; absent where nothing was looked at.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pins: Option<Digest>,
    },
    /// An agent asks for it. What it wants stands in the next record.
    Requested {
        /// Which.
        call: CallId,
        /// The agent's own id of it, as JSON text.
        wire: Arc<str>,
        /// The key under which a repeated request is the same request.
        key: Option<String>,
        /// The generation of the agent's ids.
        generation: u32,
        /// Of tool and arguments, by which a key is known that names something else.
        #[serde(default)]
        asks: Option<Digest>,
    },
    /// Its result reached whoever asked for it.
    Received {
        /// Which.
        call: CallId,
    },
    /// Policy lets it run.
    Allowed {
        /// Which.
        call: CallId,
        /// Why, for the record.
        why: String,
        /// The policy that was in force.
        policy: Digest,
        /// The person who allowed it; absent where rules did.
        by: Option<PrincipalId>,
    },
    /// Policy wants a person to decide.
    Gated {
        /// Which.
        call: CallId,
        /// Why, for the record.
        why: String,
        /// The policy that was in force.
        policy: Digest,
    },
    /// Its turn has come, and the peer that is to do it has no line.
    Waits {
        /// Which.
        call: CallId,
        /// When it is given up.
        until: Millis,
    },
    /// It runs from now on.
    Started {
        /// Which.
        call: CallId,
        /// The process that runs it.
        boot: u32,
        /// The line of the peer that does it, where one does. No other is ever given it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        line: Option<PeerLine>,
        /// Whether that peer can be asked about it over another line.
        #[serde(default, skip_serializing_if = "PeerMemory::is_none")]
        memory: PeerMemory,
    },
    /// Its peer is asked over another line what became of it. Nothing is done a second time.
    AskedAgain {
        /// Which.
        call: CallId,
        /// The process that asks.
        boot: u32,
        /// The line.
        line: PeerLine,
    },
    /// It is to stop.
    Aborting {
        /// Which.
        call: CallId,
    },
    /// It is not known what became of it.
    InDoubt {
        /// Which.
        call: CallId,
        /// Since when.
        since: DoubtCause,
        /// When it is given up, where its peer may yet be asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Millis>,
    },
    /// Something that it began goes on at its peer, which will tell of its end.
    LeftBehind {
        /// Which.
        call: CallId,
        /// Who.
        peer: PeerId,
        /// What goes on, as the peer calls it.
        execution: Arc<str>,
    },
    /// It may start once more: twice has the effect of once and somebody still waits for it, or nothing of it left for its
    /// peer.
    Again {
        /// Which.
        call: CallId,
    },
    /// It is over. The result for the model is the entry in a record before, where there is a run.
    Ended {
        /// Which.
        call: CallId,
        /// How.
        end: CallEnd,
        /// The result's entry.
        entry: Option<EntryId>,
    },
    /// A result came after the end. It is kept as content and changes nothing.
    ResultDropped {
        /// Which.
        call: CallId,
    },
}

impl Event {
    /// The call that it is about.
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
