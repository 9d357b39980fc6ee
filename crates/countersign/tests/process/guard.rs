//! Guards of other agents: the change, the proof, and the end. The agent is a script with the hooks of Claude Code.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use countersign_testkit::process::{CommandOutput, GatewayFixture, GatewayOptions, GatewayServer, run_command};
use serde_json::{Value, json};

const AGENT: &str = include_str!("guard/agent.py");
const RULES: &str = "defaults:\n  - { pattern: \"*\", action: allow }\n";

/// A home folder with an agent, and a gateway's folder.
struct Fixture {
    gateway: GatewayFixture,
    home: PathBuf,
    programs: PathBuf,
}

impl Fixture {
    fn with_agent(version: &str, obeys: bool) -> Self {
        let fixture = Self::without_agent();
        let agent = AGENT.replace("@VERSION@", version).replace("@OBEYS@", if obeys { "yes" } else { "no" });
        let path = fixture.programs.join("claude");
        fs::write(&path, agent).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        fixture
    }

    fn without_agent() -> Self {
        let gateway = GatewayOptions::new().with_rules(RULES).create();
        let (home, programs) = (gateway.folder.join("home"), gateway.folder.join("programs"));
        fs::create_dir_all(home.join(".claude")).unwrap();
        fs::create_dir(&programs).unwrap();
        fs::write(home.join(".claude/settings.json"), "{\n  \"model\": \"opus\"\n}\n").unwrap();
        Self { gateway, home, programs }
    }

    fn run(&self, arguments: &[&str]) -> CommandOutput {
        let mut command: Command = self.gateway.binary_command();
        // The agent needs its interpreter. Without an agent none of this machine counts.
        let others = match self.programs.join("claude").exists() {
            true => std::env::var("PATH").unwrap_or_default(),
            false => "/usr/bin:/bin".to_owned(),
        };
        let path = format!("{}:{others}", self.programs.display());
        command.args(arguments).env("HOME", &self.home).env("PATH", path);
        run_command(command)
    }

    fn guard(&self, arguments: &[&str]) -> CommandOutput {
        let data = self.gateway.data_dir();
        self.run(&[&["guard"], arguments, &["--data", data.to_str().unwrap()]].concat())
    }

    fn settings(&self) -> String {
        fs::read_to_string(self.home.join(".claude/settings.json")).unwrap()
    }

    /// Returns every file of the home folder with its content.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        fn add(folder: &Path, all: &mut Vec<(PathBuf, Vec<u8>)>) {
            for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() {
                    all.push((entry.clone(), Vec::new()));
                    add(&entry, all);
                } else {
                    all.push((entry.clone(), fs::read(&entry).unwrap()));
                }
            }
        }
        let mut all = Vec::new();
        add(&self.home, &mut all);
        all.sort();
        all
    }
}

#[test]
fn a_guard_is_shown_proved_and_taken_away_again() {
    let place = Fixture::with_agent("2.1.332", true);
    let before = place.files();
    let shown = place.guard(&["claude", "--dry-run"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.out.contains("+        \"PreToolUse\"") || shown.out.contains("PreToolUse"), "{shown:?}");
    assert!(shown.out.contains("cooperative") && shown.out.contains("disableAllHooks"), "{shown:?}");
    assert_eq!(place.files(), before);
    let _gateway = GatewayServer::start(&place.gateway);
    let refused = place.guard(&["claude"]);
    assert!(refused.code != Some(0) && refused.err.contains("--yes"), "no terminal to agree at: {refused:?}");
    assert_eq!(place.files(), before);
    let guarded = place.guard(&["claude", "--yes"]);
    assert_eq!(guarded.code, Some(0), "{guarded:?}");
    for line in [
        "without the guard: the call ran",
        "with the gateway: the call was blocked",
        "without a gateway: the call was blocked",
    ] {
        assert!(guarded.out.contains(line), "{guarded:?}");
    }
    let status = place.guard(&["status", "--json"]).json();
    assert_eq!(status["programs"][0]["state"], "guarded", "{status}");
    assert_eq!((&status["programs"][0]["version"], &status["gateway"]), (&json!("2.1.332"), &json!(true)));
    assert_eq!(place.guard(&["prove", "claude"]).code, Some(0));
    let again = place.guard(&["claude", "--yes"]);
    assert!(again.code == Some(1) && again.err.contains("guarded already"), "{again:?}");
    let ended = place.run(&["unguard", "claude"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(place.files(), before);
    let none = place.run(&["unguard", "claude"]);
    assert!(none.code == Some(1) && none.err.contains("not guarded"), "{none:?}");
}

#[test]
fn a_guard_that_does_not_hold_is_undone() {
    let place = Fixture::with_agent("2.1.332", false);
    let before = place.files();
    let _gateway = GatewayServer::start(&place.gateway);
    let failed = place.guard(&["claude", "--yes"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.err.contains("does not hold") && failed.err.contains("undone"), "{failed:?}");
    assert_eq!(place.files(), before);
}

#[test]
fn a_version_in_which_a_failed_hook_lets_calls_run_is_refused() {
    for (place, named) in [
        (Fixture::with_agent("2.1.294", true), "2.1.294 is older than 2.1.295"),
        (Fixture::without_agent(), "`claude` is not in PATH"),
        (Fixture::with_agent("of today", true), "is not known: `claude --version` failed"),
    ] {
        let before = place.files();
        let refused = place.guard(&["claude", "--yes"]);
        assert!(refused.code == Some(1) && refused.err.contains(named), "{refused:?}");
        assert_eq!(place.files(), before);
        let accepted = place.guard(&["claude", "--yes", "--accept-open"]);
        assert_eq!(accepted.code, Some(0), "{accepted:?}");
        assert!(accepted.out.contains("No gateway runs"), "{accepted:?}");
        let settings: Value = serde_json::from_str(&place.settings()).unwrap();
        assert_eq!(
            (&settings["model"], settings["hooks"]["PreToolUse"].as_array().map(Vec::len)),
            (&json!("opus"), Some(1))
        );
    }
}

#[test]
fn a_file_that_the_program_would_not_read_is_left_alone() {
    for text in ["{ // mine\n}", "{\"hooks\": 5}", "{\"permissions\": {\"allow\": \"Bash\"}}"] {
        let place = Fixture::with_agent("2.1.332", true);
        fs::write(place.home.join(".claude/settings.json"), text).unwrap();
        let before = place.files();
        let refused = place.guard(&["claude", "--yes"]);
        assert!(refused.code == Some(1) && refused.err.contains("settings.json"), "{refused:?}");
        assert_eq!(place.files(), before);
    }
}

#[test]
fn a_refused_settings_file_is_reported_with_the_entries_for_it() {
    let place = Fixture::with_agent("2.1.332", true);
    let settings = place.home.join(".claude/settings.json");
    let real = place.home.join("real.json");
    fs::write(&settings, "{ // mine\n}").unwrap();
    let refused = place.guard(&["claude", "--yes"]);
    let has_entries = |text: &str| text.contains("\"PreToolUse\"") && text.contains("hook claude --data");
    assert!(refused.code == Some(1) && refused.err.contains("add these entries"), "{refused:?}");
    assert!(has_entries(&refused.err), "{refused:?}");
    fs::rename(&settings, &real).unwrap();
    fs::write(&real, "{}").unwrap();
    std::os::unix::fs::symlink(&real, &settings).unwrap();
    let refused = place.guard(&["claude", "--yes"]);
    assert!(refused.code == Some(1) && refused.err.contains("real.json") && has_entries(&refused.err), "{refused:?}");
    // As a person adds them.
    let text = refused.err.split_once(":\n{").unwrap().1.rsplit_once('}').unwrap().0;
    fs::write(&real, format!("{{{text}}}")).unwrap();
    fs::remove_file(&settings).unwrap();
    fs::rename(&real, &settings).unwrap();
    assert_eq!(place.guard(&["status", "--json"]).json()["programs"][0]["state"], "guarded, without a receipt");
    assert_eq!(place.run(&["unguard", "claude"]).code, Some(0));
    assert_eq!(place.settings(), "{}");
}

#[test]
fn a_guard_is_taken_away_though_its_hook_was_edited() {
    let place = Fixture::with_agent("2.1.332", true);
    let settings = place.home.join(".claude/settings.json");
    let edit = || fs::write(&settings, place.settings().replace("600", "60")).unwrap();
    let receipt = place.home.join(".local/state/countersign/guard/claude.json");
    for is_receipt_lost in [false, true] {
        assert_eq!(place.guard(&["claude", "--yes"]).code, Some(0));
        edit();
        if is_receipt_lost {
            fs::remove_file(&receipt).unwrap();
        }
        let ended = place.run(&["unguard", "claude"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(ended.out.contains("hooks.PreToolUse was edited since"), !is_receipt_lost, "{ended:?}");
        let left: Value = serde_json::from_str(&place.settings()).unwrap();
        assert_eq!((left, receipt.exists()), (json!({ "model": "opus" }), false));
    }
    // One without a receipt is replaced.
    assert_eq!(place.guard(&["claude", "--yes"]).code, Some(0));
    fs::remove_file(&receipt).unwrap();
    edit();
    let again = place.guard(&["claude", "--yes"]);
    assert!(again.code == Some(0) && again.out.contains("replaces the entries of an earlier guard"), "{again:?}");
    assert_eq!(place.settings().matches(" hook claude ").count(), 4, "{}", place.settings());
    // A part in an unknown form stays, and so does the receipt.
    fs::write(&settings, place.settings().replacen("\"command\": \"", "\"run\": \"", 1)).unwrap();
    let left = place.run(&["unguard", "claude"]);
    assert!(left.code == Some(1) && left.out.contains("still runs the hook") && receipt.exists(), "{left:?}");
}

#[test]
fn programs_leave_nothing_in_the_home_folder_when_they_are_looked_at() {
    let place = Fixture::without_agent();
    for (name, version) in
        [("claude", "2.1.332"), ("gemini", "0.61.0"), ("copilot", "1.0.102"), ("opencode", "1.18.33")]
    {
        let path = place.programs.join(name);
        fs::write(
            &path,
            format!("#!/bin/sh\nmkdir -p \"$HOME/.cache\"\necho x > \"$HOME/.cache/{name}\"\necho {version}\n"),
        )
        .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let before = place.files();
    let status = place.guard(&["status", "--json"]).json();
    assert_eq!(
        (&status["programs"][0]["version"], &status["programs"][2]["version"]),
        (&json!("2.1.332"), &json!("0.61.0"))
    );
    assert_eq!(place.files(), before);
}

#[test]
fn programs_that_are_not_installed_are_guarded_only_if_that_needs_no_word_of_theirs() {
    let place = Fixture::without_agent();
    let before = place.files();
    let refused = place.guard(&["opencode", "--yes"]);
    assert!(refused.code == Some(1) && refused.err.contains("`opencode` is not in PATH"), "{refused:?}");
    // Codex computes the digest of a hook itself.
    let refused = place.guard(&["codex", "--yes", "--accept-open"]);
    assert!(refused.code == Some(1) && refused.err.to_lowercase().contains("codex"), "{refused:?}");
    assert_eq!(place.files(), before);
}

#[test]
fn files_of_opencode_are_byte_identical_once_the_guard_is_taken_away() {
    for settings in [
        None,
        Some("{}"),
        Some("{ \"theme\": \"dark\", // mine\n  \"permission\": { \"edit\": \"allow\" },\n}\n"),
        Some("{\r\n\t\"plugin\": [\"./own.js\"],\r\n\t\"permission\": \"ask\"\r\n}"),
    ] {
        let place = Fixture::without_agent();
        let folder = place.home.join(".config/opencode");
        let file = folder.join("opencode.json");
        if let Some(text) = settings {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&file, text).unwrap();
        }
        let before = place.files();
        let shown = place.guard(&["opencode", "--accept-open", "--dry-run"]);
        assert_eq!(shown.code, Some(0), "{settings:?}: {shown:?}");
        assert!(shown.out.contains("countersign.mjs") && shown.out.contains("Grade: cooperative"), "{shown:?}");
        assert_eq!(place.files(), before, "{settings:?}");
        let guarded = place.guard(&["opencode", "--accept-open", "--yes"]);
        assert_eq!(guarded.code, Some(0), "{settings:?}: {guarded:?}");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains("countersign.mjs"), "{text}");
        let plugin = place.home.join(".local/state/countersign/guard/opencode/countersign.mjs");
        assert!(fs::read_to_string(plugin).unwrap().contains("hook"), "the plugin starts the hook");
        let ended = place.run(&["unguard", "opencode"]);
        assert_eq!(ended.code, Some(0), "{settings:?}: {ended:?}");
        assert_eq!(place.files(), before, "{settings:?}");
    }
}

#[test]
fn a_service_of_the_user_is_written_shown_and_removed() {
    let place = Fixture::without_agent();
    let before = place.files();
    let shown = place.guard(&["--service", "--dry-run"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let data = format!("serve --data \"{}\"", place.gateway.data_dir().display());
    assert!(shown.out.contains("ExecStart=") && shown.out.contains(&data), "{shown:?}");
    assert_eq!(place.files(), before);
    let refused = place.guard(&["--service"]);
    assert!(refused.code != Some(0) && refused.err.contains("--yes"), "no terminal to agree at: {refused:?}");
    assert_eq!(place.files(), before);
    let written = place.guard(&["--service", "--yes"]);
    assert!(
        written.code == Some(0) && written.out.contains("systemctl --user enable --now countersign"),
        "{written:?}"
    );
    let unit = place.home.join(".config/systemd/user/countersign.service");
    let text = fs::read_to_string(&unit).unwrap();
    assert!(text.contains(&data), "{text}");
    // A denial names the command that starts it.
    let hook = place.guard(&["claude", "--accept-open", "--yes"]);
    assert!(hook.out.contains("systemctl --user start countersign"), "{hook:?}");
    assert_eq!(place.run(&["unguard", "claude"]).code, Some(0));
    fs::write(&unit, format!("{text}# mine\n")).unwrap();
    for arguments in [&["guard", "--service", "--yes"][..], &["unguard", "--service"]] {
        let refused = place.run(arguments);
        assert!(refused.code == Some(1) && refused.err.contains("countersign.service"), "{refused:?}");
    }
    fs::write(&unit, text).unwrap();
    let removed = place.run(&["unguard", "--service"]);
    assert!(removed.code == Some(0) && removed.out.contains("removed"), "{removed:?}");
    assert!(!unit.exists());
    let none = place.run(&["unguard", "--service"]);
    assert!(none.code == Some(1) && none.err.contains("there is no"), "{none:?}");
    let both = place.guard(&["--service", "claude"]);
    assert!(both.code != Some(0) && both.err.contains("--service"), "{both:?}");
}
