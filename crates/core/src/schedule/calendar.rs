//! Finds due times of a cron expression, also when clocks are put forward and back.
//!
//! An expression that names its hours is due once a day at each of its times: a time that the clock skips is made up for
//! at the end of the gap (several of them by one firing), and one that comes twice counts the first time only. One that
//! runs every hour follows the elapsed time: a skipped time is not due, and a repeated one is due twice.

use chrono::{Datelike as _, MappedLocalTime, NaiveDate, TimeDelta};

use super::cron::CronExpression;
use super::zone::{Zone, local_instant, midnight};
use crate::time::Millis;

const MINUTES_OF_DAY: u32 = 24 * 60;

/// Days searched: a 29th of February can be eight years away, and such a day can be missing.
const HORIZON: i64 = 13 * 366;

impl CronExpression {
    /// Returns the first instant strictly after `after` at which it is due in `zone`. Absent if there is none within 13 years.
    pub fn next(&self, after: Millis, zone: Zone) -> Option<Millis> {
        let today = zone.local_time(after)?.date();
        // If a clock goes back over midnight, yesterday is not over.
        let mut day = today.pred_opt()?;
        let last = today.checked_add_signed(TimeDelta::days(HORIZON))?;
        while day <= last {
            if !self.has_month_of(day) {
                day = first_of_next_month(day)?;
                continue;
            }
            let tomorrow = day.succ_opt()?;
            if let Some(found) = self.first_on_day(day, after, zone) {
                if zone.ahead_all_day(day).is_some() {
                    return Some(found);
                }
                return Some(self.first_on_day(tomorrow, after, zone).map_or(found, |other| other.min(found)));
            }
            day = tomorrow;
        }
        None
    }

    /// Returns the first instant after `after` at which it is due on `day`.
    fn first_on_day(&self, day: NaiveDate, after: Millis, zone: Zone) -> Option<Millis> {
        if !self.has_day(day) {
            return None;
        }
        let Some(ahead) = zone.ahead_all_day(day) else { return self.on_moved(day, after, zone) };
        let begin = midnight(day).and_utc().timestamp_millis().checked_sub(ahead * 1000)?;
        let passed = i64::try_from(after.0).ok()?.checked_sub(begin)?;
        let from = if passed < 0 { 0 } else { u32::try_from(passed / 60_000 + 1).ok()? };
        let minute = self.minute_from(from)?;
        u64::try_from(begin + i64::from(minute) * 60_000).ok().map(Millis)
    }

    /// Returns the same as [`Self::first_on_day`], on a day on which the clock is moved: minute by minute.
    fn on_moved(&self, day: NaiveDate, after: Millis, zone: Zone) -> Option<Millis> {
        let mut first: Option<Millis> = None;
        let mut note = |at: Option<Millis>| {
            let at = at.filter(|at| *at > after);
            first = first.into_iter().chain(at).min();
        };
        let mut owed = false;
        for minute in 0..MINUTES_OF_DAY {
            let due = self.has_minute(minute);
            if !due && !owed {
                continue;
            }
            let local = midnight(day).checked_add_signed(TimeDelta::minutes(i64::from(minute)))?;
            match zone.utc_offset(local) {
                MappedLocalTime::None => owed |= due && !self.is_interval(),
                MappedLocalTime::Single(ahead) => {
                    note(local_instant(local, ahead));
                    owed = false;
                }
                MappedLocalTime::Ambiguous(earlier, later) => {
                    note(local_instant(local, earlier));
                    if due && self.is_interval() {
                        note(local_instant(local, later));
                    }
                    owed = false;
                }
            }
        }
        if owed {
            note(zone.to_instant(midnight(day.succ_opt()?)));
        }
        first
    }
}

fn first_of_next_month(day: NaiveDate) -> Option<NaiveDate> {
    let (year, month) = if day.month() == 12 { (day.year().checked_add(1)?, 1) } else { (day.year(), day.month() + 1) };
    NaiveDate::from_ymd_opt(year, month, 1)
}
