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
use countersign_view::{Lines, escape};

use super::{
    super::{Door, chat},
    definition::Definition,
    heartbeats,
    telling::{self, Telling},
};

/// How long a run may take that says nothing of it, in milliseconds.
const LONGEST: u64 = 60 * 60 * 1000;
/// How much of what was said is kept for lists, in characters.
const SUMMARY: usize = 2000;

/// Sees to what a firing needs. What went wrong on the way is its end.
pub(super) async fn see_to(door: &Arc<Door>, fired: &DueFiring) -> schedule::Command {
    let (kind, step) = (fired.job.plan().kind, fired.step);
    let seen = match (kind, step) {
        (JobKind::Job, FiringStep::Say) => say(door, fired).await,
        (JobKind::Heartbeat, FiringStep::Say) => heartbeats::say(door, fired).await,
        (JobKind::Job, FiringStep::Tell) => tell(door, fired).await,
        (JobKind::Heartbeat, FiringStep::Tell) => heartbeats::tell(door, fired).await,
    };
    match seen {
        Ok(seen) => seen,
        // What cannot be begun is told like what failed.
        Err(error) if (kind, step) == (JobKind::Job, FiringStep::Say) => failed(door, fired, error, None).await,
        Err(error) => fired.failed_command(error),
    }
}

/// What a job is, by its record.
async fn definition(door: &Door, fired: &DueFiring) -> Result<Definition, String> {
    let text = read(door, fired.job.content_lsn()).await?.ok_or("what it does cannot be read any more")?;
    serde_json::from_str(&text).map_err(|error| format!("what it does cannot be read: {error}"))
}

/// The content of a record, if it is still there.
pub(super) async fn read(door: &Door, place: Lsn) -> Result<Option<Arc<str>>, String> {
    let texts = door.context.handle.contents().get(&[place]).await.map_err(|error| error.to_string())?;
    Ok(texts.into_iter().next().flatten())
}

async fn say(door: &Arc<Door>, fired: &DueFiring) -> Result<schedule::Command, String> {
    let Definition { spec, name, .. } = definition(door, fired).await?;
    let agent = &fired.job.plan().agent;
    Ok(match spec {
        CronSpec::SystemEvent { text } => {
            let key = door.settings.keys().main_session_key(agent);
            let session = chat::prepare(door, &key).await.map_err(|fault| fault.message)?;
            let marks = RunMetadata { terms: terms(fired, None), ..RunMetadata::default() };
            let text = format!("{text}{}", note(door, fired, &name, telling::of_last()).await);
            message(fired, session, &text, marks, ConversationMode::GoesOn)
        }
        CronSpec::Task(task) => {
            let key = SessionKeyScheme::job_session_key(agent, fired.job.id().as_str());
            let session = chat::open_for_job(door, &key).await.map_err(|fault| fault.message)?;
            let text = text_of_task(door, fired, &name, &task).await;
            let usual = door.settings.model_of(agent);
            let model = match &task.model {
                Some(model) => ModelSelector::from_text(model, &usual.provider)
                    .ok_or_else(|| ModelSelector::invalid_message(model))?,
                None => usual,
            };
            let marks = RunMetadata {
                model: Some(door.settings.reference(&door.context, &model)),
                thinking: task.thinking.map(|level| level.display_name().to_owned()),
                terms: terms(fired, task.timeout_seconds.map(|seconds| seconds.saturating_mul(1000))),
                ..RunMetadata::default()
            };
            message(fired, session, &text, marks, ConversationMode::BeginsAnew)
        }
    })
}

async fn text_of_task(door: &Arc<Door>, fired: &DueFiring, name: &str, task: &CronTask) -> String {
    let time = door.settings.zone().full_time(door.context.clock.wall_time());
    let note = match telling::of_task(task) {
        Some(telling) => note(door, fired, name, telling).await,
        None => String::new(),
    };
    format!("[cron · {time}] {}{note}", task.message)
}

/// The note that an answer is delivered without the model's doing, where it reaches somebody.
async fn note(door: &Arc<Door>, fired: &DueFiring, name: &str, telling: Telling) -> String {
    if telling.reaches(door, &fired.job.plan().agent).await {
        format!("\n\n(What you answer is delivered by itself, as the outcome of the job \"{name}\".)")
    } else {
        String::new()
    }
}

/// The command that says a message, under a name that is the same after a restart.
pub(super) fn message(
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
    let message = schedule::FiringMessage { session, message: chat::said(text, Vec::new()), marks, conversation };
    schedule::Command::Say { firing: fired.id(), message: Box::new(message) }
}

/// The contract of a scheduled run: it may do what rules let it, and has so much time. What rules ask about is asked, and is
/// refused if nobody answers.
pub(super) fn terms(fired: &DueFiring, within: Option<u64>) -> Option<Box<ContractTerms>> {
    let actor = match fired.job.plan().kind {
        JobKind::Job => format!("cron:{}", fired.job.id()),
        JobKind::Heartbeat => fired.job.id().to_string(),
    };
    let budget = BudgetLimits { wall_time: Some(within.unwrap_or(LONGEST)), ..BudgetLimits::default() };
    let may = Contract::of_everything();
    Some(Box::new(ContractTerms { actor, may, budget, on_breach: BreachResponse::End, renegotiable: false }))
}

async fn tell(door: &Arc<Door>, fired: &DueFiring) -> Result<schedule::Command, String> {
    let (over, said) = outcome(door, fired).await?;
    let (text, problem) = came_to(&over, said.as_ref());
    let summary = text.as_deref().map(short);
    if let Some(problem) = problem {
        return Ok(failed(door, fired, problem, summary).await);
    }
    let Definition { spec, .. } = definition(door, fired).await?;
    let Some(telling) = telling::of_spec(&spec) else { return Ok(ends(fired, FiringStatus::Ok, false, None, summary)) };
    let told = say_to(door, fired, &over.session, telling, text.as_deref().unwrap_or_default()).await;
    Ok(match told {
        Ok(told) => ends(fired, FiringStatus::Ok, told, None, summary),
        Err(problem) => {
            let is_good = matches!(spec, CronSpec::Task(CronTask { best_effort_deliver: Some(true), .. }));
            let status = if is_good { FiringStatus::Ok } else { FiringStatus::Failed };
            ends(fired, status, false, Some(format!("delivery failed: {problem}")), summary)
        }
    })
}

/// The end of a firing that failed. Whoever is told of its outcome is told of that: nobody else would wonder. What they were told
/// last they are not told again within a day, and what a person stopped they know.
async fn failed(door: &Arc<Door>, fired: &DueFiring, problem: String, summary: Option<String>) -> schedule::Command {
    let told = match definition(door, fired).await {
        Ok(Definition { spec, name, .. }) if problem != CANCELLED => {
            let text = format!("The job \"{}\" failed: {}", escape(&name, Lines::One), short(&problem));
            match telling::of_spec(&spec) {
                Some(telling) => tell_failure(door, fired, telling, text).await,
                None => None,
            }
        }
        Ok(_) | Err(_) => None,
    };
    let is_told = told.is_some();
    ends(fired, FiringStatus::Failed, is_told, Some(problem), told.or(summary))
}

/// Tells people that something failed; what they were told, if they were.
pub(super) async fn tell_failure(
    door: &Arc<Door>,
    fired: &DueFiring,
    telling: Telling,
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
    match say_to(door, fired, &session, telling, &text).await {
        Ok(told) => told.then_some(text),
        Err(problem) => {
            tracing::warn!(job = %fired.job.id(), problem, "nobody is told that a job failed");
            None
        }
    }
}

/// Whether people were told the same a short while ago.
async fn is_repeated(door: &Door, fired: &DueFiring, text: &str) -> bool {
    let Some((at, place)) = fired.job.last_report() else { return false };
    let is_recent = door.context.clock.now().since(at) < REPEATED_AFTER;
    is_recent && words(door, place).await.as_deref() == Some(text)
}

/// What people were told, by the record that says that they were.
pub(super) async fn words(door: &Door, place: Lsn) -> Option<String> {
    let text = read(door, place).await.ok().flatten()?;
    serde_json::from_str::<FiringOutcome>(&text).ok()?.summary
}

/// Tells people. True if there was somebody to tell; asked for again after a restart, it is told once.
///
/// # Errors
/// Why those could not be told who were to be.
pub(super) async fn say_to(
    door: &Arc<Door>,
    fired: &DueFiring,
    session: &SessionId,
    telling: Telling,
    text: &str,
) -> Result<bool, String> {
    // A heartbeat that was taken out and comes back counts from 1 again, and is not what was told before.
    let key = format!("{}-{}-{}", fired.job.id(), fired.firing.number, fired.firing.at.0);
    telling.say(door, &fired.job.plan().agent, session, text, key).await
}

/// What the run of a firing came to, and its last words.
pub(super) async fn outcome(door: &Door, fired: &DueFiring) -> Result<(FinishedRun, Option<AssistantReply>), String> {
    let FiringStage::Over(over) = &fired.firing.stage else { return Err("it is not over".to_owned()) };
    let text = match over.words {
        Some(words) => read(door, words).await?,
        None => None,
    };
    let said = text.and_then(|text| match serde_json::from_str(&text) {
        Ok(StoredMessage::Assistant(said)) => Some(said),
        _ => None,
    });
    Ok((over.clone(), said))
}

/// What was said, and what went wrong.
pub(super) fn came_to(over: &FinishedRun, said: Option<&AssistantReply>) -> (Option<String>, Option<String>) {
    let text = said.map(|said| text_of(&said.content)).filter(|text| !text.trim().is_empty());
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
            let why = said.and_then(|said| said.error_message.clone());
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
pub(super) fn ends(
    fired: &DueFiring,
    status: FiringStatus,
    told: bool,
    error: Option<String>,
    summary: Option<String>,
) -> schedule::Command {
    let ending = FiringResult { status, reported: told, outcome: FiringOutcome { error, summary } };
    schedule::Command::End { firing: fired.id(), ending }
}

/// So much of a text as lists have of it.
pub(super) fn short(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(SUMMARY) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
