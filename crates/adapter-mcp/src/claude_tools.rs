//! Tools of Claude Code under the names that rules use for all agents. Source: DESIGN.md §13, Subjects are shared.

use countersign_core::tool::ToolEffect;
use serde_json::{Map, Value};

/// Call of a tool of Claude Code, as rules match it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ClaudeCall {
    pub(super) tool: String,
    pub(super) arguments: Map<String, Value>,
    pub(super) signature: String,
    /// Arguments that the signature names; empty means all.
    pub(super) named: Vec<String>,
    /// Paths of files that the tool uses.
    pub(super) paths: Vec<String>,
    pub(super) effect: ToolEffect,
}

/// Prefix of the tools of MCP servers, whose names are the same for all agents.
const MCP_PREFIX: &str = "mcp__";
/// Prefix of tools that no other agent has.
const OWN_PREFIX: &str = "claude__";
/// Argument that holds a path, in Claude Code.
const FILE_PATH: &str = "file_path";
/// Argument that holds a path, in rules.
const PATH: &str = "path";

/// Translates a call. The error is a reason for the agent.
pub(super) fn translate_call(name: &str, mut input: Map<String, Value>) -> Result<ClaudeCall, String> {
    let shared = match name {
        "Bash" => Some(("bash", "command", ToolEffect::Changes)),
        "Read" => Some(("read", PATH, ToolEffect::Reads)),
        "Write" => Some(("write", PATH, ToolEffect::Changes)),
        "Edit" | "MultiEdit" => Some(("edit", PATH, ToolEffect::Changes)),
        _ => None,
    };
    let Some((tool, named, effect)) = shared else {
        let tool = if name.starts_with(MCP_PREFIX) { name.to_owned() } else { format!("{OWN_PREFIX}{name}") };
        // Of these tools only the name is known; argument rules match the rest.
        return Ok(ClaudeCall {
            signature: tool.clone(),
            tool,
            arguments: input,
            named: Vec::new(),
            paths: Vec::new(),
            effect: ToolEffect::Changes,
        });
    };
    if named == PATH {
        // Rules must see the one path that the tool uses.
        if input.contains_key(PATH) {
            return Err(format!("{name} has no argument {PATH}"));
        }
        if let Some(path) = input.remove(FILE_PATH) {
            input.insert(PATH.to_owned(), path);
        }
    }
    let Some(value) = input.get(named).and_then(Value::as_str) else {
        let given = if named == PATH { FILE_PATH } else { named };
        return Err(format!("{name} needs the text argument {given}"));
    };
    Ok(ClaudeCall {
        signature: format!("{tool}({value})"),
        paths: if named == PATH { vec![value.to_owned()] } else { Vec::new() },
        tool: tool.to_owned(),
        named: vec![named.to_owned()],
        arguments: input,
        effect,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::translate_call;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_tool_that_other_agents_have_too_has_their_name_and_signature() {
        for (name, input, signature, arguments) in [
            (
                "Bash",
                json!({"command": "ls -l", "timeout": 5}),
                "bash(ls -l)",
                json!({"command": "ls -l", "timeout": 5}),
            ),
            ("Read", json!({"file_path": "/a"}), "read(/a)", json!({"path": "/a"})),
            ("Write", json!({"file_path": "/a", "content": "x"}), "write(/a)", json!({"content": "x", "path": "/a"})),
            (
                "Edit",
                json!({"file_path": "/a", "old_string": "x"}),
                "edit(/a)",
                json!({"old_string": "x", "path": "/a"}),
            ),
            ("mcp__desk__turn", json!({"thing": "x"}), "mcp__desk__turn", json!({"thing": "x"})),
            ("WebFetch", json!({"url": "x"}), "claude__WebFetch", json!({"url": "x"})),
        ] {
            let call = translate_call(name, map(input)).unwrap();
            assert_eq!((call.signature.as_str(), Value::Object(call.arguments)), (signature, arguments), "{name}");
        }
    }

    #[test]
    fn input_that_rules_could_misread_is_refused() {
        for (name, input, want) in [
            ("Read", json!({"file_path": "/a", "path": "/b"}), "Read has no argument path"),
            ("Read", json!({"file_path": ["/a"]}), "Read needs the text argument file_path"),
            ("Bash", json!({}), "Bash needs the text argument command"),
        ] {
            assert_eq!(translate_call(name, map(input)).unwrap_err(), want);
        }
    }
}
