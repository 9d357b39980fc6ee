//! Principals that act here by themselves.

use crate::id::PrincipalId;

/// The principal that runs act as.
pub(crate) fn agent_principal() -> PrincipalId {
    PrincipalId::new("agent")
}

/// The principal of whoever embeds the agent, at a stdio door.
pub(crate) fn host_principal() -> PrincipalId {
    PrincipalId::new("host")
}
