//! The ids under which records and rules know people, by the surface at which they answer.

use countersign_core::id::{PrincipalId, SessionId};

/// Returns the id of a Telegram user.
pub fn of_telegram(user: i64) -> PrincipalId {
    PrincipalId::new(format!("telegram:{user}"))
}

/// Returns the id of a user of this machine.
pub fn of_machine(user: u32) -> PrincipalId {
    PrincipalId::new(format!("local:{user}"))
}

/// Returns the id of a user of the console.
pub fn of_console(login: &str) -> PrincipalId {
    PrincipalId::new(format!("console:{login}"))
}

/// Returns the id of an agent that speaks agent-gate.
pub fn of_agent(agent: &str) -> PrincipalId {
    PrincipalId::new(format!("agent:{agent}"))
}

/// Prefix of the ids of local MCP hosts, and of the sessions in which principals call tools over MCP.
pub const MCP_PREFIX: &str = "mcp:";

/// Returns the id of the MCP hosts of a user of this machine. It is not the user's: nobody approves requests of their own.
pub fn of_mcp_host(user: u32) -> PrincipalId {
    PrincipalId::new(format!("{MCP_PREFIX}{}", of_machine(user)))
}

/// Prefix of the ids of MCP servers of the gateway, and of the sessions in which they ask people.
const MCP_SERVER_PREFIX: &str = "mcp-server:";

/// Returns the id of an MCP server that asks people something.
pub fn of_mcp_server(server: &str) -> PrincipalId {
    PrincipalId::new(format!("{MCP_SERVER_PREFIX}{server}"))
}

/// Returns true for a session in which an MCP server asks people.
pub fn is_mcp_server(session: &SessionId) -> bool {
    session.as_str().starts_with(MCP_SERVER_PREFIX)
}

/// Returns the id of the session in which a principal calls tools over MCP.
pub fn mcp_session(principal: &PrincipalId) -> SessionId {
    if principal.as_str().starts_with(MCP_PREFIX) {
        return SessionId::new(principal.as_str());
    }
    SessionId::new(format!("{MCP_PREFIX}{principal}"))
}
