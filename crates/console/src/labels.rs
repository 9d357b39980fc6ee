//! Labels of the console: escaped text, times, users, actions of rules, outcomes.

use countersign_core::{
    call::CallEnd,
    gate::{ApprovalScope, GateResolution, IdentityMap},
    id::PrincipalId,
    policy::RuleAction,
    time::Millis,
};
use countersign_view::{LineMode, escape, escape_rest, time::format_iso};
use maud::{Markup, html};

/// Escapes text of one line.
pub(super) fn escape_line(text: &str) -> Markup {
    mark_escapes(&escape(text, LineMode::One))
}

/// Escapes text of many lines.
pub(super) fn escape_lines(text: &str) -> Markup {
    mark_escapes(&escape(text, LineMode::Many))
}

/// Escapes text of many lines in which hidden characters were written out before.
pub(super) fn escape_rest_lines(text: &str) -> Markup {
    mark_escapes(&escape_rest(text, LineMode::Many))
}

/// Marks hidden characters that were written out.
pub(super) fn mark_escapes(shown: &str) -> Markup {
    let mut rest = shown;
    let mut parts: Vec<(&str, &str)> = Vec::new();
    while let Some(at) = rest.find("\\u{") {
        let (before, form) = rest.split_at(at);
        let Some(end) = form.find('}') else { break };
        parts.push((before, &form[..=end]));
        rest = &form[end + 1..];
    }
    html! { @for (before, form) in parts { (before) mark title="Invisible character" { (form) } } (rest) }
}

/// Returns text for an attribute or a place that takes no tags.
pub(super) fn plain_text(text: &str) -> String {
    escape(text, LineMode::One).into_owned()
}

/// Renders a time. The script shows it in the reader's own time zone.
pub(super) fn time_element(at: Millis) -> Markup {
    let iso = format_iso(at);
    let shown = iso.get(..19).unwrap_or(&iso).replace('T', " ");
    html! { time datetime=(iso) { (shown) " UTC" } }
}

/// Renders the time since a moment, which the script updates.
pub(super) fn time_ago(at: Millis, now: Millis) -> Markup {
    html! { time.ago datetime=(format_iso(at)) data-since=(at.0) { (duration_text(now.0.saturating_sub(at.0))) " ago" } }
}

/// Renders the time left, which the script updates.
pub(super) fn time_left(until: Millis, now: Millis) -> Markup {
    html! { time.left datetime=(format_iso(until)) data-until=(until.0) { (duration_text(until.0.saturating_sub(now.0))) " left" } }
}

/// Returns a duration in one or two units.
pub(super) fn duration_text(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// Returns the name of an approver.
pub(super) fn principal_name(people: &IdentityMap, id: &PrincipalId) -> String {
    if let Some(person) = people.person_of(id) {
        return plain_text(person);
    }
    let text = id.as_str();
    match text.split_once(':') {
        Some(("console", login)) => plain_text(login),
        Some(("telegram", user)) => format!("Telegram user {}", plain_text(user)),
        Some(("local", user)) => format!("the command line (user {})", plain_text(user)),
        Some(("token", name)) => format!("the token {}", plain_text(name)),
        Some(("web", "open")) => "a local user".to_owned(),
        Some(("agent", name)) => plain_text(name),
        _ if text == "web" => "a console user".to_owned(),
        _ if text == "agent" => "runs of the gateway".to_owned(),
        _ => plain_text(text),
    }
}

/// Returns the text with a capital at its beginning.
pub(super) fn capitalise(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map(|first| first.to_uppercase().chain(rest).collect()).unwrap_or_default()
}

/// Returns the text for the resolution of a gate.
pub(super) const fn resolution_text(resolution: &GateResolution) -> &'static str {
    match resolution {
        GateResolution::Allowed { scope: ApprovalScope::Once } => "Allowed once",
        GateResolution::Allowed { scope: ApprovalScope::Session } => "Allowed for the session",
        GateResolution::Allowed { scope: ApprovalScope::Always } => "Allowed always",
        GateResolution::Denied => "Denied",
        GateResolution::Answered => "Answered",
        GateResolution::Declined => "Declined",
        GateResolution::Granted => "Allowed by a standing approval",
        GateResolution::Expired => "Expired without an answer",
        GateResolution::Withdrawn => "No longer needed",
    }
}

/// Returns the class and the word for the action of a rule.
pub(super) const fn action_badge(action: RuleAction) -> (&'static str, &'static str) {
    match action {
        RuleAction::Allow => ("good", "allow"),
        RuleAction::Deny => ("bad", "deny"),
        RuleAction::Ask => ("ask", "ask"),
    }
}

/// Returns the class and the word for a verdict.
pub(super) const fn verdict_badge(verdict: RuleAction) -> (&'static str, &'static str) {
    match verdict {
        RuleAction::Allow => ("good", "allowed"),
        RuleAction::Deny => ("bad", "denied"),
        RuleAction::Ask => ("ask", "needs approval"),
    }
}

/// Colour of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    Good,
    Bad,
    Still,
}

impl Severity {
    pub(super) const fn css_class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Bad => "bad",
            Self::Still => "still",
        }
    }

    pub(super) const fn for_resolution(resolution: &GateResolution) -> Self {
        match resolution {
            GateResolution::Allowed { .. } | GateResolution::Granted | GateResolution::Answered => Self::Good,
            GateResolution::Denied | GateResolution::Expired => Self::Bad,
            GateResolution::Declined | GateResolution::Withdrawn => Self::Still,
        }
    }

    pub(super) const fn for_end(end: CallEnd) -> Self {
        match end {
            CallEnd::Done { error: false } => Self::Good,
            CallEnd::Done { error: true }
            | CallEnd::Failed
            | CallEnd::Denied
            | CallEnd::Refused
            | CallEnd::Expired
            | CallEnd::Limited
            | CallEnd::Unknown => Self::Bad,
            CallEnd::Skipped | CallEnd::Cancelled => Self::Still,
        }
    }
}

/// Returns a path of this site with `part` as one segment.
pub(super) fn url_path(before: &str, part: &str) -> String {
    /// Characters that need no escape in a segment.
    const PLAIN: &percent_encoding::AsciiSet =
        &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    format!("{before}{}", percent_encoding::utf8_percent_encode(part, PLAIN))
}

/// Returns a number with the noun that it counts.
pub(super) fn count_text(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Returns a number of entries of the record.
pub(super) fn entry_count_text(count: u64) -> String {
    if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") }
}

#[cfg(test)]
mod tests {
    use countersign_core::{gate::IdentityMap, id::PrincipalId};

    use super::{duration_text, escape_lines, principal_name, url_path};

    #[test]
    fn what_cannot_be_seen_is_set_off_and_html_is_text() {
        let shown = escape_lines("a\u{202e}b <b>\\u{41}").into_string();
        let mark = |form: &str| format!("<mark title=\"Invisible character\">{form}</mark>");
        assert_eq!(shown, format!("a{}b &lt;b&gt;{}u{{41}}", mark("\\u{202e}"), mark("\\u{5c}")));
    }

    #[test]
    fn times_have_at_most_two_units() {
        for (milliseconds, want) in [(999, "0 s"), (61_000, "1 min"), (3_660_000, "1 h 1 min"), (90_000_000, "1 d 1 h")]
        {
            assert_eq!(duration_text(milliseconds), want);
        }
    }

    #[test]
    fn people_are_called_by_their_names() {
        let ana = PrincipalId::new("console:ana");
        let people = IdentityMap::new([("Ana".to_owned(), vec![ana.clone()])]);
        assert_eq!(principal_name(&people, &ana), "Ana");
        assert_eq!(principal_name(&IdentityMap::default(), &ana), "ana");
        assert_eq!(principal_name(&IdentityMap::default(), &PrincipalId::new("telegram:7")), "Telegram user 7");
        assert_eq!(principal_name(&IdentityMap::default(), &PrincipalId::new("agent")), "runs of the gateway");
    }

    #[test]
    fn an_id_is_one_segment_of_a_path() {
        assert_eq!(url_path("/console/sessions/", "agent:a/../b"), "/console/sessions/agent%3Aa%2F..%2Fb");
    }
}
