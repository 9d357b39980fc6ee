//! Values that several sections have: addresses, methods of HTTP, actions of rules.
//!
//! It must not know any key.

use countersign_core::policy::RuleAction;

use super::at::At;

/// A web address without the slash at its end.
pub(super) fn address(place: &At<'_>) -> Option<String> {
    let text = place.text()?;
    let host = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    if host.is_none_or(|host| host.is_empty() || host.starts_with('/') || !host.chars().all(|c| c.is_ascii_graphic())) {
        place.refused("expected an address that starts with http:// or https://");
        return None;
    }
    Some(text.trim_end_matches('/').to_owned())
}

/// The method of a request; GET if nothing is said.
pub(super) fn method(place: &At<'_>) -> String {
    let Some(method) = place.text() else { return "GET".to_owned() };
    if method.is_empty() || !method.chars().all(|letter| letter.is_ascii_alphabetic()) {
        place.refused("expected the name of an HTTP method");
    }
    method
}

/// One of the three actions, and what agentpass says to any other.
pub(super) fn action(place: &At<'_>, refusal: &str) -> Option<RuleAction> {
    match place.needed_text()?.as_str() {
        "allow" => Some(RuleAction::Allow),
        "deny" => Some(RuleAction::Deny),
        "ask" => Some(RuleAction::Ask),
        other => {
            place.refused(format!("{refusal}: '{other}' (must be allow/deny/ask)"));
            None
        }
    }
}
