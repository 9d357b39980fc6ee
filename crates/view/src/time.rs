//! Times as session files write them, and durations as users read them.
//!
//! It must not read a clock.

use std::time::Duration;

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

/// Returns a span of time for people, such as `30 min`, `1 h 30 min` or `1.5 s`. From a minute on, parts of a second are left out.
pub fn duration_text(span: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let (mut rest, millis) = (span.as_secs(), span.subsec_millis());
    if rest == 0 {
        return format!("{millis} ms");
    }
    if rest < 60 && millis > 0 {
        return format!("{} s", format!("{rest}.{millis:03}").trim_end_matches('0'));
    }
    let mut parts = Vec::new();
    for (seconds, unit) in UNITS {
        if rest >= seconds {
            parts.push(format!("{} {unit}", rest / seconds));
        }
        rest %= seconds;
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Millis, duration_text, format_iso, parse_iso};

    #[test]
    fn a_span_is_written_in_the_units_of_people() {
        for (millis, want) in [
            (0, "0 ms"),
            (250, "250 ms"),
            (1_000, "1 s"),
            (1_500, "1.5 s"),
            (59_042, "59.042 s"),
            (60_000, "1 min"),
            (61_500, "1 min 1 s"),
            (1_800_000, "30 min"),
            (5_400_000, "1 h 30 min"),
            (86_400_000, "1 d"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(duration_text(Duration::from_millis(millis)), want, "{millis}");
        }
    }

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
