//! Handles a firing: sends the message of its job, and reports its outcome.

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

/// Longest time of a run whose job names none, in milliseconds.
const LONGEST: u64 = 60 * 60 * 1000;
/// Longest part of an answer that lists keep, in characters.
const SUMMARY: usize = 2000;

/// Handles a step of a firing. A failure on the way ends the firing.
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
        // A job that cannot begin is reported like one that failed.
        Err(error) if (kind, step) == (JobKind::Job, FiringStep::Say) => fail_firing(door, fired, error, None).await,
        Err(error) => fired.failed_command(error),
    }
}

/// Reads the definition of a job from its record.
async fn read_definition(door: &GsvAdapter, fired: &DueFiring) -> Result<JobDefinition, String> {
    let text = read_content(door, fired.job.content_lsn()).await?.ok_or("what it does cannot be read any more")?;
    serde_json::from_str(&text).map_err(|error| format!("what it does cannot be read: {error}"))
}

/// Reads the content of a record, if it is still there.
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

/// Returns the note to the agent that its answer is delivered automatically, if the target reaches anybody.
async fn delivery_note(door: &Arc<GsvAdapter>, fired: &DueFiring, name: &str, telling: NotifyTarget) -> String {
    if telling.reaches_anybody(door, &fired.job.plan().agent).await {
        format!("\n\n(What you answer is delivered by itself, as the outcome of the job \"{name}\".)")
    } else {
        String::new()
    }
}

/// Returns the command that says a message, under a name that is the same after a restart.
pub(super) fn say_command(
    fired: &DueFiring,
    session: SessionId,
    text: &str,
    marks: RunMetadata,
    conversation: ConversationMode,
) -> schedule::Command {
    let number = match fired.job.plan().kind {
        JobKind::Job => fired.firing.number,
        // A heartbeat that was removed and returns counts from 1 again, and its runs differ from the earlier ones.
        JobKind::Heartbeat => fired.firing.at.0,
    };
    let reference = Some(format!("{}-{number}", fired.job.id()));
    let marks = Box::new(RunMetadata { reference, ..marks });
    let message =
        schedule::FiringMessage { session, message: chat::user_message(text, Vec::new()), marks, conversation };
    schedule::Command::Say { firing: fired.id(), message: Box::new(message) }
}

/// Returns the contract of a scheduled run: rules decide about it, and its time is limited. A call that needs an approval is
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

/// Ends a firing that failed. The target that would get its outcome gets the failure. The same failure is not sent again
/// within a day, and a stop by a person is not sent.
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

/// Sends a failure to the target of a job. Returns the text if it was sent.
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
            tracing::warn!(job = %fired.job.id(), problem, "failed to report a failed job to its chat");
            None
        }
    }
}

/// Reports whether the same text was sent a short while ago.
async fn is_repeated(door: &GsvAdapter, fired: &DueFiring, text: &str) -> bool {
    let Some((at, place)) = fired.job.last_report() else { return false };
    let is_recent = door.context.clock.now().since(at) < REPEATED_AFTER;
    is_recent && last_report(door, place).await.as_deref() == Some(text)
}

/// Reads the text of the last report, from its record.
pub(super) async fn last_report(door: &GsvAdapter, place: Lsn) -> Option<String> {
    let text = read_content(door, place).await.ok().flatten()?;
    serde_json::from_str::<FiringOutcome>(&text).ok()?.summary
}

/// Sends a report. Returns true if it has a receiver. Sent again after a restart, it arrives once.
///
/// # Errors
/// The reason why a required target could not be reached.
pub(super) async fn deliver_report(
    door: &Arc<GsvAdapter>,
    fired: &DueFiring,
    session: &SessionId,
    telling: NotifyTarget,
    text: &str,
) -> Result<bool, String> {
    // A heartbeat that was removed and returns counts from 1 again, and is another one than before.
    let key = format!("{}-{}-{}", fired.job.id(), fired.firing.number, fired.firing.at.0);
    telling.send_text(door, &fired.job.plan().agent, session, text, key).await
}

/// Reads the outcome of a firing's run, and its last answer.
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

/// Splits the outcome of a run into its answer and its problem.
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

/// Returns the command that ends a firing.
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

/// Shortens a text for lists.
pub(super) fn shorten_text(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(SUMMARY) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
