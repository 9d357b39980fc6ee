//! Times as session files write them.
//!
//! It must not read a clock.

use chrono::{DateTime, SecondsFormat, Utc};
use countersign_core::time::Millis;

/// Writes `at` in ISO 8601 with milliseconds, in UTC.
pub fn format_iso(at: Millis) -> String {
    let time = i64::try_from(at.0).ok().and_then(DateTime::<Utc>::from_timestamp_millis).unwrap_or_default();
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Reads ISO 8601. `None` if it is none, or before 1970.
pub fn parse_iso(text: &str) -> Option<Millis> {
    let time = DateTime::parse_from_rfc3339(text).ok()?;
    u64::try_from(time.timestamp_millis()).ok().map(Millis)
}

#[cfg(test)]
mod tests {
    use super::{Millis, format_iso, parse_iso};

    #[test]
    fn times_are_written_as_they_are_read() {
        assert_eq!(format_iso(Millis(1_770_091_506_789)), "2026-02-03T04:05:06.789Z");
        for (text, want) in [
            ("2026-02-03T04:05:06.789Z", Some(1_770_091_506_789)),
            ("2026-02-03T05:05:06+01:00", Some(1_770_091_506_000)),
            ("1960-01-01T00:00:00Z", None),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(parse_iso(text), want.map(Millis), "{text}");
        }
    }
}
