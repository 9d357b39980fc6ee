use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{GuardState, apply_guard, guard_state, plan_guard};
use crate::{
    HookTrust,
    edit::tests::WRITTEN,
    error::GuardError,
    json_syntax::JsonSyntax,
    places::GuardPlaces,
    program::{GuardScope, GuardedProgram},
    text_blocks::tests::WRITTEN as CONFIGS,
    undo::{UndoOutcome, undo_guard},
    undo_note::UndoNote,
};

const COMMAND: &str = "'/usr/bin/countersign' hook claude --data '/home/ana/.local/share/countersign'";

struct HomeFixture {
    folder: TempDir,
    places: GuardPlaces,
}

impl HomeFixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        fs::create_dir(&home).unwrap();
        let system = folder.path().join("etc");
        let places = GuardPlaces { home, claude: None, codex: None, config: None, state: None, system };
        Self { folder, places }
    }

    fn settings(&self) -> PathBuf {
        self.places.home.join(".claude/settings.json")
    }

    fn write(&self, text: &str) -> PathBuf {
        let path = self.settings();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// Returns every file and folder, with content and mode.
    fn snapshot(&self) -> BTreeMap<PathBuf, (u32, Option<Vec<u8>>)> {
        fn add(folder: &Path, all: &mut BTreeMap<PathBuf, (u32, Option<Vec<u8>>)>) {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                let found = entry.metadata().unwrap();
                let content = found.is_file().then(|| fs::read(entry.path()).unwrap());
                all.insert(entry.path(), (found.permissions().mode(), content));
                if found.is_dir() {
                    add(&entry.path(), all);
                }
            }
        }
        let mut all = BTreeMap::new();
        add(self.folder.path(), &mut all);
        all
    }

    fn guard(&self, program: GuardedProgram) -> Result<(), GuardError> {
        apply_guard(&plan_guard(program, GuardScope::User, COMMAND, &self.places)?, &self.places)
    }
}

fn is_restored(outcomes: &[UndoOutcome]) -> bool {
    outcomes.iter().all(|outcome| matches!(outcome, UndoOutcome::Restored { .. }))
}

#[test]
fn guard_and_unguard_leave_a_home_folder_as_it_was() {
    for program in GuardedProgram::ALL {
        let home = HomeFixture::new();
        let before = home.snapshot();
        home.guard(program).unwrap();
        assert_ne!(home.snapshot(), before);
        assert!(matches!(guard_state(program, &home.places).unwrap(), GuardState::Installed { .. }));
        assert!(is_restored(&undo_guard(program, &home.places).unwrap()));
        assert_eq!(home.snapshot(), before, "{program:?}");
    }
    for text in WRITTEN {
        for mode in [0o600, 0o644] {
            let home = HomeFixture::new();
            let path = home.write(text);
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let before = home.snapshot();
            home.guard(GuardedProgram::Claude).unwrap();
            let guarded: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            let hook = guarded["hooks"]["PreToolUse"].as_array().unwrap().last().unwrap()["hooks"][0].clone();
            let want = json!({
                "type": "command", "command": format!("{COMMAND} || exit 2"), "timeout": 600, "onFailure": "block",
            });
            assert_eq!(hook, want);
            undo_guard(GuardedProgram::Claude, &home.places).unwrap();
            assert_eq!(home.snapshot(), before, "{text:?}");
        }
    }
}

#[test]
fn edits_of_the_user_after_the_guard_stay() {
    let home = HomeFixture::new();
    let path = home.write("{\n  \"model\": \"opus\"\n}\n");
    home.guard(GuardedProgram::Claude).unwrap();
    let mut settings: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    settings["theme"] = json!("dark");
    fs::write(&path, serde_json::to_string_pretty(&settings).unwrap()).unwrap();
    assert!(matches!(guard_state(GuardedProgram::Claude, &home.places).unwrap(), GuardState::Installed { .. }));
    let outcome = undo_guard(GuardedProgram::Claude, &home.places).unwrap();
    assert_eq!(outcome, [UndoOutcome::Removed { path: path.clone(), notes: Vec::new() }]);
    let left: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(left, json!({"model": "opus", "theme": "dark"}));
    assert!(matches!(undo_guard(GuardedProgram::Claude, &home.places), Err(GuardError::NotInstalled { .. })));
}

#[test]
fn a_guard_that_was_switched_off_is_reported() {
    for (change, named) in [
        ("{\"hooks\": {}}", "hooks.PreToolUse"),
        ("[", "not JSON"),
        ("{\"permissions\": {\"allow\": \"all\"}}", "permissions.allow"),
    ] {
        let home = HomeFixture::new();
        home.guard(GuardedProgram::Claude).unwrap();
        fs::write(home.settings(), change).unwrap();
        match guard_state(GuardedProgram::Claude, &home.places).unwrap() {
            GuardState::Damaged { problem, .. } => assert!(problem.contains(named), "{problem}"),
            state => panic!("{change}: {state:?}"),
        }
    }
    for text in ["{\"disableAllHooks\": true}", "{\"hooksConfig\": {\"enabled\": false}}"] {
        let home = HomeFixture::new();
        home.guard(GuardedProgram::Claude).unwrap();
        let mut settings: Value = serde_json::from_str(&fs::read_to_string(home.settings()).unwrap()).unwrap();
        let more: Value = serde_json::from_str(text).unwrap();
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fs::write(home.settings(), settings.to_string()).unwrap();
        assert!(matches!(guard_state(GuardedProgram::Claude, &home.places).unwrap(), GuardState::Damaged { .. }));
        let home = HomeFixture::new();
        home.write(text);
        assert!(matches!(home.guard(GuardedProgram::Claude), Err(GuardError::Settings { .. })), "{text}");
    }
}

#[test]
fn a_file_that_is_not_ours_to_change_is_left_alone() {
    for text in
        ["{ // mine\n}", "{\"a\": 1,}", "[]", "{\"hooks\": 5}", "{\"hooks\": {\"PreToolUse\": [{}]}}", "\u{feff}{}"]
    {
        let home = HomeFixture::new();
        home.write(text);
        let before = home.snapshot();
        assert!(matches!(home.guard(GuardedProgram::Claude), Err(GuardError::Settings { .. })), "{text}");
        assert_eq!(home.snapshot(), before, "{text}");
    }
    let home = HomeFixture::new();
    let real = home.places.home.join("real.json");
    fs::write(&real, "{}").unwrap();
    fs::create_dir(home.places.home.join(".claude")).unwrap();
    symlink(&real, home.settings()).unwrap();
    let before = home.snapshot();
    let problem = home.guard(GuardedProgram::Claude).unwrap_err().to_string();
    assert!(problem.contains("symbolic link"), "{problem}");
    assert_eq!(home.snapshot(), before);
    let home = HomeFixture::new();
    let path = home.write("{}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    let before = home.snapshot();
    assert!(home.guard(GuardedProgram::Claude).is_err());
    assert_eq!(home.snapshot(), before);
}

#[test]
fn what_changed_since_the_plan_is_not_overwritten() {
    let home = HomeFixture::new();
    let path = home.write("{}");
    let plan = plan_guard(GuardedProgram::Claude, GuardScope::User, COMMAND, &home.places).unwrap();
    fs::write(&path, "{\"model\": \"opus\"}").unwrap();
    let before = home.snapshot();
    assert!(matches!(apply_guard(&plan, &home.places), Err(GuardError::ChangedMeanwhile { .. })));
    assert_eq!(home.snapshot(), before);
}

#[test]
fn a_second_guard_is_refused_and_one_that_was_cut_off_is_repeated() {
    let home = HomeFixture::new();
    let path = home.write("{}");
    let before = home.snapshot();
    home.guard(GuardedProgram::Claude).unwrap();
    assert!(matches!(home.guard(GuardedProgram::Claude), Err(GuardError::Installed { .. })));
    // As if the process had ended after the receipt, and before the settings.
    fs::write(&path, "{}").unwrap();
    home.guard(GuardedProgram::Claude).unwrap();
    undo_guard(GuardedProgram::Claude, &home.places).unwrap();
    assert_eq!(home.snapshot(), before);
}

#[test]
fn a_managed_guard_is_a_file_of_its_own() {
    let home = HomeFixture::new();
    fs::create_dir(&home.places.system).unwrap();
    let before = home.snapshot();
    let plan = plan_guard(GuardedProgram::Claude, GuardScope::Managed, COMMAND, &home.places).unwrap();
    apply_guard(&plan, &home.places).unwrap();
    let settings: Value = serde_json::from_str(&fs::read_to_string(plan.settings().path()).unwrap()).unwrap();
    assert_eq!(settings["allowManagedHooksOnly"], json!(true));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(plan.settings().path()), mode(plan.settings().path().parent().unwrap())), (0o644, 0o755));
    assert!(plan.settings().path().ends_with("claude-code/managed-settings.d/50-countersign.json"));
    assert!(matches!(
        guard_state(GuardedProgram::Claude, &home.places).unwrap(),
        GuardState::Installed { scope: GuardScope::Managed, .. }
    ));
    undo_guard(GuardedProgram::Claude, &home.places).unwrap();
    assert_eq!(home.snapshot(), before);
    let refused = plan_guard(GuardedProgram::Gemini, GuardScope::Managed, COMMAND, &home.places);
    assert!(matches!(refused, Err(GuardError::NoManagedSettings { .. })));
}

#[test]
fn rules_of_the_program_itself_are_named() {
    let home = HomeFixture::new();
    home.write("{\"permissions\": {\"allow\": [\"Bash(git *)\", \"WebFetch\"]}}");
    let plan = plan_guard(GuardedProgram::Claude, GuardScope::User, COMMAND, &home.places).unwrap();
    assert_eq!(plan.own_allowances(), ["Bash(git *)", "WebFetch"]);
}

const PLUGIN: &str = "/home/ana/.local/state/countersign/guard/opencode/countersign.mjs";

fn trust_in(hooks: &Path) -> Vec<HookTrust> {
    ["pre_tool_use", "permission_request", "post_tool_use"]
        .map(|event| HookTrust { key: format!("{}:{event}:0:0", hooks.display()), hash: "sha256:11".to_owned() })
        .to_vec()
}

#[test]
fn hooks_of_codex_and_the_trust_in_them_come_and_go_together() {
    for hooks in [None].into_iter().chain(WRITTEN.map(Some)) {
        for config in [None].into_iter().chain(CONFIGS.map(Some)) {
            let home = HomeFixture::new();
            let folder = home.places.home.join(".codex");
            for (name, text) in [("hooks.json", hooks), ("config.toml", config)] {
                if let Some(text) = text {
                    fs::create_dir_all(&folder).unwrap();
                    fs::write(folder.join(name), text).unwrap();
                }
            }
            let before = home.snapshot();
            let mut plan = plan_guard(GuardedProgram::Codex, GuardScope::User, COMMAND, &home.places).unwrap();
            plan.add_trust(&trust_in(&folder.join("hooks.json")), &home.places).unwrap();
            apply_guard(&plan, &home.places).unwrap();
            let written: Value = serde_json::from_str(&fs::read_to_string(folder.join("hooks.json")).unwrap()).unwrap();
            for event in ["PreToolUse", "PermissionRequest", "PostToolUse"] {
                let hook = &written["hooks"][event].as_array().unwrap().last().unwrap()["hooks"][0];
                let want = json!({ "type": "command", "command": format!("{COMMAND} || exit 2"), "timeout": 600 });
                assert_eq!(*hook, want, "{event}");
            }
            let trusted = fs::read_to_string(folder.join("config.toml")).unwrap();
            assert!(trusted.starts_with(config.unwrap_or_default()) && trusted.matches("trusted_hash").count() >= 3);
            assert!(matches!(
                guard_state(GuardedProgram::Codex, &home.places).unwrap(),
                GuardState::Installed { scope: GuardScope::User, .. }
            ));
            assert!(is_restored(&undo_guard(GuardedProgram::Codex, &home.places).unwrap()));
            assert_eq!(home.snapshot(), before, "{hooks:?} {config:?}");
        }
    }
}

#[test]
fn trust_that_was_taken_back_is_damage_and_edits_after_the_guard_stay() {
    let home = HomeFixture::new();
    let folder = home.places.home.join(".codex");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("config.toml"), "model = \"x\"").unwrap();
    let mut plan = plan_guard(GuardedProgram::Codex, GuardScope::User, COMMAND, &home.places).unwrap();
    plan.add_trust(&trust_in(&folder.join("hooks.json")), &home.places).unwrap();
    apply_guard(&plan, &home.places).unwrap();
    let config = fs::read_to_string(folder.join("config.toml")).unwrap();
    fs::write(folder.join("config.toml"), config.replace("sha256:11", "sha256:12")).unwrap();
    let state = guard_state(GuardedProgram::Codex, &home.places).unwrap();
    assert!(matches!(state, GuardState::Damaged { path, .. } if path == folder.join("config.toml")));
    fs::write(folder.join("config.toml"), format!("{config}[tui]\nanimations = false\n")).unwrap();
    let outcomes = undo_guard(GuardedProgram::Codex, &home.places).unwrap();
    assert_eq!(outcomes[1], UndoOutcome::Removed { path: folder.join("config.toml"), notes: Vec::new() });
    let left = fs::read_to_string(folder.join("config.toml")).unwrap();
    assert_eq!(left, "model = \"x\"\n[tui]\nanimations = false\n");
    assert!(!folder.join("hooks.json").exists());
}

#[test]
fn requirements_of_codex_are_managed_settings() {
    for text in [None, Some(""), Some("# mine\nallowed_sandbox_modes = [\"read-only\"]\n")] {
        let home = HomeFixture::new();
        let path = home.places.system.join("codex/requirements.toml");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if let Some(text) = text {
            fs::write(&path, text).unwrap();
        }
        let before = home.snapshot();
        let plan = plan_guard(GuardedProgram::Codex, GuardScope::Managed, COMMAND, &home.places).unwrap();
        apply_guard(&plan, &home.places).unwrap();
        let written = fs::read_to_string(&path).unwrap();
        assert!(written.starts_with("allow_managed_hooks_only = true\n") && written.contains("|| exit 2"), "{written}");
        assert!(matches!(
            guard_state(GuardedProgram::Codex, &home.places).unwrap(),
            GuardState::Installed { scope: GuardScope::Managed, .. }
        ));
        assert!(is_restored(&undo_guard(GuardedProgram::Codex, &home.places).unwrap()));
        let modes_aside = |all: BTreeMap<PathBuf, (u32, Option<Vec<u8>>)>| -> BTreeMap<_, _> {
            all.into_iter().map(|(path, (_, content))| (path, content)).collect()
        };
        assert_eq!(modes_aside(home.snapshot()), modes_aside(before));
    }
}

/// Settings of opencode as people write them.
const OPENCODE: [&str; 12] = [
    "",
    "{}",
    "{\n}\n",
    "{\"$schema\":\"https://opencode.ai/config.json\"}",
    "{\n  \"plugin\": []\n}",
    "{\n\t\"plugin\": [\n\t\t\"opencode-x@1\"\n\t],\n\t\"model\": \"a/b\"\n}\n",
    "{\"permission\": {}}",
    "{\r\n  \"permission\": { \"edit\": \"deny\" }\r\n}\r\n",
    "{\"permission\":{\"*\":\"ask\"},\"plugin\":[\"x\"]}",
    "  { \"permission\" : { \"bash\" : { \"*\" : \"ask\" } } }  ",
    "{ \"theme\": \"dark\", // mine\n  \"permission\": { \"edit\": \"allow\" },\n}\n",
    "{\r\n\t\"plugin\": [\"./own.js\"],\r\n\t\"permission\": \"ask\"\r\n}",
];

#[test]
fn the_plugin_of_opencode_and_its_settings_come_and_go_together() {
    for text in OPENCODE {
        let home = HomeFixture::new();
        let path = home.places.home.join(".config/opencode/opencode.json");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        let before = home.snapshot();
        let mut plan = plan_guard(GuardedProgram::Opencode, GuardScope::User, PLUGIN, &home.places).unwrap();
        plan.add_file(home.places.opencode_plugin(), "export {}\n".to_owned()).unwrap();
        apply_guard(&plan, &home.places).unwrap();
        let written = JsonSyntax::Comments.parse_value(&fs::read_to_string(&path).unwrap()).unwrap();
        assert!(written["permission"] == "ask" || written["permission"]["*"] == "ask", "{text}");
        assert_eq!(written["plugin"].as_array().unwrap().last().unwrap(), PLUGIN);
        assert_eq!(fs::read_to_string(home.places.opencode_plugin()).unwrap(), "export {}\n");
        fs::write(home.places.opencode_plugin(), "export default 1\n").unwrap();
        assert!(matches!(guard_state(GuardedProgram::Opencode, &home.places).unwrap(), GuardState::Damaged { .. }));
        fs::write(home.places.opencode_plugin(), "export {}\n").unwrap();
        assert!(is_restored(&undo_guard(GuardedProgram::Opencode, &home.places).unwrap()));
        assert_eq!(home.snapshot(), before, "{text}");
    }
}

#[test]
fn settings_of_opencode_that_would_undo_the_guard_are_refused() {
    for (name, text, named) in [
        ("opencode.json", "{\"permission\": \"allow\"}", "permission"),
        ("opencode.json", "{\"permission\": {\"*\": \"allow\"}}", "expected \"ask\""),
        ("opencode.json", "{\"plugin\": \"x\"}", "plugin"),
        ("opencode.json", "{ 'mine': 1 }", "not JSON"),
        ("opencode.jsonc", "{}", "is read after"),
    ] {
        let home = HomeFixture::new();
        let folder = home.places.home.join(".config/opencode");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(name), text).unwrap();
        let before = home.snapshot();
        let refused = plan_guard(GuardedProgram::Opencode, GuardScope::User, PLUGIN, &home.places).unwrap_err();
        assert!(refused.to_string().contains(named), "{refused}");
        assert_eq!(home.snapshot(), before);
    }
}

#[test]
fn a_guard_without_a_receipt_is_found() {
    for (program, scope) in [
        (GuardedProgram::Claude, GuardScope::User),
        (GuardedProgram::Claude, GuardScope::Managed),
        (GuardedProgram::Codex, GuardScope::User),
        (GuardedProgram::Codex, GuardScope::Managed),
        (GuardedProgram::Gemini, GuardScope::User),
        (GuardedProgram::Copilot, GuardScope::User),
        (GuardedProgram::Opencode, GuardScope::User),
        (GuardedProgram::Opencode, GuardScope::Managed),
    ] {
        let home = HomeFixture::new();
        assert_eq!(guard_state(program, &home.places).unwrap(), GuardState::Absent);
        let command = match program {
            GuardedProgram::Opencode => PLUGIN.to_owned(),
            _ => COMMAND.replace("claude", program.name()),
        };
        let plan = plan_guard(program, scope, &command, &home.places).unwrap();
        apply_guard(&plan, &home.places).unwrap();
        // As another user sees it.
        let other = GuardPlaces { state: Some(home.folder.path().join("other")), ..home.places.clone() };
        let want = GuardState::Unrecorded { path: plan.settings().path().clone(), scope };
        assert_eq!(guard_state(program, &other).unwrap(), want);
    }
}

#[test]
fn a_guard_in_a_folder_that_the_program_no_longer_reads_is_damaged() {
    let home = HomeFixture::new();
    home.guard(GuardedProgram::Claude).unwrap();
    let moved = GuardPlaces { claude: Some(home.folder.path().join("elsewhere")), ..home.places.clone() };
    match guard_state(GuardedProgram::Claude, &moved).unwrap() {
        GuardState::Damaged { problem, .. } => assert!(problem.contains("elsewhere"), "{problem}"),
        state => panic!("{state:?}"),
    }
}

/// Guards of all programs, and the command in each.
const GUARDS: [(GuardedProgram, GuardScope); 8] = [
    (GuardedProgram::Claude, GuardScope::User),
    (GuardedProgram::Claude, GuardScope::Managed),
    (GuardedProgram::Codex, GuardScope::User),
    (GuardedProgram::Codex, GuardScope::Managed),
    (GuardedProgram::Gemini, GuardScope::User),
    (GuardedProgram::Copilot, GuardScope::User),
    (GuardedProgram::Opencode, GuardScope::User),
    (GuardedProgram::Opencode, GuardScope::Managed),
];

impl HomeFixture {
    /// Installs a guard with all its files, and returns the path of the settings.
    fn install(&self, program: GuardedProgram, scope: GuardScope) -> PathBuf {
        let command = match program {
            GuardedProgram::Opencode => self.places.opencode_plugin().to_str().unwrap().to_owned(),
            _ => COMMAND.replace("claude", program.name()),
        };
        let mut plan = plan_guard(program, scope, &command, &self.places).unwrap();
        match (program, scope) {
            (GuardedProgram::Codex, GuardScope::User) => {
                plan.add_trust(&trust_in(&self.places.codex_folder().join("hooks.json")), &self.places).unwrap();
            }
            (GuardedProgram::Opencode, GuardScope::User) => {
                plan.add_file(self.places.opencode_plugin(), "export {}\n".to_owned()).unwrap();
            }
            _ => {}
        }
        apply_guard(&plan, &self.places).unwrap();
        plan.settings().path().clone()
    }

    /// Returns the text of every file.
    fn text(&self) -> String {
        let files = self.snapshot().into_values().filter_map(|(_, content)| content);
        files.map(|content| String::from_utf8(content).unwrap()).collect()
    }

    fn lose_receipts(&self) {
        for program in GuardedProgram::ALL {
            let _ = fs::remove_file(self.places.receipts().join(format!("{}.json", program.name())));
        }
    }
}

/// Edits that a person may make to an installed guard, as texts in its files.
const EDITS: [(&str, &str); 9] = [
    ("600", "60"),
    ("\"*\"", "\"Bash\""),
    ("matcher", "note"),
    ("--data '/home/ana/.local/share/countersign'", "--data /other"),
    (" || exit 2", ""),
    ("\"onFailure\": \"block\"", "\"onFailure\": \"allow\""),
    ("PreToolUse", "Stop"),
    ("sha256:11", "sha256:12"),
    ("export {}", "export default 1"),
];

#[test]
fn a_guard_is_taken_away_whatever_was_edited_in_it() {
    for (program, scope) in GUARDS {
        for (index, first) in EDITS.iter().enumerate() {
            for second in &EDITS[index..] {
                for is_receipt_lost in [false, true] {
                    let case = format!("{program:?} {scope:?} {first:?} {second:?} {is_receipt_lost}");
                    let home = HomeFixture::new();
                    let path = home.install(program, scope);
                    let files: Vec<PathBuf> = home.snapshot().into_keys().filter(|path| path.is_file()).collect();
                    for file in files
                        .iter()
                        .filter(|file| !file.ends_with(format!("{}.json", program.name())) || **file == path)
                    {
                        let text = fs::read_to_string(file).unwrap();
                        fs::write(file, text.replace(first.0, first.1).replace(second.0, second.1)).unwrap();
                    }
                    if is_receipt_lost {
                        home.lose_receipts();
                    }
                    let outcomes = undo_guard(program, &home.places);
                    // A rule alone names nobody.
                    if is_receipt_lost && (program, scope) == (GuardedProgram::Opencode, GuardScope::Managed) {
                        assert!(matches!(outcomes, Err(GuardError::Settings { .. } | GuardError::NotInstalled { .. })));
                        continue;
                    }
                    let outcomes = outcomes.unwrap_or_else(|error| panic!("{case}: {error}"));
                    assert!(!outcomes.iter().any(UndoOutcome::is_incomplete), "{case}: {outcomes:?}");
                    let left = home.text();
                    assert!(!left.contains("countersign") && !left.contains("trusted_hash"), "{case}: {left}");
                    assert_eq!(guard_state(program, &home.places).unwrap(), GuardState::Absent, "{case}");
                }
            }
        }
    }
}

#[test]
fn edits_of_the_guard_itself_are_named() {
    let home = HomeFixture::new();
    let path = home.write("{\n  \"model\": \"opus\"\n}\n");
    home.guard(GuardedProgram::Claude).unwrap();
    let edited = fs::read_to_string(&path).unwrap().replacen("600", "60", 1);
    fs::write(&path, edited).unwrap();
    let outcomes = undo_guard(GuardedProgram::Claude, &home.places).unwrap();
    let notes = vec![UndoNote::Edited("hooks.PreToolUse".to_owned())];
    assert_eq!(outcomes, [UndoOutcome::Removed { path: path.clone(), notes }]);
    let left: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(left, json!({"model": "opus"}));
}

#[test]
fn a_part_that_cannot_be_removed_keeps_the_receipt() {
    let home = HomeFixture::new();
    home.guard(GuardedProgram::Claude).unwrap();
    let path = home.settings();
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("\"command\": ", "\"run\": ", 1)).unwrap();
    let outcomes = undo_guard(GuardedProgram::Claude, &home.places).unwrap();
    assert!(outcomes[0].is_incomplete(), "{outcomes:?}");
    assert!(matches!(guard_state(GuardedProgram::Claude, &home.places).unwrap(), GuardState::Damaged { .. }));
    fs::write(&path, "{}").unwrap();
    assert!(!undo_guard(GuardedProgram::Claude, &home.places).unwrap()[0].is_incomplete());
    assert_eq!(guard_state(GuardedProgram::Claude, &home.places).unwrap(), GuardState::Absent);
}

#[test]
fn a_guard_whose_receipt_is_lost_is_replaced() {
    for (program, scope) in GUARDS {
        let home = HomeFixture::new();
        let path = home.install(program, scope);
        let first = fs::read_to_string(&path).unwrap();
        home.lose_receipts();
        let edited = first.replacen("600", "60", 1);
        fs::write(&path, edited).unwrap();
        assert_eq!(home.install(program, scope), path);
        assert_eq!(fs::read_to_string(&path).unwrap(), first, "{program:?} {scope:?}");
        let outcomes = undo_guard(program, &home.places).unwrap();
        assert!(is_restored(&outcomes), "{program:?} {scope:?}: {outcomes:?}");
        assert!(!home.text().contains("hook ") && !home.text().contains("trusted_hash"), "{}", home.text());
        if (program, scope) != (GuardedProgram::Opencode, GuardScope::Managed) {
            assert_eq!(guard_state(program, &home.places).unwrap(), GuardState::Absent);
        }
    }
}
