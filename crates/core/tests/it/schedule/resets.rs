//! Times of the automatic restart of a session.

use countersign_core::{schedule::ResetRule, time::Millis};

use super::{at, zone};

#[test]
fn a_session_is_reset_at_its_hour_or_after_its_idle_time() {
    let daily = ResetRule::Daily { hour: 4 };
    let berlin = "Europe/Berlin";
    for (case, reset, name, last, now, want) in [
        ("by hand", ResetRule::Manual, berlin, "2026-01-01T00:00:00Z", "2030-01-01T00:00:00Z", false),
        ("before the hour", daily, berlin, "2026-01-10T05:00:00+01:00", "2026-01-11T03:59:59+01:00", false),
        ("at the hour", daily, berlin, "2026-01-10T05:00:00+01:00", "2026-01-11T04:00:00+01:00", true),
        ("the same day before", daily, berlin, "2026-01-11T03:59:59+01:00", "2026-01-11T04:00:00+01:00", true),
        ("used at the hour", daily, berlin, "2026-01-11T04:00:00+01:00", "2026-01-11T23:00:00+01:00", false),
        ("days later", daily, berlin, "2026-01-01T12:00:00+01:00", "2026-01-11T03:00:00+01:00", true),
        ("the local hour", daily, "America/New_York", "2026-01-10T05:00:00-05:00", "2026-01-11T08:59:00Z", false),
        (
            "a skipped hour",
            ResetRule::Daily { hour: 2 },
            berlin,
            "2026-03-28T12:00:00Z",
            "2026-03-29T03:00:00+02:00",
            true,
        ),
        (
            "an hour that comes twice counts once",
            ResetRule::Daily { hour: 2 },
            berlin,
            "2026-10-25T02:10:00+02:00",
            "2026-10-25T02:10:00+01:00",
            false,
        ),
        (
            "just as long",
            ResetRule::Idle { minutes: 60 },
            berlin,
            "2026-01-01T00:00:00Z",
            "2026-01-01T01:00:00Z",
            false,
        ),
        ("longer", ResetRule::Idle { minutes: 60 }, berlin, "2026-01-01T00:00:00Z", "2026-01-01T01:00:00.001Z", true),
        ("at once", ResetRule::Idle { minutes: 0 }, berlin, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", true),
    ] {
        assert_eq!(reset.is_due(at(last), at(now), zone(name)), want, "{case}");
    }
}

#[test]
fn the_next_time_is_known_ahead() {
    let berlin = zone("Europe/Berlin");
    let last = at("2026-03-28T12:00:00Z");
    for (reset, want) in [
        (ResetRule::Manual, None),
        (ResetRule::Daily { hour: 4 }, Some(at("2026-03-29T04:00:00+02:00"))),
        (ResetRule::Idle { minutes: 1 }, Some(Millis(last.0 + 60_000))),
    ] {
        assert_eq!(reset.next(last, berlin), want);
    }
}
