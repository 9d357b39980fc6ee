//! Decides about heartbeats: their active hours, whether the list has tasks, and whether the
//! agent's reply is forwarded to people.

use std::time::Duration;

use chrono::Timelike as _;
use serde::{Deserialize, Serialize};

use super::Zone;
use crate::time::Millis;

/// Hours of a day with heartbeats. The first is among them, the last is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveHours {
    /// Minutes of the day.
    start: u32,
    end: u32,
    zone: Zone,
}

/// Error for an invalid time of day.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid time of day {0:?}: expected HH:MM from 00:00 to 24:00")]
pub struct HoursError(pub String);

impl ActiveHours {
    /// Creates hours from `start` to `end`, each `HH:MM`; `24:00` is the end of the day. They may go over midnight, and are the whole
    /// day if both are the same.
    ///
    /// # Errors
    /// If one of them is no time of day.
    pub fn new(start: &str, end: &str, zone: Zone) -> Result<Self, HoursError> {
        Ok(Self { start: parse_minutes(start)?, end: parse_minutes(end)?, zone })
    }

    /// Reports whether `at` is one of them, by the clock of their zone.
    pub fn contains_time(self, at: Millis) -> bool {
        let Some(local) = self.zone.local_time(at) else { return false };
        let minute = local.hour() * 60 + local.minute();
        match self.start.cmp(&self.end) {
            std::cmp::Ordering::Less => (self.start..self.end).contains(&minute),
            std::cmp::Ordering::Equal => true,
            std::cmp::Ordering::Greater => minute >= self.start || minute < self.end,
        }
    }
}

fn parse_minutes(text: &str) -> Result<u32, HoursError> {
    let digits = |part: &str| (part.len() == 2).then(|| part.bytes().all(|byte| byte.is_ascii_digit()));
    let read = || {
        let (hour, minute) = text.trim().split_once(':')?;
        if digits(hour) != Some(true) || digits(minute) != Some(true) {
            return None;
        }
        let (hour, minute): (u32, u32) = (hour.parse().ok()?, minute.parse().ok()?);
        let all = hour * 60 + minute;
        (minute < 60 && all <= 24 * 60).then_some(all)
    };
    read().ok_or_else(|| HoursError(text.to_owned()))
}

/// Reason for which a due heartbeat is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// The time is outside the [`ActiveHours`].
    OutsideActiveHours,
    /// There is no task list.
    NoHeartbeatFile,
    /// The task list is empty; see [`has_tasks`].
    EmptyHeartbeatFile,
    /// The session that was last active has a run.
    SessionBusy,
}

/// Reports whether a task list has any content besides comments, bare headings, rules and empty items.
pub fn has_tasks(list: &str) -> bool {
    let mut text = String::with_capacity(list.len());
    let mut rest = list;
    while let Some((before, behind)) = rest.split_once("<!--") {
        text.push_str(before);
        // A comment that never ends hides nothing: better one heartbeat too many.
        let Some((_, after)) = behind.split_once("-->") else { break };
        rest = after;
    }
    text.push_str(rest);
    text.lines().map(str::trim).any(|line| {
        let is_heading = line.trim_start_matches('#').starts_with([' ', '\t']) && line.starts_with('#');
        let bare = line.trim_start_matches(['#', '-', '*', '_', '+', '=', ' ', '\t']);
        let bare = bare.strip_prefix("[ ]").unwrap_or(bare).trim();
        !is_heading && !bare.is_empty()
    })
}

/// Handling of the agent's reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeartbeatReport {
    /// Forward the reply, in these words.
    Say(String),
    /// The agent reported that there is nothing, or the reply is empty.
    Nothing,
    /// The same reply was forwarded a short while ago.
    Repeated,
}

/// Time for which a reply is not forwarded again in the same words.
pub const REPEATED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Reply of an agent that found nothing.
const ALL_WELL: &str = "HEARTBEAT_OK";

/// Words that may accompany [`ALL_WELL`] without being news.
const IDLE_WORDS: [&str; 12] = [
    "nothing",
    "nothing to do",
    "nothing to report",
    "nothing new",
    "nothing new to report",
    "nothing needs attention",
    "nothing needs your attention",
    "all good",
    "all clear",
    "all quiet",
    "no news",
    "no updates",
];

/// Decides which part of an agent's heartbeat reply is forwarded to people. `last` is the last forwarded reply, with its time.
///
/// Only replies without content are held back: the agreed word at one end, alone or with one of a few phrases that
/// mean the same. Any other text with it is forwarded, however short, so that no alert is lost.
pub fn heartbeat_report(reply: &str, last: Option<(&str, Millis)>, now: Millis) -> HeartbeatReport {
    let remainder = without_token(reply);
    let (text, has_token) = match remainder {
        Some(text) => (text, true),
        None => (reply.trim(), false),
    };
    if text.is_empty() || (has_token && is_idle(text)) {
        return HeartbeatReport::Nothing;
    }
    match last {
        Some((before, at)) if before == text && now.since(at) < REPEATED_AFTER => HeartbeatReport::Repeated,
        Some(_) | None => HeartbeatReport::Say(text.to_owned()),
    }
}

/// Returns the rest without the agreed word at its ends and the characters that join it to the rest. Absent if it is at neither.
fn without_token(reply: &str) -> Option<&str> {
    // Models like to decorate it.
    const DRESS: [char; 7] = ['*', '_', '`', '"', '.', '!', ' '];
    const JOINTS: [char; 11] = [':', '-', '\u{2013}', '\u{2014}', ' ', '\n', '\r', '\t', '.', ',', ';'];
    let reply = reply.trim();
    let bare = reply.trim_matches(DRESS);
    let at_start = bare.strip_prefix(ALL_WELL).filter(|rest| !rest.starts_with(is_of_word));
    let at_end = bare.strip_suffix(ALL_WELL).filter(|rest| !rest.ends_with(is_of_word));
    let rest = match (at_start, at_end) {
        (None, None) => return None,
        (Some(rest), _) => {
            let rest = rest.trim_start_matches(DRESS).trim_start_matches(JOINTS);
            rest.strip_suffix(ALL_WELL).unwrap_or(rest)
        }
        (None, Some(rest)) => rest.trim_end_matches(['*', '_', '`']),
    };
    Some(rest.trim_end_matches(JOINTS).trim())
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_idle(text: &str) -> bool {
    let words: String = text.chars().filter(|c| c.is_alphanumeric() || c.is_whitespace()).collect();
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    words.is_empty() || IDLE_WORDS.contains(&words.as_str())
}
