//! Wait that a provider asks for, from headers and words.
//!
//! It must not know whether a caller waits.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, FixedOffset, NaiveDateTime, NaiveTime};
use chrono_tz::Tz;
use serde_json::Value;

/// The longest wait, a year. A hint above it is read as this one: no attempt before it can succeed either.
const LONGEST: f64 = 366.0 * 86_400.0;
/// Numbers of seconds above this are instants since 1970.
const INSTANT: f64 = 1_000_000_000.0;

/// Reads `retry-after-ms`, `retry-after` (seconds or a date), `x-ratelimit-reset-ms` and `x-ratelimit-reset` (a span, or
/// an instant), in this order.
pub(crate) fn in_headers<'a>(header: impl Fn(&str) -> Option<&'a str>, now: SystemTime) -> Option<Duration> {
    [("retry-after-ms", MILLIS), ("retry-after", 1.0), ("x-ratelimit-reset-ms", MILLIS), ("x-ratelimit-reset", 1.0)]
        .into_iter()
        .find_map(|(name, unit)| header(name).and_then(|value| span_in_text(value, unit, now)).and_then(round_wait))
        .or_else(|| of_limits(header, now))
}

/// Reads when the limits are reset of which nothing is left. They come with every answer, so one of which something is
/// left is not the one that was met. The longest wait counts.
fn of_limits<'a>(header: impl Fn(&str) -> Option<&'a str>, now: SystemTime) -> Option<Duration> {
    const RESETS: [&str; 9] = [
        "anthropic-ratelimit-unified-reset",
        "anthropic-ratelimit-requests-reset",
        "anthropic-ratelimit-tokens-reset",
        "anthropic-ratelimit-input-tokens-reset",
        "anthropic-ratelimit-output-tokens-reset",
        "x-ratelimit-reset-requests",
        "x-ratelimit-reset-tokens",
        "ratelimit-reset",
        "x-rate-limit-reset",
    ];
    let is_met = |name: &str| {
        let left = header(&name.replace("reset", "remaining")).and_then(parse_number).is_none_or(|left| left <= 0.0);
        left && header(&name.replace("reset", "status")).is_none_or(|status| !status.starts_with("allowed"))
    };
    let resets = RESETS.into_iter().filter(|name| is_met(name)).filter_map(&header);
    resets.filter_map(|value| span_in_text(value, 1.0, now).and_then(round_wait)).max()
}

/// Reads the members of an error's body whose names speak of a reset or of the next attempt, such as
/// `resets_in_seconds`, `resets_at`, `retry_after_ms` and `quotaResetDelay`, at any depth. The longest wait counts: an
/// earlier attempt would run into the other limit.
pub(crate) fn in_body(body: &Value, now: SystemTime) -> Option<Duration> {
    match body {
        Value::Object(members) => {
            let waits = members.iter().filter_map(|(name, value)| match (unit_of(name), value) {
                (Some(unit), Value::Number(number)) => round_wait(from_now(number.as_f64()?, unit, now)),
                (Some(unit), Value::String(text)) => span_in_text(text, unit, now).and_then(round_wait),
                _ => in_body(value, now),
            });
            waits.max()
        }
        Value::Array(items) => items.iter().filter_map(|item| in_body(item, now)).max(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Returns the unit, in seconds, of a bare number in a member of this name; none if the name means no wait.
fn unit_of(name: &str) -> Option<f64> {
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    let is_hint = ["reset", "retryafter", "retrydelay", "retryin", "retryat"].iter().any(|word| name.contains(word));
    let scales = [("ms", MILLIS), ("millis", MILLIS), ("milliseconds", MILLIS), ("minutes", 60.0), ("hours", 3600.0)];
    let scale = scales.iter().find(|(end, _)| name.ends_with(end)).map_or(1.0, |(_, scale)| *scale);
    is_hint.then_some(scale)
}

const MILLIS: f64 = 0.001;

/// Seconds until what a number in `unit` means: a span, or an instant in seconds or milliseconds since 1970. Not a number
/// for one below 0, which means nothing.
fn from_now(number: f64, unit: f64, now: SystemTime) -> f64 {
    if number < 0.0 {
        return f64::NAN;
    }
    let seconds = number * unit;
    let instant = if seconds > INSTANT * 1000.0 { seconds * MILLIS } else { seconds };
    if instant > INSTANT { instant - since_1970(now) } else { seconds }
}

/// Seconds until what a text means: a date, a number in `unit`, or amounts such as `6m0s`.
fn span_in_text(text: &str, unit: f64, now: SystemTime) -> Option<f64> {
    let text = text.trim();
    let date = DateTime::parse_from_rfc2822(text).or_else(|_| DateTime::parse_from_rfc3339(text));
    date.ok()
        .map(|date| date.timestamp_millis() as f64 * MILLIS - since_1970(now))
        .or_else(|| parse_number(text).map(|number| from_now(number, unit, now)))
        .or_else(|| sum_amounts(&text.to_lowercase(), unit))
}

fn since_1970(now: SystemTime) -> f64 {
    now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Reads the hints that providers put into words, such as "try again in 1m2.5s", "retry after 20 seconds" and
/// "retry-after-ms: 1500".
pub(crate) fn in_text(text: &str) -> Option<Duration> {
    let text = text.to_lowercase();
    for (words, unit) in [
        ("retry-after-ms", MILLIS),
        ("x-ratelimit-reset-ms", MILLIS),
        ("retry-after", 1.0),
        ("retry after", 1.0),
        ("retry in", 1.0),
        ("try again in", 1.0),
        ("reset after", 1.0),
        ("reset in", 1.0),
        ("resets in", 1.0),
        ("please wait", 1.0),
        ("retrydelay", 1.0),
        ("x-ratelimit-reset", 1.0),
    ] {
        let Some((_, rest)) = text.split_once(words) else { continue };
        let rest = rest.trim_start_matches([' ', ':', '=', '"', '\'']);
        if let Some(seconds) = sum_amounts(rest, unit) {
            return round_wait(seconds);
        }
    }
    None
}

/// Reads the moment that a provider puts into words, such as "will reset at 2026-11-27T18:18:38Z" and "resets 3pm
/// (Europe/Berlin)".
///
/// A time without a zone is of no certain moment: providers write it in their own zone, which nothing tells.
pub(crate) fn moment_in_text(text: &str, now: SystemTime) -> Option<Duration> {
    let lower = text.to_ascii_lowercase();
    for words in ["reset at ", "resets at ", "reset on ", "resets on ", "resets ", "try again at ", "retry at "] {
        let Some(at) = lower.find(words) else { continue };
        let rest = text[at + words.len()..].trim_start_matches([' ', ':', '"', '\'']);
        if let Some(seconds) = seconds_until_moment(rest, now) {
            return round_wait(seconds);
        }
    }
    None
}

/// Seconds until the moment that a text begins with.
fn seconds_until_moment(text: &str, now: SystemTime) -> Option<f64> {
    let until = |date: DateTime<FixedOffset>| date.timestamp_millis() as f64 * MILLIS - since_1970(now);
    let mut words = text.split_whitespace();
    let first = words.next()?.trim_end_matches(['.', ',', ';', ')', '"', '\'']);
    if let Ok(date) = DateTime::parse_from_rfc3339(first) {
        return Some(until(date));
    }
    if let Some(number) = parse_number(first).filter(|number| *number > INSTANT) {
        return Some(from_now(number, 1.0, now));
    }
    let zone = |word: &str| word.trim_matches(['(', ')', '.', ',', ';', '"', '\'']).to_owned();
    if let Some(time) = time_of_day(first) {
        let zone: Tz = zone(words.next()?).parse().ok()?;
        return next_time(time, zone, now);
    }
    let (second, third) = (words.next()?, zone(words.next()?));
    let local = NaiveDateTime::parse_from_str(&format!("{first} {second}"), "%Y-%m-%d %H:%M:%S").ok()?;
    match third.as_str() {
        "Z" => Some(until(local.and_utc().fixed_offset())),
        offset if offset.starts_with(['+', '-']) => {
            let date = DateTime::parse_from_str(&format!("{first} {second} {offset}"), "%Y-%m-%d %H:%M:%S %z");
            date.ok().map(until)
        }
        name => Some(until(local.and_local_timezone(name.parse::<Tz>().ok()?).earliest()?.fixed_offset())),
    }
}

/// Reads a time such as `3pm`, `3:30pm` and `15:30`.
fn time_of_day(word: &str) -> Option<NaiveTime> {
    let word = word.to_ascii_lowercase();
    let half = word.strip_suffix("am").map(|time| (time, 0)).or_else(|| word.strip_suffix("pm").map(|time| (time, 12)));
    // A bare number is an amount of something.
    let (time, minutes) = match half {
        Some((time, _)) => time.split_once(':').unwrap_or((time, "0")),
        None => word.split_once(':')?,
    };
    let hour: u32 = time.parse().ok()?;
    let hour = match half {
        Some((_, after)) if (1..=12).contains(&hour) => hour % 12 + after,
        Some(_) => return None,
        None => hour,
    };
    NaiveTime::from_hms_opt(hour, minutes.parse().ok()?, 0)
}

/// Seconds until it is that time in `zone` next.
fn next_time(time: NaiveTime, zone: Tz, now: SystemTime) -> Option<f64> {
    let seconds = i64::try_from(now.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs()).ok()?;
    let here = DateTime::from_timestamp(seconds, 0)?.with_timezone(&zone);
    let days = [here.date_naive(), here.date_naive().succ_opt()?];
    let moments = days.into_iter().filter_map(|day| day.and_time(time).and_local_timezone(zone).earliest());
    moments.map(|moment| moment.timestamp() as f64 - since_1970(now)).find(|wait| *wait > 0.0)
}

/// Reads a number in digits, one that is too large for its type too, which is infinite then.
fn parse_number(text: &str) -> Option<f64> {
    let text = text.trim();
    let is_digits = text.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-'));
    text.parse::<f64>().ok().filter(|_| is_digits)
}

/// Returns a wait in whole milliseconds. A moment in the past is none at all.
fn round_wait(seconds: f64) -> Option<Duration> {
    let millis = (seconds.clamp(0.0, LONGEST) / MILLIS).round();
    (!seconds.is_nan()).then(|| Duration::from_secs_f64(millis / 1000.0))
}

/// Adds up amounts such as `1h2m3.5s`, `250ms` and `20 seconds`. A bare number is in `unit`.
fn sum_amounts(mut text: &str, unit: f64) -> Option<f64> {
    let mut sum = None;
    loop {
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let Some(count) = parse_number(text[..digits].trim_end_matches('.')) else { return sum };
        let rest = text[digits..].trim_start();
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let scale = match &rest[..letters] {
            "ms" | "milliseconds" => 0.001,
            "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hour" | "hours" => 3600.0,
            "d" | "day" | "days" => 86_400.0,
            _ => return sum.or(Some(count * unit)),
        };
        sum = Some(sum.unwrap_or(0.0) + count * scale);
        text = rest[letters..].trim_start_matches([' ', ',']);
        text = text.strip_prefix("and ").unwrap_or(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The longest wait in milliseconds.
    const YEAR: Option<u64> = Some(366 * 86_400_000);

    #[test]
    fn headers_say_how_long_to_wait() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        for (case, headers, want) in [
            ("seconds", vec![("retry-after", "7")], Some(7_000)),
            ("milliseconds win", vec![("retry-after", "7"), ("retry-after-ms", "1500")], Some(1_500)),
            ("date", vec![("retry-after", "Fri, 15 Jan 2027 08:00:30 GMT")], Some(30_000)),
            ("past date", vec![("retry-after", "Fri, 15 Jan 2027 07:00:00 GMT")], Some(0)),
            ("reset at", vec![("x-ratelimit-reset", "1800000012")], Some(12_000)),
            ("reset at in milliseconds", vec![("x-ratelimit-reset-ms", "1800000012500")], Some(12_500)),
            ("reset in", vec![("x-ratelimit-reset", "12")], Some(12_000)),
            ("nonsense", vec![("retry-after", "soon")], None),
            ("not a number", vec![("retry-after", "NaN")], None),
            ("a day", vec![("retry-after", "86400")], Some(86_400_000)),
            ("a week", vec![("retry-after", "604800")], Some(604_800_000)),
            ("reset in amounts", vec![("x-ratelimit-reset", "6m0s")], Some(360_000)),
            ("reset at a date", vec![("x-ratelimit-reset", "2027-01-15T08:00:12.5Z")], Some(12_500)),
            ("longer than a month", vec![("retry-after", "3024000")], Some(3_024_000_000)),
            ("longer than a year", vec![("retry-after", "9e8")], YEAR),
            ("no number is too large", vec![("retry-after", "99999999999999999999")], YEAR),
            ("nor one that no type holds", vec![("retry-after", "9e999")], YEAR),
            ("nor one in milliseconds", vec![("retry-after-ms", "99999999999999999999")], YEAR),
            ("nor an instant", vec![("x-ratelimit-reset", "99999999999999999999")], YEAR),
            ("nor an amount", vec![("x-ratelimit-reset-requests", "99999999999999999999h")], YEAR),
            ("nor that of another limit", vec![("ratelimit-reset", "99999999999999999999")], YEAR),
            ("less than nothing", vec![("retry-after", "-7")], None),
            ("less than nothing, and another", vec![("retry-after-ms", "-7"), ("retry-after", "7")], Some(7_000)),
            ("endless in words", vec![("retry-after", "infinity")], None),
            ("nothing", vec![], None),
            ("anthropic's subscription", vec![("anthropic-ratelimit-unified-reset", "1800000012")], Some(12_000)),
            (
                "anthropic's subscription, of which something is left",
                vec![
                    ("anthropic-ratelimit-unified-reset", "1800000012"),
                    ("anthropic-ratelimit-unified-status", "allowed"),
                ],
                None,
            ),
            (
                "anthropic's requests",
                vec![("anthropic-ratelimit-requests-reset", "2027-01-15T08:00:12Z")],
                Some(12_000),
            ),
            ("anthropic's tokens", vec![("anthropic-ratelimit-tokens-reset", "2027-01-15T08:00:12Z")], Some(12_000)),
            ("openai's requests", vec![("x-ratelimit-reset-requests", "1h0m0s")], Some(3_600_000)),
            (
                "the limit of which nothing is left",
                vec![
                    ("x-ratelimit-reset-requests", "12s"),
                    ("x-ratelimit-remaining-requests", "0"),
                    ("x-ratelimit-reset-tokens", "6m0s"),
                    ("x-ratelimit-remaining-tokens", "149984"),
                ],
                Some(12_000),
            ),
            (
                "the longest",
                vec![("x-ratelimit-reset-requests", "1s"), ("x-ratelimit-reset-tokens", "6m0s")],
                Some(360_000),
            ),
            ("the standard's", vec![("ratelimit-reset", "50")], Some(50_000)),
            ("what is asked for counts first", vec![("retry-after", "7"), ("ratelimit-reset", "50")], Some(7_000)),
        ] {
            let header = |name: &str| headers.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
            assert_eq!(in_headers(header, now), want.map(Duration::from_millis), "{case}");
        }
    }

    #[test]
    fn members_of_a_body_say_how_long_to_wait() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        for (body, want) in [
            (r#"{"error":{"type":"usage_limit_reached","resets_in_seconds":5400}}"#, Some(5_400_000)),
            (r#"{"error":{"resets_at":1800003600}}"#, Some(3_600_000)),
            (r#"{"error":{"reset_at":"2027-01-15T09:30:00Z"}}"#, Some(5_400_000)),
            (r#"{"error":{"retry_after_ms":1500}}"#, Some(1_500)),
            (r#"{"retry_after":"2.5"}"#, Some(2_500)),
            (r#"{"error":{"retryAfterMinutes":3}}"#, Some(180_000)),
            (
                r#"{"error":{"details":[{"metadata":{"quotaResetDelay":"1h2m3.5s"}},{"retryDelay":"3.5s"}]}}"#,
                Some(3_723_500),
            ),
            (r#"{"error":{"metadata":{"headers":{"X-RateLimit-Reset":"1800000012000"}}}}"#, Some(12_000)),
            (r#"{"error":{"resets_at":1700000000}}"#, Some(0)),
            (r#"{"error":{"message":"slow down","retries":3,"retryable":true,"code":429}}"#, None),
            (r#"{"error":{"resets_at":null,"reset":{"after":true}}}"#, None),
            (r#"{"error":{"resets_in_seconds":9e8}}"#, YEAR),
            (r#"{"error":{"retry_after":99999999999999999999}}"#, YEAR),
            (r#"{"error":{"retry_after":"99999999999999999999"}}"#, YEAR),
            (r#"{"error":{"retryDelay":"99999999999999999999s"}}"#, YEAR),
            (r#"{"error":{"retry_after":-7,"resets_in_seconds":"-7"}}"#, None),
        ] {
            let read = serde_json::from_str(body).unwrap();
            assert_eq!(in_body(&read, now), want.map(Duration::from_millis), "{body}");
        }
    }

    #[test]
    fn words_say_until_when_to_wait() {
        // Friday, 8:00 in UTC and 9:00 in Berlin.
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        for (text, want) in [
            ("Your limit will reset at 2027-01-15T08:18:38Z", Some(1_118)),
            ("Your limit will reset at 2027-01-15T09:18:38+01:00.", Some(1_118)),
            ("Your limit will reset at 2027-01-15 08:18:38 UTC.", Some(1_118)),
            ("Your limit will reset at 2027-01-15 16:18:38 +0800", Some(1_118)),
            ("Your limit will reset at 2027-01-15 16:18:38 (Asia/Shanghai)", Some(1_118)),
            // The zone of that time is unknown.
            ("Usage limit reached for 5 hour. Your limit will reset at 2027-01-15 18:18:38", None),
            ("resets 3pm (Europe/Berlin)", Some(6 * 3600)),
            ("limit reached, resets 9:30am (Europe/Berlin).", Some(1_800)),
            ("resets 8am (Europe/Berlin)", Some(23 * 3600)),
            ("resets 12am (Europe/Berlin)", Some(15 * 3600)),
            ("resets 3pm", None),
            ("resets 15:00 (Nowhere/Else)", None),
            ("resets at 1800000012", Some(12)),
            ("resets at 99999999999999999999", YEAR.map(|millis| millis / 1000)),
            ("will reset at 9999-12-31T23:59:59Z", YEAR.map(|millis| millis / 1000)),
            ("resets in 5 minutes", None),
            ("resets now", None),
            ("nothing", None),
        ] {
            assert_eq!(moment_in_text(text, now), want.map(Duration::from_secs), "{text}");
        }
    }

    #[test]
    fn words_say_how_long_to_wait() {
        for (text, want) in [
            ("Please try again in 1.5s. Visit", Some(1_500)),
            ("try again in 1m2s", Some(62_000)),
            ("try again in 250ms", Some(250)),
            ("retry after 20 seconds", Some(20_000)),
            ("retry-after-ms=1500", Some(1_500)),
            ("Retry-After: 4", Some(4_000)),
            ("Please retry in 7.", Some(7_000)),
            ("Try again in 2 days, 3 hours and 5 minutes.", Some(183_900_000)),
            ("Your quota will reset after 1h2m3s.", Some(3_723_000)),
            ("please wait 20 seconds", Some(20_000)),
            ("retry in a while", None),
            ("try again in 99999999999999999999 seconds", YEAR),
            ("try again in -7 seconds", None),
            ("nothing", None),
        ] {
            assert_eq!(in_text(text), want.map(Duration::from_millis), "{text}");
        }
    }
}
