//! How long a provider asks to wait, from headers and words.
//!
//! It must not know whether anybody waits.

use std::time::{Duration, SystemTime};

use chrono::DateTime;

/// Nobody waits longer than a day; a hint above it is a mistake.
const LONGEST: f64 = 86_400.0;

/// Reads `retry-after-ms`, `retry-after` (seconds or a date), `x-ratelimit-reset-ms` and `x-ratelimit-reset` (seconds
/// from now, or a Unix time), in this order.
pub(crate) fn in_headers<'a>(header: impl Fn(&str) -> Option<&'a str>, now: SystemTime) -> Option<Duration> {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let millis = |name| header(name).and_then(number).map(|millis| millis / 1000.0);
    let from_now = |seconds: f64| if seconds > 1_000_000_000.0 { seconds - since } else { seconds };
    let date = |value: &str| DateTime::parse_from_rfc2822(value).ok().map(|date| date.timestamp() as f64 - since);
    millis("retry-after-ms")
        .or_else(|| header("retry-after").and_then(|value| number(value).or_else(|| date(value.trim()))))
        .or_else(|| millis("x-ratelimit-reset-ms").map(from_now))
        .or_else(|| header("x-ratelimit-reset").and_then(number).map(from_now))
        .and_then(wait)
}

/// Reads the hints that providers put into words, such as "try again in 1m2.5s", "retry after 20 seconds" and
/// "retry-after-ms: 1500".
pub(crate) fn in_text(text: &str) -> Option<Duration> {
    let text = text.to_lowercase();
    for (words, unit) in [
        ("retry-after-ms", 0.001),
        ("x-ratelimit-reset-ms", 0.001),
        ("retry-after", 1.0),
        ("retry after", 1.0),
        ("retry in", 1.0),
        ("try again in", 1.0),
        ("retrydelay", 1.0),
        ("x-ratelimit-reset", 1.0),
    ] {
        let Some((_, rest)) = text.split_once(words) else { continue };
        let rest = rest.trim_start_matches([' ', ':', '=', '"', '\'']);
        if let Some(seconds) = amount(rest, unit) {
            return wait(seconds);
        }
    }
    None
}

/// Seconds in decimal.
pub(crate) fn seconds(text: &str) -> Option<Duration> {
    number(text).and_then(wait)
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse::<f64>().ok().filter(|number| number.is_finite())
}

fn wait(seconds: f64) -> Option<Duration> {
    (seconds <= LONGEST).then(|| Duration::from_secs_f64(seconds.max(0.0)))
}

/// Adds up amounts such as `1h2m3.5s`, `250ms` and `20 seconds`. A bare number is in `unit`.
fn amount(mut text: &str, unit: f64) -> Option<f64> {
    let mut sum = None;
    loop {
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let Some(count) = number(text[..digits].trim_end_matches('.')) else { return sum };
        let rest = text[digits..].trim_start();
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let scale = match &rest[..letters] {
            "ms" | "milliseconds" => 0.001,
            "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hour" | "hours" => 3600.0,
            _ => return sum.or(Some(count * unit)),
        };
        sum = Some(sum.unwrap_or(0.0) + count * scale);
        text = rest[letters..].trim_start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("longer than a day", vec![("retry-after", "1e9")], None),
            ("nothing", vec![], None),
        ] {
            let header = |name: &str| headers.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
            assert_eq!(in_headers(header, now), want.map(Duration::from_millis), "{case}");
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
            ("retry in a while", None),
            ("nothing", None),
        ] {
            assert_eq!(in_text(text), want.map(Duration::from_millis), "{text}");
        }
    }
}
