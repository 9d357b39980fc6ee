//! Filter for records.
//!
//! It must not read any.

use countersign_core::{id::SessionId, time::Millis};
use countersign_runtime::store::StoredRecord;

use super::record_context::{RecordOutcome, RecordSubject};
use crate::time::parse_iso;

/// Filter for records; an empty field matches any.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordFilter {
    /// Start of the period.
    pub since: Option<Millis>,
    /// Before this time.
    pub until: Option<Millis>,
    /// The session.
    pub session: Option<SessionId>,
    /// About any of these tools.
    pub tools: Vec<String>,
    /// Kinds, any of which a record must have.
    pub kinds: Vec<String>,
    /// Outcomes, any of which a record must have.
    pub outcomes: Vec<RecordOutcome>,
    /// The id of a call or gate, or the end of it.
    pub about: Option<String>,
}

impl RecordFilter {
    /// Returns true if every record fits.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if the filter matches a record.
    pub fn matches_record(&self, stored: &StoredRecord, about: &RecordSubject) -> bool {
        self.matches_stored(stored)
            && is_any_of(&self.tools, about.tool.as_deref())
            && self.matches_outcome(about)
            && self.about.as_ref().is_none_or(|id| has_id(about, id))
    }

    /// Returns true if the parts of the filter that need no subject match: period, session and kinds.
    pub fn matches_stored(&self, stored: &StoredRecord) -> bool {
        self.since.is_none_or(|since| stored.at >= since)
            && self.until.is_none_or(|until| stored.at < until)
            && self.session.as_ref().is_none_or(|session| stored.session.as_ref() == Some(session))
            && is_any_of(&self.kinds, Some(&stored.kind))
    }

    /// Returns true if the outcome of a record is one of those that the filter names, or it names none.
    pub fn matches_outcome(&self, about: &RecordSubject) -> bool {
        self.outcomes.is_empty() || about.outcome.is_some_and(|outcome| self.outcomes.contains(&outcome))
    }

    /// Returns true if the filter matches or not whatever the records before: only tools and ids depend on those.
    pub fn needs_no_context(&self) -> bool {
        self.tools.is_empty() && self.about.is_none()
    }
}

fn is_any_of(allowed: &[String], found: Option<&str>) -> bool {
    allowed.is_empty() || found.is_some_and(|found| allowed.iter().any(|one| one == found))
}

/// Returns true if `id` is the id of the record's call or gate, or the end of it.
pub fn has_id(about: &RecordSubject, id: &str) -> bool {
    let ends = |found: Option<String>| found.is_some_and(|found| !id.is_empty() && found.ends_with(id));
    ends(about.call.map(|call| call.to_string())) || ends(about.gate.map(|gate| gate.to_string()))
}

/// Reads a time: a day, a minute, a second, with or without an offset, or a duration before `now`.
///
/// # Errors
/// Text that lists the accepted forms.
pub fn time_of(text: &str, now: Millis) -> Result<Millis, String> {
    parse_time(text, now).ok_or_else(|| {
        "expected a time such as 2026-11-21 or 2026-11-21T20:00, or an age such as 90s, 30m, 12h or 7d".to_owned()
    })
}

fn parse_time(text: &str, now: Millis) -> Option<Millis> {
    if let Some((count, unit)) = text.split_at_checked(text.len().checked_sub(1)?)
        && let Some(seconds) = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)]
            .iter()
            .find_map(|(known, seconds)| (*known == unit).then_some(*seconds))
        && let Ok(count) = count.parse::<u64>()
    {
        return Some(Millis(now.0.saturating_sub(count.saturating_mul(seconds * 1000))));
    }
    let text = text.replacen(' ', "T", 1);
    ["", "Z", ":00Z", "T00:00:00Z"].iter().find_map(|rest| parse_iso(&format!("{text}{rest}")))
}

#[cfg(test)]
mod tests {
    use countersign_core::time::Millis;

    use super::parse_time;

    #[test]
    fn a_time_is_a_day_a_moment_or_how_long_ago() {
        let now = Millis(1_800_000_000_000);
        let day = Some(Millis(1_795_219_200_000));
        for (text, want) in [
            ("2026-11-21", day),
            ("2026-11-21T00:00", day),
            ("2026-11-21 00:00", day),
            ("2026-11-21T00:00:00", day),
            ("2026-11-21T00:00:00Z", day),
            ("2026-11-21T02:00:00+02:00", day),
            ("30m", Some(Millis(now.0 - 1_800_000))),
            ("7d", Some(Millis(now.0 - 604_800_000))),
            ("99999999999999999999d", None),
            ("yesterday", None),
            ("d", None),
            ("", None),
            ("2026-13-21", None),
        ] {
            assert_eq!(parse_time(text, now), want, "{text:?}");
        }
    }
}
