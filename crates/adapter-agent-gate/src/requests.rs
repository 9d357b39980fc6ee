//! Converts a tool request to a request of the engine, and refuses invalid ones before policy decides.

use countersign_core::call::AgentRequest;
use countersign_policy_admin::{
    service_tools::{self, AgentToolRequest},
    tool_catalog::ToolCatalog,
};
use countersign_protocol::agent_gate::{JsonRpcError, code};
use countersign_runtime::tools::GatewaySecrets;
use serde_json::{Map, Value, json};

/// Returns the result of `list_tools`.
pub(super) fn tool_list(catalog: &ToolCatalog) -> String {
    let mut tools = Vec::new();
    catalog.for_each_tool(|name, tool| {
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
        tools.push(json!({ "name": name, "description": tool.description, "service": &*tool.service, "args": args }));
    });
    json!({ "tools": tools }).to_string()
}

/// Builds the request of a frame.
pub(super) fn build_request(catalog: &ToolCatalog, query: AgentToolRequest<'_>) -> Result<AgentRequest, JsonRpcError> {
    let tools = catalog.snapshot();
    service_tools::build_request(tools.get(&query.tool), query)
        .map_err(|message| JsonRpcError::new(code::INVALID, message))
}

/// Returns the request, if the secrets that it names are available.
pub(super) fn check_secrets(secrets: &GatewaySecrets, request: AgentRequest) -> Result<AgentRequest, JsonRpcError> {
    if request.service.is_some() {
        let filled = secrets.fill_arguments(&request.arguments);
        filled.map_err(|problem| JsonRpcError::new(code::INVALID, problem))?;
    }
    Ok(request)
}
