//! Permissions of opencode as calls that rules know.

use countersign_gateway::control::ProxiedCall;
use serde_json::{Map, Value, json};

use super::server::Permission;

/// Name of the protocol.
const PROGRAM: &str = "opencode";
/// Permission of every tool that changes files.
const EDIT: &str = "edit";

/// Call about which a permission asks.
pub(super) struct PermissionRequest {
    pub(super) call: ProxiedCall,
    /// Session and id of the call, if the permission is about the call itself.
    pub(super) key: Option<(String, String)>,
    /// Text for people.
    pub(super) title: String,
}

impl PermissionRequest {
    /// Builds the call of a permission. `part` is the call in the conversation, with its whole input.
    pub(super) fn new(permission: &Permission, part: Option<&Value>, directory: &str) -> Self {
        let title = format!("{} {}", permission.permission, permission.patterns.join(" "));
        let id = permission.tool.as_ref().map(|tool| tool.call.clone());
        let call = |tool: &str, arguments: Map<String, Value>, id: Option<String>| ProxiedCall {
            program: PROGRAM.to_owned(),
            session: permission.session.clone(),
            subagent: None,
            call: id,
            tool: tool.to_owned(),
            arguments,
            cwd: directory.to_owned(),
            wait: None,
        };
        let own = part.and_then(tool_call).filter(|(tool, _)| {
            // Other permissions ask about something beyond the call, such as a folder outside of the project.
            *tool == permission.permission || permission.permission == EDIT
        });
        match own {
            Some((tool, arguments)) => {
                let key = id.clone().map(|id| (permission.session.clone(), id));
                Self { call: call(tool, arguments.clone(), id), key, title }
            }
            None => {
                let mut arguments = permission.metadata.clone();
                arguments.insert("patterns".to_owned(), json!(permission.patterns));
                if let Some((tool, input)) = part.and_then(tool_call) {
                    arguments.insert("call".to_owned(), json!({ "tool": tool, "input": input }));
                }
                // The names of shared tools have arguments of their own.
                let tool = format!("permission_{}", permission.permission);
                Self { call: call(&tool, arguments, None), key: None, title }
            }
        }
    }
}

/// Returns the tool and the input of a call in a conversation.
fn tool_call(part: &Value) -> Option<(&str, &Map<String, Value>)> {
    let input = part["state"]["input"].as_object().filter(|input| !input.is_empty())?;
    Some((part["tool"].as_str()?, input))
}

/// Returns a call that has run, with its session and id; the folder is not in it.
pub(super) fn ran_call(part: &Value) -> Option<((String, String), ProxiedCall)> {
    let has_ended = matches!(part["state"]["status"].as_str(), Some("completed" | "error"));
    let (tool, input) = tool_call(part).filter(|_| part["type"] == "tool" && has_ended)?;
    let (session, id) = (part["sessionID"].as_str()?.to_owned(), part["callID"].as_str()?.to_owned());
    let call = ProxiedCall {
        program: PROGRAM.to_owned(),
        session: session.clone(),
        subagent: None,
        call: Some(id.clone()),
        tool: tool.to_owned(),
        arguments: input.clone(),
        cwd: String::new(),
        wait: None,
    };
    Some(((session, id), call))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{PermissionRequest, ran_call};

    fn request(permission: &str, part: Option<Value>) -> PermissionRequest {
        let permission = serde_json::from_value(json!({
            "id": "per_1", "sessionID": "ses_1", "permission": permission, "patterns": ["touch x"],
            "metadata": {"command": "touch x"}, "always": ["touch *"], "tool": {"messageID": "msg_1", "callID": "call_1"},
        }));
        PermissionRequest::new(&permission.unwrap(), part.as_ref(), "/w")
    }

    fn part(tool: &str, status: &str) -> Value {
        json!({
            "type": "tool", "tool": tool, "callID": "call_1", "sessionID": "ses_1",
            "state": {"status": status, "input": {"command": "touch x", "description": "d"}},
        })
    }

    #[test]
    fn a_permission_about_a_call_asks_about_its_whole_input() {
        let requested = request("bash", Some(part("bash", "running")));
        assert_eq!((requested.call.tool.as_str(), requested.call.call.as_deref()), ("bash", Some("call_1")));
        assert_eq!(Value::from(requested.call.arguments), json!({"command": "touch x", "description": "d"}));
        assert_eq!(requested.key, Some(("ses_1".to_owned(), "call_1".to_owned())));
        assert_eq!(request("edit", Some(part("write", "running"))).call.tool, "write");
    }

    #[test]
    fn any_other_permission_is_a_subject_of_its_own() {
        for part in [None, Some(part("bash", "running")), Some(json!({"tool": "bash", "state": {"input": {}}}))] {
            let has_call = part.as_ref().is_some_and(|part| part["type"] == "tool");
            let requested = request("external_directory", part);
            assert_eq!(
                (requested.call.tool.as_str(), requested.call.call, requested.key),
                ("permission_external_directory", None, None)
            );
            assert_eq!(requested.call.arguments["patterns"], json!(["touch x"]));
            assert_eq!(requested.call.arguments.contains_key("call"), has_call);
        }
        // Only the call itself says what its tool gets.
        assert_eq!(request("bash", None).call.tool, "permission_bash");
    }

    #[test]
    fn a_call_has_run_when_it_has_ended() {
        assert!(ran_call(&part("bash", "running")).is_none());
        assert!(ran_call(&json!({"type": "text"})).is_none());
        let (key, call) = ran_call(&part("bash", "completed")).unwrap();
        assert_eq!((key.1.as_str(), call.tool.as_str()), ("call_1", "bash"));
    }
}
