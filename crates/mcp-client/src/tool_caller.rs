//! Requester of a tool call.

use countersign_core::id::PrincipalId;

/// Requester of a tool call. The default is an unknown one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCaller {
    /// Name for people; empty if it is not known.
    pub name: String,
    /// Principal that requested it, which answers no question of the server about it; none for a run.
    pub principal: Option<PrincipalId>,
}

impl ToolCaller {
    /// Creates the requester of an agent's call.
    pub fn agent(principal: &PrincipalId) -> Self {
        Self { name: principal.to_string(), principal: Some(principal.clone()) }
    }
}
