//! Times in everyday words.

use std::time::Duration;

use countersign_core::{
    reply_parser::{ReplyContext, WaitingGate, parse_reply},
    schedule::{CronExpression, TimePhraseError, Zone, has_tasks, heartbeat_report, parse_instant, parse_span},
    time::Millis,
};
use proptest::prelude::*;

use super::{at, local, zone};

/// A Friday.
const NOW: &str = "2026-03-27T10:00:00+01:00";

#[test]
fn times_are_read_as_people_say_them() {
    let berlin = zone("Europe/Berlin");
    for (text, want) in [
        ("now", "2026-03-27T10:00:00+01:00"),
        ("in 2 hours", "2026-03-27T12:00:00+01:00"),
        ("In an hour", "2026-03-27T11:00:00+01:00"),
        ("in 1h30m", "2026-03-27T11:30:00+01:00"),
        ("in 1 day and 12 hours", "2026-03-28T22:00:00+01:00"),
        ("45 minutes from now", "2026-03-27T10:45:00+01:00"),
        // Three days are 72 hours, also if clocks are moved.
        ("in 3 days", "2026-03-30T11:00:00+02:00"),
        ("tomorrow 9am", "2026-03-28T09:00:00+01:00"),
        ("tomorrow at 9:30 pm", "2026-03-28T21:30:00+01:00"),
        ("9am tomorrow", "2026-03-28T09:00:00+01:00"),
        ("today at noon", "2026-03-27T12:00:00+01:00"),
        ("at 11:00", "2026-03-27T11:00:00+01:00"),
        ("09:00", "2026-03-28T09:00:00+01:00"),
        ("12am", "2026-03-28T00:00:00+01:00"),
        ("12pm", "2026-03-27T12:00:00+01:00"),
        ("midnight", "2026-03-28T00:00:00+01:00"),
        ("friday 11am", "2026-03-27T11:00:00+01:00"),
        ("friday 9am", "2026-04-03T09:00:00+02:00"),
        ("next friday 11am", "2026-04-03T11:00:00+02:00"),
        ("on Monday, 14:30:15", "2026-03-30T14:30:15+02:00"),
        ("2026-03-29 14:30", "2026-03-29T14:30:00+02:00"),
        ("2026-03-29T14:30", "2026-03-29T14:30:00+02:00"),
        ("2026-03-29T14:30:00Z", "2026-03-29T16:30:00+02:00"),
        // Skipped, and come twice.
        ("2026-03-29 02:30", "2026-03-29T03:00:00+02:00"),
        ("2026-10-25 02:30", "2026-10-25T02:30:00+02:00"),
    ] {
        let meant = parse_instant(text, at(NOW), berlin).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(local(meant, berlin), want, "{text}");
    }
}

#[test]
fn what_says_too_little_or_too_much_is_refused_with_what_is_wrong() {
    let berlin = zone("Europe/Berlin");
    let owned = |text: &str| text.to_owned();
    for (text, want) in [
        ("soon", TimePhraseError::Unreadable(owned("soon"))),
        ("", TimePhraseError::Unreadable(owned(""))),
        ("at", TimePhraseError::Unreadable(owned("at"))),
        ("next", TimePhraseError::Unreadable(owned("next"))),
        ("next tomorrow 9am", TimePhraseError::Unreadable(owned("next tomorrow 9am"))),
        ("at 9", TimePhraseError::Unreadable(owned("at 9"))),
        ("25:00", TimePhraseError::Unreadable(owned("25:00"))),
        ("13pm", TimePhraseError::Unreadable(owned("13pm"))),
        ("9ampm", TimePhraseError::Unreadable(owned("9ampm"))),
        ("2026-02-30 09:00", TimePhraseError::Unreadable(owned("2026-02-30 09:00"))),
        ("2026-03-29Tnoonish", TimePhraseError::Unreadable(owned("2026-03-29Tnoonish"))),
        ("tomorrow", TimePhraseError::NoTime(owned("tomorrow"))),
        ("monday", TimePhraseError::NoTime(owned("monday"))),
        ("monday tuesday 9am", TimePhraseError::Twice(owned("monday tuesday 9am"))),
        ("9am 10am", TimePhraseError::Twice(owned("9am 10am"))),
        ("today 9am", TimePhraseError::Past(owned("today 9am"))),
        ("2020-01-01T00:00:00Z", TimePhraseError::Past(owned("2020-01-01T00:00:00Z"))),
        ("1960-01-01 00:00", TimePhraseError::Past(owned("1960-01-01 00:00"))),
        ("in", TimePhraseError::Unreadable(owned("in"))),
        ("in 2", TimePhraseError::Span(owned("2"))),
        ("in hours", TimePhraseError::Span(owned("hours"))),
        ("in 2 fortnights", TimePhraseError::Span(owned("2 fortnights"))),
        ("in 99999999999 weeks", TimePhraseError::TooFar(owned("99999999999 weeks"))),
        ("in 99999999999999999999 weeks", TimePhraseError::Span(owned("99999999999999999999 weeks"))),
    ] {
        assert_eq!(parse_instant(text, at(NOW), berlin), Err(want), "{text}");
    }
}

#[test]
fn spans_may_be_short_and_long() {
    for (text, want) in [
        ("30m", 1_800),
        ("1h30m", 5_400),
        ("1h 30m", 5_400),
        ("90 seconds", 90),
        ("1 week, 2 days", 777_600),
        ("an hour and 1 min", 3_660),
        ("0", 0),
        ("0m", 0),
    ] {
        let want = if text == "0" { Err(TimePhraseError::Span("0".to_owned())) } else { Ok(Duration::from_secs(want)) };
        assert_eq!(parse_span(text), want, "{text}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_reading_panic(
        text in prop_oneof![
            "\\PC{0,40}",
            "(in|an|next|on|at|mon|tomorrow|today|noon|[0-9]{1,12}|am|pm|h|m|:|T|-|2026-03-29|\u{e9}| ){0,12}",
            "[*/,0-9a-z -]{0,24}",
        ],
        now in 0..u64::MAX,
    ) {
        for now in [Millis(now), Millis(now >> 20), at(NOW)] {
            if let Ok(meant) = parse_instant(&text, now, Zone::UTC) {
                prop_assert!(meant >= now);
            }
            let _ = text.parse::<CronExpression>().map(|expression| expression.next(now, zone("America/Santiago")));
            let _ = heartbeat_report(&text, None, now);
        }
        let _ = (parse_span(&text), has_tasks(&text), parse_reply(&text, ReplyContext { waiting: Some(WaitingGate { token: "#k7f3", is_shown: true }), decided: None }));
    }
}
