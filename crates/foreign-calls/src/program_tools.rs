//! Tools of programs under the names that rules use for all agents, so that one rule governs a command whoever runs it.
//!
//! Source: docs/protocol/hooks.md, Subjects.

use countersign_core::{call::AgentRequest, policy::join_folder, tool::ToolEffect};
use countersign_view::Protocol;
use serde_json::{Map, Value};

use crate::{
    decisions::{check_size, new_decision},
    requester::Requester,
    shared_tools::{PATH, shared_tools},
};

/// Call of a program, as rules match it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProgramCall {
    /// Name of the tool in rules.
    pub(crate) tool: String,
    /// Arguments, with the path or the command under the name that rules use.
    pub(crate) arguments: Map<String, Value>,
    /// Signature that rules match.
    pub(crate) signature: String,
    /// Arguments that the signature names; empty means all.
    pub(crate) named: Vec<String>,
    /// Paths of files that the tool uses.
    pub(crate) paths: Vec<String>,
    /// Folder in which it runs, absolute; empty if the program has none.
    pub(crate) cwd: String,
    /// Effect of the tool: it only reads, or it may change something.
    pub(crate) effect: ToolEffect,
}

/// Prefix of the tools of MCP servers, whose names are the same for all agents.
const MCP_PREFIX: &str = "mcp__";
/// Argument that holds the folder of a command, in rules.
const FOLDER: &str = "cwd";

/// Builds the request of a program for one of its own tools, which it runs in the folder `cwd`.
///
/// # Errors
/// A reason for the agent: arguments that rules could misread, or that are too large.
pub fn build_program_request(
    requester: &Requester,
    name: &str,
    input: Map<String, Value>,
    cwd: &str,
) -> Result<AgentRequest, String> {
    check_size(&input)?;
    let call = translate_call(requester.protocol, name, input, cwd)?;
    Ok(AgentRequest {
        named: call.named,
        paths: call.paths,
        cwd: call.cwd,
        effect: call.effect,
        ..new_decision(requester, &call.tool, call.arguments, call.signature)
    })
}

/// Translates a call of a program that runs in the folder `cwd`. The error is a reason for the agent.
pub(crate) fn translate_call(
    protocol: Protocol,
    name: &str,
    mut input: Map<String, Value>,
    cwd: &str,
) -> Result<ProgramCall, String> {
    let (program, tools) = shared_tools(protocol);
    let Some(shared) = tools.iter().find(|shared| shared.names.contains(&name)) else {
        let tool = if name.starts_with(MCP_PREFIX) { name.to_owned() } else { format!("{program}__{name}") };
        // Of these tools only the name is known; argument rules match the rest.
        return Ok(ProgramCall {
            signature: tool.clone(),
            tool,
            paths: named_paths(&input),
            arguments: input,
            named: Vec::new(),
            cwd: cwd.to_owned(),
            effect: ToolEffect::Changes,
        });
    };
    let argument = shared.argument;
    let given = one_of(name, shared.given, &input)?.or_else(|| shared.given.first().copied()).unwrap_or(argument);
    // Rules must see the one path or command that the tool uses.
    if given != argument && input.contains_key(argument) {
        return Err(format!("{name} has no argument {argument}"));
    }
    let Some(Value::String(value)) = input.remove(given) else {
        return Err(format!("{name} needs the text argument {given}"));
    };
    input.insert(argument.to_owned(), value.clone().into());
    let is_path = argument == PATH;
    let folder = one_of(name, shared.folders, &input)?.and_then(|folder| input.remove(folder));
    let cwd = match folder {
        None | Some(Value::Null) => cwd.to_owned(),
        Some(Value::String(folder)) if folder.is_empty() => cwd.to_owned(),
        Some(Value::String(folder)) if cwd.is_empty() && !folder.starts_with('/') => {
            return Err(format!("{name}: expected an absolute path for the folder of the command"));
        }
        Some(Value::String(folder)) => join_folder(cwd, &folder),
        Some(_) => return Err(format!("{name}: expected a text for the folder of the command")),
    };
    if !is_path && !cwd.is_empty() {
        // Approvers see where the command runs.
        input.insert(FOLDER.to_owned(), cwd.clone().into());
    }
    Ok(ProgramCall {
        signature: format!("{}({value})", shared.tool),
        paths: if is_path { vec![value] } else { Vec::new() },
        tool: shared.tool.to_owned(),
        named: vec![argument.to_owned()],
        arguments: input,
        cwd,
        effect: shared.effect,
    })
}

/// Beginnings of lines of a patch that name a file.
const PATCHED: [&str; 4] = ["*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "];

/// Returns the paths in the arguments of a tool that only its program knows, at any depth: by the names of arguments, and in patches.
fn named_paths(input: &Map<String, Value>) -> Vec<String> {
    let mut paths = Vec::new();
    input.iter().for_each(|(name, value)| add_named_paths(name, value, &mut paths));
    paths
}

fn add_named_paths(name: &str, value: &Value, paths: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            let lower = name.to_ascii_lowercase();
            if lower.contains("path") || lower.contains("file") {
                paths.push(text.clone());
            }
            let patched =
                text.lines().filter_map(|line| PATCHED.iter().find_map(|begin| line.trim_start().strip_prefix(begin)));
            paths.extend(patched.map(|path| path.trim().to_owned()));
        }
        // An element has the name of its list.
        Value::Array(items) => items.iter().for_each(|item| add_named_paths(name, item, paths)),
        Value::Object(members) => members.iter().for_each(|(name, value)| add_named_paths(name, value, paths)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the one of `names` that is an argument, if one is. Of two the program may use either.
fn one_of(
    tool: &str,
    names: &'static [&'static str],
    input: &Map<String, Value>,
) -> Result<Option<&'static str>, String> {
    let mut present = names.iter().copied().filter(|name| input.contains_key(*name));
    match (present.next(), present.next()) {
        (Some(first), Some(second)) => Err(format!("{tool} has both {first} and {second}: expected one of them")),
        (first, _) => Ok(first),
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::id::{PrincipalId, SessionId};
    use countersign_view::Protocol;
    use serde_json::{Map, Value, json};

    use super::{build_program_request, translate_call};
    use crate::{
        decisions::{key_prefix, run_prefix},
        requester::Requester,
    };

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_tool_that_other_agents_have_too_has_their_name_and_signature() {
        use Protocol::{Acp, Claude, Codex, Copilot, Gemini, Mcp, Opencode};
        for (protocol, name, input, signature, arguments) in [
            (
                Claude,
                "Bash",
                json!({"command": "ls", "timeout": 5}),
                "bash(ls)",
                json!({"command": "ls", "timeout": 5}),
            ),
            (Mcp, "Bash", json!({"command": "ls"}), "bash(ls)", json!({"command": "ls"})),
            (Claude, "Read", json!({"file_path": "/a"}), "read(/a)", json!({"path": "/a"})),
            (
                Claude,
                "Write",
                json!({"file_path": "/a", "content": "x"}),
                "write(/a)",
                json!({"content": "x", "path": "/a"}),
            ),
            (
                Claude,
                "Edit",
                json!({"file_path": "/a", "old_string": "x"}),
                "edit(/a)",
                json!({"old_string": "x", "path": "/a"}),
            ),
            (Claude, "mcp__desk__turn", json!({"thing": "x"}), "mcp__desk__turn", json!({"thing": "x"})),
            (Claude, "WebFetch", json!({"url": "x"}), "claude__WebFetch", json!({"url": "x"})),
            (Codex, "Bash", json!({"command": "ls"}), "bash(ls)", json!({"command": "ls"})),
            (Codex, "exec_command", json!({"cmd": "ls"}), "bash(ls)", json!({"command": "ls"})),
            (Codex, "edit", json!({"path": "/a", "diff": "x"}), "edit(/a)", json!({"diff": "x", "path": "/a"})),
            (Codex, "write_stdin", json!({"chars": "x"}), "codex__write_stdin", json!({"chars": "x"})),
            (Gemini, "run_shell_command", json!({"command": "ls"}), "bash(ls)", json!({"command": "ls"})),
            (Gemini, "read_file", json!({"absolute_path": "/a"}), "read(/a)", json!({"path": "/a"})),
            (Gemini, "replace", json!({"file_path": "a"}), "edit(a)", json!({"path": "a"})),
            (Copilot, "bash", json!({"command": "ls"}), "bash(ls)", json!({"command": "ls"})),
            (Copilot, "create", json!({"path": "a"}), "write(a)", json!({"path": "a"})),
            (Copilot, "report_intent", json!({}), "copilot__report_intent", json!({})),
            (Opencode, "bash", json!({"command": "ls"}), "bash(ls)", json!({"command": "ls"})),
            (Opencode, "edit", json!({"filePath": "a"}), "edit(a)", json!({"path": "a"})),
            (Opencode, "webfetch", json!({"url": "x"}), "opencode__webfetch", json!({"url": "x"})),
            (Acp, "bash", json!({"command": "ls"}), "bash(ls)", json!({"command": "ls"})),
            (Acp, "write", json!({"path": "a", "content": "x"}), "write(a)", json!({"path": "a", "content": "x"})),
            (Acp, "fetch", json!({"url": "x"}), "acp__fetch", json!({"url": "x"})),
        ] {
            let mut call = translate_call(protocol, name, map(input), "/w").unwrap();
            let folder = call.arguments.remove("cwd");
            assert_eq!(folder.is_some(), call.tool == "bash", "approvers see the folder of a command");
            assert_eq!((call.signature.as_str(), Value::Object(call.arguments)), (signature, arguments), "{name}");
        }
    }

    #[test]
    fn the_same_call_has_the_same_key_in_any_order_of_its_arguments() {
        let (principal, session) = (PrincipalId::new("claude:1"), SessionId::new("claude:1"));
        let requester = Requester::new(Protocol::Claude, principal, session, "/w".to_owned(), 60);
        let key =
            |input: Value, cwd: &str| key_prefix(&build_program_request(&requester, "Bash", map(input), cwd).unwrap());
        let first = key(json!({"command": "ls", "timeout": 1}), "/w");
        assert_eq!(first, key(json!({"timeout": 1, "command": "ls"}), "/w"));
        assert_ne!(first, key(json!({"command": "ls", "timeout": 2}), "/w"));
        assert_ne!(first, key(json!({"command": "ls", "timeout": 1}), "/x"), "the same words there are another call");
    }

    #[test]
    fn a_decision_is_about_the_files_to_which_its_paths_led() {
        let (principal, session) = (PrincipalId::new("claude:1"), SessionId::new("claude:1"));
        let requester = Requester::new(Protocol::Claude, principal, session, "/w".to_owned(), 60);
        let plain = build_program_request(&requester, "Write", map(json!({"file_path": "l/x"})), "/w").unwrap();
        let led = |to: &str| {
            let (mut led, to) = (plain.clone(), to.to_owned());
            led.leads_to = Some(to.as_str().into());
            led.paths.push(to);
            led
        };
        let keys = [key_prefix(&plain), key_prefix(&led("/w/a/x")), key_prefix(&led("/rules/x"))];
        for (number, key) in keys.iter().enumerate() {
            assert!(keys.iter().skip(number + 1).all(|other| !other.starts_with(key) && !key.starts_with(other)));
        }
        assert_eq!(run_prefix(&plain), run_prefix(&led("/w/a/x")), "what ran is compared by its arguments");
    }

    #[test]
    fn a_command_that_ran_in_another_folder_is_another_call_if_calls_name_folders() {
        use Protocol::{Claude, Codex, Gemini, Opencode};
        for (protocol, tool, folder, is_same) in [
            (Claude, "Bash", "cwd", true),
            (Codex, "Bash", "workdir", false),
            (Gemini, "run_shell_command", "directory", false),
            (Gemini, "run_shell_command", "dir_path", false),
            (Opencode, "bash", "workdir", false),
        ] {
            let session = SessionId::new("s");
            let requester = Requester::new(protocol, PrincipalId::new("p"), session, "/w".to_owned(), 60);
            let run = |to: &str| {
                let input = map(json!({"command": "make", folder: to}));
                run_prefix(&build_program_request(&requester, tool, input, "/w").unwrap())
            };
            assert_eq!(run("a") == run("/"), is_same, "{tool} {folder}");
            assert_eq!(run("a"), run("/w/a"), "{tool} {folder}");
        }
        let requester = Requester::new(Claude, PrincipalId::new("p"), SessionId::new("s"), "/w".to_owned(), 60);
        let run =
            |cwd| run_prefix(&build_program_request(&requester, "Bash", map(json!({"command": "cd"})), cwd).unwrap());
        assert_eq!(run("/w"), run("/w/a"), "Claude Code reports the folder after the command");
    }

    #[test]
    fn the_paths_of_an_unknown_tool_are_found_at_any_depth() {
        let input = map(json!({
            "path": "a", "paths": ["b", "c"], "edits": [{"filePath": "d", "text": "e"}], "o": {"file_uri": "file:///f"},
            "changes": [{"patch": "*** Update File: g\n*** Move to: h"}],
        }));
        let mut paths = translate_call(Protocol::Claude, "mcp__fs__x", input, "/w").unwrap().paths;
        paths.sort();
        assert_eq!(paths, ["a", "b", "c", "d", "file:///f", "g", "h"]);
    }

    #[test]
    fn a_command_runs_in_the_folder_that_it_names() {
        for (folder, want) in
            [(json!("sub"), "/w/sub"), (json!("/x"), "/x"), (json!(".."), "/"), (json!(null), "/w"), (json!(""), "/w")]
        {
            let input = map(json!({"command": "ls", "directory": folder}));
            assert_eq!(
                translate_call(Protocol::Gemini, "run_shell_command", input, "/w").unwrap().cwd,
                want,
                "{folder}"
            );
        }
    }

    #[test]
    fn input_that_rules_could_misread_is_refused() {
        use Protocol::{Claude, Codex, Gemini};
        for (protocol, name, input, want) in [
            (Claude, "Read", json!({"file_path": "/a", "path": "/b"}), "Read has no argument path"),
            (Claude, "Read", json!({"file_path": ["/a"]}), "Read needs the text argument file_path"),
            (Claude, "Bash", json!({}), "Bash needs the text argument command"),
            (
                Codex,
                "exec_command",
                json!({"cmd": "a", "command": "b"}),
                "exec_command has both command and cmd: expected one of them",
            ),
            (
                Gemini,
                "run_shell_command",
                json!({"command": "a", "directory": 5}),
                "run_shell_command: expected a text for the folder of the command",
            ),
        ] {
            assert_eq!(translate_call(protocol, name, map(input), "/w").unwrap_err(), want);
        }
    }
}
