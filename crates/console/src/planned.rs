//! What is planned: jobs and heartbeats, when they are due next and how they went last.

use countersign_core::{
    engine::Engine,
    schedule::{FiringStatus, Job, JobKind},
    time::Millis,
};
use countersign_runtime::InboxLane;
use maud::{Markup, html};

use super::{
    Console,
    page::Trouble,
    page::table,
    words::{ago, one, plain, span},
};

/// How many are shown.
const MOST: usize = 200;

/// One that is planned, as the page has it.
pub(super) struct Planned {
    name: String,
    agent: String,
    next: Option<Millis>,
    is_running: bool,
    last: Option<(Millis, FiringStatus)>,
}

impl Console {
    /// Those that are due first, and how many there are in all.
    pub(super) async fn planned(&self) -> Result<(Vec<Planned>, usize), Trouble> {
        let read = |engine: &Engine| {
            let state = engine.state().schedule();
            let mut jobs: Vec<&Job> = state.jobs(JobKind::Job).chain(state.jobs(JobKind::Heartbeat)).collect();
            jobs.sort_by_key(|job| (job.next().is_none(), job.next(), job.id().clone()));
            let count = jobs.len();
            (jobs.into_iter().take(MOST).cloned().collect::<Vec<Job>>(), count)
        };
        let asked = self.context.handle.source(InboxLane::Request).read_state(read).await;
        let ((jobs, count), _) = asked.ok_or_else(Trouble::closing)?;
        let places: Vec<_> = jobs.iter().map(Job::content_lsn).collect();
        let texts = self.context.handle.contents().get(&places).await.map_err(Trouble::unread)?;
        let planned = jobs.iter().zip(texts).map(|(job, text)| {
            let text = text.and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok());
            let named = text.and_then(|text| Some(text["name"].as_str()?.to_owned()));
            Planned {
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

/// What is planned, as a part of a page.
pub(super) fn section(planned: &[Planned], count: usize, now: Millis) -> Markup {
    html! {
        section aria-labelledby="planned" {
            h2 #planned { "Planned" }
            @if planned.is_empty() { p.empty { "No job and no heartbeat is planned." } }
            @else {
                (table(&["What", "Agent", "Next", "Last"], planned.iter().map(|planned| html! {
                    td { (one(&planned.name)) }
                    td { (plain(&planned.agent)) }
                    td { (next(planned, now)) }
                    td { (last(planned, now)) }
                })))
                @if count > planned.len() { p.note { (count - planned.len()) " more are not shown." } }
            }
        }
    }
}

fn next(planned: &Planned, now: Millis) -> String {
    match planned.next {
        _ if planned.is_running => "running".to_owned(),
        None => "never by itself".to_owned(),
        Some(next) if next <= now => "due".to_owned(),
        Some(next) => format!("in {}", span(next.0 - now.0)),
    }
}

fn last(planned: &Planned, now: Millis) -> Markup {
    let how = |status| match status {
        FiringStatus::Ok => "well",
        FiringStatus::Failed => "failed",
        FiringStatus::Skipped => "skipped",
    };
    html! { @match planned.last { Some((at, status)) => { (how(status)) ", " (ago(at, now)) }, None => "never" } }
}
