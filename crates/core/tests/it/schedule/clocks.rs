//! Clocks that are put forward and back, against a search minute by minute.

use chrono::{Datelike as _, NaiveDateTime, TimeDelta, TimeZone as _, Timelike as _};
use countersign_core::{
    schedule::{CronExpression, Zone},
    time::Millis,
};
use proptest::prelude::*;

use super::{at, local, zone};

fn after(expression: &str, name: &str, from: &str, count: usize) -> Vec<String> {
    let (expression, zone): (CronExpression, _) = (expression.parse().unwrap(), zone(name));
    let mut now = at(from);
    std::iter::repeat_with(|| {
        now = expression.next(now, zone).unwrap();
        local(now, zone)
    })
    .take(count)
    .collect()
}

#[test]
fn an_hour_that_is_skipped_is_made_up_for_once() {
    for (expression, name, from, want) in [
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T00:00:00Z",
            ["2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"],
        ),
        // Four times are skipped, one firing makes up for them.
        (
            "*/15 2 * * *",
            "Europe/Berlin",
            "2026-03-28T01:31:00Z",
            ["2026-03-28T02:45:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"],
        ),
        // One that is due at the end of the gap anyway is due once.
        (
            "0 2,3 * * *",
            "Europe/Berlin",
            "2026-03-28T02:00:00Z",
            ["2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00", "2026-03-30T03:00:00+02:00"],
        ),
        (
            "30 2 * * *",
            "America/New_York",
            "2026-03-07T08:00:00Z",
            ["2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00", "2026-03-10T02:30:00-04:00"],
        ),
        // Half an hour only.
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T00:00:00Z",
            ["2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00", "2026-10-06T02:15:00+11:00"],
        ),
        // The day begins at one.
        (
            "0 0 * * *",
            "America/Santiago",
            "2026-09-05T12:00:00Z",
            ["2026-09-06T01:00:00-03:00", "2026-09-07T00:00:00-03:00", "2026-09-08T00:00:00-03:00"],
        ),
        // The 30th did not exist.
        (
            "0 9 * * *",
            "Pacific/Apia",
            "2011-12-29T18:00:00Z",
            ["2011-12-29T09:00:00-10:00", "2011-12-31T00:00:00+14:00", "2011-12-31T09:00:00+14:00"],
        ),
        // By the hour: a skipped time is not due.
        (
            "30 * * * *",
            "Europe/Berlin",
            "2026-03-29T00:00:00Z",
            ["2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00", "2026-03-29T04:30:00+02:00"],
        ),
        (
            "0 */2 * * *",
            "Europe/Berlin",
            "2026-03-28T23:00:00Z",
            ["2026-03-29T04:00:00+02:00", "2026-03-29T06:00:00+02:00", "2026-03-29T08:00:00+02:00"],
        ),
    ] {
        assert_eq!(after(expression, name, from, 3), want, "{expression} in {name}");
    }
}

#[test]
fn an_hour_that_comes_twice_counts_once_unless_every_hour_counts() {
    for (expression, name, from, want) in [
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00:00Z",
            ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00", "2026-10-27T02:30:00+01:00"],
        ),
        (
            "0,30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00:00Z",
            ["2026-10-25T02:00:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-26T02:00:00+01:00"],
        ),
        // Asked in the second hour, the first is over.
        (
            "45 2 * * *",
            "Europe/Berlin",
            "2026-10-25T01:10:00Z",
            ["2026-10-26T02:45:00+01:00", "2026-10-27T02:45:00+01:00", "2026-10-28T02:45:00+01:00"],
        ),
        (
            "30 * * * *",
            "Europe/Berlin",
            "2026-10-25T00:00:00Z",
            ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-25T03:30:00+01:00"],
        ),
        (
            "0,30 0-23 * * *",
            "America/New_York",
            "2026-11-01T05:15:00Z",
            ["2026-11-01T01:30:00-04:00", "2026-11-01T01:00:00-05:00", "2026-11-01T01:30:00-05:00"],
        ),
        (
            "45 1 * * *",
            "Australia/Lord_Howe",
            "2026-04-03T15:00:00Z",
            ["2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30", "2026-04-07T01:45:00+10:30"],
        ),
        // Midnight is put back to eleven: the 4th is not over when the 5th begins.
        (
            "30 23 * * *",
            "America/Santiago",
            "2026-04-04T12:00:00Z",
            ["2026-04-04T23:30:00-03:00", "2026-04-05T23:30:00-04:00", "2026-04-06T23:30:00-04:00"],
        ),
        (
            "30 * * * *",
            "America/Santiago",
            "2026-04-05T02:00:00Z",
            ["2026-04-04T23:30:00-03:00", "2026-04-04T23:30:00-04:00", "2026-04-05T00:30:00-04:00"],
        ),
    ] {
        assert_eq!(after(expression, name, from, 3), want, "{expression} in {name}");
    }
}

/// Zones with every kind of rule: whole and half hours, at midnight, over midnight, in the south, without any.
const ZONES: [&str; 9] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Santiago",
    "America/St_Johns",
    "Africa/Casablanca",
    "Asia/Kolkata",
    "Pacific/Apia",
];

/// One field of an expression, and its meaning.
#[derive(Clone, Debug)]
struct FieldSample {
    text: String,
    values: Vec<u32>,
}

fn list(from: u32, to: u32) -> impl Strategy<Value = FieldSample> {
    let item = (from..=to, from..=to, 1..6_u32, any::<bool>()).prop_map(move |(a, b, step, single)| {
        let (first, last) = if single { (a, a) } else { (a.min(b), a.max(b)) };
        let text = if single { format!("{first}") } else { format!("{first}-{last}/{step}") };
        (text, (first..=last).step_by(step.try_into().unwrap()).collect::<Vec<_>>())
    });
    proptest::collection::vec(item, 1..3).prop_map(|items| FieldSample {
        text: items.iter().map(|(text, _)| text.clone()).collect::<Vec<_>>().join(","),
        values: items.into_iter().flat_map(|(_, values)| values).collect(),
    })
}

fn field(from: u32, to: u32) -> impl Strategy<Value = FieldSample> {
    let every = (1..6_u32).prop_map(move |step| FieldSample {
        text: if step == 1 { "*".to_owned() } else { format!("*/{step}") },
        values: (from..=to).step_by(step.try_into().unwrap()).collect(),
    });
    prop_oneof![every, list(from, to)]
}

#[derive(Clone, Debug)]
struct ExpressionSample([FieldSample; 5]);

fn fields() -> impl Strategy<Value = ExpressionSample> {
    let open = |from, to| {
        let any = FieldSample { text: "*".to_owned(), values: (from..=to).collect() };
        prop_oneof![5 => Just(any), 1 => field(from, to)]
    };
    // Hours around which clocks are moved, most of the time.
    (field(0, 59), prop_oneof![list(0, 4), field(0, 23), list(22, 23)], open(1, 31), open(1, 12), open(0, 6))
        .prop_map(|(minute, hour, day, month, weekday)| ExpressionSample([minute, hour, day, month, weekday]))
}

impl ExpressionSample {
    fn text(&self) -> String {
        self.0.iter().map(|field| field.text.clone()).collect::<Vec<_>>().join(" ")
    }

    fn is_due(&self, local: NaiveDateTime) -> bool {
        let [minute, hour, day, month, weekday] = &self.0;
        let of_month = day.values.contains(&local.day());
        let of_week = weekday.values.contains(&local.weekday().num_days_from_sunday());
        let is_day = match (day.text.as_str(), weekday.text.as_str()) {
            ("*", _) => of_week,
            (_, "*") => of_month,
            _ => of_month || of_week,
        };
        is_day
            && month.values.contains(&local.month())
            && hour.values.contains(&local.hour())
            && minute.values.contains(&local.minute())
    }

    fn is_interval(&self) -> bool {
        let hours = &self.0[1];
        hours.text.starts_with('*') || (0..24).all(|hour| hours.values.contains(&hour))
    }

    /// Advances minute by minute of real time and reads the clock.
    fn slowly(&self, after: Millis, zone: Zone, minutes: u64) -> Option<Millis> {
        let zone: chrono_tz::Tz = zone.to_string().parse().unwrap();
        let shown = |minute: u64| zone.timestamp_opt((minute * 60).try_into().unwrap(), 0).unwrap().naive_local();
        let begin = after.0 / 60_000;
        // Local times that were shown before count for those who are due once.
        let mut seen_until = (begin.saturating_sub(26 * 60)..=begin).map(shown).max().unwrap();
        let mut before = shown(begin);
        for minute in begin + 1..=begin + minutes {
            let now = shown(minute);
            let due = if self.is_interval() {
                self.is_due(now)
            } else {
                let mut skipped = seen_until.max(before) + TimeDelta::minutes(1);
                let mut due = false;
                while skipped <= now {
                    due |= self.is_due(skipped);
                    skipped += TimeDelta::minutes(1);
                }
                due
            };
            seen_until = seen_until.max(now);
            before = now;
            if due {
                return Some(Millis(minute * 60_000));
            }
        }
        None
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn the_next_firing_is_that_of_a_search_minute_by_minute(
        fields in fields(),
        name in proptest::sample::select(&ZONES[..]),
        // Around the days on which clocks are moved, most of the time.
        near in proptest::sample::select(&[
            "2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z", "2026-03-08T07:00:00Z", "2026-11-01T06:00:00Z",
            "2026-04-04T15:00:00Z", "2026-10-03T15:30:00Z", "2026-04-05T03:00:00Z", "2026-09-06T04:00:00Z",
            "2006-10-29T02:31:00Z", "2011-12-30T10:00:00Z", "2026-02-15T02:00:00Z", "2026-03-22T02:00:00Z",
            "2028-02-29T00:00:00Z", "2026-12-31T23:00:00Z",
        ][..]),
        around in -3 * 24 * 3_600_000_i64..24 * 3_600_000,
    ) {
        let Ok(expression) = fields.text().parse::<CronExpression>() else { return Ok(()) };
        let zone = zone(name);
        let from = Millis(at(near).0.checked_add_signed(around).unwrap());
        const DAYS: u64 = 4;
        let slowly = fields.slowly(from, zone, DAYS * 24 * 60);
        let quickly = expression.next(from, zone);
        prop_assert!(quickly.is_none_or(|next| next > from), "{} in {name}", fields.text());
        let within = quickly.filter(|next| next.0 <= (from.0 / 60_000 + DAYS * 24 * 60) * 60_000);
        prop_assert_eq!(within, slowly, "{} in {} after {}", fields.text(), name, local(from, zone));
    }

    #[test]
    fn firings_only_go_forward(
        fields in fields(),
        name in proptest::sample::select(&ZONES[..]),
        from in 0..4_000_000_000_u64,
        step in 0..100_000_000_u64,
    ) {
        let Ok(expression) = fields.text().parse::<CronExpression>() else { return Ok(()) };
        let zone = zone(name);
        let (earlier, later) = (Millis(from * 1000), Millis(from * 1000 + step));
        let (Some(first), Some(second)) = (expression.next(earlier, zone), expression.next(later, zone)) else {
            return Ok(());
        };
        prop_assert!(first > earlier && second >= first);
        // Nothing lies between an instant and its next.
        prop_assert_eq!(second, if first > later { first } else { second });
        let third = expression.next(first, zone);
        prop_assert!(third.is_none_or(|third| third > first));
    }
}

#[test]
fn ten_thousand_jobs_know_their_next_times() {
    let jobs: Vec<(CronExpression, Zone)> = (0..10_000_u32)
        .map(|job| {
            let text = match job % 4 {
                0 => format!("{} {} * * *", job % 60, job % 24),
                1 => format!("{} * * * 1-5", job % 60),
                2 => format!("{} {} {} * *", job % 60, job % 24, job % 28 + 1),
                _ => "0 0 29 2 *".to_owned(),
            };
            (text.parse().unwrap(), zone(ZONES[usize::try_from(job).unwrap() % ZONES.len()]))
        })
        .collect();
    let from = at("2026-03-28T00:00:00Z");
    // A search minute by minute, years ahead for some, would not come to its end.
    for (expression, zone) in &jobs {
        let first = expression.next(from, *zone).unwrap();
        assert!(first > from && expression.next(first, *zone).unwrap() > first, "{expression} in {zone}");
    }
}
