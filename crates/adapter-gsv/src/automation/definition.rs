//! Definition of a job, as stored in the content of its record, and its schedule, as the engine plans it.

use countersign_core::{
    schedule::{AfterRun, CronExpression, JobKind, JobPlan, JobSchedule, Zone},
    time::Millis,
};
use countersign_protocol::gsv::{
    GsvError,
    cron::{self, CronSpec},
    directive::ModelSelector,
};
use serde::{Deserialize, Serialize};

use super::{super::GsvAdapter, job_error};

/// Longest definition of a job, in bytes.
const LONGEST: usize = 256 * 1024;

/// Action and name of a job, in the terms of the wire.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct JobDefinition {
    pub(super) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<String>,
    pub(super) schedule: cron::CronSchedule,
    pub(super) spec: CronSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) delete_after_run: Option<bool>,
}

impl JobDefinition {
    /// Returns the content of its record.
    pub(super) fn record_content(&self) -> std::sync::Arc<str> {
        serde_json::to_string(self).unwrap_or_default().into()
    }

    /// Returns the job with this definition as the engine plans it.
    ///
    /// # Errors
    /// 500 for a schedule that cannot be, or a model that does not exist.
    pub(super) fn to_plan(&self, door: &GsvAdapter, agent: String, enabled: bool) -> Result<JobPlan, GsvError> {
        if self.record_content().len() > LONGEST {
            return Err(job_error(format!("a cron job has at most {LONGEST} bytes")));
        }
        if let CronSpec::Task(task) = &self.spec
            && let Some(model) = task.model.as_ref().filter(|model| ModelSelector::from_text(model, "any").is_none())
        {
            return Err(job_error(ModelSelector::invalid_message(model)));
        }
        let (schedule, follows_house) = engine_schedule(&self.schedule, door.settings.user_zone())?;
        let afterwards = if self.delete_after_run == Some(true) { AfterRun::Goes } else { AfterRun::Stays };
        Ok(JobPlan { agent, kind: JobKind::Job, schedule, follows_house, enabled, afterwards })
    }
}

/// Converts a schedule of the wire to one of the engine, and reports whether its zone is that of the house.
fn engine_schedule(schedule: &cron::CronSchedule, house: Zone) -> Result<(JobSchedule, bool), GsvError> {
    match schedule {
        cron::CronSchedule::At { at_ms } => Ok((JobSchedule::At { at: Millis(*at_ms) }, false)),
        cron::CronSchedule::Every { every_ms, anchor_ms } => {
            let every = match anchor_ms {
                Some(anchor) => JobSchedule::every(*every_ms, Millis(*anchor)),
                None => JobSchedule::every_from_now(*every_ms),
            };
            every.map(|every| (every, false)).map_err(|error| job_error(format!("schedule.everyMs: {error}")))
        }
        cron::CronSchedule::Cron { expr, tz } => {
            let expression: CronExpression =
                expr.parse().map_err(|error| job_error(format!("schedule.expr: {error}")))?;
            let zone = tz.as_deref().map(str::parse::<Zone>).transpose();
            let zone = zone.map_err(|error| job_error(format!("schedule.tz: {error}")))?;
            Ok((JobSchedule::Cron { expression, zone: zone.unwrap_or(house) }, zone.is_none()))
        }
    }
}
