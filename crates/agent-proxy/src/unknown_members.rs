//! Members of requests that the proxy does not know. They may change what a call does, so they are decided too.

use serde_json::{Map, Value, json};

use crate::agent_call::AgentCall;

/// Tool of the call that decides them. A rule about the command or the file of the request does not cover it.
const TOOL: &str = "unknown_members";

/// Reports whether a value says nothing.
pub(crate) fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Returns the members of an object that are not `known` and say something.
pub(crate) fn unknown_members(value: &Value, known: &[&str]) -> Map<String, Value> {
    let members = value.as_object().into_iter().flatten();
    let unknown = members.filter(|(name, value)| !known.contains(&name.as_str()) && !is_blank(value));
    unknown.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Adds the call that decides unknown members to the calls of a request. All of them must be allowed.
pub(crate) fn add_unknown_call(calls: &mut Vec<AgentCall>, method: &str, members: Map<String, Value>) {
    let Some(first) = calls.first().filter(|_| !members.is_empty()) else { return };
    let shown = json!({ "method": method, "members": members, "tool": first.tool, "arguments": first.arguments });
    let arguments = shown.as_object().cloned().unwrap_or_default();
    calls.push(AgentCall { tool: TOOL.to_owned(), arguments, ..first.clone() });
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{add_unknown_call, unknown_members};
    use crate::agent_call::AgentCall;

    #[test]
    fn a_member_is_unknown_if_it_says_something_and_has_another_name() {
        let request = json!({"path": "/a", "Path": "/b", "stdin": "x", "kind": 5, "flag": false, "args": [], "env": {},
            "cwd": null, "reason": ""});
        assert_eq!(
            Value::Object(unknown_members(&request, &["path"])),
            json!({"Path": "/b", "stdin": "x", "kind": 5, "flag": false})
        );
    }

    #[test]
    fn unknown_members_are_a_call_of_their_own_which_shows_the_first_one() {
        let call = AgentCall {
            session: "s".to_owned(),
            id: Some("c".to_owned()),
            tool: "bash".to_owned(),
            arguments: Map::from_iter([("command".to_owned(), json!("ls"))]),
            cwd: "/w".to_owned(),
        };
        let mut calls = vec![call.clone()];
        add_unknown_call(&mut calls, "m", Map::new());
        assert_eq!(calls, std::slice::from_ref(&call));
        add_unknown_call(&mut calls, "m", Map::from_iter([("stdin".to_owned(), json!("x"))]));
        let shown = json!({"method": "m", "members": {"stdin": "x"}, "tool": "bash", "arguments": {"command": "ls"}});
        let decided = AgentCall {
            tool: "unknown_members".to_owned(),
            arguments: shown.as_object().unwrap().clone(),
            ..call.clone()
        };
        assert_eq!(calls, [call, decided]);
    }
}
