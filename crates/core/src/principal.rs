//! Built-in principals.

use crate::id::PrincipalId;

/// Returns the principal that runs act as.
pub(crate) fn agent_principal() -> PrincipalId {
    PrincipalId::new("agent")
}

/// Returns the principal of the program that embeds the agent, at a stdio adapter.
pub(crate) fn host_principal() -> PrincipalId {
    PrincipalId::new("host")
}
