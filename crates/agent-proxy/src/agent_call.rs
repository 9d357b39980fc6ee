//! Call that an agent asks for, and the trait through which it is decided.

use serde_json::{Map, Value};
use tokio::sync::mpsc;

/// Call of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentCall {
    /// Id of the agent's session, as the agent names it.
    pub session: String,
    /// Agent's own id of the call.
    pub id: Option<String>,
    /// Name of the tool.
    pub tool: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
    /// Folder in which it runs, absolute.
    pub cwd: String,
}

/// Decision about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallDecision {
    /// It may run once.
    Allow,
    /// It must not run. The text is the reason for the agent.
    Deny(String),
}

/// Gate at which a person decides a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateNotice {
    /// Id of the gate.
    pub gate: String,
    /// Its title.
    pub title: String,
}

/// Answer of the person at the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallAnswer {
    /// Id of the gate.
    pub gate: String,
    /// True to allow the call once.
    pub allow: bool,
    /// Name of the client.
    pub surface: String,
}

/// Links between a call that waits and the client of its agent.
#[derive(Debug)]
pub struct CallLinks {
    /// Receiver of the gate that the call waits for.
    pub gates: mpsc::UnboundedSender<GateNotice>,
    /// Answers of the person at the client.
    pub answers: mpsc::UnboundedReceiver<CallAnswer>,
}

/// Decides the calls of an agent.
pub trait Decider: Send + Sync + 'static {
    /// Decides a call. It is allowed only if the future is ready with [`CallDecision::Allow`]. Dropping the future ends the wait; a gate
    /// stays open.
    fn decide(&self, call: AgentCall, links: CallLinks) -> impl Future<Output = CallDecision> + Send;

    /// Reports a call that ran in another form than it was decided.
    ///
    /// # Errors
    /// The reason why the report is not recorded.
    fn report_run(&self, call: AgentCall) -> impl Future<Output = Result<(), String>> + Send;
}
