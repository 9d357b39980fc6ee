//! Tools of programs under the names that rules use for all agents, so that one rule governs a command whoever runs it.
//!
//! Source: docs/protocol/hooks.md, Subjects.

use countersign_core::{call::AgentRequest, policy::join_folder, tool::ToolEffect};
use countersign_view::Protocol;
use serde_json::{Map, Value};

use crate::{
    decisions::{check_size, new_decision},
    requester::Requester,
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
/// Argument that holds a command, in rules.
const COMMAND: &str = "command";
/// Argument that holds the folder of a command, in rules.
const FOLDER: &str = "cwd";
/// Argument that holds a path, in rules.
const PATH: &str = "path";

/// Tool of a program that other agents have too.
struct SharedTool {
    /// Names in the program.
    names: &'static [&'static str],
    /// Name in rules.
    tool: &'static str,
    /// Argument that rules match, in rules.
    argument: &'static str,
    /// The same argument, in the program.
    given: &'static [&'static str],
    /// Arguments that name the folder of a command.
    folders: &'static [&'static str],
    effect: ToolEffect,
}

const CLAUDE: [SharedTool; 4] = [
    shell_tool(&["Bash"], &["command"], &[]),
    file_tool(&["Read"], "read", &["file_path"], ToolEffect::Reads),
    file_tool(&["Write"], "write", &["file_path"], ToolEffect::Changes),
    file_tool(&["Edit", "MultiEdit"], "edit", &["file_path"], ToolEffect::Changes),
];
/// Codex changes files by patches. The proxy before it names a file of one as `write` or `edit`.
const CODEX: [SharedTool; 3] = [
    shell_tool(&["Bash", "exec_command", "shell"], &["command", "cmd"], &["workdir"]),
    file_tool(&["write"], "write", &["path"], ToolEffect::Changes),
    file_tool(&["edit"], "edit", &["path"], ToolEffect::Changes),
];
const GEMINI: [SharedTool; 4] = [
    shell_tool(&["run_shell_command"], &["command"], &["directory", "dir_path"]),
    file_tool(&["read_file"], "read", &["file_path", "absolute_path"], ToolEffect::Reads),
    file_tool(&["write_file"], "write", &["file_path"], ToolEffect::Changes),
    file_tool(&["replace"], "edit", &["file_path"], ToolEffect::Changes),
];
const COPILOT: [SharedTool; 4] = [
    shell_tool(&["bash"], &["command"], &[]),
    file_tool(&["view"], "read", &["path"], ToolEffect::Reads),
    file_tool(&["create"], "write", &["path"], ToolEffect::Changes),
    file_tool(&["edit"], "edit", &["path"], ToolEffect::Changes),
];

const OPENCODE: [SharedTool; 4] = [
    shell_tool(&["bash"], &["command"], &["workdir"]),
    file_tool(&["read"], "read", &["filePath"], ToolEffect::Reads),
    file_tool(&["write"], "write", &["filePath"], ToolEffect::Changes),
    file_tool(&["edit"], "edit", &["filePath"], ToolEffect::Changes),
];
/// The proxy of an agent of ACP names them: the protocol has only kinds.
const ACP: [SharedTool; 4] = [
    shell_tool(&["bash"], &["command"], &["cwd"]),
    file_tool(&["read"], "read", &["path"], ToolEffect::Reads),
    file_tool(&["write"], "write", &["path"], ToolEffect::Changes),
    file_tool(&["edit"], "edit", &["path"], ToolEffect::Changes),
];

const fn shell_tool(
    names: &'static [&'static str],
    given: &'static [&'static str],
    folders: &'static [&'static str],
) -> SharedTool {
    SharedTool { names, tool: "bash", argument: COMMAND, given, folders, effect: ToolEffect::Changes }
}

const fn file_tool(
    names: &'static [&'static str],
    tool: &'static str,
    given: &'static [&'static str],
    effect: ToolEffect,
) -> SharedTool {
    SharedTool { names, tool, argument: PATH, given, folders: &[], effect }
}

/// Returns the tools that a program shares with others. A host of MCP that asks for permissions is Claude Code.
const fn shared_tools(protocol: Protocol) -> (&'static str, &'static [SharedTool]) {
    match protocol {
        Protocol::Codex => ("codex", &CODEX),
        Protocol::Gemini => ("gemini", &GEMINI),
        Protocol::Copilot => ("copilot", &COPILOT),
        Protocol::Opencode => ("opencode", &OPENCODE),
        Protocol::Acp => ("acp", &ACP),
        _ => ("claude", &CLAUDE),
    }
}

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

/// Returns the paths in the arguments of a tool that only its program knows: by the names of arguments, and in patches.
fn named_paths(input: &Map<String, Value>) -> Vec<String> {
    let mut paths = Vec::new();
    for (name, value) in input {
        let Value::String(text) = value else { continue };
        let lower = name.to_ascii_lowercase();
        if lower.contains("path") || lower.contains("file") {
            paths.push(text.clone());
        }
        let patched =
            text.lines().filter_map(|line| PATCHED.iter().find_map(|begin| line.trim_start().strip_prefix(begin)));
        paths.extend(patched.map(|path| path.trim().to_owned()));
    }
    paths
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
    use crate::{decisions::key_prefix, requester::Requester};

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
