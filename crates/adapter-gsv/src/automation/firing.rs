//! Sees to a firing: says what it is about, and tells people what came of it.

use std::sync::Arc;

use countersign_core::{
    FiringStep,
    id::{Lsn, SessionId},
    ledger::{BudgetLimits, LedgerMetric},
    message::{AssistantReply, StoredMessage, text_of},
    policy::Contract,
    run::{RunMetadata, RunOutcome},
    schedule::{
        self, ConversationMode, FinishedRun, FiringOutcome, FiringResult, FiringStage, FiringStatus, JobKind,
        REPEATED_AFTER,
    },
    unattended::{BreachResponse, ContractTerms},
};
use countersign_protocol::gsv::{
    chat::{CANCELLED, EMPTY_RESPONSE},
    cron::{CronSpec, CronTask},
    directive::ModelSelector,
    key::SessionKeyScheme,
};
use countersign_runtime::{DueFiring, models::EMPTY_ANSWER};
use countersign_view::{LineMode, escape};

use super::{
    super::{GsvAdapter, chat},
    definition::JobDefinition,
    heartbeats,
    notify::{self, NotifyTarget},
};

/// How long a run may take that says nothing of it, in milliseconds.
const LONGEST: u64 = 60 * 60 * 1000;
/// How much of what was said is kept for lists, in characters.
const SUMMARY: usize = 2000;

/// Sees to what a firing needs. What went wrong on the way is its end.
pub(super) async fn handle_firing(door: &Arc<GsvAdapter>, fired: &DueFiring) -> schedule::Command {
    let (kind, step) = (fired.job.plan().kind, fired.step);
    let seen = match (kind, step) {
        (JobKind::Job, FiringStep::Say) => job_message(door, fired).await,
        (JobKind::Heartbeat, FiringStep::Say) => heartbeats::heartbeat_message(door, fired).await,
        (JobKind::Job, FiringStep::Tell) => report_job(door, fired).await,
        (JobKind::Heartbeat, FiringStep::Tell) => heartbeats::report_heartbeat(door, fired).await,
    };
    match seen {
        Ok(seen) => seen,
        // What cannot be begun is told like what failed.
        Err(error) if (kind, step) == (JobKind::Job, FiringStep::Say) => fail_firing(door, fired, error, None).await,
        Err(error) => fired.failed_command(error),
    }
}

/// What a job is, by its record.
async fn read_definition(door: &GsvAdapter, fired: &DueFiring) -> Result<JobDefinition, String> {
    let text = read_content(door, fired.job.content_lsn()).await?.ok_or("what it does cannot be read any more")?;
    serde_json::from_str(&text).map_err(|error| format!("what it does cannot be read: {error}"))
}

/// The content of a record, if it is still there.
pub(super) async fn read_content(door: &GsvAdapter, place: Lsn) -> Result<Option<Arc<str>>, String> {
    let texts = door.context.handle.contents().get(&[place]).await.map_err(|error| error.to_string())?;
    Ok(texts.into_iter().next().flatten())
}

async fn job_message(door: &Arc<GsvAdapter>, fired: &DueFiring) -> Result<schedule::Command, String> {
    let JobDefinition { spec, name, .. } = read_definition(door, fired).await?;
    let agent = &fired.job.plan().agent;
    Ok(match spec {
        CronSpec::SystemEvent { text } => {
            let key = door.settings.key_scheme().main_session_key(agent);
            let session = chat::prepare_session(door, &key).await.map_err(|fault| fault.message)?;
            let marks = RunMetadata { terms: contract_terms(fired, None), ..RunMetadata::default() };
            let text = format!("{text}{}", delivery_note(door, fired, &name, notify::last_chat()).await);
            say_command(fired, session, &text, marks, ConversationMode::GoesOn)
        }
        CronSpec::Task(task) => {
            let key = SessionKeyScheme::job_session_key(agent, fired.job.id().as_str());
            let session = chat::open_for_job(door, &key).await.map_err(|fault| fault.message)?;
            let text = text_of_task(door, fired, &name, &task).await;
            let usual = door.settings.agent_model(agent);
            let model = match &task.model {
                Some(model) => ModelSelector::from_text(model, &usual.provider)
                    .ok_or_else(|| ModelSelector::invalid_message(model))?,
                None => usual,
            };
            let marks = RunMetadata {
                model: Some(door.settings.model_ref(&door.context, &model)),
                thinking: task.thinking.map(|level| level.display_name().to_owned()),
                terms: contract_terms(fired, task.timeout_seconds.map(|seconds| seconds.saturating_mul(1000))),
                ..RunMetadata::default()
            };
            say_command(fired, session, &text, marks, ConversationMode::BeginsAnew)
        }
    })
}

async fn text_of_task(door: &Arc<GsvAdapter>, fired: &DueFiring, name: &str, task: &CronTask) -> String {
    let time = door.settings.user_zone().full_time(door.context.clock.wall_time());
    let note = match notify::task_target(task) {
        Some(telling) => delivery_note(door, fired, name, telling).await,
        None => String::new(),
    };
    format!("[cron · {time}] {}{note}", task.message)
}

/// The note that an answer is delivered without the model's doing, where it reaches somebody.
async fn delivery_note(door: &Arc<GsvAdapter>, fired: &DueFiring, name: &str, telling: NotifyTarget) -> String {
    if telling.reaches_anybody(door, &fired.job.plan().agent).await {
        format!("\n\n(What you answer is delivered by itself, as the outcome of the job \"{name}\".)")
    } else {
        String::new()
    }
}

/// The command that says a message, under a name that is the same after a restart.
pub(super) fn say_command(
    fired: &DueFiring,
    session: SessionId,
    text: &str,
    marks: RunMetadata,
    conversation: ConversationMode,
) -> schedule::Command {
    let number = match fired.job.plan().kind {
        JobKind::Job => fired.firing.number,
        // One that was taken out and comes back counts from 1 again, and its runs are not those of before.
        JobKind::Heartbeat => fired.firing.at.0,
    };
    let reference = Some(format!("{}-{number}", fired.job.id()));
    let marks = Box::new(RunMetadata { reference, ..marks });
    let message =
        schedule::FiringMessage { session, message: chat::user_message(text, Vec::new()), marks, conversation };
    schedule::Command::Say { firing: fired.id(), message: Box::new(message) }
}

/// The contract of a scheduled run: it may do what rules let it, and has so much time. What rules ask about is asked, and is
/// refused if nobody answers.
pub(super) fn contract_terms(fired: &DueFiring, within: Option<u64>) -> Option<Box<ContractTerms>> {
    let actor = match fired.job.plan().kind {
        JobKind::Job => format!("cron:{}", fired.job.id()),
        JobKind::Heartbeat => fired.job.id().to_string(),
    };
    let budget = BudgetLimits { wall_time: Some(within.unwrap_or(LONGEST)), ..BudgetLimits::default() };
    let may = Contract::of_everything();
    Some(Box::new(ContractTerms { actor, may, budget, on_breach: BreachResponse::End, renegotiable: false }))
}

async fn report_job(door: &Arc<GsvAdapter>, fired: &DueFiring) -> Result<schedule::Command, String> {
    let (over, answer) = run_outcome(door, fired).await?;
    let (text, problem) = answer_and_problem(&over, answer.as_ref());
    let summary = text.as_deref().map(shorten_text);
    if let Some(problem) = problem {
        return Ok(fail_firing(door, fired, problem, summary).await);
    }
    let JobDefinition { spec, .. } = read_definition(door, fired).await?;
    let Some(telling) = notify::spec_target(&spec) else {
        return Ok(end_command(fired, FiringStatus::Ok, false, None, summary));
    };
    let delivery = deliver_report(door, fired, &over.session, telling, text.as_deref().unwrap_or_default()).await;
    Ok(match delivery {
        Ok(was_sent) => end_command(fired, FiringStatus::Ok, was_sent, None, summary),
        Err(problem) => {
            let is_good = matches!(spec, CronSpec::Task(CronTask { best_effort_deliver: Some(true), .. }));
            let status = if is_good { FiringStatus::Ok } else { FiringStatus::Failed };
            end_command(fired, status, false, Some(format!("delivery failed: {problem}")), summary)
        }
    })
}

/// The end of a firing that failed. Whoever is told of its outcome is told of that: nobody else would wonder. What they were told
/// last they are not told again within a day, and what a person stopped they know.
async fn fail_firing(
    door: &Arc<GsvAdapter>,
    fired: &DueFiring,
    problem: String,
    summary: Option<String>,
) -> schedule::Command {
    let report = match read_definition(door, fired).await {
        Ok(JobDefinition { spec, name, .. }) if problem != CANCELLED => {
            let text = format!("The job \"{}\" failed: {}", escape(&name, LineMode::One), shorten_text(&problem));
            match notify::spec_target(&spec) {
                Some(telling) => tell_failure(door, fired, telling, text).await,
                None => None,
            }
        }
        Ok(_) | Err(_) => None,
    };
    let is_reported = report.is_some();
    end_command(fired, FiringStatus::Failed, is_reported, Some(problem), report.or(summary))
}

/// Tells people that something failed; what they were told, if they were.
pub(super) async fn tell_failure(
    door: &Arc<GsvAdapter>,
    fired: &DueFiring,
    telling: NotifyTarget,
    text: String,
) -> Option<String> {
    if is_repeated(door, fired, &text).await {
        return None;
    }
    let session = match &fired.firing.stage {
        FiringStage::Over(over) => over.session.clone(),
        FiringStage::Due | FiringStage::MessageSent { .. } => {
            chat::session_of(&SessionKeyScheme::job_session_key(&fired.job.plan().agent, fired.job.id().as_str()))
        }
    };
    match deliver_report(door, fired, &session, telling, &text).await {
        Ok(was_sent) => was_sent.then_some(text),
        Err(problem) => {
            tracing::warn!(job = %fired.job.id(), problem, "nobody is told that a job failed");
            None
        }
    }
}

/// Whether people were told the same a short while ago.
async fn is_repeated(door: &GsvAdapter, fired: &DueFiring, text: &str) -> bool {
    let Some((at, place)) = fired.job.last_report() else { return false };
    let is_recent = door.context.clock.now().since(at) < REPEATED_AFTER;
    is_recent && last_report(door, place).await.as_deref() == Some(text)
}

/// What people were told, by the record that says that they were.
pub(super) async fn last_report(door: &GsvAdapter, place: Lsn) -> Option<String> {
    let text = read_content(door, place).await.ok().flatten()?;
    serde_json::from_str::<FiringOutcome>(&text).ok()?.summary
}

/// Tells people. True if there was somebody to tell; asked for again after a restart, it is told once.
///
/// # Errors
/// Why those could not be told who were to be.
pub(super) async fn deliver_report(
    door: &Arc<GsvAdapter>,
    fired: &DueFiring,
    session: &SessionId,
    telling: NotifyTarget,
    text: &str,
) -> Result<bool, String> {
    // A heartbeat that was taken out and comes back counts from 1 again, and is not what was told before.
    let key = format!("{}-{}-{}", fired.job.id(), fired.firing.number, fired.firing.at.0);
    telling.send_text(door, &fired.job.plan().agent, session, text, key).await
}

/// What the run of a firing came to, and its last words.
pub(super) async fn run_outcome(
    door: &GsvAdapter,
    fired: &DueFiring,
) -> Result<(FinishedRun, Option<AssistantReply>), String> {
    let FiringStage::Over(over) = &fired.firing.stage else { return Err("it is not over".to_owned()) };
    let text = match over.words {
        Some(words) => read_content(door, words).await?,
        None => None,
    };
    let answer = text.and_then(|text| match serde_json::from_str(&text) {
        Ok(StoredMessage::Assistant(answer)) => Some(answer),
        _ => None,
    });
    Ok((over.clone(), answer))
}

/// What was said, and what went wrong.
pub(super) fn answer_and_problem(
    over: &FinishedRun,
    answer: Option<&AssistantReply>,
) -> (Option<String>, Option<String>) {
    let text = answer.map(|message| text_of(&message.content)).filter(|text| !text.trim().is_empty());
    let problem = match (&over.breach, over.end) {
        (Some(breach), _) if breach.metric == LedgerMetric::WallTime => {
            Some(format!("timed out after {} s", breach.limit / 1000))
        }
        (Some(breach), _) => Some(breach.to_string()),
        (None, Some(RunOutcome::Completed)) if text.is_some() => None,
        (None, Some(RunOutcome::Completed)) => Some(EMPTY_RESPONSE.to_owned()),
        (None, Some(RunOutcome::Aborted | RunOutcome::RetryCancelled)) => Some(CANCELLED.to_owned()),
        (None, None) => Some("its message was taken back before it began".to_owned()),
        (None, Some(RunOutcome::Failed | RunOutcome::Overflowed)) => {
            let why = answer.and_then(|message| message.error_message.clone());
            if why.as_ref().is_some_and(|why| why.starts_with(EMPTY_ANSWER)) {
                return (text, Some(EMPTY_RESPONSE.to_owned()));
            }
            Some(format!("LLM error: {}", why.unwrap_or_else(|| "the provider did not answer".to_owned())))
        }
        (None, Some(RunOutcome::Interrupted)) => Some("the gateway was restarted".to_owned()),
    };
    (text, problem)
}

/// The command that ends a firing.
pub(super) fn end_command(
    fired: &DueFiring,
    status: FiringStatus,
    was_sent: bool,
    error: Option<String>,
    summary: Option<String>,
) -> schedule::Command {
    let ending = FiringResult { status, reported: was_sent, outcome: FiringOutcome { error, summary } };
    schedule::Command::End { firing: fired.id(), ending }
}

/// So much of a text as lists have of it.
pub(super) fn shorten_text(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(SUMMARY) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
