//! Planned jobs and heartbeats, with their next time and their last result.

use countersign_core::{
    engine::Engine,
    schedule::{FiringStatus, Job, JobKind},
    time::Millis,
};
use countersign_runtime::InboxLane;
use maud::{Markup, html};

use super::{
    ConsoleState,
    labels::{duration_text, escape_line, plain_text, time_ago},
    page::PageError,
    page::render_table,
};

/// Most jobs that are shown.
const MOST: usize = 200;

/// Planned job, as the page has it.
pub(super) struct PlannedJob {
    name: String,
    agent: String,
    next: Option<Millis>,
    is_running: bool,
    last: Option<(Millis, FiringStatus)>,
}

impl ConsoleState {
    /// Returns the jobs that are due first, and the number of all.
    pub(super) async fn planned_jobs(&self) -> Result<(Vec<PlannedJob>, usize), PageError> {
        let read = |engine: &Engine| {
            let state = engine.state().schedule();
            let mut jobs: Vec<&Job> = state.jobs(JobKind::Job).chain(state.jobs(JobKind::Heartbeat)).collect();
            jobs.sort_by_key(|job| (job.next().is_none(), job.next(), job.id().clone()));
            let count = jobs.len();
            (jobs.into_iter().take(MOST).cloned().collect::<Vec<Job>>(), count)
        };
        let response = self.context.handle.source(InboxLane::Request).read_state(read).await;
        let ((jobs, count), _) = response.ok_or_else(PageError::gateway_closing)?;
        let places: Vec<_> = jobs.iter().map(Job::content_lsn).collect();
        let texts = self.context.handle.contents().get(&places).await.map_err(PageError::unreadable_record)?;
        let planned = jobs.iter().zip(texts).map(|(job, text)| {
            let text = text.and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok());
            let named = text.and_then(|text| Some(text["name"].as_str()?.to_owned()));
            PlannedJob {
                name: match job.plan().kind {
                    JobKind::Job => named.unwrap_or_else(|| job.id().to_string()),
                    JobKind::Heartbeat => "heartbeat".to_owned(),
                },
                agent: job.plan().agent.clone(),
                next: job.next(),
                is_running: job.firing().is_some(),
                last: job.last_firing().map(|last| (last.at, last.status)),
            }
        });
        Ok((planned.collect(), count))
    }
}

/// Renders the planned jobs as a part of a page.
pub(super) fn planned_section(planned: &[PlannedJob], count: usize, now: Millis) -> Markup {
    html! {
        section aria-labelledby="planned" {
            h2 #planned { "Scheduled jobs" }
            @if planned.is_empty() { p.empty { "No jobs or heartbeats are scheduled." } }
            @else {
                (render_table(&["Job", "Agent", "Next", "Last"], planned.iter().map(|planned| html! {
                    td { (escape_line(&planned.name)) }
                    td { (plain_text(&planned.agent)) }
                    td { (next_text(planned, now)) }
                    td { (last_text(planned, now)) }
                })))
                @if count > planned.len() { p.note { (count - planned.len()) " more are not shown." } }
            }
        }
    }
}

fn next_text(planned: &PlannedJob, now: Millis) -> String {
    match planned.next {
        _ if planned.is_running => "running".to_owned(),
        None => "not scheduled".to_owned(),
        Some(next) if next <= now => "due".to_owned(),
        Some(next) => format!("in {}", duration_text(next.0 - now.0)),
    }
}

fn last_text(planned: &PlannedJob, now: Millis) -> Markup {
    let how = |status| match status {
        FiringStatus::Ok => "succeeded",
        FiringStatus::Failed => "failed",
        FiringStatus::Skipped => "skipped",
    };
    html! { @match planned.last { Some((at, status)) => { (how(status)) ", " (time_ago(at, now)) }, None => "never" } }
}
