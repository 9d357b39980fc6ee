//! What comes back from whoever runs a call, and a person's own commands.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::event::{DoubtCause, Executor};
use crate::{
    id::{CallId, GateId, PeerId, PrincipalId, SessionId},
    message_content::MessageContent,
    tool::{RepeatMode, ShellInput, ToolEffect},
};
use countersign_shell_analysis::ActionClass as Class;

/// What an executor gave back.
#[derive(Clone, Debug, PartialEq)]
pub struct CallResult {
    /// The message that tells of it: a tool result, or a person's command with its output.
    pub message: MessageContent,
    /// True if the executor says that it failed.
    pub error: bool,
    /// Open tasks, where the call changed the model's list of tasks.
    pub open_tasks: Option<u32>,
    /// Where the session's shell is now, where the call used it.
    pub folder: Option<String>,
    /// Whether its text may be replaced by a notice when the context grows too long.
    pub prunable: bool,
    /// What it began and goes on at its peer, as the peer calls it.
    pub left_behind: Option<Arc<str>>,
}

/// How far the work of a call got.
#[derive(Clone, Debug, PartialEq)]
pub enum CallProgress {
    /// The executor answered.
    Returned(Box<CallResult>),
    /// It failed before anything could have taken effect.
    NotBegun(Arc<str>),
    /// It broke off, and may have taken effect.
    Broke,
    /// A peer had it and will not be heard any more: it may have taken effect.
    Left {
        /// What the model is told, in the words of its wire.
        text: Arc<str>,
        /// Why.
        since: DoubtCause,
    },
    /// Nothing of it reached the peer's line, which is gone. It waits for another.
    Unsent {
        /// Which start of it, from 1.
        start: u32,
    },
}

/// What an agent asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentRequest {
    /// The session of the agent, which is open.
    pub session: SessionId,
    /// Who asks.
    pub principal: PrincipalId,
    /// The door through which it comes, as rules name it.
    pub door: Arc<str>,
    /// The agent's own id of it, as JSON text.
    pub wire: Arc<str>,
    /// The same key again is the same request.
    pub key: Option<String>,
    /// The tool.
    pub tool: Arc<str>,
    /// Its arguments.
    pub arguments: Map<String, Value>,
    /// What rules are matched against, the first of which a person is shown. Not empty.
    pub signatures: Vec<String>,
    /// The arguments that the signature names; empty means all.
    pub named: Vec<String>,
    /// Arguments that the tool does not declare.
    pub undeclared: Vec<String>,
    /// The service that is asked; absent for a tool that nobody defined.
    pub service: Option<Arc<str>>,
    /// Whether it only reads.
    pub effect: ToolEffect,
    /// Whether it may be repeated.
    pub repeat: RepeatMode,
}

/// What a person has a peer do, beside any run.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerAction {
    /// The call that it becomes, which nobody has had.
    pub call: CallId,
    /// The session in whose record it stands, which is open.
    pub session: SessionId,
    /// Who wants it.
    pub by: PrincipalId,
    /// Who does it.
    pub peer: PeerId,
    /// What it is for policy.
    pub class: Class,
    /// What of it a shell reads.
    pub shell: ShellInput,
    /// The tool.
    pub tool: Arc<str>,
    /// What whoever wants it calls it; absent is the call's own id.
    pub wire: Option<Arc<str>>,
    /// What it is for, if that was said.
    pub intent: Option<Arc<str>>,
    /// Its arguments.
    pub arguments: Map<String, Value>,
    /// What rules are matched against.
    pub signature: String,
    /// The arguments that the signature names; empty means all.
    pub named: Vec<String>,
}

/// A command about a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// A person runs a command in the session's shell.
    Run {
        /// Whose shell.
        session: SessionId,
        /// The tool that stands for it.
        tool: Arc<str>,
        /// Its arguments.
        arguments: Map<String, Value>,
        /// What rules are matched against.
        signature: String,
        /// Who runs it.
        executor: Executor,
    },
    /// A person has a peer do something. It needs nobody's leave, but what rules deny stays denied.
    Act(Box<PeerAction>),
    /// An agent asks for something.
    Request(Box<AgentRequest>),
    /// Results of requests reached the agent.
    Received {
        /// Whose requests.
        session: SessionId,
        /// Which.
        calls: Vec<CallId>,
    },
    /// A command of a run wants to reach a host that its sandbox does not list. People are asked while it waits.
    Reach {
        /// Which.
        call: CallId,
        /// The gate that asks, which nobody has had.
        gate: GateId,
        /// The host and its port, such as `example.org:443`.
        host: Arc<str>,
    },
    /// The work of a call ended.
    Ended {
        /// Which.
        call: CallId,
        /// How far it got.
        progress: CallProgress,
    },
    /// Stops the commands that a person runs in a session.
    Abort {
        /// Whose commands.
        session: SessionId,
    },
}
