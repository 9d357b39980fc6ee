//! Calls that ran, compared with those that were allowed: another hook of the program may have changed one after the decision.
//!
//! A difference becomes a question to people, which stays in the record, on the console and at messengers until somebody has noted it.

use countersign_core::{
    call::{self, AgentRequest, RequestExecutor},
    digest::{Digest, canonical_json},
    engine::Command,
    tool::ToolEffect,
};
use countersign_foreign_calls::{CallProblem, ForeignCalls, Requester, new_decision};
use countersign_runtime::OwnerError;
use countersign_view::{LineMode, escape};
use serde_json::{Map, Value, json};

/// Name of the incident in rules and in the record.
const INCIDENT_TOOL: &str = "report_incident";

/// Records an incident if a call that ran was not allowed in this form. `id` is the program's own id of the call.
///
/// # Errors
/// The reason why the record could not be read or written.
pub(crate) async fn check_ran_call(
    calls: &ForeignCalls,
    requester: &Requester,
    ran: &AgentRequest,
    id: Option<&str>,
) -> Result<(), CallProblem> {
    if calls.was_allowed(requester, ran).await? {
        return Ok(());
    }
    let signature = ran.signatures.first().map(String::as_str).unwrap_or_default();
    tracing::warn!(principal = %requester.principal(), signature, "a call ran that was not allowed in this form");
    let text = format!(
        "{} ran a call that nobody allowed in this form: {}. Another hook or a setting of the program may have changed it after the \
         decision, or the call did not come here before it ran.",
        requester.principal(),
        escape(signature, LineMode::One),
    );
    let asked = json!([{ "question": text, "options": [{ "label": "Noted" }], "multi": false }]);
    let same = json!([&*ran.tool, &ran.arguments, id]);
    let key = format!("incident:{}", Digest::hash_bytes(canonical_json(&same).as_bytes()));
    let arguments: Map<String, Value> =
        [("questions".to_owned(), asked), ("ran".to_owned(), Value::Object(ran.arguments.clone()))]
            .into_iter()
            .collect();
    let report = AgentRequest {
        key: Some(key),
        executor: RequestExecutor::Person,
        effect: ToolEffect::Reads,
        ..new_decision(requester, INCIDENT_TOOL, arguments, format!("{INCIDENT_TOOL}({signature})"))
    };
    let command = Command::Call(call::Command::Request(Box::new(report)));
    match calls.requests().send_command(command).await {
        Ok(_) => Ok(()),
        Err(OwnerError::Closed) => Err(CallProblem::Closing),
        Err(refused) => Err(CallProblem::Refused(refused.to_string())),
    }
}
