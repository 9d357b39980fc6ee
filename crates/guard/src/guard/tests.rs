use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{GuardState, UndoOutcome, apply_guard, guard_state, plan_guard, undo_guard};
use crate::{
    edit::tests::WRITTEN,
    error::GuardError,
    places::GuardPlaces,
    program::{GuardScope, GuardedProgram},
};

const COMMAND: &str = "'/usr/bin/countersign' hook claude --data '/home/ana/.local/share/countersign'";

struct Home {
    folder: TempDir,
    places: GuardPlaces,
}

impl Home {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        fs::create_dir(&home).unwrap();
        let places = GuardPlaces { home, claude: None, state: None, system: folder.path().join("etc") };
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

#[test]
fn guard_and_unguard_leave_a_home_folder_as_it_was() {
    for program in GuardedProgram::ALL {
        let home = Home::new();
        let before = home.snapshot();
        home.guard(program).unwrap();
        assert_ne!(home.snapshot(), before);
        assert!(matches!(guard_state(program, &home.places).unwrap(), GuardState::Installed { .. }));
        assert!(matches!(undo_guard(program, &home.places).unwrap(), UndoOutcome::Restored { .. }));
        assert_eq!(home.snapshot(), before, "{program:?}");
    }
    for text in WRITTEN {
        for mode in [0o600, 0o644] {
            let home = Home::new();
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
    let home = Home::new();
    let path = home.write("{\n  \"model\": \"opus\"\n}\n");
    home.guard(GuardedProgram::Claude).unwrap();
    let mut settings: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    settings["theme"] = json!("dark");
    fs::write(&path, serde_json::to_string_pretty(&settings).unwrap()).unwrap();
    assert!(matches!(guard_state(GuardedProgram::Claude, &home.places).unwrap(), GuardState::Installed { .. }));
    let outcome = undo_guard(GuardedProgram::Claude, &home.places).unwrap();
    assert_eq!(outcome, UndoOutcome::Removed { path: path.clone(), gone: Vec::new() });
    let left: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(left, json!({"model": "opus", "theme": "dark"}));
    assert!(matches!(undo_guard(GuardedProgram::Claude, &home.places), Err(GuardError::NotInstalled { .. })));
}

#[test]
fn a_guard_that_was_switched_off_is_reported() {
    for (change, named) in [
        ("{\"hooks\": {}}", "hooks.PreToolUse"),
        ("", "not JSON"),
        ("{\"permissions\": {\"allow\": \"all\"}}", "permissions.allow"),
    ] {
        let home = Home::new();
        home.guard(GuardedProgram::Claude).unwrap();
        fs::write(home.settings(), change).unwrap();
        match guard_state(GuardedProgram::Claude, &home.places).unwrap() {
            GuardState::Damaged { problem, .. } => assert!(problem.contains(named), "{problem}"),
            state => panic!("{change}: {state:?}"),
        }
    }
    for text in ["{\"disableAllHooks\": true}", "{\"hooksConfig\": {\"enabled\": false}}"] {
        let home = Home::new();
        home.guard(GuardedProgram::Claude).unwrap();
        let mut settings: Value = serde_json::from_str(&fs::read_to_string(home.settings()).unwrap()).unwrap();
        let more: Value = serde_json::from_str(text).unwrap();
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fs::write(home.settings(), settings.to_string()).unwrap();
        assert!(matches!(guard_state(GuardedProgram::Claude, &home.places).unwrap(), GuardState::Damaged { .. }));
        let home = Home::new();
        home.write(text);
        assert!(matches!(home.guard(GuardedProgram::Claude), Err(GuardError::Settings { .. })), "{text}");
    }
}

#[test]
fn a_file_that_is_not_ours_to_change_is_left_alone() {
    for text in
        ["{ // mine\n}", "{\"a\": 1,}", "[]", "{\"hooks\": 5}", "{\"hooks\": {\"PreToolUse\": [{}]}}", "\u{feff}{}"]
    {
        let home = Home::new();
        home.write(text);
        let before = home.snapshot();
        assert!(matches!(home.guard(GuardedProgram::Claude), Err(GuardError::Settings { .. })), "{text}");
        assert_eq!(home.snapshot(), before, "{text}");
    }
    let home = Home::new();
    let real = home.places.home.join("real.json");
    fs::write(&real, "{}").unwrap();
    fs::create_dir(home.places.home.join(".claude")).unwrap();
    symlink(&real, home.settings()).unwrap();
    let before = home.snapshot();
    let problem = home.guard(GuardedProgram::Claude).unwrap_err().to_string();
    assert!(problem.contains("symbolic link"), "{problem}");
    assert_eq!(home.snapshot(), before);
    let home = Home::new();
    let path = home.write("{}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    let before = home.snapshot();
    assert!(home.guard(GuardedProgram::Claude).is_err());
    assert_eq!(home.snapshot(), before);
}

#[test]
fn what_changed_since_the_plan_is_not_overwritten() {
    let home = Home::new();
    let path = home.write("{}");
    let plan = plan_guard(GuardedProgram::Claude, GuardScope::User, COMMAND, &home.places).unwrap();
    fs::write(&path, "{\"model\": \"opus\"}").unwrap();
    let before = home.snapshot();
    assert!(matches!(apply_guard(&plan, &home.places), Err(GuardError::ChangedMeanwhile { .. })));
    assert_eq!(home.snapshot(), before);
}

#[test]
fn a_second_guard_is_refused_and_one_that_was_cut_off_is_repeated() {
    let home = Home::new();
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
    let home = Home::new();
    fs::create_dir(&home.places.system).unwrap();
    let before = home.snapshot();
    let plan = plan_guard(GuardedProgram::Claude, GuardScope::Managed, COMMAND, &home.places).unwrap();
    apply_guard(&plan, &home.places).unwrap();
    let settings: Value = serde_json::from_str(&fs::read_to_string(plan.path()).unwrap()).unwrap();
    assert_eq!(settings["allowManagedHooksOnly"], json!(true));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(plan.path()), mode(plan.path().parent().unwrap())), (0o644, 0o755));
    assert!(plan.path().ends_with("claude-code/managed-settings.d/50-countersign.json"));
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
    let home = Home::new();
    home.write("{\"permissions\": {\"allow\": [\"Bash(git *)\", \"WebFetch\"]}}");
    let plan = plan_guard(GuardedProgram::Claude, GuardScope::User, COMMAND, &home.places).unwrap();
    assert_eq!(plan.own_allowances(), ["Bash(git *)", "WebFetch"]);
}
