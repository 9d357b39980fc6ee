//! Parses times in everyday words: `in 2 hours`, `tomorrow 9am`, `next monday at 14:30`, `2026-03-29 02:30`.
//!
//! An ambiguous text is refused with the missing part; nothing is guessed.

use std::time::Duration;

use chrono::{DateTime, Datelike as _, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Weekday};

use super::Zone;
use crate::time::Millis;

/// Reason for which a time cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimePhraseError {
    /// A word without a meaning for times.
    #[error("{0:?} is no time: say such as \"in 2 hours\", \"tomorrow 9am\" or \"2026-03-29 14:30\"")]
    Unreadable(String),
    /// A day alone.
    #[error("{0:?} has no time of day: say such as \"tomorrow 9am\"")]
    NoTime(String),
    /// A day or a time of day is given twice.
    #[error("{0:?} says a day or a time twice")]
    Twice(String),
    /// The time is over.
    #[error("{0:?} is past")]
    Past(String),
    /// The time is further away than the calendar reaches.
    #[error("{0:?} is too far away")]
    TooFar(String),
    /// A span has no unit, or an unknown one.
    #[error("{0:?} is no span of time: say such as \"30m\", \"1h 30m\" or \"2 days\"")]
    Span(String),
}

/// The farthest that a span reaches: a hundred years.
const LONGEST_SPAN: u64 = 100 * 366 * 86_400;

/// Parses the instant that `text` means in `zone` at `now`.
///
/// A local time that the clock skips is the end of the gap; of one that comes twice the first counts.
///
/// # Errors
/// The error, or the missing part.
pub fn parse_instant(text: &str, now: Millis, zone: Zone) -> Result<Millis, TimePhraseError> {
    let phrase = || text.trim().to_owned();
    let lower = text.trim().to_ascii_lowercase();
    if lower == "now" {
        return Ok(now);
    }
    let from_now = lower.strip_prefix("in ").or_else(|| lower.strip_suffix(" from now"));
    if let Some(rest) = from_now {
        return Ok(now + parse_span(rest)?);
    }
    let at = match DateTime::parse_from_rfc3339(text.trim()) {
        Ok(at) => u64::try_from(at.timestamp_millis()).map(Millis).map_err(|_| TimePhraseError::Past(phrase()))?,
        Err(_) => {
            let local = zone.local_time(now).ok_or_else(|| TimePhraseError::TooFar(phrase()))?;
            let meant = TimePhrase::parse_phrase(&lower, text)?.resolve_local(
                local,
                text,
                |local| zone.to_instant(local),
                now,
            )?;
            zone.to_instant(meant).ok_or_else(|| TimePhraseError::Past(phrase()))?
        }
    };
    if at <= now { Err(TimePhraseError::Past(phrase())) } else { Ok(at) }
}

/// Parses a span of time: `30m`, `1h30m`, `2 hours`, `an hour`, `1 day and 12 hours`. At most a hundred years.
///
/// # Errors
/// [`TimePhraseError::Span`], and [`TimePhraseError::TooFar`] beyond a hundred years.
pub fn parse_span(text: &str) -> Result<Duration, TimePhraseError> {
    let wrong = || TimePhraseError::Span(text.trim().to_owned());
    let lower = text.to_ascii_lowercase();
    let mut rest = lower.trim();
    let mut seconds = 0_u64;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (count, behind) = match rest.split_at(digits) {
            ("", word) => (1, word.strip_prefix("an ").or_else(|| word.strip_prefix("a ")).ok_or_else(wrong)?),
            (digits, behind) => (digits.parse::<u64>().map_err(|_| wrong())?, behind),
        };
        let behind = behind.trim_start();
        let letters = behind.len() - behind.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let (unit, behind) = behind.split_at(letters);
        let unit: u64 = match unit {
            "s" | "sec" | "secs" | "second" | "seconds" => 1,
            "m" | "min" | "mins" | "minute" | "minutes" => 60,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3600,
            "d" | "day" | "days" => 86_400,
            "w" | "week" | "weeks" => 7 * 86_400,
            _ => return Err(wrong()),
        };
        let more = count.checked_mul(unit).and_then(|more| seconds.checked_add(more));
        seconds = more
            .filter(|seconds| *seconds <= LONGEST_SPAN)
            .ok_or_else(|| TimePhraseError::TooFar(text.trim().to_owned()))?;
        rest = behind.trim_start_matches([' ', ',']);
        rest = rest.strip_prefix("and ").unwrap_or(rest).trim_start();
    }
    Ok(Duration::from_secs(seconds))
}

#[derive(Clone, Copy)]
enum DayReference {
    /// Day this many days from today.
    Ahead(i64),
    /// The next such day; today only if `today` and the time is still to come.
    Of { weekday: Weekday, today: bool },
    /// Date.
    Date(NaiveDate),
}

/// Meaning of the words.
#[derive(Default)]
struct TimePhrase {
    day: Option<DayReference>,
    time: Option<NaiveTime>,
}

impl TimePhrase {
    fn parse_phrase(lower: &str, text: &str) -> Result<Self, TimePhraseError> {
        let unreadable = || TimePhraseError::Unreadable(text.trim().to_owned());
        let twice = || TimePhraseError::Twice(text.trim().to_owned());
        let mut spoken = Self::default();
        let mut next = false;
        let mut words = lower.split([' ', '\t', ',']).filter(|word| !word.is_empty()).peekable();
        while let Some(word) = words.next() {
            let (date, time) = match word.split_once('t').filter(|(date, _)| date.len() == 10) {
                Some((date, time)) => (date, Some(time)),
                None => (word, None),
            };
            if matches!(word, "at" | "on" | "this" | "the") {
                continue;
            }
            if word == "next" {
                next = true;
                continue;
            }
            if let Some(day) = parse_day(date, next) {
                if spoken.day.replace(day).is_some() {
                    return Err(twice());
                }
                next = false;
                let Some(time) = time else { continue };
                spoken.time = Some(parse_clock(time, None).ok_or_else(unreadable)?);
                continue;
            }
            let half = words.peek().copied().filter(|half| matches!(*half, "am" | "pm"));
            let time = parse_clock(word, half).ok_or_else(unreadable)?;
            if half.is_some() {
                words.next();
            }
            if spoken.time.replace(time).is_some() {
                return Err(twice());
            }
        }
        if next || (spoken.day.is_none() && spoken.time.is_none()) {
            return Err(unreadable());
        }
        Ok(spoken)
    }

    /// Resolves the local time that is meant at the local time `local`, which is `now`.
    fn resolve_local(
        &self,
        local: NaiveDateTime,
        text: &str,
        instant: impl Fn(NaiveDateTime) -> Option<Millis>,
        now: Millis,
    ) -> Result<NaiveDateTime, TimePhraseError> {
        let too_far = || TimePhraseError::TooFar(text.trim().to_owned());
        let time = self.time.ok_or_else(|| TimePhraseError::NoTime(text.trim().to_owned()))?;
        let today = local.date();
        let is_over = |day: NaiveDate| instant(day.and_time(time)).is_none_or(|at| at <= now);
        let ahead = |days: i64| today.checked_add_signed(TimeDelta::try_days(days)?);
        let day = match self.day {
            None => ahead(i64::from(is_over(today))),
            Some(DayReference::Ahead(days)) => ahead(days),
            Some(DayReference::Date(date)) => Some(date),
            Some(DayReference::Of { weekday, today: may_be_today }) => {
                let days =
                    i64::from(weekday.num_days_from_monday()) - i64::from(today.weekday().num_days_from_monday());
                match days.rem_euclid(7) {
                    0 if !may_be_today || is_over(today) => ahead(7),
                    days => ahead(days),
                }
            }
        };
        day.map(|day| day.and_time(time)).ok_or_else(too_far)
    }
}

fn parse_day(word: &str, next: bool) -> Option<DayReference> {
    let of = |weekday| Some(DayReference::Of { weekday, today: !next });
    match word {
        "mon" | "monday" => of(Weekday::Mon),
        "tue" | "tuesday" => of(Weekday::Tue),
        "wed" | "wednesday" => of(Weekday::Wed),
        "thu" | "thursday" => of(Weekday::Thu),
        "fri" | "friday" => of(Weekday::Fri),
        "sat" | "saturday" => of(Weekday::Sat),
        "sun" | "sunday" => of(Weekday::Sun),
        _ if next => None,
        "today" => Some(DayReference::Ahead(0)),
        "tomorrow" => Some(DayReference::Ahead(1)),
        date => NaiveDate::parse_from_str(date, "%Y-%m-%d").ok().filter(|_| date.len() == 10).map(DayReference::Date),
    }
}

/// Parses a time of day: `9am`, `9:30 pm`, `14:30`, `14:30:15`, `noon`, `midnight`. `half` is a word after it.
fn parse_clock(word: &str, half: Option<&str>) -> Option<NaiveTime> {
    match word {
        "noon" => return NaiveTime::from_hms_opt(12, 0, 0),
        "midnight" => return NaiveTime::from_hms_opt(0, 0, 0),
        _ => {}
    }
    let (digits, half) = match (word.strip_suffix("am"), word.strip_suffix("pm"), half) {
        (Some(digits), _, None) => (digits, Some("am")),
        (_, Some(digits), None) => (digits, Some("pm")),
        (None, None, half) => (word, half),
        _ => return None,
    };
    let mut parts = digits.split(':').map(|part| {
        let digits = (1..=2).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| part.parse::<u32>().ok()).flatten()
    });
    let hour = parts.next()??;
    let minute = parts.next();
    let second = parts.next();
    if parts.next().is_some() || (half.is_none() && minute.is_none()) {
        return None;
    }
    let hour = match half {
        None => hour,
        Some(_) if !(1..=12).contains(&hour) => return None,
        Some("pm") => hour % 12 + 12,
        Some(_) => hour % 12,
    };
    NaiveTime::from_hms_opt(hour, minute.unwrap_or(Some(0))?, second.unwrap_or(Some(0))?)
}
