//! A hook as a program starts it: input on a pipe, the answer on another, and an exit code.

use std::{
    fs,
    io::Write as _,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use countersign_testkit::process::{GatewayFixture, GatewayOptions, binary_path};
use serde_json::{Value, json};

/// Rules for commands and files of agents.
pub(crate) const RULES: &str = r#"
defaults:
  - { pattern: "*", action: ask }
rules:
  - { pattern: "bash(echo *)", action: allow }
  - { pattern: "bash(touch *)", action: allow }
  - { pattern: "bash(rm *)", action: deny }
  - { pattern: "read(*)", action: allow }
"#;

/// Creates a gateway's folder with [`RULES`].
pub(crate) fn fixture() -> GatewayFixture {
    GatewayOptions::new().with_rules(RULES).create()
}

/// Returns a command at a shell, as a person types it: a program that starts a hook itself is an agent, and could answer no gate.
fn at_a_shell(place: &GatewayFixture) -> Command {
    let script = place.folder.join("typed.sh");
    // Another shell may read it at this moment.
    if !script.exists() {
        fs::write(&script, "\"$@\"\nexit $?\n").unwrap();
    }
    let mut command = place.command_at(Path::new("sh"));
    command.arg(script);
    command
}

/// Hook that runs.
pub(crate) struct RunningHook(Child);

/// Answer of a hook.
#[derive(Debug)]
pub(crate) struct HookAnswer {
    pub(crate) code: Option<i32>,
    /// Standard output: one JSON document, or nothing.
    pub(crate) document: Option<Value>,
    pub(crate) message: String,
}

impl RunningHook {
    /// Starts the hook of `program` with these flags and this input.
    pub(crate) fn start(place: &GatewayFixture, program: &str, flags: &[&str], input: &str) -> Self {
        Self::start_in(place, program, flags, input, &[])
    }

    /// Starts it with more variables.
    pub(crate) fn start_in(
        place: &GatewayFixture,
        program: &str,
        flags: &[&str],
        input: &str,
        variables: &[(&str, &str)],
    ) -> Self {
        let mut command = at_a_shell(place);
        command.arg(binary_path()).args(["hook", program, "--data"]).arg(place.data_dir());
        command.args(flags).envs(variables.iter().copied()).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A hook that refuses its input early may close the pipe.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        Self(child)
    }

    /// Kills its process.
    pub(crate) fn kill(mut self) {
        let group = format!("-{}", self.0.id());
        assert!(Command::new("kill").args(["-KILL", "--", &group]).status().unwrap().success());
        self.0.wait().unwrap();
    }

    /// Waits for its end.
    pub(crate) fn finish(self) -> HookAnswer {
        let Output { status, stdout, stderr } = self.0.wait_with_output().unwrap();
        let text = String::from_utf8(stdout).unwrap();
        let document = (!text.is_empty()).then(|| serde_json::from_str(&text).unwrap());
        HookAnswer { code: status.code(), document, message: String::from_utf8(stderr).unwrap() }
    }
}

/// Runs a hook to its end.
pub(crate) fn run_hook(place: &GatewayFixture, program: &str, input: &Value) -> HookAnswer {
    RunningHook::start(place, program, &[], &input.to_string()).finish()
}

/// Returns the input of Claude Code before a call.
pub(crate) fn claude_input(tool: &str, arguments: Value) -> Value {
    json!({
        "session_id": "5f0c", "transcript_path": "/x/5f0c.jsonl", "cwd": "/srv/work", "prompt_id": "p",
        "permission_mode": "default", "effort": {"level": "high"}, "hook_event_name": "PreToolUse",
        "tool_name": tool, "tool_input": arguments, "tool_use_id": "toolu_1",
    })
}

/// Returns the input of Claude Code before a command.
pub(crate) fn claude_command(command: &str) -> Value {
    claude_input("Bash", json!({ "command": command, "description": "runs it" }))
}

/// Returns the decision in an answer to Claude Code or Codex, with its reason.
pub(crate) fn decision(answer: &HookAnswer) -> (String, String) {
    let decided = &answer.document.as_ref().unwrap_or_else(|| panic!("{answer:?}"))["hookSpecificOutput"];
    assert_eq!((&decided["hookEventName"], answer.code), (&json!("PreToolUse"), Some(0)), "{answer:?}");
    let text = |name: &str| decided[name].as_str().unwrap_or_default().to_owned();
    (text("permissionDecision"), text("permissionDecisionReason"))
}
