//! Valid expressions, and the errors of invalid ones.

use countersign_core::schedule::{CronError, CronExpression, Zone};

use super::{at, local};

#[test]
fn an_expression_is_due_when_it_says() {
    for (expression, from, want) in [
        ("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00+00:00"),
        ("* * * * *", "2026-01-01T00:00:59.999Z", "2026-01-01T00:01:00+00:00"),
        ("0 9 * * *", "2026-01-01T08:59:59Z", "2026-01-01T09:00:00+00:00"),
        ("0 9 * * *", "2026-01-01T09:00:00Z", "2026-01-02T09:00:00+00:00"),
        ("*/15 * * * *", "2026-01-01T10:44:00Z", "2026-01-01T10:45:00+00:00"),
        ("*/40 * * * *", "2026-01-01T10:41:00Z", "2026-01-01T11:00:00+00:00"),
        ("5,10-12 3 * * *", "2026-01-01T03:05:00Z", "2026-01-01T03:10:00+00:00"),
        ("1-59/20 * * * *", "2026-01-01T00:21:00Z", "2026-01-01T00:41:00+00:00"),
        // A number with a step is that number.
        ("5/10 * * * *", "2026-01-01T00:05:00Z", "2026-01-01T01:05:00+00:00"),
        ("0 0 31 * *", "2026-01-31T00:00:00Z", "2026-03-31T00:00:00+00:00"),
        ("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00+00:00"),
        // 2100 is no leap year.
        ("0 0 29 2 *", "2096-02-29T00:00:00Z", "2104-02-29T00:00:00+00:00"),
        ("0 0 * * 0", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00+00:00"),
        ("0 0 * * 7", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00+00:00"),
        ("0 0 * * 5-7", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00+00:00"),
        ("0 0 * * MON-fri", "2026-01-03T00:00:00Z", "2026-01-05T00:00:00+00:00"),
        ("0 0 1 JAN,jul *", "2026-01-03T00:00:00Z", "2026-07-01T00:00:00+00:00"),
        // Either will do: the 13th, or a Friday.
        ("0 0 13 * 5", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00+00:00"),
        ("0 0 13 * 5", "2026-01-09T00:00:00Z", "2026-01-13T00:00:00+00:00"),
        // Only `*` leaves a field open: this is every day of the month, or a Monday.
        ("0 0 */1 * 1", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00+00:00"),
        ("0 0 31 2 1", "2026-02-03T00:00:00Z", "2026-02-09T00:00:00+00:00"),
        ("59 23 31 12 *", "2026-12-31T23:59:00Z", "2027-12-31T23:59:00+00:00"),
    ] {
        let due = expression.parse::<CronExpression>().unwrap().next(at(from), Zone::UTC).unwrap();
        assert_eq!(local(due, Zone::UTC), want, "{expression} after {from}");
    }
}

#[test]
fn what_is_no_expression_is_refused_with_the_reason() {
    for (expression, want) in [
        ("", "a cron expression has five fields (minute hour day month weekday), this one has 0"),
        ("* * * *", "a cron expression has five fields (minute hour day month weekday), this one has 4"),
        ("0 * * * * *", "a cron expression has five fields (minute hour day month weekday), this one has 6"),
        ("@daily", "@daily is not known: write the five fields, such as 0 4 * * *"),
        ("60 * * * *", "minute cannot be 60: it goes from 0 to 59"),
        ("0 24 * * *", "hour cannot be 24: it goes from 0 to 23"),
        ("0 0 0 * *", "day of the month cannot be 0: it goes from 1 to 31"),
        ("0 0 * 13 *", "month cannot be 13: it goes from 1 to 12"),
        ("0 0 * * 8", "day of the week cannot be 8: it goes from 0 to 7"),
        ("0 0 * * 5-1", "day of the week cannot be \"5-1\": the range ends before it begins"),
        ("*/0 * * * *", "minute cannot be \"*/0\": a step is at least 1"),
        ("a * * * *", "minute cannot be \"a\": it takes 0 to 59, lists, ranges and steps"),
        ("1, * * * *", "minute cannot be \"\": it takes 0 to 59, lists, ranges and steps"),
        ("+5 * * * *", "minute cannot be \"+5\": it takes 0 to 59, lists, ranges and steps"),
        ("-5 * * * *", "minute cannot be \"-5\": it takes 0 to 59, lists, ranges and steps"),
        ("*/ * * * *", "minute cannot be \"*/\": it takes 0 to 59, lists, ranges and steps"),
        ("*-5 * * * *", "minute cannot be \"*-5\": it takes 0 to 59, lists, ranges and steps"),
        ("0 0 L * *", "day of the month cannot be \"L\": it takes 1 to 31, lists, ranges and steps"),
        ("0 0 * * 99999999999", "day of the week cannot be \"99999999999\": it takes 0 to 7, lists, ranges and steps"),
        ("0 0 31 2 *", "\"0 0 31 2 *\" is never due: none of its months has such a day"),
        ("0 0 30 2 *", "\"0 0 30 2 *\" is never due: none of its months has such a day"),
        ("0 0 31 2,4,6 *", "\"0 0 31 2,4,6 *\" is never due: none of its months has such a day"),
    ] {
        let refused: Result<CronExpression, CronError> = expression.parse();
        assert_eq!(refused.unwrap_err().to_string(), want, "{expression}");
    }
}

#[test]
fn an_expression_is_recorded_as_it_was_written() {
    let expression: CronExpression = "  */5 9-17 * * MON-FRI ".parse().unwrap();
    let json = serde_json::to_string(&expression).unwrap();
    assert_eq!(json, "\"*/5 9-17 * * MON-FRI\"");
    assert_eq!(serde_json::from_str::<CronExpression>(&json).unwrap(), expression);
    assert!(serde_json::from_str::<CronExpression>("\"0 0 31 2 *\"").is_err());
}
