//! `gsv__Cron`: plans and manages later work of the agent. Times may be given in natural language.

use countersign_core::{schedule::Zone, tool::ToolEffect};
use countersign_protocol::{
    RawJson,
    gsv::{GsvError, GsvRequest, Method},
};
use countersign_runtime::tools::CallFailure;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{BuiltinCall, BuiltinResult, BuiltinTool, accept_unchanged};
use crate::automation;

pub(super) const TOOL: BuiltinTool = BuiltinTool {
    name: "Cron",
    description: "Plans what you are to do later, once or again and again, and looks after it. A job's schedule is a time \
                  (\"in 2 hours\", \"tomorrow 9am\"), an interval (\"every 30 minutes\"), a cron expression (\"0 9 * * mon\"), \
                  or an object: {at}, {everyMinutes|everyHours|everyDays, anchor}, {expr, tz}. Its spec is \
                  {mode: \"task\", message} for a run of its own, or {mode: \"systemEvent\", text} for a message in the main \
                  session.",
    schema: || {
        json!({"type": "object", "required": ["action"], "properties": {
            "action": {"type": "string", "enum": ["status", "list", "add", "update", "remove", "run", "runs"]},
            "id": {"type": "string", "description": "The job, for update, remove and run"},
            "mode": {"type": "string", "enum": ["due", "force"], "description": "For run (default: force)"},
            "agentId": {"type": "string", "description": "Whose jobs, for list (default: yours)"},
            "job": {"type": "object", "additionalProperties": true, "description": "For add: name, schedule, spec, description, enabled, deleteAfterRun"},
            "patch": {"type": "object", "additionalProperties": true, "description": "For update: what is to be different"},
            "jobId": {"type": "string", "description": "For runs: of which job"},
            "limit": {"type": "number"},
            "offset": {"type": "number"},
        }})
    },
    signature: &[],
    effect: ToolEffect::Changes,
    form: accept_unchanged,
    run: |call| Box::pin(run(call)),
};

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum CronAction {
    Status,
    List,
    Add,
    Update,
    Remove,
    Run,
    Runs,
}

async fn run(mut call: BuiltinCall) -> BuiltinResult {
    #[derive(Deserialize)]
    struct CronArguments {
        action: CronAction,
        #[serde(flatten)]
        rest: Map<String, Value>,
    }
    let CronArguments { action, mut rest } = call.read_arguments()?;
    let (now, zone) = (call.door.context.clock.wall_time(), call.door.settings.user_zone());
    let own = || Value::from(call.agent.clone());
    let (method, params) = match action {
        CronAction::Status => (Method::CronStatus, Value::Null),
        CronAction::List => {
            rest.entry("agentId").or_insert_with(own);
            (Method::CronList, Value::Object(rest))
        }
        CronAction::Add => {
            let mut job = rest.remove("job").unwrap_or_default();
            normalise_schedule(&mut job, now, zone)?;
            if let Some(job) = job.as_object_mut() {
                job.entry("agentId").or_insert_with(own);
            }
            (Method::CronAdd, job)
        }
        CronAction::Update => {
            if let Some(patch) = rest.get_mut("patch") {
                normalise_schedule(patch, now, zone)?;
            }
            (Method::CronUpdate, Value::Object(rest))
        }
        CronAction::Remove => (Method::CronRemove, Value::Object(rest)),
        CronAction::Run => {
            if rest.contains_key("id") {
                rest.entry("mode").or_insert_with(|| json!("force"));
            }
            (Method::CronRun, Value::Object(rest))
        }
        CronAction::Runs => (Method::CronRuns, Value::Object(rest)),
    };
    let to_failure = |fault: GsvError| CallFailure::Failed(fault.message);
    let params = RawJson::from(params);
    let request =
        GsvRequest::from_params(method, Some(&params).filter(|_| method != Method::CronStatus)).map_err(to_failure)?;
    let answer = automation::handle_agent_request(&call.door, method, request).await.map_err(to_failure)?;
    Ok(answer.as_text().to_owned())
}

fn normalise_schedule(job: &mut Value, now: countersign_core::time::Millis, zone: Zone) -> Result<(), CallFailure> {
    automation::in_wire_form(job, now, zone).map_err(CallFailure::Invalid)
}
