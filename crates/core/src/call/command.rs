//! Results and progress of calls, and an approver's own commands.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::event::{DoubtCause, Executor};
use crate::{
    id::{CallId, GateId, PeerId, PrincipalId, SessionId},
    message_content::MessageContent,
    tool::{RepeatMode, ShellInput, ToolEffect},
};
use countersign_shell_analysis::ActionClass as Class;

/// Result of an executor.
#[derive(Clone, Debug, PartialEq)]
pub struct CallResult {
    /// The message that carries the result: a tool result, or a person's command with its output.
    pub message: MessageContent,
    /// True if the executor reported a failure.
    pub error: bool,
    /// Number of open tasks, if the call changed the model's list of tasks.
    pub open_tasks: Option<u32>,
    /// Current folder of the session's shell, if the call used it.
    pub folder: Option<String>,
    /// True if its text may be replaced by a notice when the context grows too long.
    pub prunable: bool,
    /// Work that the call began and that continues at its peer, under the peer's name for it.
    pub left_behind: Option<Arc<str>>,
}

/// Progress of the work of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallProgress {
    /// The executor answered.
    Returned(Box<CallResult>),
    /// Failure before any effect was possible.
    NotBegun(Arc<str>),
    /// Interruption; the call may have taken effect.
    Broke,
    /// Its executor had it and will not report any more: it may have taken effect.
    Left {
        /// Text for the model, in the form of its wire.
        text: Arc<str>,
        /// Cause of the doubt.
        since: DoubtCause,
    },
    /// Nothing of it reached the peer's connection, which is gone. It waits for another.
    Unsent {
        /// Number of the start, from 1.
        start: u32,
    },
}

/// Executor of an agent's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestExecutor {
    /// A service that only the gateway can reach.
    Service,
    /// A person: the answers to its questions are the result.
    Person,
}

impl From<RequestExecutor> for Executor {
    fn from(executor: RequestExecutor) -> Self {
        match executor {
            RequestExecutor::Service => Self::Service,
            RequestExecutor::Person => Self::Person,
        }
    }
}

/// Request of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentRequest {
    /// The session of the agent, which is open.
    pub session: SessionId,
    /// The principal that requests it.
    pub principal: PrincipalId,
    /// The adapter through which it comes, as rules name it.
    pub door: Arc<str>,
    /// The agent's own id of it, as JSON text.
    pub wire: Arc<str>,
    /// The same key again is the same request.
    pub key: Option<String>,
    /// The tool.
    pub tool: Arc<str>,
    /// Its arguments.
    pub arguments: Map<String, Value>,
    /// Signatures that rules match; an approver is shown the first. Not empty.
    pub signatures: Vec<String>,
    /// The arguments that the signature names; empty means all.
    pub named: Vec<String>,
    /// Arguments that the tool does not declare.
    pub undeclared: Vec<String>,
    /// Principals on whose behalf it is made. None of them may answer it.
    pub for_principals: Vec<PrincipalId>,
    /// The service that the tool calls; absent for a tool without a definition.
    pub service: Option<Arc<str>>,
    /// Executor of the call.
    pub executor: RequestExecutor,
    /// Paths of files that it uses, of this machine or of one that the floor is to hold for as well.
    pub paths: Vec<String>,
    /// Current folder of the requester on this machine, absolute; empty if it has none. Relative paths count from it.
    pub cwd: String,
    /// Real path of its file, where a link leads there.
    pub leads_to: Option<Arc<str>>,
    /// Effect of the tool: whether it only reads.
    pub effect: ToolEffect,
    /// Repeat mode: whether it may be repeated.
    pub repeat: RepeatMode,
}

/// Action that a person has a peer do, outside of any run.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerAction {
    /// The call that it becomes, with an unused id.
    pub call: CallId,
    /// The session in whose record it is kept, which is open.
    pub session: SessionId,
    /// The person who requests it.
    pub by: PrincipalId,
    /// The peer that does it.
    pub peer: PeerId,
    /// Its class for policy.
    pub class: Class,
    /// The part of it that a shell reads.
    pub shell: ShellInput,
    /// The tool.
    pub tool: Arc<str>,
    /// Id that the requester gave it; absent is the call's own id.
    pub wire: Option<Arc<str>>,
    /// Its intent, if the requester gave one.
    pub intent: Option<Arc<str>>,
    /// Its arguments.
    pub arguments: Map<String, Value>,
    /// Signature that rules match.
    pub signature: String,
    /// The arguments that the signature names; empty means all.
    pub named: Vec<String>,
}

/// A command about a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// A person runs a command in the session's shell.
    Run {
        /// The session whose shell is used.
        session: SessionId,
        /// The tool that stands for it.
        tool: Arc<str>,
        /// Its arguments.
        arguments: Map<String, Value>,
        /// Signature that rules match.
        signature: String,
        /// The executor that runs it.
        executor: Executor,
    },
    /// A person has a peer do something. It needs no approval, but what rules deny stays denied.
    Act(Box<PeerAction>),
    /// An agent requests a call.
    Request(Box<AgentRequest>),
    /// Results of requests reached the agent.
    Received {
        /// The session of the requests.
        session: SessionId,
        /// The calls.
        calls: Vec<CallId>,
    },
    /// A command of a run wants to reach a host that its sandbox does not list. Approvers are asked while it waits.
    Reach {
        /// The call.
        call: CallId,
        /// The gate that asks, with an unused id.
        gate: GateId,
        /// The host and its port, such as `example.org:443`.
        host: Arc<str>,
    },
    /// The work of a call ended.
    Ended {
        /// The call.
        call: CallId,
        /// Its progress.
        progress: CallProgress,
    },
    /// Stops the commands that a person runs in a session.
    Abort {
        /// The session of the commands.
        session: SessionId,
    },
}
