//! Calls that ran and were not allowed in this form: another hook of the program may have changed one after the decision.
//!
//! Each becomes a question to people, which stays in the record, on the console and at messengers until somebody has noted it. If a rule
//! denies that question, the record alone has it.

use countersign_core::{
    call::{self, AgentRequest, RequestExecutor},
    digest::{Digest, canonical_json},
    engine::Command,
    id::SessionId,
    tool::ToolEffect,
};
use countersign_foreign_calls::{CallProblem, ForeignCalls, Requester, new_decision, open_session_for};
use countersign_runtime::OwnerError;
use countersign_view::{LineMode, escape};
use serde_json::{Map, Value, json};

/// Name of the incident in rules and in the record.
const INCIDENT_TOOL: &str = "report_incident";

/// Call that ran.
pub(crate) struct RanCall {
    pub(crate) signature: String,
    pub(crate) arguments: Map<String, Value>,
}

/// Records an incident. `id` is the program's own id of the call: the same report again is the same incident.
///
/// # Errors
/// The reason why it could not be recorded.
pub(crate) async fn report_incident(
    calls: &ForeignCalls,
    requester: &Requester,
    ran: RanCall,
    id: Option<&str>,
) -> Result<(), CallProblem> {
    let signature = ran.signature.as_str();
    tracing::error!(principal = %requester.principal(), signature, "a call ran that was not allowed in this form");
    let text = format!(
        "{} ran a call that was not allowed in this form: {}. Another hook or a setting of the program may have changed it after the \
         decision, or the call did not come here before it ran.",
        requester.principal(),
        escape(signature, LineMode::One),
    );
    let same = json!([signature, &ran.arguments, id]);
    let digest = Digest::hash_bytes(canonical_json(&same).as_bytes()).to_string();
    // A session of its own: however many approvals of the program are pending, there is room for an incident.
    let short: String = digest.chars().take(16).collect();
    let session = SessionId::new(format!("{}/incident-{short}", requester.session()));
    open_session_for(calls, requester, &session).await?;
    let questions = json!([{ "question": text, "options": [{ "label": "Noted" }], "multi": false }]);
    let arguments: Map<String, Value> =
        [("questions".to_owned(), questions), ("ran".to_owned(), Value::Object(ran.arguments.clone()))]
            .into_iter()
            .collect();
    let report = AgentRequest {
        session,
        // Without an id nobody knows whether it is the same call.
        key: id.map(|_| format!("incident:{digest}")),
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
