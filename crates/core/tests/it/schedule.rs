//! Due times of planned work.

#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod clocks;
mod expressions;
mod heartbeats;
mod jobs;
mod moved_clocks;
mod plans;
mod resets;
mod time_phrase;

pub(crate) use jobs::planned;

use chrono::{DateTime, SecondsFormat, TimeZone as _};
use countersign_core::{schedule::Zone, time::Millis};

fn zone(name: &str) -> Zone {
    name.parse().unwrap()
}

/// Returns the instant of a text such as `2026-03-29T02:00:00+01:00`.
fn at(text: &str) -> Millis {
    let at = DateTime::parse_from_rfc3339(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    Millis(at.timestamp_millis().try_into().unwrap())
}

/// Returns the local time of an instant with its offset.
fn local(at: Millis, zone: Zone) -> String {
    let zone: chrono_tz::Tz = zone.to_string().parse().unwrap();
    let at = zone.timestamp_millis_opt(at.0.try_into().unwrap()).unwrap();
    at.to_rfc3339_opts(SecondsFormat::Secs, false)
}
