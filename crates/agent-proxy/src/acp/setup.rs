//! Gates for what a client brings along when it opens a session: servers that the agent would start, and switches of the agent.

use serde_json::{Map, Value, json};

use crate::agent_call::AgentCall;

/// Session of calls that come before there is one.
pub(super) const SETUP_SESSION: &str = "setup";
/// Members of `_meta` that only connect traces.
const TRACE_MEMBERS: [&str; 3] = ["traceparent", "tracestate", "baggage"];
/// Parts of names whose values are secret.
const SECRET_PARTS: [&str; 7] = ["KEY", "TOKEN", "SECRET", "PASS", "AUTH", "CRED", "COOKIE"];
/// Value in place of a secret.
const HIDDEN: &str = "(hidden)";

/// Returns the calls that must be allowed before a session opens.
///
/// # Errors
/// The field that is wrong.
pub(super) fn setup_calls(method: &str, params: &Value, cwd: &str) -> Result<Vec<AgentCall>, String> {
    let session = params.get("sessionId").and_then(Value::as_str).unwrap_or(SETUP_SESSION);
    let call = |tool: &str, arguments: Map<String, Value>| AgentCall {
        session: session.to_owned(),
        id: None,
        tool: tool.to_owned(),
        arguments,
        cwd: cwd.to_owned(),
    };
    let mut calls = Vec::new();
    match params.get("mcpServers") {
        None | Some(Value::Null) => {}
        Some(Value::Array(servers)) => {
            calls.extend(servers.iter().map(|server| call("add_mcp_server", shown_server(server))));
        }
        Some(_) => return Err("mcpServers: expected a list of servers".to_owned()),
    }
    match params.get("_meta") {
        None | Some(Value::Null) => {}
        Some(Value::Object(_)) => {
            if let Some(switches) = setup_switches(params) {
                let arguments = json!({ "method": method, "meta": switches });
                calls.push(call("set_meta", arguments.as_object().cloned().unwrap_or_default()));
            }
        }
        Some(_) => return Err("_meta: expected an object".to_owned()),
    }
    Ok(calls)
}

/// Returns the members of `_meta` that may change what a receiver does.
pub(super) fn setup_switches(params: &Value) -> Option<Map<String, Value>> {
    let meta = params.get("_meta")?.as_object()?;
    let is_switch = |name: &&String| !TRACE_MEMBERS.contains(&name.as_str());
    let switches: Map<String, Value> =
        meta.keys().filter(is_switch).map(|name| (name.clone(), meta[name].clone())).collect();
    Some(switches).filter(|switches| !switches.is_empty())
}

fn shown_server(server: &Value) -> Map<String, Value> {
    let Value::Object(server) = server else { return Map::from_iter([("server".to_owned(), server.clone())]) };
    let mut shown = server.clone();
    for member in ["env", "headers"] {
        if let Some(Value::Array(variables)) = shown.get_mut(member) {
            variables.iter_mut().for_each(|variable| hide_value(variable, member == "headers"));
        }
    }
    shown
}

/// Hides the value of a variable or a header that may be secret: the record keeps what approvers see.
pub(super) fn hide_value(variable: &mut Value, is_always: bool) {
    let name = variable.get("name").and_then(Value::as_str).unwrap_or_default().to_ascii_uppercase();
    let is_secret = is_always || SECRET_PARTS.iter().any(|part| name.contains(part));
    if let Some(value) = variable.get_mut("value").filter(|_| is_secret) {
        *value = HIDDEN.into();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::setup_calls;

    #[test]
    fn servers_and_switches_of_a_client_are_calls() {
        for (case, params, want) in [
            ("nothing", json!({"cwd": "/w", "mcpServers": []}), json!([])),
            ("traces", json!({"_meta": {"traceparent": "00-1"}}), json!([])),
            (
                "a command",
                json!({"mcpServers": [{"name": "x", "command": "/bin/x", "args": ["a"], "env": [
                    {"name": "API_KEY", "value": "k"}, {"name": "NODE_OPTIONS", "value": "-r /x"}]}]}),
                json!([["add_mcp_server", {"name": "x", "command": "/bin/x", "args": ["a"], "env": [
                    {"name": "API_KEY", "value": "(hidden)"}, {"name": "NODE_OPTIONS", "value": "-r /x"}]}]]),
            ),
            (
                "an address",
                json!({"mcpServers": [{"type": "http", "name": "y", "url": "https://y", "headers": [{"name": "A", "value": "k"}]}]}),
                json!([["add_mcp_server", {"type": "http", "name": "y", "url": "https://y", "headers": [{"name": "A", "value": "(hidden)"}]}]]),
            ),
            (
                "a switch",
                json!({"_meta": {"claudeCode": {"options": {"permissionMode": "bypassPermissions"}}}}),
                json!([["set_meta", {"method": "session/new", "meta": {"claudeCode": {"options": {"permissionMode": "bypassPermissions"}}}}]]),
            ),
        ] {
            let calls = setup_calls("session/new", &params, "/w").unwrap();
            let calls: Value = calls.into_iter().map(|call| json!([call.tool, call.arguments])).collect();
            assert_eq!(calls, want, "{case}");
        }
        assert_eq!(
            setup_calls("session/new", &json!({"mcpServers": {}}), "/w").unwrap_err(),
            "mcpServers: expected a list of servers"
        );
    }
}
