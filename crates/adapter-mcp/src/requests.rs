//! Converts a call to a request of the engine, and refuses invalid ones before policy decides.

use std::sync::Arc;

use countersign_core::{
    call::{AgentRequest, CallDetails, RequestExecutor},
    digest::{Digest, canonical_json},
    tool::{RepeatMode, ToolEffect},
};
use countersign_policy_admin::service_tools::{self, AgentToolRequest, ServiceTools};
use countersign_runtime::tools::GatewaySecrets;
use countersign_view::Protocol;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::{
    claude_tools::translate_call, further_tools::FurtherTool, limits::LARGEST_ARGUMENTS, own_tools::OwnTool,
    requester::Requester,
};

/// Name of this adapter in rules, and of the service that runs nothing.
pub(super) const ADAPTER_NAME: &str = Protocol::Mcp.name();
/// Beginning of the ids of requests that are only decided.
const DECISION_PREFIX: &str = "\"decision-";
/// Beginning of the ids of all other requests.
const CALL_PREFIX: &str = "\"call-";

/// Reports whether a call is decided and then run by its requester: the gateway has nothing to do for it.
pub fn is_decision_only(content: &CallDetails) -> bool {
    let of_adapter = |request: &countersign_core::call::RequestContent| {
        request.door.as_deref() == Some(ADAPTER_NAME) && request.service.as_deref() == Some(ADAPTER_NAME)
    };
    // A service of the configuration may have the adapter's name, but no client chooses an id.
    content.request.as_deref().is_some_and(of_adapter) && content.tool_call_id.starts_with(DECISION_PREFIX)
}

fn new_id(prefix: &str) -> Arc<str> {
    format!("{prefix}{}\"", Uuid::now_v7().simple()).into()
}

/// Returns the beginning of the keys of all requests that are the same call.
pub(super) fn key_prefix(request: &AgentRequest) -> String {
    let is_decision = request.wire.starts_with(DECISION_PREFIX);
    let same = json!([is_decision, request.service, &*request.tool, request.arguments]);
    format!("mcp:{}:", Digest::hash_bytes(canonical_json(&same).as_bytes()))
}

fn check_size(arguments: &Map<String, Value>) -> Result<(), String> {
    // Cheap for most: a map that is small in memory is not encoded a second time.
    let length = serde_json::to_vec(arguments).map_or(usize::MAX, |text| text.len());
    if length > LARGEST_ARGUMENTS {
        return Err(format!("Arguments too large ({length} bytes, at most {LARGEST_ARGUMENTS})"));
    }
    Ok(())
}

/// Builds the request of a service's tool. The error is a reason for the model.
pub(super) fn build_service_request(
    tools: &ServiceTools,
    secrets: &GatewaySecrets,
    requester: &Requester,
    tool: &str,
    arguments: Map<String, Value>,
) -> Result<AgentRequest, String> {
    check_size(&arguments)?;
    let id = new_id(CALL_PREFIX);
    let query = AgentToolRequest {
        session: &requester.session,
        principal: &requester.principal,
        id: &id,
        tool: tool.to_owned(),
        args: arguments,
        key: None,
    };
    let request = service_tools::build_request(tools.get(tool), query)?;
    // No gate opens for a call that could not be sent.
    secrets.fill_arguments(&request.arguments)?;
    Ok(AgentRequest { door: ADAPTER_NAME.into(), ..request })
}

/// Builds the request of a further tool. The error is a reason for the model.
pub(super) fn build_further_request(
    tool: &FurtherTool,
    secrets: &GatewaySecrets,
    requester: &Requester,
    arguments: Map<String, Value>,
) -> Result<AgentRequest, String> {
    check_size(&arguments)?;
    secrets.fill_arguments(&arguments)?;
    Ok(AgentRequest {
        wire: new_id(CALL_PREFIX),
        service: Some(Arc::clone(&tool.service)),
        // Matched by its name alone, and shown whole.
        ..new_request(requester, tool.name.as_str(), arguments, tool.name.clone())
    })
}

/// Builds the request of an approval. The error is a reason for the model.
pub(super) fn build_approval(requester: &Requester, arguments: Map<String, Value>) -> Result<AgentRequest, String> {
    check_size(&arguments)?;
    let action = arguments.get("action").and_then(Value::as_str).unwrap_or_default();
    if action.trim().is_empty() {
        return Err("Invalid value for action: expected a description".to_owned());
    }
    let tool = OwnTool::RequestApproval.name();
    let signature = format!("{tool}({action})");
    Ok(AgentRequest { named: vec!["action".to_owned()], ..new_decision(requester, tool, arguments, signature) })
}

/// Builds the request of a host for one of its own tools, with the subject that rules match for all agents. The error is a reason
/// for the model.
pub(super) fn build_prompt(
    requester: &Requester,
    name: &str,
    input: Map<String, Value>,
) -> Result<AgentRequest, String> {
    check_size(&input)?;
    let call = translate_call(name, input)?;
    Ok(AgentRequest {
        named: call.named,
        paths: call.paths,
        effect: call.effect,
        ..new_decision(requester, &call.tool, call.arguments, call.signature)
    })
}

/// Builds the request of a question. The error is a reason for the model.
pub(super) fn build_question(requester: &Requester, arguments: &Map<String, Value>) -> Result<AgentRequest, String> {
    check_size(arguments)?;
    let question = arguments.get("question").and_then(Value::as_str).unwrap_or_default();
    if question.trim().is_empty() {
        return Err("Invalid value for question: expected a text".to_owned());
    }
    let options = arguments.get("options").and_then(Value::as_array).into_iter().flatten();
    let options: Vec<Value> = options.map(|label| json!({ "label": label })).collect();
    let multi = arguments.get("multiple").and_then(Value::as_bool).unwrap_or_default();
    let asked = json!([{ "question": question, "options": options, "multi": multi }]);
    let tool = OwnTool::AskHuman.name();
    let signature = format!("{tool}({question})");
    let arguments = Map::from_iter([("questions".to_owned(), asked)]);
    Ok(AgentRequest {
        executor: RequestExecutor::Person,
        effect: ToolEffect::Reads,
        ..new_decision(requester, tool, arguments, signature)
    })
}

fn new_decision(requester: &Requester, tool: &str, arguments: Map<String, Value>, signature: String) -> AgentRequest {
    AgentRequest {
        wire: new_id(DECISION_PREFIX),
        service: Some(ADAPTER_NAME.into()),
        // Nothing runs here, so a restart decides it again and repeats no effect.
        repeat: RepeatMode::Idempotent,
        ..new_request(requester, tool, arguments, signature)
    }
}

fn new_request(requester: &Requester, tool: &str, arguments: Map<String, Value>, signature: String) -> AgentRequest {
    AgentRequest {
        session: requester.session.clone(),
        principal: requester.principal.clone(),
        door: ADAPTER_NAME.into(),
        wire: "".into(),
        key: None,
        tool: tool.into(),
        arguments,
        signatures: vec![signature],
        named: Vec::new(),
        undeclared: Vec::new(),
        service: None,
        executor: RequestExecutor::Service,
        paths: Vec::new(),
        effect: ToolEffect::Changes,
        repeat: RepeatMode::Once,
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::id::PrincipalId;
    use serde_json::{Map, Value, json};

    use super::{build_approval, build_prompt, build_question, key_prefix};
    use crate::requester::Requesters;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn the_same_call_has_the_same_key_in_any_order_of_its_arguments() {
        let requester = Requesters::default().for_principal(&PrincipalId::new("token:ci"), 60);
        let prompt = |input: Value| key_prefix(&build_prompt(&requester, "Bash", map(input)).unwrap());
        let first = prompt(json!({"command": "ls", "timeout": 1}));
        assert_eq!(first, prompt(json!({"timeout": 1, "command": "ls"})));
        assert_ne!(first, prompt(json!({"command": "ls", "timeout": 2})));
        let approval = build_approval(&requester, map(json!({"action": "ls"}))).unwrap();
        assert!(approval.wire.starts_with("\"decision-") && approval.session.as_str() == "mcp:token:ci");
    }

    #[test]
    fn what_says_nothing_is_not_asked() {
        let requester = Requesters::default().for_principal(&PrincipalId::new("token:ci"), 60);
        assert!(build_approval(&requester, map(json!({"action": " "}))).is_err());
        assert!(build_question(&requester, &map(json!({"question": ""}))).is_err());
        let long = "x".repeat(1 << 20);
        assert!(build_approval(&requester, map(json!({"action": long}))).unwrap_err().contains("too large"));
    }
}
