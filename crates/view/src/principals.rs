//! The ids under which records and rules know people, by the surface at which they answer.

use countersign_core::id::PrincipalId;

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
