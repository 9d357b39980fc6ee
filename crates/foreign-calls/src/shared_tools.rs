//! The tools of programs that other agents have too, and their names in rules.
//!
//! Source: docs/protocol/hooks.md, Subjects.

use countersign_core::tool::ToolEffect;
use countersign_view::Protocol;

/// Argument that holds a command, in rules.
const COMMAND: &str = "command";
/// Argument that holds a path, in rules.
pub(crate) const PATH: &str = "path";

/// Tool of a program that other agents have too.
pub(crate) struct SharedTool {
    /// Names in the program.
    pub(crate) names: &'static [&'static str],
    /// Name in rules.
    pub(crate) tool: &'static str,
    /// Argument that rules match, in rules.
    pub(crate) argument: &'static str,
    /// The same argument, in the program.
    pub(crate) given: &'static [&'static str],
    /// Arguments that name the folder of a command.
    pub(crate) folders: &'static [&'static str],
    pub(crate) effect: ToolEffect,
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
pub(crate) const fn shared_tools(protocol: Protocol) -> (&'static str, &'static [SharedTool]) {
    match protocol {
        Protocol::Codex => ("codex", &CODEX),
        Protocol::Gemini => ("gemini", &GEMINI),
        Protocol::Copilot => ("copilot", &COPILOT),
        Protocol::Opencode => ("opencode", &OPENCODE),
        Protocol::Acp => ("acp", &ACP),
        _ => ("claude", &CLAUDE),
    }
}

/// Reports whether the program that rules know as `door` can name the folder of a command in its call.
pub(crate) fn names_folder(door: &str) -> bool {
    let protocol = Protocol::FOREIGN.iter().find(|protocol| protocol.name() == door);
    protocol.is_some_and(|protocol| shared_tools(*protocol).1.iter().any(|shared| !shared.folders.is_empty()))
}
