//! Methods about jobs: parameters and answers. When a schedule is due is not known here.

mod job;

use serde::{Deserialize, Serialize};

pub use job::{Job, Listed, Past, PastRuns, Ran, Removed, RunResult, Saved, Scheduler, State, Status};

use super::directive::Level;
use super::fields::Fields;
use super::heartbeat::agent;
use super::session::Page;
use super::{Fault, code};

/// When a job is due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Schedule {
    /// Once.
    At {
        /// In milliseconds.
        at_ms: u64,
    },
    /// Every so often.
    Every {
        /// In milliseconds.
        every_ms: u64,
        /// From where.
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

/// What a job does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Spec {
    /// A message in the agent's main session.
    SystemEvent {
        /// The message.
        text: String,
    },
    /// A run in a session of its own.
    Task(Task),
}

/// A run of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// What the agent is told.
    pub message: String,
    /// Which model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How hard it thinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Level>,
    /// How long it may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// Whether people are told what came of it. Absent is yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliver: Option<bool>,
    /// Through which network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// To whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Whether the run is good although nobody could be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_effort_deliver: Option<bool>,
}

/// Parameters of `cron.add`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create {
    /// Whose job it is. Absent is the main agent's.
    pub agent: Option<String>,
    /// What it is called.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// Whether it runs by itself.
    pub enabled: bool,
    /// Whether it goes after its run.
    pub delete_after_run: Option<bool>,
    /// When it is due.
    pub schedule: Schedule,
    /// What it does.
    pub spec: Spec,
}

/// Members of a job, and of a patch of one.
const JOB: [&str; 7] = ["agentId", "name", "description", "enabled", "deleteAfterRun", "schedule", "spec"];

/// An error as the original numbers those of jobs.
fn failed(message: impl Into<String>) -> Fault {
    Fault::new(code::FAILED, message)
}

/// No job has this id.
pub fn unknown_job(id: &str) -> Fault {
    failed(format!("Unknown cron job id: {id}"))
}

/// There are as many jobs as there may be.
pub fn too_many(most: usize) -> Fault {
    failed(format!("Cron job limit reached ({most})"))
}

impl Create {
    pub(super) fn read(mut fields: Fields) -> Result<Self, Fault> {
        const MISSING: &str = "name, schedule, and spec are required";
        let missing = || Fault::invalid(MISSING);
        let name = fields.required("name", MISSING)?;
        let schedule = fields.inner("schedule")?.ok_or_else(missing)?;
        let spec = fields.inner("spec")?.ok_or_else(missing)?;
        let create = Self {
            agent: agent(&mut fields)?,
            name: named(&name)?,
            description: fields.text("description")?,
            enabled: fields.flag("enabled")?.unwrap_or(true),
            delete_after_run: fields.flag("deleteAfterRun")?,
            schedule: self::schedule(schedule)?,
            spec: self::spec(spec)?,
        };
        fields.end(&JOB)?;
        Ok(create)
    }
}

fn named(name: &str) -> Result<String, Fault> {
    match name.trim() {
        "" => Err(failed("Cron job name must not be empty")),
        name if name.chars().count() > 200 => Err(failed("Cron job name has more than 200 characters")),
        name => Ok(name.to_owned()),
    }
}

fn schedule(mut fields: Fields) -> Result<Schedule, Fault> {
    #[derive(Clone, Copy)]
    enum Kind {
        At,
        Every,
        Cron,
    }
    let kinds = [("at", Kind::At), ("every", Kind::Every), ("cron", Kind::Cron)];
    let kind = fields.word("kind", &kinds)?.ok_or_else(|| failed("schedule.kind required"))?;
    let (schedule, takes) = match kind {
        Kind::At => {
            let at_ms = fields.count("atMs")?.ok_or_else(|| failed("schedule.atMs required"))?;
            (Schedule::At { at_ms }, ["kind", "atMs", "tz"].as_slice())
        }
        Kind::Every => {
            let every_ms = fields.count("everyMs")?.filter(|every| *every > 0);
            let every_ms = every_ms.ok_or_else(|| failed("schedule.everyMs must be a positive number"))?;
            let schedule = Schedule::Every { every_ms, anchor_ms: fields.count("anchorMs")? };
            (schedule, ["kind", "everyMs", "anchorMs", "tz"].as_slice())
        }
        Kind::Cron => {
            let expr = fields.text("expr")?.map(|expr| expr.trim().to_owned()).filter(|expr| !expr.is_empty());
            let tz = fields.text("tz")?.map(|tz| tz.trim().to_owned()).filter(|tz| !tz.is_empty());
            let schedule = Schedule::Cron { expr: expr.ok_or_else(|| failed("schedule.expr required"))?, tz };
            (schedule, ["kind", "expr", "tz"].as_slice())
        }
    };
    // A zone says nothing of an instant or a step, and people name theirs with each.
    fields.text("tz")?;
    fields.end(takes)?;
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

fn spec(mut fields: Fields) -> Result<Spec, Fault> {
    let mode = fields.word("mode", &MODES)?.ok_or_else(|| failed("spec.mode required"))?;
    SpecPatch::of(mode, fields)?.applied(None)
}

/// What a patch says of a job's spec: what it leaves out stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecPatch {
    is_task: bool,
    text: Option<String>,
    model: Option<String>,
    thinking: Option<Level>,
    timeout_seconds: Option<u64>,
    deliver: Option<bool>,
    channel: Option<String>,
    to: Option<String>,
    best_effort_deliver: Option<bool>,
}

impl SpecPatch {
    /// Reads what a spec of this mode says. What the mode does not have is refused: nobody is to believe that it holds.
    fn of(mode: SpecMode, mut fields: Fields) -> Result<Self, Fault> {
        let named = |fields: &mut Fields, name: &str| match fields.text(name)? {
            Some(text) if text.trim().is_empty() => Err(failed(format!("spec.{name} must not be empty"))),
            text => Ok(text),
        };
        let text = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        let (patch, takes) = match mode {
            SpecMode::SystemEvent => {
                (Self { text: text(fields.text("text")?), ..Self::default() }, ["mode", "text"].as_slice())
            }
            SpecMode::Task => {
                let thinking = fields.text("thinking")?;
                let level = |level: String| Level::read(&level).ok_or_else(|| failed(Level::invalid(&level)));
                let timeout_seconds = fields.count("timeoutSeconds")?;
                if timeout_seconds == Some(0) {
                    return Err(failed("spec.timeoutSeconds must be a positive number"));
                }
                let patch = Self {
                    is_task: true,
                    text: text(fields.text("message")?),
                    model: named(&mut fields, "model")?,
                    thinking: thinking.map(level).transpose()?,
                    timeout_seconds,
                    deliver: fields.flag("deliver")?,
                    channel: named(&mut fields, "channel")?,
                    to: named(&mut fields, "to")?,
                    best_effort_deliver: fields.flag("bestEffortDeliver")?,
                };
                (patch, TASK.as_slice())
            }
        };
        fields.end(takes)?;
        Ok(patch)
    }

    /// The spec after the patch. One of the other mode begins from nothing.
    ///
    /// # Errors
    /// 500 if it says nothing to the agent.
    pub fn applied(self, before: Option<&Spec>) -> Result<Spec, Fault> {
        if !self.is_task {
            let old = match before {
                Some(Spec::SystemEvent { text }) => Some(text.clone()),
                Some(Spec::Task(_)) | None => None,
            };
            let text = self.text.or(old).ok_or_else(|| failed("spec.text required"))?;
            return Ok(Spec::SystemEvent { text });
        }
        let old = match before {
            Some(Spec::Task(task)) => Some(task.clone()),
            Some(Spec::SystemEvent { .. }) | None => None,
        };
        let message = self.text.or_else(|| old.as_ref().map(|old| old.message.clone()));
        let message = message.ok_or_else(|| failed("spec.message required"))?;
        let old = old.unwrap_or_else(|| Task {
            message: String::new(),
            model: None,
            thinking: None,
            timeout_seconds: None,
            deliver: None,
            channel: None,
            to: None,
            best_effort_deliver: None,
        });
        Ok(Spec::Task(Task {
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

/// Parameters of `cron.update`. What is absent stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The job.
    pub id: String,
    /// Whose it becomes.
    pub agent: Option<String>,
    /// What it is called.
    pub name: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// Whether it runs by itself.
    pub enabled: Option<bool>,
    /// Whether it goes after its run.
    pub delete_after_run: Option<bool>,
    /// When it is due.
    pub schedule: Option<Schedule>,
    /// What it does.
    pub spec: Option<SpecPatch>,
}

impl Update {
    pub(super) fn read(mut fields: Fields) -> Result<Self, Fault> {
        const MISSING: &str = "id and patch are required";
        let id = fields.required("id", MISSING)?;
        let mut patch = fields.inner("patch")?.ok_or_else(|| Fault::invalid(MISSING))?;
        let spec = match patch.inner("spec")? {
            None => None,
            Some(mut spec) => {
                let mode = spec.word("mode", &MODES)?.ok_or_else(|| failed("spec.mode required"))?;
                Some(SpecPatch::of(mode, spec)?)
            }
        };
        let update = Self {
            id,
            agent: agent(&mut patch)?,
            name: patch.text("name")?.map(|name| named(&name)).transpose()?,
            description: patch.text("description")?,
            enabled: patch.flag("enabled")?,
            delete_after_run: patch.flag("deleteAfterRun")?,
            schedule: patch.inner("schedule")?.map(schedule).transpose()?,
            spec,
        };
        patch.end(&JOB)?;
        fields.end(&["id", "patch"])?;
        Ok(update)
    }
}

/// Parameters of `cron.list`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// Whose jobs. Absent is everybody's.
    pub agent: Option<String>,
    /// Also those that do not run by themselves.
    pub include_disabled: bool,
    /// Which of them.
    pub page: Page,
}

impl List {
    pub(super) fn read(mut fields: Fields) -> Result<Self, Fault> {
        Ok(Self {
            agent: agent(&mut fields)?,
            include_disabled: fields.flag("includeDisabled")?.unwrap_or(true),
            page: Page::read(&mut fields, 200, 500)?,
        })
    }
}

/// Parameters of `cron.remove`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remove {
    /// The job.
    pub id: String,
}

impl Remove {
    pub(super) fn read(mut fields: Fields) -> Result<Self, Fault> {
        Ok(Self { id: fields.required("id", "id is required")? })
    }
}

/// Parameters of `cron.run`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Run {
    /// All that are due.
    Due,
    /// This one if it is due.
    IfDue(String),
    /// This one now.
    Force(String),
}

impl Run {
    pub(super) fn read(mut fields: Fields) -> Result<Self, Fault> {
        let id = fields.text("id")?.filter(|id| !id.is_empty());
        let force = fields.word("mode", &[("due", false), ("force", true)])?.unwrap_or(false);
        match (id, force) {
            (Some(id), true) => Ok(Self::Force(id)),
            (Some(id), false) => Ok(Self::IfDue(id)),
            (None, false) => Ok(Self::Due),
            (None, true) => Err(failed("cron.run with mode=force requires id")),
        }
    }
}

/// Parameters of `cron.runs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runs {
    /// Of which job. Absent is all.
    pub job: Option<String>,
    /// Which of them.
    pub page: Page,
}

impl Runs {
    pub(super) fn read(mut fields: Fields) -> Result<Self, Fault> {
        let job = fields.text("jobId")?.filter(|job| !job.is_empty());
        Ok(Self { job, page: Page::read(&mut fields, 200, 2000)? })
    }
}
