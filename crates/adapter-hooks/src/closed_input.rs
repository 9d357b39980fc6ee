//! Commands of Codex with a closed input: Codex runs no hook for what it writes to a command that already runs.

use countersign_view::Protocol;
use serde_json::{Map, Value};

use crate::input::{HookEvent, HookInput};

/// The first line of every command that is allowed: what it reads ends at once, whatever is written to it later.
const CLOSING: &str = "exec < /dev/null\n";

/// The argument that holds the command.
const COMMAND: &str = "command";

/// Tool with which Codex runs commands.
const TOOL: &str = "Bash";

/// Whether the input of a command is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandInput {
    /// Closed, or the call runs no command.
    Closed,
    /// Open, although the hook closes each.
    Open,
}

/// Returns the arguments with which an allowed call has to run, if they are others than its own.
pub(crate) fn closed_arguments(protocol: Protocol, input: &HookInput) -> Option<Map<String, Value>> {
    if protocol != Protocol::Codex || input.event != HookEvent::BeforeCall {
        return None;
    }
    let command = command_of(input).filter(|command| !is_patch(command))?;
    let mut arguments = input.arguments.clone();
    arguments.insert(COMMAND.to_owned(), format!("{CLOSING}{command}").into());
    Some(arguments)
}

/// Takes the first line away that [`closed_arguments`] put before a command, and reports what became of its input.
pub(crate) fn remove_closing(protocol: Protocol, input: &mut HookInput) -> CommandInput {
    if protocol != Protocol::Codex || input.event == HookEvent::BeforeCall {
        return CommandInput::Closed;
    }
    let Some(command) = command_of(input) else { return CommandInput::Closed };
    match command.strip_prefix(CLOSING).map(str::to_owned) {
        Some(command) => {
            input.arguments.insert(COMMAND.to_owned(), command.into());
            CommandInput::Closed
        }
        None if is_patch(command) => CommandInput::Closed,
        None => CommandInput::Open,
    }
}

fn command_of(input: &HookInput) -> Option<&str> {
    input.arguments.get(COMMAND).and_then(Value::as_str).filter(|_| input.tool == TOOL)
}

/// Reports whether a command is nothing but a patch, which Codex applies itself: `apply_patch` with a here-document, in another folder
/// or not. Codex would not recognise it with a line before it.
fn is_patch(command: &str) -> bool {
    let command = command.trim();
    let patch = match command.strip_prefix("cd ").and_then(|rest| rest.split_once("&&")) {
        Some((folder, patch)) if !folder.contains(['\n', ';', '|', '&', '`', '$', '(', '<', '>']) => patch.trim_start(),
        Some(_) => return false,
        None => command,
    };
    let Some((first, body)) = patch.split_once('\n') else { return false };
    let mark = first.strip_prefix("apply_patch").and_then(|rest| rest.trim().strip_prefix("<<")).map(str::trim);
    let Some(mark) = mark.map(|mark| mark.trim_matches(['\'', '"'])) else { return false };
    let is_word = !mark.is_empty() && mark.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    // The document ends with the command.
    is_word && body.lines().position(|line| line == mark) == Some(body.lines().count() - 1)
}

#[cfg(test)]
mod tests {
    use countersign_view::Protocol::{Claude, Codex};
    use serde_json::json;

    use super::{CommandInput, HookInput, closed_arguments, is_patch, remove_closing};

    fn input(protocol: countersign_view::Protocol, event: &str, tool: &str, command: &str) -> HookInput {
        let text = json!({
            "session_id": "s", "cwd": "/w", "hook_event_name": event, "tool_name": tool,
            "tool_input": { "command": command, "workdir": "/w" }, "tool_use_id": "c",
        });
        HookInput::parse(protocol, &text.to_string()).unwrap()
    }

    #[test]
    fn a_command_of_codex_runs_with_a_closed_input_and_is_compared_without_it() {
        let before = input(Codex, "PreToolUse", "Bash", "sh -e");
        let closed = closed_arguments(Codex, &before).unwrap();
        assert_eq!(json!(closed), json!({ "command": "exec < /dev/null\nsh -e", "workdir": "/w" }));
        for event in ["PostToolUse", "PermissionRequest"] {
            let mut ran = input(Codex, event, "Bash", closed["command"].as_str().unwrap());
            assert_eq!(remove_closing(Codex, &mut ran), CommandInput::Closed);
            assert_eq!(ran.arguments, before.arguments, "{event}");
            let mut open = input(Codex, event, "Bash", "sh -e");
            assert_eq!(remove_closing(Codex, &mut open), CommandInput::Open, "{event}");
        }
        // An agent that writes the line itself gets it once more.
        let own = input(Codex, "PreToolUse", "Bash", "exec < /dev/null\nls");
        let mut ran =
            input(Codex, "PostToolUse", "Bash", closed_arguments(Codex, &own).unwrap()["command"].as_str().unwrap());
        remove_closing(Codex, &mut ran);
        assert_eq!(ran.arguments, own.arguments);
        for (protocol, tool) in [(Claude, "Bash"), (Codex, "mcp__files__read")] {
            assert_eq!(
                closed_arguments(protocol, &input(protocol, "PreToolUse", tool, "sh")),
                None,
                "{protocol:?} {tool}"
            );
            let mut ran = input(protocol, "PostToolUse", tool, "sh");
            assert_eq!(remove_closing(protocol, &mut ran), CommandInput::Closed, "{protocol:?} {tool}");
        }
    }

    #[test]
    fn only_a_command_that_is_nothing_but_a_patch_keeps_its_input() {
        let document = "<<'EOF'\n*** Begin Patch\n*** Add File: a\n+x\n*** End Patch\nEOF";
        for command in [
            format!("apply_patch {document}"),
            format!("cd sub && apply_patch {document}\n"),
            format!("apply_patch {}", document.replace('\'', "\"")),
        ] {
            assert!(is_patch(&command), "{command}");
        }
        for command in [
            format!("apply_patch {document}\nbash"),
            format!("apply_patch {document}\nEOF"),
            format!("cd $(bash) && apply_patch {document}"),
            format!("cd a; bash && apply_patch {document}"),
            format!("bash && apply_patch {document}"),
            format!("apply_patch {}", document.replacen("<<'EOF'", "<<'EOF' | bash", 1)),
            "apply_patch".to_owned(),
            "bash".to_owned(),
        ] {
            assert!(!is_patch(&command), "{command}");
        }
    }
}
