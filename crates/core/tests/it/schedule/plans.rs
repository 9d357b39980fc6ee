//! Plans of each kind: first, next, and after a time without a process.

use countersign_core::{
    schedule::{FiringTimes, JobSchedule, TooOften, UnknownZone, Zone},
    time::Millis,
};
use proptest::prelude::*;

use super::{at, zone};

fn every(every: u64, anchor: u64) -> JobSchedule {
    JobSchedule::every(every, Millis(anchor)).unwrap()
}

fn cron(expression: &str, name: &str) -> JobSchedule {
    JobSchedule::Cron { expression: expression.parse().unwrap(), zone: zone(name) }
}

#[test]
fn a_plan_knows_its_first_and_its_next_firing() {
    let once = JobSchedule::At { at: Millis(5_000) };
    for (case, plan, after, first, next) in [
        ("once, ahead", once.clone(), 4_999, Some(5_000), Some(5_000)),
        ("once, past: at once", once, 5_000, Some(5_000), None),
        ("every, before its anchor", every(1_000, 10_000), 3_000, Some(10_000), Some(10_000)),
        ("every, at its anchor", every(1_000, 10_000), 10_000, Some(11_000), Some(11_000)),
        ("every, between", every(1_000, 10_000), 12_345, Some(13_000), Some(13_000)),
        ("every, at the end of time", every(u64::MAX, 1), 2, None, None),
        ("cron", cron("* * * * *", "UTC"), 59_999, Some(60_000), Some(60_000)),
    ] {
        assert_eq!(plan.first_firing(Millis(after)), first.map(Millis), "{case}");
        assert_eq!(plan.next(Millis(after)), next.map(Millis), "{case}");
    }
}

#[test]
fn whatever_was_missed_runs_once() {
    let planned = at("2026-03-20T09:00:00+01:00");
    let now = at("2026-03-31T12:00:00+02:00");
    for (case, plan, want) in [
        ("once", JobSchedule::At { at: planned }, None),
        ("every", JobSchedule::every(3_600_000, planned).unwrap(), Some(at("2026-03-31T13:00:00+02:00"))),
        ("cron", cron("0 9 * * *", "Europe/Berlin"), Some(at("2026-04-01T09:00:00+02:00"))),
    ] {
        assert_eq!(plan.due_firing(planned, now), Some(FiringTimes { planned, next: want }), "{case}");
        assert_eq!(plan.due_firing(now, planned), None, "{case}: not yet");
        assert_eq!(plan.due_firing(planned, planned).map(|due| due.planned), Some(planned), "{case}: on the dot");
    }
}

#[test]
fn nothing_is_planned_more_often_than_every_second() {
    for often in [0, 1, 999] {
        assert_eq!(JobSchedule::every(often, Millis(0)), Err(TooOften(often)));
    }
    assert_eq!(TooOften(5).to_string(), "every 5 ms is too often: a second is the least");
    // One that came into the log another way does no harm.
    assert_eq!(JobSchedule::Every { every: 0, anchor: Millis(5) }.next(Millis(7)), None);
}

#[test]
fn a_time_zone_goes_by_its_full_name() {
    assert_eq!("Europe/Nowhere".parse::<Zone>(), Err(UnknownZone("Europe/Nowhere".to_owned())));
    assert_eq!(
        UnknownZone("CET+1".to_owned()).to_string(),
        "\"CET+1\" is no time zone: an IANA name such as \"Europe/Berlin\" is wanted"
    );
    assert_eq!(zone(" America/Argentina/Ushuaia ").to_string(), "America/Argentina/Ushuaia");
}

#[test]
fn a_clock_is_read_with_its_zone() {
    let berlin = zone("Europe/Berlin");
    for (instant, time, full) in [
        ("2026-03-29T00:05:00Z", "1:05 AM CET", "Sunday, March 29, 2026 at 1:05 AM CET"),
        ("2026-03-29T10:00:00Z", "12:00 PM CEST", "Sunday, March 29, 2026 at 12:00 PM CEST"),
    ] {
        assert_eq!(
            (berlin.time_of_day(at(instant)), berlin.full_time(at(instant))),
            (time.to_owned(), full.to_owned())
        );
    }
    assert_eq!(berlin.time_of_day(Millis(u64::MAX)), "");
}

#[test]
fn a_plan_is_recorded_in_full() {
    for (plan, want) in [
        (JobSchedule::At { at: Millis(5) }, r#"{"kind":"at","at":5}"#),
        (every(1_000, 7), r#"{"kind":"every","every":1000,"anchor":7}"#),
        (cron("0 4 * * *", "Europe/Berlin"), r#"{"kind":"cron","expression":"0 4 * * *","zone":"Europe/Berlin"}"#),
    ] {
        assert_eq!(serde_json::to_string(&plan).unwrap(), want);
        assert_eq!(serde_json::from_str::<JobSchedule>(want).unwrap(), plan);
    }
}

proptest! {
    #[test]
    fn steps_keep_to_their_anchor(step in 1_000..u64::from(u32::MAX), anchor in 0..1_u64 << 42, after in 0..1_u64 << 42) {
        let next = every(step, anchor).next(Millis(after)).unwrap();
        prop_assert!(next.0 > after && next.0 >= anchor);
        prop_assert_eq!((next.0 - anchor) % step, 0);
        prop_assert!(next.0 == anchor || next.0 - step <= after);
    }
}
