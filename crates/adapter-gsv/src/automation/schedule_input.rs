//! Schedules as agents write them, in the form of the wire: `tomorrow 9am`, `every 2 hours`, `{"everyMinutes": 30}`.

use countersign_core::{
    schedule::{CronExpression, Zone, parse_instant, parse_span},
    time::Millis,
};
use serde_json::{Map, Value, json};

/// Units of an interval, with their milliseconds.
const UNITS: [(&str, u64); 4] =
    [("everySeconds", 1_000), ("everyMinutes", 60_000), ("everyHours", 3_600_000), ("everyDays", 86_400_000)];

/// Converts the schedule of a job, or of a patch of one, to the form of the wire.
///
/// # Errors
/// The part that cannot be read, for the model.
pub(crate) fn in_wire_form(job: &mut Value, now: Millis, zone: Zone) -> Result<(), String> {
    let Some(schedule) = job.get_mut("schedule") else { return Ok(()) };
    *schedule = match schedule.take() {
        Value::String(text) => from_text(&text, now, zone)?,
        Value::Object(members) => from_members(members, now, zone)?,
        other => other,
    };
    Ok(())
}

fn from_text(text: &str, now: Millis, zone: Zone) -> Result<Value, String> {
    let lower = text.trim().to_ascii_lowercase();
    if let Some(every) = lower.strip_prefix("every ") {
        // "every hour" is every one hour.
        let spoken = parse_span(every).or_else(|error| parse_span(&format!("1 {every}")).map_err(|_| error));
        return Ok(json!({ "kind": "every", "everyMs": whole_millis(spoken.map_err(|error| error.to_string())?) }));
    }
    if text.parse::<CronExpression>().is_ok() {
        return Ok(json!({ "kind": "cron", "expr": text.trim() }));
    }
    let at = parse_instant(text, now, zone).map_err(|error| error.to_string())?;
    Ok(json!({ "kind": "at", "atMs": at.0 }))
}

fn from_members(mut members: Map<String, Value>, now: Millis, zone: Zone) -> Result<Value, String> {
    let zone = match members.get("tz").or_else(|| members.get("timezone")).and_then(Value::as_str) {
        Some(name) => name.parse().map_err(|error: countersign_core::schedule::UnknownZone| error.to_string())?,
        None => zone,
    };
    let spoken = |value: Value| match value {
        Value::String(text) => parse_instant(&text, now, zone).map(|at| json!(at.0)).map_err(|error| error.to_string()),
        other => Ok(other),
    };
    if let Some(at) = members.remove("at") {
        members.insert("atMs".to_owned(), spoken(at)?);
    }
    if let Some(anchor) = members.remove("anchor") {
        members.insert("anchorMs".to_owned(), spoken(anchor)?);
    }
    if let Some(Value::String(every)) = members.remove("every") {
        members
            .insert("everyMs".to_owned(), json!(whole_millis(parse_span(&every).map_err(|error| error.to_string())?)));
    }
    for (name, unit) in UNITS {
        if let Some(count) = members.remove(name) {
            let count = count.as_f64().filter(|count| count.is_finite() && *count > 0.0);
            let count = count.ok_or_else(|| format!("{name} must be a positive number"))?;
            members.insert("everyMs".to_owned(), json!((count * unit as f64).round() as u64));
        }
    }
    if !members.contains_key("kind") {
        let kinds = [("atMs", "at"), ("everyMs", "every"), ("expr", "cron")];
        let kind = kinds.into_iter().find(|(name, _)| members.contains_key(*name)).map(|(_, kind)| kind);
        members.extend(kind.map(|kind| ("kind".to_owned(), json!(kind))));
    }
    Ok(Value::Object(members))
}

fn whole_millis(span: std::time::Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use countersign_core::{schedule::Zone, time::Millis};
    use serde_json::{Value, json};

    use super::in_wire_form;

    /// Sunday, November 22, 2026, 12:00 UTC.
    const NOW: Millis = Millis(1_795_348_800_000);
    const HOUR: u64 = 3_600_000;

    #[test]
    fn what_people_say_becomes_what_the_wire_has() {
        let at = |at: u64| json!({ "kind": "at", "atMs": at });
        let every = |every: u64| json!({ "kind": "every", "everyMs": every });
        for (input, want) in [
            (json!("in 2 hours"), Ok(at(NOW.0 + 2 * HOUR))),
            (json!("tomorrow 9am"), Ok(at(NOW.0 + 21 * HOUR))),
            (json!("every 30 minutes"), Ok(every(HOUR / 2))),
            (json!("every hour"), Ok(every(HOUR))),
            (json!("0 9 * * mon"), Ok(json!({ "kind": "cron", "expr": "0 9 * * mon" }))),
            (json!({ "at": "in 2 hours" }), Ok(at(NOW.0 + 2 * HOUR))),
            (json!({ "kind": "at", "at": "tomorrow 9am", "tz": "Europe/Berlin" }), {
                Ok(json!({ "kind": "at", "atMs": NOW.0 + 20 * HOUR, "tz": "Europe/Berlin" }))
            }),
            (json!({ "everyMinutes": 15 }), Ok(every(HOUR / 4))),
            (json!({ "everyHours": 0.5 }), Ok(every(HOUR / 2))),
            (json!({ "everyDays": 1, "anchor": "tomorrow 9am" }), {
                Ok(json!({ "kind": "every", "everyMs": 24 * HOUR, "anchorMs": NOW.0 + 21 * HOUR }))
            }),
            (json!({ "kind": "at", "atMs": 7 }), Ok(at(7))),
            (json!({ "expr": "* * * * *", "tz": "UTC" }), {
                Ok(json!({ "kind": "cron", "expr": "* * * * *", "tz": "UTC" }))
            }),
            (json!({ "everyMinutes": 0 }), Err("everyMinutes must be a positive number".to_owned())),
            (json!("tomorrow"), Err("\"tomorrow\" has no time of day: say such as \"tomorrow 9am\"".to_owned())),
        ] {
            let mut job = json!({ "schedule": input });
            let converted = in_wire_form(&mut job, NOW, Zone::UTC).map(|()| job["schedule"].take());
            assert_eq!(converted, want as Result<Value, String>, "{input}");
        }
    }
}
