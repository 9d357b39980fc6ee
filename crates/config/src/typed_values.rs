//! Values that several sections have: addresses, methods of HTTP, actions of rules, durations.
//!
//! It must not know any key.

use std::{net::IpAddr, time::Duration};

use countersign_core::policy::RuleAction;

use super::config_field::ConfigField;

/// Returns the name or address of a host, as a request may be for it, with any port.
pub(super) fn host_name(place: &ConfigField<'_>) -> Option<String> {
    let name = place.needed_text()?;
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&name);
    let is_name = |name: &str| name.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_'));
    if !is_name(&name) && bare.parse::<IpAddr>().is_err() {
        place.report_refusal("expected a host name or address, without a scheme, port, path or wildcard");
    }
    Some(name)
}

/// Reads a web address without the slash at its end.
pub(super) fn read_address(place: &ConfigField<'_>) -> Option<String> {
    let text = place.text()?;
    let host = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    if host.is_none_or(|host| host.is_empty() || host.starts_with('/') || !host.chars().all(|c| c.is_ascii_graphic())) {
        place.report_refusal("expected an address that starts with http:// or https://");
        return None;
    }
    Some(text.trim_end_matches('/').to_owned())
}

/// Reads the method of a request; GET by default.
pub(super) fn read_method(place: &ConfigField<'_>) -> String {
    let Some(method) = place.text() else { return "GET".to_owned() };
    if method.is_empty() || !method.chars().all(|letter| letter.is_ascii_alphabetic()) {
        place.report_refusal("expected the name of an HTTP method");
    }
    method
}

/// Reads one of the three actions, with agentpass' text for any other.
pub(super) fn read_action(place: &ConfigField<'_>, refusal: &str) -> Option<RuleAction> {
    match place.needed_choice("allow/deny/ask")?.as_str() {
        "allow" => Some(RuleAction::Allow),
        "deny" => Some(RuleAction::Deny),
        "ask" => Some(RuleAction::Ask),
        other => {
            place.report_refusal(format!("{refusal}: '{other}' (must be allow/deny/ask)"));
            None
        }
    }
}

/// Reads a span such as `90s`, `30m`, `8h` or `7d`.
pub(super) fn parse_span(text: &str) -> Option<Duration> {
    let (count, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    let seconds = count.parse::<u64>().ok()?.checked_mul(unit)?;
    (seconds > 0).then(|| Duration::from_secs(seconds))
}
