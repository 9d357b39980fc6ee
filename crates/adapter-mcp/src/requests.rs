//! Converts a call to a request of the engine, and refuses invalid ones before policy decides.

use std::sync::Arc;

use countersign_core::{
    call::{AgentRequest, RequestExecutor},
    tool::ToolEffect,
};
use countersign_foreign_calls::{Requester, check_size, new_decision, new_request, own_call_id};
use countersign_policy_admin::service_tools::{self, AgentToolRequest, ServiceTools};
use countersign_runtime::tools::GatewaySecrets;
use countersign_view::{
    Protocol,
    escape::{LineMode, escape},
};
use serde_json::{Map, Value, json};

use crate::{further_tools::FurtherTool, own_tools::OwnTool};

/// Most characters of an invalid value in its error.
const MOST_SHOWN: usize = 100;

/// Builds the request of a service's tool. The error is a reason for the model.
pub(super) fn build_service_request(
    tools: &ServiceTools,
    secrets: &GatewaySecrets,
    requester: &Requester,
    tool: &str,
    arguments: Map<String, Value>,
) -> Result<AgentRequest, String> {
    check_size(&arguments)?;
    let id = own_call_id();
    let query = AgentToolRequest {
        session: requester.session(),
        principal: requester.principal(),
        id: &id,
        tool: tool.to_owned(),
        args: arguments,
        key: None,
    };
    let request = service_tools::build_request(tools.get(tool), query)?;
    // No gate opens for a call that could not be sent.
    secrets.fill_arguments(&request.arguments)?;
    Ok(AgentRequest { door: Protocol::Mcp.name().into(), ..request })
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
        wire: own_call_id(),
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

/// Checks the name of a host's tool: approvers must see it as rules match it. The error is a reason for the model.
pub(super) fn check_tool_name(name: &str) -> Result<(), String> {
    let shown = escape(name, LineMode::One);
    if name.trim().is_empty() || shown != name {
        let shown: String = shown.chars().take(MOST_SHOWN).collect();
        return Err(format!(
            "Invalid value for tool_name: \"{shown}\". Expected the name of a tool, without control or invisible characters"
        ));
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use countersign_core::id::{PrincipalId, SessionId};
    use countersign_foreign_calls::Requester;
    use countersign_view::Protocol;
    use serde_json::{Map, Value, json};

    use super::{build_approval, build_question, check_tool_name};

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn what_says_nothing_is_not_asked() {
        let (principal, session) = (PrincipalId::new("token:ci"), SessionId::new("mcp:token:ci"));
        let requester = Requester::new(Protocol::Mcp, principal, session, String::new(), 60);
        let approval = build_approval(&requester, map(json!({"action": "ls"}))).unwrap();
        assert!(approval.wire.starts_with("\"decision-") && approval.session.as_str() == "mcp:token:ci");
        assert!(build_approval(&requester, map(json!({"action": " "}))).is_err());
        assert!(build_question(&requester, &map(json!({"question": ""}))).is_err());
        let long = "x".repeat(1 << 20);
        assert!(build_approval(&requester, map(json!({"action": long}))).unwrap_err().contains("too large"));
    }
    #[test]
    fn a_tool_name_that_approvers_could_not_read_is_refused_with_its_value() {
        for name in ["Bash", "mcp__a__count", "claude__x", "Übung 1"] {
            assert_eq!(check_tool_name(name), Ok(()), "{name}");
        }
        for (name, shown) in [
            ("", ""),
            (" ", " "),
            ("x\u{1b}[31m\nBash(ls)", "x\\u{1b}[31m\\u{a}Bash(ls)"),
            ("mcp__a__count\u{202e}", "mcp__a__count\\u{202e}"),
            ("Ba\u{200b}sh", "Ba\\u{200b}sh"),
        ] {
            let want = format!("Invalid value for tool_name: \"{shown}\".");
            assert!(check_tool_name(name).unwrap_err().starts_with(&want), "{name:?}");
        }
    }
}
