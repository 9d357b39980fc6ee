//! Short texts for events of jobs.

use std::time::Duration;

use countersign_core::{
    run::RunOutcome,
    schedule::{
        Event, FinishedRun, FiringCause, FiringId, FiringOutcome, FiringStatus, JobKind, JobPlan, JobSchedule, Zone,
    },
    time::Millis,
};

use crate::time::duration_text;

pub(super) fn schedule_text(event: &Event, content: Option<&str>) -> String {
    match event {
        Event::Limited(limits) => {
            let may = if limits.enabled { "enabled" } else { "disabled, start by request only" };
            format!("scheduled jobs {may}: at most {}, {} at once, in {}", limits.most, limits.at_once, limits.zone)
        }
        Event::Clocked { ahead } => {
            let by = ahead.unsigned_abs();
            let way = if *ahead < 0 { "behind" } else { "ahead of" };
            let by = duration_text(Duration::from_millis(by));
            format!("the wall clock is {by} {way} the clock of the record; jobs follow it")
        }
        Event::Added { job, plan, next } => format!("{job} scheduled {}{}", plan_text(plan), next_text(*next)),
        Event::Changed { job, plan, next } => format!("{job} rescheduled {}{}", plan_text(plan), next_text(*next)),
        Event::Removed { job } => format!("{job} removed"),
        Event::Fired { firing, planned, cause: FiringCause::Due, .. } => {
            format!("{} started, scheduled for {}", firing_name(firing), time_text(*planned))
        }
        Event::Fired { firing, cause: FiringCause::Manual, .. } => {
            format!("{} started by request", firing_name(firing))
        }
        Event::MessageSent { firing } => format!("message of {} sent", firing_name(firing)),
        Event::Ran { firing, over } => format!("the run of {} {}", firing_name(firing), over_in_words(over)),
        Event::Ended { firing, status, took, reported, .. } => {
            let outcome = content.and_then(|text| serde_json::from_str::<FiringOutcome>(text).ok()).unwrap_or_default();
            let how = match status {
                FiringStatus::Ok => "done",
                FiringStatus::Failed => "failed",
                FiringStatus::Skipped => "skipped",
            };
            let why = outcome.error.map_or_else(String::new, |error| format!(": {error}"));
            let report_note = if *reported { ", users notified" } else { "" };
            format!("{} {how} after {}{report_note}{why}", firing_name(firing), duration_text(*took))
        }
    }
}

fn firing_name(firing: &FiringId) -> String {
    format!("{} #{}", firing.job, firing.number)
}

fn plan_text(plan: &JobPlan) -> String {
    let when = match &plan.schedule {
        JobSchedule::At { .. } if plan.kind == JobKind::Heartbeat => "by request".to_owned(),
        JobSchedule::At { at } => format!("at {}", time_text(*at)),
        JobSchedule::Every { every, .. } => format!("every {}", duration_text(Duration::from_millis(*every))),
        JobSchedule::Cron { expression, zone } => format!("at {expression} in {zone}"),
    };
    let off = if plan.enabled { "" } else { ", disabled" };
    format!("for agent {} {when}{off}", plan.agent)
}

fn next_text(next: Option<Millis>) -> String {
    next.map_or_else(String::new, |next| format!(", next at {}", time_text(next)))
}

fn time_text(at: Millis) -> String {
    let shown = Zone::UTC.full_time(at);
    if shown.is_empty() { at.to_string() } else { shown }
}

fn over_in_words(over: &FinishedRun) -> String {
    match (&over.breach, over.end) {
        (Some(breach), _) => format!("ended: {breach}"),
        (None, Some(RunOutcome::Completed)) => "ended".to_owned(),
        (None, Some(RunOutcome::Aborted)) => "was stopped".to_owned(),
        (None, Some(_)) => "failed".to_owned(),
        (None, None) => "never started".to_owned(),
    }
}
