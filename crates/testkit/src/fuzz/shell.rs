//! Comparison of the shell analysis with a real shell: an allowed line must run as it was parsed.
//!
//! The rules allow two commands whose first word begins with `safe`. A line that is allowed is given to a restricted bash in an empty
//! folder, in which no program can be found, no builtin is enabled and nothing can be written; each command goes to a handler that
//! records it. Without bash only the analysis runs.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Stdio},
    sync::LazyLock,
    time::Duration,
};

use countersign_core::{
    digest::{Digest, canonical_json},
    id::{PrincipalId, SessionId},
    policy::{
        CompiledRules, Constraints, DefaultPolicy, EffectReach, GrantSet, PathContext, PolicyLayers, PolicySubject,
        Rule, RuleAction, RuleLayer, RuleSet, RuleSource, Verdict, compile_rules, evaluate,
    },
    time::Millis,
    tool::{ShellInput, ToolEffect},
};
use serde_json::{Map, Value};
use tempfile::TempDir;

/// Timeout of a line, after which it shows nothing.
const RUN_TIMEOUT: Duration = Duration::from_secs(2);

static RULES: LazyLock<CompiledRules> = LazyLock::new(|| {
    let rules = ["bash(ls safe*)", "bash(echo safe*)"].map(|pattern| Rule::new(pattern, RuleAction::Allow));
    let rules = RuleSet { defaults: Vec::new(), rules: rules.to_vec() };
    compile_rules(vec![RuleSource { name: "fuzz".to_owned(), layer: RuleLayer::Main, rules }])
        .expect("rules that make sense")
});

/// Text for bash before the line. `-r` keeps commands with a slash from running and output files from being opened.
const PROLOGUE: &str = r#"
ulimit -t 2 -v 4000000 -f 1000
command_not_found_handle() { countersign-fuzz-record "$@"; }
enable -n $(compgen -b)
"#;

/// Handler that records, in one piece, the command that would have run.
const RECORD: &str = r#"#!/bin/sh
printf '%s\0' "$@" "$FUZZ_END" >> "$FUZZ_TOLD"
"#;

/// Separator after the words of one command.
const END: &str = "\u{1e}";

/// Analyses `bytes` as a line, and runs it in a shell if it is allowed.
pub(super) fn fuzz_line(bytes: &[u8]) {
    let line = String::from_utf8_lossy(bytes);
    // A process cannot be given the one, and the other could not be distinguished from our own.
    if line.contains(['\0', '\u{1e}']) || !is_allowed(&line) {
        return;
    }
    let Some(ShellRun { commands, stderr }) = run_in_bash(&line) else { return };
    assert!(
        !stderr.contains("restricted: cannot specify"),
        "{line:?} is allowed, and bash would run a path: {stderr:?}"
    );
    for words in commands {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let is_known = matches!(words[..], ["ls" | "echo", first, ..] if first.starts_with("safe"));
        assert!(is_known, "{line:?} is allowed, and bash would run {words:?}");
    }
}

fn is_allowed(line: &str) -> bool {
    let arguments = Map::from_iter([("command".to_owned(), Value::String(line.to_owned()))]);
    let subject = PolicySubject {
        principal: PrincipalId::new("agent"),
        door: None,
        target: None,
        session: SessionId::new("fuzz"),
        tool: "bash".to_owned(),
        signature: format!("bash({line})"),
        further_signatures: Vec::new(),
        named: vec!["command".to_owned()],
        undeclared: Vec::new(),
        arguments_digest: Digest::hash_bytes(canonical_json(&Value::Object(arguments.clone())).as_bytes()),
        arguments,
        effect: ToolEffect::Changes,
        classes: BTreeSet::new(),
        reach: EffectReach::Files,
        cwd: "/home/ana/project".to_owned(),
        session_folder: None,
        is_later: false,
        leads_to: None,
        paths: Vec::new(),
        shell: ShellInput::of_own("bash"),
    };
    let layers = PolicyLayers {
        compiled: &RULES,
        constraints: &Constraints::default(),
        contract: None,
        grants: &GrantSet::default(),
        default_policy: DefaultPolicy::Gateway,
        path_context: &PathContext { home: Some("/home/ana".to_owned()), ..PathContext::default() },
    };
    matches!(evaluate(&layers, &subject, Millis(0)), Verdict::Allow(_))
}

/// Result of a line in a shell.
struct ShellRun {
    /// Words of each command.
    commands: Vec<Vec<String>>,
    /// Errors of the shell.
    stderr: String,
}

/// Runs `line` in bash. `None` if that shows nothing: bash is missing, or it took too long.
fn run_in_bash(line: &str) -> Option<ShellRun> {
    static SCENE: LazyLock<Option<TempDir>> = LazyLock::new(|| create_sandbox().ok());
    let sandbox = SCENE.as_ref()?.path();
    let record_path = sandbox.join("told");
    fs::write(&record_path, "").ok()?;
    let seconds = RUN_TIMEOUT.as_secs().to_string();
    let output = Command::new("timeout")
        .args(["-s", "KILL", &seconds, "bash", "--noprofile", "--norc", "-r", "-c", line])
        .current_dir(sandbox.join("empty"))
        .env_clear()
        .env("PATH", std::env::join_paths([sandbox.join("bin")]).ok()?)
        .env("BASH_ENV", sandbox.join("prologue"))
        .env("FUZZ_TOLD", &record_path)
        .env("FUZZ_END", END)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    // Killed: its later commands are not known.
    output.status.code()?;
    let text = String::from_utf8_lossy(&fs::read(&record_path).ok()?).into_owned();
    let mut commands = Vec::new();
    let mut words = Vec::new();
    for word in text.split_terminator('\0') {
        if word == END {
            commands.push(std::mem::take(&mut words));
        } else {
            words.push(word.to_owned());
        }
    }
    Some(ShellRun { commands, stderr })
}

/// Creates a folder with the prologue of bash, the only program that can be found, and an empty folder to run in.
fn create_sandbox() -> io::Result<TempDir> {
    let sandbox = tempfile::tempdir()?;
    let path = sandbox.path();
    fs::create_dir(path.join("bin"))?;
    fs::create_dir(path.join("empty"))?;
    fs::write(path.join("prologue"), PROLOGUE)?;
    let record = path.join("bin/countersign-fuzz-record");
    fs::write(&record, RECORD)?;
    fs::set_permissions(&record, fs::Permissions::from_mode(0o755))?;
    Ok(sandbox)
}

#[cfg(test)]
mod tests {
    use super::{is_allowed, run_in_bash};

    #[test]
    fn an_installed_shell_shows_its_commands() {
        let Some(shell_run) = run_in_bash("ls safe; A=b rm -rf 'x y' | env; eval ls; /bin/ls") else { return };
        let want: [&[&str]; 4] = [&["ls", "safe"], &["rm", "-rf", "x y"], &["env"], &["eval", "ls"]];
        let mut commands = shell_run.commands;
        // The two of a pipe come in either order.
        commands.sort();
        let mut want = want.map(|words| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        want.sort();
        assert_eq!(commands, want);
        assert!(shell_run.stderr.contains("restricted: cannot specify"), "{}", shell_run.stderr);
    }

    #[test]
    fn some_lines_are_allowed_and_others_are_not() {
        for (line, want) in
            [("ls safe", true), ("ls safe | echo 'safe'", true), ("rm safe", false), ("ls safe; x", false)]
        {
            assert_eq!(is_allowed(line), want, "{line}");
        }
    }
}
