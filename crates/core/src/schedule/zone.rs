//! Converts instants to local time and back, by the rules of a time zone that are compiled in.

use std::{fmt, str::FromStr};

use chrono::{DateTime, MappedLocalTime, NaiveDate, NaiveDateTime, Offset as _, TimeDelta, TimeZone as _};
use serde::{Deserialize, Serialize};

use crate::time::Millis;

/// A time zone by its IANA name, such as `Europe/Berlin`. The text form is that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Zone(chrono_tz::Tz);

/// No time zone has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no time zone: an IANA name such as \"Europe/Berlin\" is wanted")]
pub struct UnknownZone(pub String);

/// Maximum jump of a clock that is searched, in minutes. The longest ever was a whole day, when a country crossed the date line.
const LONGEST_GAP: i64 = 48 * 60;

impl Zone {
    /// Universal time.
    pub const UTC: Self = Self(chrono_tz::UTC);

    /// Returns the time of day at `at`, such as `9:05 AM CET`. Empty beyond the calendar.
    pub fn time_of_day(self, at: Millis) -> String {
        self.format_time(at, "%-I:%M %p %Z")
    }

    /// Returns day and time at `at`, such as `Sunday, March 29, 2026 at 9:05 AM CEST`. Empty beyond the calendar.
    pub fn full_time(self, at: Millis) -> String {
        self.format_time(at, "%A, %B %-d, %Y at %-I:%M %p %Z")
    }

    /// Returns date and time at `at`, such as `2026-03-29 09:05:00 CEST`. Empty beyond the calendar.
    pub fn date_and_time(self, at: Millis) -> String {
        self.format_time(at, "%Y-%m-%d %H:%M:%S %Z")
    }

    /// Returns date and time to the minute at `at`, such as `2026-03-29 09:05 CEST`; without the date on the day of `now`. Empty
    /// beyond the calendar.
    pub fn minute_text(self, at: Millis, now: Millis) -> String {
        let is_today = self.date_before(at, 0) == self.date_before(now, 0);
        self.format_time(at, if is_today { "%H:%M %Z" } else { "%Y-%m-%d %H:%M %Z" })
    }

    /// Returns the calendar day so many days before `at`, such as `2026-03-29`. Absent beyond the calendar.
    pub fn date_before(self, at: Millis, days_ago: u32) -> Option<String> {
        let day = self.local_time(at)?.date().checked_sub_days(chrono::Days::new(days_ago.into()))?;
        Some(day.format("%Y-%m-%d").to_string())
    }

    fn format_time(self, at: Millis, form: &str) -> String {
        // Beyond the year 9999 local times leave the calendar.
        let utc = i64::try_from(at.0).ok().filter(|at| *at < 253_402_300_800_000);
        let utc = utc.and_then(DateTime::from_timestamp_millis);
        utc.map(|utc| self.0.from_utc_datetime(&utc.naive_utc()).format(form).to_string()).unwrap_or_default()
    }

    /// Returns the local time at `at`. Absent beyond the calendar.
    pub(super) fn local_time(self, at: Millis) -> Option<NaiveDateTime> {
        let utc = DateTime::from_timestamp_millis(i64::try_from(at.0).ok()?)?.naive_utc();
        let ahead = self.0.offset_from_utc_datetime(&utc).fix().local_minus_utc();
        // At the end of the calendar there is no local time in every zone.
        utc.checked_add_signed(TimeDelta::seconds(i64::from(ahead)))
    }

    /// Returns the offset of this local time from universal time, in seconds.
    pub(super) fn utc_offset(self, local: NaiveDateTime) -> MappedLocalTime<i64> {
        self.0.offset_from_local_datetime(&local).map(|offset| i64::from(offset.fix().local_minus_utc()))
    }

    /// Returns the offset of the whole day from universal time, in seconds. Absent if a clock is moved on it.
    pub(super) fn ahead_all_day(self, day: NaiveDate) -> Option<i64> {
        let begin = self.utc_offset(midnight(day)).single()?;
        let end = self.utc_offset(midnight(day.succ_opt()?)).single()?;
        (begin == end).then_some(begin)
    }

    /// Returns the instant of a local time: of one that comes twice the first, of one that is skipped the end of the gap.
    /// Absent before 1970.
    pub(super) fn to_instant(self, local: NaiveDateTime) -> Option<Millis> {
        let mut local = local;
        for _ in 0..LONGEST_GAP {
            match self.utc_offset(local) {
                MappedLocalTime::Single(ahead) | MappedLocalTime::Ambiguous(ahead, _) => {
                    return local_instant(local, ahead);
                }
                MappedLocalTime::None => {
                    let minute = local.and_utc().timestamp().div_euclid(60) + 1;
                    local = DateTime::from_timestamp(minute * 60, 0)?.naive_utc();
                }
            }
        }
        None
    }
}

/// Returns the instant of a local time that is so many seconds ahead of universal time. Absent before 1970.
pub(super) fn local_instant(local: NaiveDateTime, ahead: i64) -> Option<Millis> {
    let utc = local.and_utc().timestamp_millis().checked_sub(ahead * 1000)?;
    u64::try_from(utc).ok().map(Millis)
}

/// Returns the beginning of a day by the clock, which not every day has.
pub(super) fn midnight(day: NaiveDate) -> NaiveDateTime {
    day.and_time(chrono::NaiveTime::MIN)
}

impl FromStr for Zone {
    type Err = UnknownZone;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        name.trim().parse().map(Self).map_err(|_| UnknownZone(name.to_owned()))
    }
}

impl TryFrom<String> for Zone {
    type Error = UnknownZone;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        name.parse()
    }
}

impl From<Zone> for String {
    fn from(zone: Zone) -> Self {
        zone.0.name().to_owned()
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}
