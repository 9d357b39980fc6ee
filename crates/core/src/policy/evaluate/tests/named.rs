//! Calls that no broad rule covers: changes of files that other programs obey.

use serde_json::{Value, json};

use super::{PolicyFixture, rule, word};
use crate::{
    policy::{
        DefaultPolicy, EffectReach, GrantCoverage, PolicySubject, Rule, propose_grants,
        testing::{bash, grant, grant_set, subject},
    },
    tool::{ShellInput, ShellMachine, ToolEffect},
};

fn own(tool: &str, arguments: Value) -> PolicySubject {
    let paths = arguments["path"].as_str().map(str::to_owned).into_iter().collect();
    PolicySubject { reach: EffectReach::Files, paths, named: vec!["path".to_owned()], ..subject(tool, arguments) }
}

fn write(path: &str) -> PolicySubject {
    let signature = format!("write({path})");
    PolicySubject { signature, ..own("write", json!({"path": path, "content": "x"})) }
}

#[test]
fn what_others_obey_is_written_by_rules_alone_that_name_it() {
    for (rules, path, want) in [
        (&["allow write(*)"][..], "src/a.rs", "allow"),
        (&["allow write(*)"], ".git/hooks/pre-commit", "ask"),
        (&["allow write(*)"], "vendor/sub/.git/config", "ask"),
        (&["allow write(*)"], "/home/ana/project/.git/config", "ask"),
        (&["allow write(*)"], "a/../.git/config", "ask"),
        (&["allow write(*)"], ".GIT/config", "ask"),
        (&["allow write(*)"], "../.git", "ask"),
        (&["allow write(*)"], ".husky/pre-commit", "ask"),
        (&["allow write(*)"], ".envrc", "ask"),
        (&["allow write(*)"], ".vscode/tasks.json", "ask"),
        (&["allow write(*)"], ".idea/workspace.xml", "ask"),
        (&["allow write(*)"], ".github/workflows/ci.yml", "ask"),
        (&["allow write(*)"], ".gitlab-ci.yml", "ask"),
        (&["allow write(*)"], ".circleci/config.yml", "ask"),
        (&["allow write(*)"], "~/.bashrc", "ask"),
        (&["allow write(*)"], "/home/ana/.zshrc", "ask"),
        (&["allow write(*)"], "/etc/profile.d/x.sh", "ask"),
        (&["allow write(*)"], ".claude/settings.json", "ask"),
        (&["allow write(*)"], ".codex/config.toml", "ask"),
        (&["allow *"], ".git/config", "ask"),
        (&["default allow *"], ".git/config", "ask"),
        (&["default allow write(*)"], ".git/config", "ask"),
        (&["allow write(vendor/*)"], "vendor/sub/.git/config", "ask"),
        (&["allow write(.git/*)"], ".git/config", "allow"),
        (&["allow write(.git/config)"], ".git/config", "allow"),
        (&["allow write(.git/config)"], ".git/hooks/x", "ask"),
        (
            &["allow write(/home/ana/project/.git/config)", "deny write(*.pem)"],
            "/home/ana/project/.git/config",
            "allow",
        ),
        (&["allow write(*/.git/config)"], "vendor/sub/.git/config", "allow"),
        (&["default allow write(.envrc)", "default allow *"], ".envrc", "allow"),
        (&["deny write(*.git*)", "allow write(.git/config)"], ".git/config", "deny"),
        (&["default ask *"], ".git/config", "ask"),
        (&["allow write(*)"], ".gitignore", "allow"),
        (&["allow write(*)"], ".rvmrc", "ask"),
        (&["allow write(*)"], "x\n/../.git/config", "ask"),
        (&["allow *"], "a\nb/.git/hooks/x", "ask"),
        (&["allow write(*)"], "/etc/x\n/../cron.d/y", "ask"),
        (&["allow write(*)"], &format!("{}.git/config", "./".repeat(3000)), "ask"),
        (&["allow write(*)"], "sub/.lintstagedrc.json", "ask"),
        (&["allow write(*)"], ".unheard-of/config", "ask"),
        (&["allow write(.unheard-of/*)"], ".unheard-of/config", "allow"),
        (&["allow write(.env*)"], ".env", "allow"),
        (&["allow write(*)"], "src/hooks/use.ts", "allow"),
    ] {
        assert_eq!(word(&PolicyFixture::new(rules).judge(&write(path))), want, "{rules:?} {path}");
    }
}

#[test]
fn approvers_read_the_reason_and_may_allow_it_always() {
    for rules in [&["allow write(*)"][..], &["default allow *"], &["default ask *"], &["deny read(x)"]] {
        let verdict = PolicyFixture::new(rules).judge(&write(".git/config"));
        let expected = "needs approval because no rule covers a change of .git/config, which version control runs or obeys later; a rule \
                    has to name that path";
        assert_eq!(verdict.to_string(), expected, "{rules:?}");
        assert!(!verdict.is_floor());
    }
    let call = write(".git/config");
    let proposed = propose_grants(&call);
    assert!(matches!(proposed.as_slice(), [only] if only.covers == GrantCoverage::Exact(call.digest())));
    let given =
        |covers| PolicyFixture { grants: grant_set([grant(1, covers)]), ..PolicyFixture::new(&["allow read(*)"]) };
    assert_eq!(word(&given(GrantCoverage::Exact(call.digest())).judge(&call)), "allow");
    assert_eq!(word(&given(GrantCoverage::Pattern("write(*)".to_owned())).judge(&call)), "ask");
    assert_eq!(word(&given(GrantCoverage::Pattern("write(.git/*)".to_owned())).judge(&call)), "allow");
    assert_eq!(word(&given(GrantCoverage::Pattern("write(*)".to_owned())).judge(&write("a"))), "allow");
}

#[test]
fn where_no_rules_are_a_host_sees_no_difference() {
    let world = PolicyFixture::new(&[]);
    for call in [write(".git/config"), bash("echo x > .git/hooks/x"), bash("tee .envrc"), bash("cd /x && git status")] {
        assert_eq!(word(&world.judge(&call)), "allow", "{}", call.signature);
    }
    let world = PolicyFixture { posture: DefaultPolicy::Gateway, ..PolicyFixture::new(&[]) };
    assert_eq!(word(&world.judge(&write(".git/config"))), "ask");
}

#[test]
fn every_tool_is_held_by_the_paths_among_its_arguments() {
    let away = |tool: &str, arguments: Value| subject(tool, arguments);
    for (rules, call, want) in [
        (&["allow edit(*)"][..], own("edit", json!({"path": "a", "rename": ".git/hooks/x"})), "ask"),
        (&["allow edit(*)"], own("edit", json!({"path": "a", "move": ".husky/x", "edits": []})), "ask"),
        (&["allow edit(*)"], own("edit", json!({"path": "a", "old_text": ".envrc", "new_text": ".git"})), "allow"),
        (&["allow mac__Write(*)"], away("mac__Write", json!({"path": ".git/config", "content": "x"})), "ask"),
        (&["allow mac__Write(*)"], away("mac__Write", json!({"path": "a", "content": ".envrc"})), "allow"),
        (&["allow mac__Write(*.git/*)"], away("mac__Write", json!({"path": ".git/config", "content": "x"})), "ask"),
        (&["allow mac__Edit(*)"], away("mac__Edit", json!({"path": "~/.zshrc"})), "ask"),
        (&["allow mac__Read(*)"], away("mac__Read", json!({"path": ".git/config"})), "allow"),
        (&["allow save_file(*)"], away("save_file", json!({"target": "/srv/x/.github/workflows/a.yml"})), "ask"),
        (&["allow save_file(*)"], away("save_file", json!({"targets": ["a", "file:///x/.envrc"]})), "ask"),
        (&["allow save_file(*)"], away("save_file", json!({"target": "a.txt"})), "allow"),
        (&["allow save_file(*)"], away("save_file", json!({"filePath": ".unheard-of"})), "ask"),
        (&["allow save_file(*)"], away("save_file", json!({"name": ".5"})), "allow"),
    ] {
        assert_eq!(word(&PolicyFixture::new(rules).judge(&call)), want, "{rules:?} {}", call.signature);
    }
    let reads = PolicySubject { effect: ToolEffect::Reads, ..own("read", json!({"path": ".git/config"})) };
    assert_eq!(word(&PolicyFixture::new(&["allow read(*)"]).judge(&reads)), "allow");
}

#[test]
fn a_tool_that_may_be_a_shell_is_held_by_its_paths_as_well() {
    let machine = ShellMachine::This;
    let perhaps =
        |arguments: Value| PolicySubject { shell: ShellInput::Perhaps { machine }, ..subject("save_file", arguments) };
    let line = |arguments: Value| PolicySubject {
        shell: ShellInput::Line { argument: "command".into(), machine },
        ..subject("save_file", arguments)
    };
    for (rules, call, want) in [
        (&["allow save_file(*)"][..], perhaps(json!({"command": "create", "path": ".git/hooks/pre-commit"})), "ask"),
        (&["allow *"], perhaps(json!({"command": "create", "path": ".git/hooks/pre-commit"})), "ask"),
        (&["allow *"], perhaps(json!({"command": "create; true", "path": ".envrc"})), "ask"),
        (&["allow save_file(*)"], perhaps(json!({"script": "x", "path": "src/a"})), "allow"),
        (&["allow save_file(*, .git/hooks/*)"], perhaps(json!({"cmd": "x", "path": ".git/hooks/pre-commit"})), "allow"),
        (&["allow *"], perhaps(json!({"path": ".zshrc"})), "ask"),
        (&["allow *"], line(json!({"command": "ls", "path": ".zshrc"})), "ask"),
        (&["allow *"], line(json!({"command": "ls", "path": "src"})), "allow"),
    ] {
        assert_eq!(word(&PolicyFixture::new(rules).judge(&call)), want, "{rules:?} {}", call.signature);
    }
}

#[test]
fn a_path_counts_wherever_it_stands_and_however_it_is_spelled() {
    for arguments in [
        json!({"files": [{"path": ".envrc", "content": "x"}]}),
        json!({"f": {"path": ".git/config"}}),
        json!({"data": {"deep": [[".git/config"]]}}),
        json!({"path": " .envrc"}),
        json!({"path": "file:///%2egit/config"}),
        json!({"path": "FILE:.git/config"}),
        json!({"path": "%2Egit/config"}),
    ] {
        let call = subject("save_file", arguments.clone());
        assert_eq!(word(&PolicyFixture::new(&["allow save_file(*)"]).judge(&call)), "ask", "{arguments}");
    }
    let texts = json!({"files": [{"path": "a", "content": ".envrc"}], "f": {"new_text": ".git/config"}});
    assert_eq!(word(&PolicyFixture::new(&["allow save_file(*)"]).judge(&subject("save_file", texts))), "allow");
}

#[test]
fn a_rule_on_arguments_names_a_path_too() {
    let on = |path: &str| Rule {
        pattern: None,
        tool: Some("write".to_owned()),
        args: serde_json::from_value(json!({ "path": path })).unwrap(),
        ..rule("allow x")
    };
    for (pattern, want) in [("*", "ask"), ("*config", "ask"), (".git/config", "allow"), (".git/*", "allow")] {
        let rules = crate::policy::RuleSet { rules: vec![on(pattern)], defaults: Vec::new() };
        let compiled =
            crate::policy::compile_rules(vec![super::source(crate::policy::RuleLayer::Main, rules)]).unwrap();
        let world = PolicyFixture { compiled, ..PolicyFixture::new(&[]) };
        assert_eq!(word(&world.judge(&write(".git/config"))), want, "{pattern}");
    }
}

#[test]
fn the_reason_names_why_a_rule_is_too_broad() {
    for (rules, command, expected) in [
        (&["allow bash(tee *)"][..], "tee /etc/x", "/etc/x, which is outside the working folder"),
        (&["allow bash(tee *)"], "tee .envrc", "a change of .envrc, which a shell runs in that folder later"),
        (&["allow *"], "echo x > .git/hooks/y", "a change of .git/hooks/y, which version control runs or obeys later"),
        (
            &["allow bash(cd *)", "allow bash(git status*)"],
            "cd sub && git status",
            "git in the folder sub, which is not the working folder",
        ),
        (
            &["allow bash(cd *)", "allow bash(make *)"],
            "cd \"$X\" && make a",
            "make in a folder that is only known when the line runs",
        ),
    ] {
        let verdict = PolicyFixture::new(rules).judge(&bash(command)).to_string();
        assert!(
            verdict.starts_with(&format!("needs approval because no rule covers {expected}")),
            "{command}: {verdict}"
        );
    }
    // After the shell of an earlier call, too.
    let there = |folder: &str| PolicySubject {
        cwd: folder.to_owned(),
        session_folder: Some("/home/ana/project".to_owned()),
        ..bash("git status")
    };
    for (rules, folder, want) in [
        (&["allow bash(git status*)"][..], "/home/ana/project", "allow"),
        (&["allow bash(git status*)"], "/home/ana/project/sub", "ask"),
        (&["allow bash(git status*)", "allow bash(cd *)"], "/x/evil", "ask"),
        (&["allow bash(git status*)", "allow bash(cd sub)"], "/home/ana/project/sub", "allow"),
        (&["allow bash(git status*)", "allow bash(cd /x/*)"], "/x/evil", "allow"),
        (&["allow *"], "/x/evil", "allow"),
    ] {
        assert_eq!(word(&PolicyFixture::new(rules).judge(&there(folder))), want, "{rules:?} {folder}");
    }
}
