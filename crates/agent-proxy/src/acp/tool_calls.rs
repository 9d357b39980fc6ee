//! Tool calls of ACP as calls that rules know.
//!
//! The protocol has kinds of tools and leaves their input to the agent, so paths and commands are found by the names that agents give them.

use serde_json::{Map, Value, json};

use super::{
    REQUEST_PERMISSION,
    call_files::{InputFiles, PATHS, diff_of, files_of, locations},
};
use crate::{
    agent_call::AgentCall,
    command_words::{line_of_words, plain_name},
    unknown_members::add_unknown_call,
};

/// Note for approvers at a call without input.
pub(super) const NO_INPUT: &str = "The agent did not give the input of this call. Title and content are its own words.";

/// Names of the command in inputs.
const COMMANDS: [&str; 2] = ["command", "cmd"];
/// Names of the folder of a command.
const FOLDERS: [&str; 5] = ["cwd", "workdir", "directory", "dir_path", "working_directory"];
/// Members of inputs that differ each time the same call is made.
const VOLATILE: [&str; 6] = ["call_id", "turn_id", "approval_id", "started_at_ms", "toolCallId", "timestamp"];
/// Members of the input of a command that agents derive from it, or from its approval.
const DERIVED: [&str; 5] = [
    "commands",
    "parsed_cmd",
    "available_decisions",
    "proposed_execpolicy_amendment",
    "proposed_network_policy_amendments",
];
/// Name of the agent's reason, and its name in rules.
const REASON: (&str, &str) = ("reason", "justification");

/// Meaning of a title without an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TitleMeaning {
    /// The agent writes its command, which the model cannot change.
    Command,
    /// Words of the agent or of its model.
    Words,
}

/// Session to which a tool call belongs.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallPlace<'a> {
    pub(super) session: &'a str,
    pub(super) cwd: &'a str,
    pub(super) titles: TitleMeaning,
}

/// Returns the calls that a tool call consists of. All of them must be allowed.
pub(super) fn calls_of(place: CallPlace<'_>, id: Option<&str>, described: &Map<String, Value>) -> Vec<AgentCall> {
    let kind = described.get("kind").and_then(Value::as_str).filter(|kind| !kind.is_empty()).unwrap_or("other");
    let input = described.get("rawInput").filter(|input| !is_empty(input));
    let call = |tool: &str, arguments: Map<String, Value>| AgentCall {
        session: place.session.to_owned(),
        id: id.map(str::to_owned),
        tool: tool.to_owned(),
        arguments,
        cwd: place.cwd.to_owned(),
    };
    if let Some(name) = mcp_tool(described) {
        return vec![call(name, shown_input(described, input))];
    }
    match kind {
        "execute" => match command_of(described, input, place.titles) {
            Some(arguments) => vec![call("bash", arguments)],
            None => vec![call("execute", shown_input(described, input))],
        },
        "read" | "edit" => {
            let InputFiles { paths, has_unknown } = input.map(InputFiles::from_input).unwrap_or_default();
            let files = files_of(place.cwd, described, paths);
            if files.is_empty() {
                return vec![call(kind, shown_input(described, input))]
                    .into_iter()
                    // Without a path rules cannot judge it as the shared tool.
                    .map(|call| AgentCall { tool: format!("{kind}_unknown"), ..call })
                    .collect();
            }
            let mut calls: Vec<AgentCall> = files
                .iter()
                .map(|path| call(file_tool(kind, path, described, input), file_arguments(path, described, input)))
                .collect();
            if has_unknown {
                // A rule about its files says nothing about the rest.
                add_unknown_call(&mut calls, REQUEST_PERMISSION, shown_input(described, input));
            }
            calls
        }
        kind => {
            let mut arguments = shown_input(described, input);
            for (number, path) in locations(described).enumerate() {
                let name =
                    if number == 0 { "location_path".to_owned() } else { format!("location_path_{}", number + 1) };
                arguments.insert(name, path.into());
            }
            vec![call(&plain_name(kind), arguments)]
        }
    }
}

/// Returns the tool of an MCP server that Claude names.
fn mcp_tool(described: &Map<String, Value>) -> Option<&str> {
    let name = described.get("_meta")?.get("claudeCode")?.get("toolName")?.as_str()?;
    name.starts_with("mcp__").then_some(name)
}

fn is_empty(input: &Value) -> bool {
    match input {
        Value::Null => true,
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

/// Returns the input, or title and content if there is none.
fn shown_input(described: &Map<String, Value>, input: Option<&Value>) -> Map<String, Value> {
    match input {
        Some(Value::Object(input)) => stable(input),
        Some(input) => Map::from_iter([("input".to_owned(), input.clone())]),
        None => {
            let mut shown = Map::new();
            for (name, member) in [("title", "title"), ("content_shown", "content")] {
                if let Some(value) = described.get(member) {
                    shown.insert(name.to_owned(), value.clone());
                }
            }
            shown.insert("note".to_owned(), NO_INPUT.into());
            shown
        }
    }
}

fn stable(input: &Map<String, Value>) -> Map<String, Value> {
    let stays = |name: &&String| !VOLATILE.contains(&name.as_str());
    input.keys().filter(stays).map(|name| (name.clone(), input[name].clone())).collect()
}

/// Returns the arguments of a command, if there is exactly one.
fn command_of(
    described: &Map<String, Value>,
    input: Option<&Value>,
    titles: TitleMeaning,
) -> Option<Map<String, Value>> {
    let Some(input) = input else {
        let title = described.get("title").and_then(Value::as_str).filter(|title| !title.trim().is_empty())?;
        if titles == TitleMeaning::Words {
            return None;
        }
        let mut arguments = Map::from_iter([("command".to_owned(), title.into())]);
        if let Some(content) = described.get("content").filter(|content| **content != json!([])) {
            arguments.insert("content_shown".to_owned(), content.clone());
        }
        arguments.insert("note".to_owned(), NO_INPUT.into());
        return Some(arguments);
    };
    let input = input.as_object()?;
    let [name] = present(input, &COMMANDS)[..] else { return None };
    let command = match &input[name] {
        Value::String(command) => command.clone(),
        Value::Array(words) => {
            let words = words.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?;
            line_of_words(&words)
        }
        _ => return None,
    };
    let mut arguments = Map::from_iter([("command".to_owned(), Value::from(command))]);
    match present(input, &FOLDERS)[..] {
        [] => {}
        [folder] => {
            arguments.insert("cwd".to_owned(), input[folder].clone());
        }
        _ => return None,
    }
    for (name, value) in stable(input) {
        let is_known = [&COMMANDS[..], &FOLDERS, &DERIVED].iter().any(|known| known.contains(&name.as_str()));
        // Rules let no command pass that has arguments which they do not know.
        if !is_known && !value.is_null() {
            let name = if name == REASON.0 { REASON.1.to_owned() } else { name };
            arguments.insert(name, value);
        }
    }
    Some(arguments)
}

/// Returns the names that are members with a value.
fn present<'a>(input: &Map<String, Value>, names: &[&'a str]) -> Vec<&'a str> {
    names.iter().copied().filter(|name| input.get(*name).is_some_and(|value| !value.is_null())).collect()
}

fn file_tool(kind: &str, path: &str, described: &Map<String, Value>, input: Option<&Value>) -> &'static str {
    if kind == "read" {
        return "read";
    }
    let is_new = diff_of(path, described).is_some_and(|diff| diff.get("oldText").is_none_or(Value::is_null));
    let replaces = |input: &Map<String, Value>| {
        ["old_string", "oldString", "old_str", "old_text", "oldText", "edits", "diff", "patch"]
            .iter()
            .any(|name| input.contains_key(*name))
    };
    let is_whole = input
        .and_then(Value::as_object)
        .is_some_and(|input| ["content", "file_text"].iter().any(|name| input.contains_key(*name)) && !replaces(input));
    if is_new || is_whole { "write" } else { "edit" }
}

fn file_arguments(path: &str, described: &Map<String, Value>, input: Option<&Value>) -> Map<String, Value> {
    let mut arguments = Map::from_iter([("path".to_owned(), Value::from(path))]);
    if let Some(diff) = diff_of(path, described) {
        for (name, member) in [("old_text", "oldText"), ("new_text", "newText")] {
            if let Some(text) = diff.get(member).filter(|text| !text.is_null()) {
                arguments.insert(name.to_owned(), text.clone());
            }
        }
    }
    match input {
        Some(Value::Object(input)) => {
            for (name, value) in stable(input) {
                if !PATHS.contains(&name.as_str()) {
                    arguments.entry(name).or_insert(value);
                }
            }
        }
        Some(input) => drop(arguments.insert("input".to_owned(), input.clone())),
        None => {
            for (name, value) in shown_input(described, None) {
                if name != "content_shown" {
                    arguments.insert(name, value);
                }
            }
        }
    }
    arguments
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{CallPlace, NO_INPUT, TitleMeaning, calls_of};

    const PLACE: CallPlace<'_> = CallPlace { session: "s", cwd: "/w", titles: TitleMeaning::Words };

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn translated(place: CallPlace<'_>, call: Value) -> Value {
        calls_of(place, Some("t"), &map(call)).into_iter().map(|call| json!([call.tool, call.arguments])).collect()
    }

    #[test]
    fn a_tool_call_is_shown_by_its_input_and_never_by_its_title_alone() {
        let note = NO_INPUT;
        for (case, call, want) in [
            (
                "a command",
                json!({"kind": "execute", "title": "x", "rawInput": {"command": "ls", "description": "lists"}}),
                json!([["bash", {"command": "ls", "description": "lists"}]]),
            ),
            (
                "words of a shell, in a folder",
                json!({"kind": "execute", "rawInput": {"command": ["/bin/bash", "-lc", "ls a"], "cwd": "/x", "call_id": "c",
                    "reason": "r", "parsed_cmd": [], "available_decisions": ["approved"], "grant": null}}),
                json!([["bash", {"command": "ls a", "cwd": "/x", "justification": "r"}]]),
            ),
            (
                "other words",
                json!({"kind": "execute", "rawInput": {"command": ["touch", "a b"]}}),
                json!([["bash", {"command": "touch 'a b'"}]]),
            ),
            (
                "two commands are none",
                json!({"kind": "execute", "rawInput": {"command": "ls", "cmd": "rm x"}}),
                json!([["execute", {"command": "ls", "cmd": "rm x"}]]),
            ),
            (
                "words of a model instead of a command",
                json!({"kind": "execute", "title": "ls", "content": []}),
                json!([["execute", {"title": "ls", "content_shown": [], "note": note}]]),
            ),
            (
                "a file",
                json!({"kind": "edit", "rawInput": {"filePath": "/a", "oldString": "x", "newString": "y"}, "locations": [{"path": "/a"}]}),
                json!([["edit", {"path": "/a", "oldString": "x", "newString": "y"}]]),
            ),
            (
                "a whole file",
                json!({"kind": "edit", "rawInput": {"file_path": "a", "content": "y"}, "locations": [{"path": "/w/a"}]}),
                json!([["write", {"path": "a", "content": "y"}]]),
            ),
            (
                "a diff without input",
                json!({"kind": "edit", "title": "T", "content": [{"type": "diff", "path": "/a", "oldText": null, "newText": "y"}]}),
                json!([["write", {"path": "/a", "new_text": "y", "title": "T", "note": note}]]),
            ),
            (
                "an input that names one file and a place that is another",
                json!({"kind": "read", "rawInput": {"path": "/a"}, "locations": [{"path": "/etc/shadow"}]}),
                json!([["read", {"path": "/a"}], ["read", {"path": "/etc/shadow"}]]),
            ),
            (
                "files in a list",
                json!({"kind": "read", "rawInput": {"path": "/w/a", "paths": ["/etc/shadow"]}}),
                json!([
                    ["read", {"path": "/w/a", "paths": ["/etc/shadow"]}],
                    ["read", {"path": "/etc/shadow", "paths": ["/etc/shadow"]}],
                ]),
            ),
            (
                "an input with more than a file",
                json!({"kind": "read", "rawInput": {"path": "/w/a", "command": "rm x"}}),
                json!([
                    ["read", {"path": "/w/a", "command": "rm x"}],
                    ["unknown_members", {"method": "session/request_permission",
                        "members": {"path": "/w/a", "command": "rm x"},
                        "tool": "read", "arguments": {"path": "/w/a", "command": "rm x"}}],
                ]),
            ),
            ("no path", json!({"kind": "edit", "rawInput": {"patch": "x"}}), json!([["edit_unknown", {"patch": "x"}]])),
            (
                "another kind",
                json!({"kind": "delete", "rawInput": {"x": 1}, "locations": [{"path": "/a"}, {"path": "/b"}]}),
                json!([["delete", {"x": 1, "location_path": "/a", "location_path_2": "/b"}]]),
            ),
            ("no kind", json!({"title": "T"}), json!([["other", {"title": "T", "note": note}]])),
            (
                "a tool of an MCP server",
                json!({"kind": "other", "rawInput": {"a": 1}, "_meta": {"claudeCode": {"toolName": "mcp__x__y"}}}),
                json!([["mcp__x__y", {"a": 1}]]),
            ),
        ] {
            assert_eq!(translated(PLACE, call), want, "{case}");
        }
        let titled = CallPlace { titles: TitleMeaning::Command, ..PLACE };
        assert_eq!(
            translated(titled, json!({"kind": "execute", "title": "ls", "content": []})),
            json!([["bash", {"command": "ls", "note": note}]])
        );
    }
}
