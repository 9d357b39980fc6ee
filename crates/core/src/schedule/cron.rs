//! Reads cron expressions: minute, hour, day of the month, month, day of the week.
//!
//! It must not know time zones: it only selects minutes of days.

use std::{fmt, str::FromStr};

use chrono::{Datelike as _, NaiveDate};
use serde::{Deserialize, Serialize};

/// Selection of minutes and days. The text form is the expression as it was written.
///
/// Each field is `*`, or a list of numbers and ranges, each with an optional `/step` after it; months and days of the week
/// may be named by three letters, 7 is Sunday too. A number with a step is that number. If day of the month and day of
/// the week are both other than `*`, either will do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CronExpression {
    text: String,
    /// One bit a value in each.
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    any_day: bool,
    any_weekday: bool,
    every_hour: bool,
}

/// Reason for which a cron expression cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// The expression does not have five fields.
    #[error("a cron expression has five fields (minute hour day month weekday), this one has {0}")]
    Fields(usize),
    /// The text is a nickname such as `@daily` and no expression.
    #[error("{0} is not known: write the five fields, such as 0 4 * * *")]
    Nickname(String),
    /// An element of a field is neither number, range nor `*`.
    #[error("{field} cannot be {text:?}: it takes {from} to {to}, lists, ranges and steps")]
    Unreadable {
        /// The field.
        field: &'static str,
        /// Its text.
        text: String,
        /// The smallest value.
        from: u32,
        /// The largest value.
        to: u32,
    },
    /// A number is too small or too large.
    #[error("{field} cannot be {value}: it goes from {from} to {to}")]
    Beyond {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u32,
        /// The smallest value.
        from: u32,
        /// The largest value.
        to: u32,
    },
    /// A range ends before it begins.
    #[error("{field} cannot be {text:?}: the range ends before it begins")]
    Backwards {
        /// The field.
        field: &'static str,
        /// Its text.
        text: String,
    },
    /// A step of 0.
    #[error("{field} cannot be {text:?}: a step is at least 1")]
    NoStep {
        /// The field.
        field: &'static str,
        /// Its text.
        text: String,
    },
    /// None of the months has one of the days.
    #[error("{0:?} is never due: none of its months has such a day")]
    Never(String),
}

struct CronField {
    name: &'static str,
    from: u32,
    to: u32,
    /// Names of the values from `from` on.
    names: &'static [&'static str],
}

const FIELDS: [CronField; 5] = [
    CronField { name: "minute", from: 0, to: 59, names: &[] },
    CronField { name: "hour", from: 0, to: 23, names: &[] },
    CronField { name: "day of the month", from: 1, to: 31, names: &[] },
    CronField {
        name: "month",
        from: 1,
        to: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    CronField { name: "day of the week", from: 0, to: 7, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

const ALL_HOURS: u64 = (1 << 24) - 1;

/// Maximum number of days of each month.
const LENGTHS: [u32; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

impl CronExpression {
    /// Returns the expression for every day at the full hour of `hour`, which is below 24.
    pub fn daily_at(hour: u8) -> Self {
        let hour = hour.min(23);
        Self {
            text: format!("0 {hour} * * *"),
            minutes: 1,
            hours: 1 << hour,
            days: bit_range(1, 31, 1),
            months: bit_range(1, 12, 1),
            weekdays: bit_range(0, 6, 1),
            any_day: true,
            any_weekday: true,
            every_hour: false,
        }
    }

    /// Returns the expression as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Reports whether it follows elapsed time (every hour, every other hour) and not the display of the clock. It is not made
    /// up for if a clock skips it, and comes twice if hours do.
    pub(super) const fn is_interval(&self) -> bool {
        self.every_hour
    }

    pub(super) fn has_month_of(&self, day: NaiveDate) -> bool {
        has_bit(self.months, day.month())
    }

    /// Reports whether it is due at any time on this day.
    pub(super) fn has_day(&self, day: NaiveDate) -> bool {
        let of_month = has_bit(self.days, day.day());
        let of_week = has_bit(self.weekdays, day.weekday().num_days_from_sunday());
        let is_day = match (self.any_day, self.any_weekday) {
            (true, _) => of_week,
            (false, true) => of_month,
            (false, false) => of_month || of_week,
        };
        is_day && self.has_month_of(day)
    }

    /// Reports whether it is due at this minute of a day.
    pub(super) fn has_minute(&self, minute: u32) -> bool {
        has_bit(self.hours, minute / 60) && has_bit(self.minutes, minute % 60)
    }

    /// Returns its first minute of a day that is not before `minute`.
    pub(super) fn minute_from(&self, minute: u32) -> Option<u32> {
        let (hour, minute) = (minute / 60, minute % 60);
        if hour > 23 {
            return None;
        }
        let rest = self.minutes >> minute;
        if has_bit(self.hours, hour) && rest != 0 {
            return Some(hour * 60 + minute + rest.trailing_zeros());
        }
        let later = self.hours >> (hour + 1);
        (later != 0).then(|| (hour + 1 + later.trailing_zeros()) * 60 + self.minutes.trailing_zeros())
    }
}

impl FromStr for CronExpression {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let fields: Vec<&str> = text.split_whitespace().collect();
        if text.starts_with('@') {
            return Err(CronError::Nickname(text.to_owned()));
        }
        let [minute, hour, day, month, weekday] = fields[..] else { return Err(CronError::Fields(fields.len())) };
        let hours = FIELDS[1].parse_field(hour)?;
        let weekdays = FIELDS[4].parse_field(weekday)?;
        let read = Self {
            text: text.to_owned(),
            minutes: FIELDS[0].parse_field(minute)?,
            hours,
            days: FIELDS[2].parse_field(day)?,
            months: FIELDS[3].parse_field(month)?,
            weekdays: (weekdays | weekdays >> 7) & bit_range(0, 6, 1),
            any_day: day == "*",
            any_weekday: weekday == "*",
            every_hour: hour.starts_with('*') || hours == ALL_HOURS,
        };
        let mut months = (1..).zip(LENGTHS);
        let comes = !read.any_weekday
            || months.any(|(month, length)| has_bit(read.months, month) && read.days & bit_range(1, length, 1) != 0);
        if comes { Ok(read) } else { Err(CronError::Never(read.text)) }
    }
}

impl TryFrom<String> for CronExpression {
    type Error = CronError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<CronExpression> for String {
    fn from(expression: CronExpression) -> Self {
        expression.text
    }
}

impl fmt::Display for CronExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl CronField {
    fn parse_field(&self, text: &str) -> Result<u64, CronError> {
        text.split(',').try_fold(0, |values, item| Ok(values | self.parse_item(item)?))
    }

    fn parse_item(&self, text: &str) -> Result<u64, CronError> {
        let unreadable = || self.unreadable_error(text);
        let (range, step) = match text.split_once('/') {
            Some((range, step)) => (range, parse_number(step).ok_or_else(unreadable)?),
            None => (text, 1),
        };
        if step == 0 {
            return Err(CronError::NoStep { field: self.name, text: text.to_owned() });
        }
        let (first, last) = if range == "*" {
            // Otherwise Sunday would count twice in `*/2`.
            (self.from, if self.to == 7 { 6 } else { self.to })
        } else if let Some((first, last)) = range.split_once('-') {
            (self.parse_value(first, text)?, self.parse_value(last, text)?)
        } else {
            let value = self.parse_value(range, text)?;
            (value, value)
        };
        if first > last {
            return Err(CronError::Backwards { field: self.name, text: text.to_owned() });
        }
        Ok(bit_range(first, last, step))
    }

    fn parse_value(&self, text: &str, item: &str) -> Result<u32, CronError> {
        let named = || (self.from..).zip(self.names).find(|(_, name)| text.eq_ignore_ascii_case(name));
        let value = parse_number(text).or_else(|| Some(named()?.0)).ok_or_else(|| self.unreadable_error(item))?;
        if !(self.from..=self.to).contains(&value) {
            return Err(CronError::Beyond { field: self.name, value, from: self.from, to: self.to });
        }
        Ok(value)
    }

    fn unreadable_error(&self, text: &str) -> CronError {
        CronError::Unreadable { field: self.name, text: text.to_owned(), from: self.from, to: self.to }
    }
}

/// Parses digits only: `+5` is a number to Rust and none here.
fn parse_number(text: &str) -> Option<u32> {
    let digits = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn bit_range(first: u32, last: u32, step: u32) -> u64 {
    let step = usize::try_from(step).unwrap_or(usize::MAX);
    (first..=last).step_by(step).fold(0, |bits, value| bits | 1 << value)
}

const fn has_bit(bits: u64, value: u32) -> bool {
    bits >> value & 1 == 1
}
