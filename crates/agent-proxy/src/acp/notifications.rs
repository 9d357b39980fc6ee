//! Notifications of ACP. A receiver may dispatch a line by its method alone, so that a request without an id would run without a decision.

/// Notifications of an agent.
const OF_AGENT: [&str; 3] = ["session/update", "elicitation/complete", "$/cancel_request"];
/// Notifications of a client.
const OF_CLIENT: [&str; 2] = ["session/cancel", "$/cancel_request"];
/// Beginning of the names of extensions.
const EXTENSION: char = '_';

/// Reports whether a message of an agent with this method passes without an id.
pub(super) fn is_agent_notification(method: &str) -> bool {
    OF_AGENT.contains(&method) || method.starts_with(EXTENSION)
}

/// Reports whether a message of a client with this method passes without an id.
pub(super) fn is_client_notification(method: &str) -> bool {
    OF_CLIENT.contains(&method) || method.starts_with(EXTENSION)
}
