//! Methods about jobs: parameters and answers. When a schedule is due is not known here.

mod job;

use serde::{Deserialize, Serialize};

pub use job::{
    CronJob, CronJobState, CronListResult, CronRemoveResult, CronRunResult, CronRunStatus, CronRunsResult,
    CronSaveResult, CronStatusResult, JobRunResult, PastRun,
};

use super::directive::ThinkLevel;
use super::fields::ParamFields;
use super::heartbeat::read_agent;
use super::session::PageParams;
use super::{GsvError, code};

/// Schedule of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum CronSchedule {
    /// Once.
    At {
        /// In milliseconds.
        at_ms: u64,
    },
    /// Every so often.
    Every {
        /// In milliseconds.
        every_ms: u64,
        /// Start of the steps.
        #[serde(skip_serializing_if = "Option::is_none")]
        anchor_ms: Option<u64>,
    },
    /// By the calendar.
    Cron {
        /// A cron expression.
        expr: String,
        /// A time zone's name.
        #[serde(skip_serializing_if = "Option::is_none")]
        tz: Option<String>,
    },
}

/// Work of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum CronSpec {
    /// A message in the agent's main session.
    SystemEvent {
        /// The message.
        text: String,
    },
    /// A run in a session of its own.
    Task(CronTask),
}

/// A run of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CronTask {
    /// Message to the agent.
    pub message: String,
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Thinking level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<ThinkLevel>,
    /// Longest duration of the run, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// True if the outcome is delivered to people. Absent is yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliver: Option<bool>,
    /// Through which network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Recipient.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// True if the run succeeds even if its outcome could not be delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_effort_deliver: Option<bool>,
}

/// Parameters of `cron.add`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronAddParams {
    /// Agent that owns the job. Absent is the main agent.
    pub agent: Option<String>,
    /// Name.
    pub name: String,
    /// Description.
    pub description: Option<String>,
    /// True if it runs on its schedule.
    pub enabled: bool,
    /// True if it is deleted after its run.
    pub delete_after_run: Option<bool>,
    /// Schedule.
    pub schedule: CronSchedule,
    /// Work of the job.
    pub spec: CronSpec,
}

/// Members of a job, and of a patch of one.
const JOB: [&str; 7] = ["agentId", "name", "description", "enabled", "deleteAfterRun", "schedule", "spec"];

/// Creates an error as the original numbers those of jobs.
fn cron_error(message: impl Into<String>) -> GsvError {
    GsvError::new(code::FAILED, message)
}

/// Creates the error for an unknown id of a job.
pub fn unknown_job(id: &str) -> GsvError {
    cron_error(format!("Unknown cron job id: {id}"))
}

/// Creates the error for too many jobs.
pub fn too_many(most: usize) -> GsvError {
    cron_error(format!("Cron job limit reached ({most})"))
}

impl CronAddParams {
    pub(super) fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        const MISSING: &str = "name, schedule, and spec are required";
        let missing = || GsvError::bad_request(MISSING);
        let name = fields.require_text("name", MISSING)?;
        let schedule = fields.take_fields("schedule")?.ok_or_else(missing)?;
        let spec = fields.take_fields("spec")?.ok_or_else(missing)?;
        let create = Self {
            agent: read_agent(&mut fields)?,
            name: check_name(&name)?,
            description: fields.take_text("description")?,
            enabled: fields.take_flag("enabled")?.unwrap_or(true),
            delete_after_run: fields.take_flag("deleteAfterRun")?,
            schedule: self::read_schedule(schedule)?,
            spec: self::read_spec(spec)?,
        };
        fields.reject_unknown(&JOB)?;
        Ok(create)
    }
}

fn check_name(name: &str) -> Result<String, GsvError> {
    match name.trim() {
        "" => Err(cron_error("Cron job name must not be empty")),
        name if name.chars().count() > 200 => Err(cron_error("Cron job name has more than 200 characters")),
        name => Ok(name.to_owned()),
    }
}

fn read_schedule(mut fields: ParamFields) -> Result<CronSchedule, GsvError> {
    #[derive(Clone, Copy)]
    enum ScheduleKind {
        At,
        Every,
        Cron,
    }
    let kinds = [("at", ScheduleKind::At), ("every", ScheduleKind::Every), ("cron", ScheduleKind::Cron)];
    let kind = fields.take_choice("kind", &kinds)?.ok_or_else(|| cron_error("schedule.kind required"))?;
    let (schedule, takes) = match kind {
        ScheduleKind::At => {
            let at_ms = fields.take_count("atMs")?.ok_or_else(|| cron_error("schedule.atMs required"))?;
            (CronSchedule::At { at_ms }, ["kind", "atMs", "tz"].as_slice())
        }
        ScheduleKind::Every => {
            let every_ms = fields.take_count("everyMs")?.filter(|every| *every > 0);
            let every_ms = every_ms.ok_or_else(|| cron_error("schedule.everyMs must be a positive number"))?;
            let schedule = CronSchedule::Every { every_ms, anchor_ms: fields.take_count("anchorMs")? };
            (schedule, ["kind", "everyMs", "anchorMs", "tz"].as_slice())
        }
        ScheduleKind::Cron => {
            let expr = fields.take_text("expr")?.map(|expr| expr.trim().to_owned()).filter(|expr| !expr.is_empty());
            let tz = fields.take_text("tz")?.map(|tz| tz.trim().to_owned()).filter(|tz| !tz.is_empty());
            let schedule = CronSchedule::Cron { expr: expr.ok_or_else(|| cron_error("schedule.expr required"))?, tz };
            (schedule, ["kind", "expr", "tz"].as_slice())
        }
    };
    // A zone has no meaning for an instant or a step, but clients send one with each.
    fields.take_text("tz")?;
    fields.reject_unknown(takes)?;
    Ok(schedule)
}

#[derive(Clone, Copy)]
enum SpecMode {
    SystemEvent,
    Task,
}

/// Members of the spec of a task.
const TASK: [&str; 9] =
    ["mode", "message", "model", "thinking", "timeoutSeconds", "deliver", "channel", "to", "bestEffortDeliver"];

const MODES: [(&str, SpecMode); 2] = [("systemEvent", SpecMode::SystemEvent), ("task", SpecMode::Task)];

fn read_spec(mut fields: ParamFields) -> Result<CronSpec, GsvError> {
    let mode = fields.take_choice("mode", &MODES)?.ok_or_else(|| cron_error("spec.mode required"))?;
    SpecPatch::from_fields(mode, fields)?.apply_to(None)
}

/// Changes of a patch to a job's spec: absent members stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecPatch {
    is_task: bool,
    text: Option<String>,
    model: Option<String>,
    thinking: Option<ThinkLevel>,
    timeout_seconds: Option<u64>,
    deliver: Option<bool>,
    channel: Option<String>,
    to: Option<String>,
    best_effort_deliver: Option<bool>,
}

impl SpecPatch {
    /// Reads the members of a spec of this mode. Members that the mode does not have are refused, so that they do not seem to
    /// take effect.
    fn from_fields(mode: SpecMode, mut fields: ParamFields) -> Result<Self, GsvError> {
        let named = |fields: &mut ParamFields, name: &str| match fields.take_text(name)? {
            Some(text) if text.trim().is_empty() => Err(cron_error(format!("spec.{name} must not be empty"))),
            text => Ok(text),
        };
        let text = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        let (patch, takes) = match mode {
            SpecMode::SystemEvent => {
                (Self { text: text(fields.take_text("text")?), ..Self::default() }, ["mode", "text"].as_slice())
            }
            SpecMode::Task => {
                let thinking = fields.take_text("thinking")?;
                let level = |level: String| {
                    ThinkLevel::from_text(&level).ok_or_else(|| cron_error(ThinkLevel::invalid_message(&level)))
                };
                let timeout_seconds = fields.take_count("timeoutSeconds")?;
                if timeout_seconds == Some(0) {
                    return Err(cron_error("spec.timeoutSeconds must be a positive number"));
                }
                let patch = Self {
                    is_task: true,
                    text: text(fields.take_text("message")?),
                    model: named(&mut fields, "model")?,
                    thinking: thinking.map(level).transpose()?,
                    timeout_seconds,
                    deliver: fields.take_flag("deliver")?,
                    channel: named(&mut fields, "channel")?,
                    to: named(&mut fields, "to")?,
                    best_effort_deliver: fields.take_flag("bestEffortDeliver")?,
                };
                (patch, TASK.as_slice())
            }
        };
        fields.reject_unknown(takes)?;
        Ok(patch)
    }

    /// Returns the spec after the patch. One of the other mode begins from nothing.
    ///
    /// # Errors
    /// 500 if it has no message to the agent.
    pub fn apply_to(self, before: Option<&CronSpec>) -> Result<CronSpec, GsvError> {
        if !self.is_task {
            let old = match before {
                Some(CronSpec::SystemEvent { text }) => Some(text.clone()),
                Some(CronSpec::Task(_)) | None => None,
            };
            let text = self.text.or(old).ok_or_else(|| cron_error("spec.text required"))?;
            return Ok(CronSpec::SystemEvent { text });
        }
        let old = match before {
            Some(CronSpec::Task(task)) => Some(task.clone()),
            Some(CronSpec::SystemEvent { .. }) | None => None,
        };
        let message = self.text.or_else(|| old.as_ref().map(|old| old.message.clone()));
        let message = message.ok_or_else(|| cron_error("spec.message required"))?;
        let old = old.unwrap_or_else(|| CronTask {
            message: String::new(),
            model: None,
            thinking: None,
            timeout_seconds: None,
            deliver: None,
            channel: None,
            to: None,
            best_effort_deliver: None,
        });
        Ok(CronSpec::Task(CronTask {
            message,
            model: self.model.or(old.model),
            thinking: self.thinking.or(old.thinking),
            timeout_seconds: self.timeout_seconds.or(old.timeout_seconds),
            deliver: self.deliver.or(old.deliver),
            channel: self.channel.or(old.channel),
            to: self.to.or(old.to),
            best_effort_deliver: self.best_effort_deliver.or(old.best_effort_deliver),
        }))
    }
}

/// Parameters of `cron.update`. Absent members stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronUpdateParams {
    /// The job.
    pub id: String,
    /// Agent that becomes the owner.
    pub agent: Option<String>,
    /// Name.
    pub name: Option<String>,
    /// Description.
    pub description: Option<String>,
    /// True if it runs on its schedule.
    pub enabled: Option<bool>,
    /// True if it is deleted after its run.
    pub delete_after_run: Option<bool>,
    /// Schedule.
    pub schedule: Option<CronSchedule>,
    /// Work of the job.
    pub spec: Option<SpecPatch>,
}

impl CronUpdateParams {
    pub(super) fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        const MISSING: &str = "id and patch are required";
        let id = fields.require_text("id", MISSING)?;
        let mut patch = fields.take_fields("patch")?.ok_or_else(|| GsvError::bad_request(MISSING))?;
        let spec = match patch.take_fields("spec")? {
            None => None,
            Some(mut spec) => {
                let mode = spec.take_choice("mode", &MODES)?.ok_or_else(|| cron_error("spec.mode required"))?;
                Some(SpecPatch::from_fields(mode, spec)?)
            }
        };
        let update = Self {
            id,
            agent: read_agent(&mut patch)?,
            name: patch.take_text("name")?.map(|name| check_name(&name)).transpose()?,
            description: patch.take_text("description")?,
            enabled: patch.take_flag("enabled")?,
            delete_after_run: patch.take_flag("deleteAfterRun")?,
            schedule: patch.take_fields("schedule")?.map(read_schedule).transpose()?,
            spec,
        };
        patch.reject_unknown(&JOB)?;
        fields.reject_unknown(&["id", "patch"])?;
        Ok(update)
    }
}

/// Parameters of `cron.list`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronListParams {
    /// Agent whose jobs are listed. Absent is all agents.
    pub agent: Option<String>,
    /// Also those that do not run by themselves.
    pub include_disabled: bool,
    /// Page to return.
    pub page: PageParams,
}

impl CronListParams {
    pub(super) fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        Ok(Self {
            agent: read_agent(&mut fields)?,
            include_disabled: fields.take_flag("includeDisabled")?.unwrap_or(true),
            page: PageParams::from_fields(&mut fields, 200, 500)?,
        })
    }
}

/// Parameters of `cron.remove`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronRemoveParams {
    /// The job.
    pub id: String,
}

impl CronRemoveParams {
    pub(super) fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        Ok(Self { id: fields.require_text("id", "id is required")? })
    }
}

/// Parameters of `cron.run`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CronRunParams {
    /// All that are due.
    Due,
    /// This one if it is due.
    IfDue(String),
    /// This one now.
    Force(String),
}

impl CronRunParams {
    pub(super) fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        let id = fields.take_text("id")?.filter(|id| !id.is_empty());
        let force = fields.take_choice("mode", &[("due", false), ("force", true)])?.unwrap_or(false);
        match (id, force) {
            (Some(id), true) => Ok(Self::Force(id)),
            (Some(id), false) => Ok(Self::IfDue(id)),
            (None, false) => Ok(Self::Due),
            (None, true) => Err(cron_error("cron.run with mode=force requires id")),
        }
    }
}

/// Parameters of `cron.runs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronRunsParams {
    /// Id of the job. Absent is all.
    pub job: Option<String>,
    /// Page to return.
    pub page: PageParams,
}

impl CronRunsParams {
    pub(super) fn from_fields(mut fields: ParamFields) -> Result<Self, GsvError> {
        let job = fields.take_text("jobId")?.filter(|job| !job.is_empty());
        Ok(Self { job, page: PageParams::from_fields(&mut fields, 200, 2000)? })
    }
}
