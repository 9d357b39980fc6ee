//! Rules of a protocol about the lines between a client and an agent, without any stream.

use std::time::Instant;

use crate::agent_call::{AgentCall, CallAnswer, CallDecision, GateNotice};

/// Most calls that wait for a decision at a time.
pub(crate) const MOST_CALLS: usize = 256;

/// Number of a call that waits for its decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallToken(pub(crate) u64);

/// Treatment of an agent that can act without asking, and has no mode in which it asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OpenSettings {
    /// Its sessions are refused.
    #[default]
    Refuse,
    /// The operator accepts it.
    Accept,
}

/// Action that an interceptor causes.
#[derive(Clone, Debug, PartialEq)]
pub enum ProxyAction {
    /// Sends a line to the client.
    ToClient(Vec<u8>),
    /// Sends a line to the agent.
    ToAgent(Vec<u8>),
    /// Asks for a decision.
    Decide {
        /// Number of the call.
        token: CallToken,
        /// The call.
        call: AgentCall,
    },
    /// Passes on the answer of the person at the client.
    Answer {
        /// Number of the call.
        token: CallToken,
        /// The answer.
        answer: CallAnswer,
    },
    /// Ends the wait for a decision. A gate stays open.
    Abandon(CallToken),
    /// Reports a call that ran in another form than it was decided.
    Report(AgentCall),
    /// Tells the user something on standard error.
    Notice(String),
    /// Ends the agent, for this reason.
    End(String),
}

/// Actions in their order.
pub type ProxyActions = Vec<ProxyAction>;

/// Rules of a protocol. Each method adds the actions that follow.
pub trait Interceptor: Send + 'static {
    /// Handles a line of the client.
    fn client_line(&mut self, line: Vec<u8>, now: Instant, actions: &mut ProxyActions);

    /// Handles a line of the agent.
    fn agent_line(&mut self, line: Vec<u8>, now: Instant, actions: &mut ProxyActions);

    /// Handles a line of the client that was longer than the limit.
    fn long_client_line(&mut self, actions: &mut ProxyActions);

    /// Handles the gate at which a person decides a call.
    fn gate_opened(&mut self, token: CallToken, gate: GateNotice, now: Instant, actions: &mut ProxyActions);

    /// Handles the decision about a call.
    fn decided(&mut self, token: CallToken, decision: CallDecision, now: Instant, actions: &mut ProxyActions);

    /// Returns the time at which [`Self::time_passed`] is due.
    fn deadline(&self) -> Option<Instant>;

    /// Handles a deadline.
    fn time_passed(&mut self, now: Instant, actions: &mut ProxyActions);

    /// Answers every open request of the client: the agent has ended.
    fn agent_ended(&mut self, reason: &str, actions: &mut ProxyActions);
}
