//! Converts a tool request to a request of the engine, and refuses invalid ones before policy decides.

use countersign_core::call::AgentRequest;
use countersign_policy_admin::service_tools::{self, AgentToolRequest, ServiceTools};
use countersign_protocol::agent_gate::{JsonRpcError, code};
use countersign_runtime::tools::GatewaySecrets;
use serde_json::{Map, Value, json};

/// Returns the result of `list_tools`.
pub(super) fn tool_list(order: &[String], tools: &ServiceTools) -> String {
    let tools: Vec<Value> = order
        .iter()
        .filter_map(|name| Some((name, tools.get(name)?)))
        .map(|(name, tool)| {
            let args: Map<String, Value> = tool
                .args
                .iter()
                .map(|arg| {
                    let mut properties = Map::from_iter([("required".to_owned(), Value::from(arg.required))]);
                    if let Some(validate) = &arg.validate {
                        properties.insert("validate".to_owned(), Value::from(validate.source()));
                    }
                    (arg.name.clone(), Value::Object(properties))
                })
                .collect();
            json!({ "name": name, "description": tool.description, "service": &*tool.service, "args": args })
        })
        .collect();
    json!({ "tools": tools }).to_string()
}

/// Builds the request of a frame.
pub(super) fn build_request(tools: &ServiceTools, query: AgentToolRequest<'_>) -> Result<AgentRequest, JsonRpcError> {
    service_tools::build_request(tools, query).map_err(|message| JsonRpcError::new(code::INVALID, message))
}

/// Returns the request, if the secrets that it names are available.
pub(super) fn check_secrets(secrets: &GatewaySecrets, request: AgentRequest) -> Result<AgentRequest, JsonRpcError> {
    if request.service.is_some() {
        let filled = secrets.fill_arguments(&request.arguments);
        filled.map_err(|problem| JsonRpcError::new(code::INVALID, problem))?;
    }
    Ok(request)
}
