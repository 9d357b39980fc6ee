//! Lines that reach a foreign repository, or write text that looks like commands: judged and then run.

use std::{fs, process::Command};

use countersign_core::policy::{Rule, RuleAction, Verdict};

use crate::shell_forms::{ShellBench, compiled, judge};

const ALLOWED: [&str; 9] = [
    "bash(cd *)",
    "bash(pushd *)",
    "bash(git *)",
    "bash(find *)",
    "bash(echo *)",
    "bash(cat *)",
    "bash(test *)",
    "bash(good)",
    "bash(good *)",
];

/// Creates a repository next to the working folder whose settings have `evil` run at each use of it.
fn plant(bench: &ShellBench) {
    let foreign = bench.path("foreign");
    let git = |arguments: &[&str]| {
        let mut command = Command::new(bench.path("bin/git"));
        command.args(arguments).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", bench.path("foreign"));
        assert!(command.output().unwrap().status.success(), "{arguments:?}");
    };
    let path = foreign.display().to_string();
    git(&["init", "-q", &path]);
    let evil = bench.path("bin/evil").display().to_string();
    git(&["-C", &path, "config", "core.fsmonitor", &evil]);
    fs::write(foreign.join("a.txt"), "x\n").unwrap();
    fs::create_dir(foreign.join("sub")).unwrap();
}

#[test]
fn a_foreign_repository() {
    let bench = ShellBench::new();
    plant(&bench);
    let allowing = compiled(ALLOWED.iter().map(|pattern| Rule::new(*pattern, RuleAction::Allow)).collect());
    let absolute = bench.path("foreign").display().to_string();
    let forms = [
        "cd ../foreign && git status",
        "cd ../foreign; git status",
        "cd ../foreign\ngit status",
        "(cd ../foreign && git status)",
        "{ cd ../foreign; git status; }",
        "cd ../foreign && git status & wait",
        "pushd ../foreign && git status",
        "command cd ../foreign && git status",
        "cd .. && cd foreign && git status",
        "cd ../f*n && git status",
        "cd \"$(echo ../foreign)\" && git status",
        "X=../foreign; cd $X && git status",
        "for d in ../foreign; do (cd \"$d\" && git status); done",
        "if cd ../foreign; then git status; fi",
        "cd nowhere || cd ../foreign && git status",
        "bash -c 'cd ../foreign && git status'",
        "eval 'cd ../foreign; git status'",
        "git -C ../foreign status",
        "git -C .. -C foreign status",
        "git --no-pager -C ../foreign diff",
        "git -C .way/.. status",
        "cd -P .way/.. && git status",
        "cd .way && git -C .. status",
        "X=../foreign; git -C $X status",
        "GIT_DIR=../foreign/.git GIT_WORK_TREE=../foreign git status",
        "git --git-dir=../foreign/.git --work-tree=../foreign status",
        "env -C ../foreign git status",
        "echo ../foreign | xargs -I{} git -C {} status",
        "find ../foreign -maxdepth 0 -execdir git -C foreign status \\;",
        "find ../foreign -name a.txt -execdir git status \\;",
        "cd ../foreign && CI=1 git status",
        "cd ../foreign && [ -f a.txt ] && git status",
    ];
    let (mut ran, mut wrong) = (0, Vec::new());
    for form in forms.into_iter().map(str::to_owned).chain([format!("cd {absolute} && git status")]) {
        ran += usize::from(bench.ran(&form).contains("evil"));
        if matches!(judge(&allowing, &form, &bench.path("work")), Verdict::Allow(_)) {
            wrong.push(form);
        }
    }
    assert!(wrong.is_empty(), "allowed: {wrong:#?}");
    assert!(ran >= 15, "{ran} of them ran it");
}

#[test]
fn text_that_looks_like_commands() {
    let bench = ShellBench::new();
    let allowing = compiled(ALLOWED.iter().map(|pattern| Rule::new(*pattern, RuleAction::Allow)).collect());
    for form in [
        "good \"$(cat <<'E'\nIt's $(evil) `evil` (x); evil\nE\n)\"",
        "good -m \"a $(cat <<\"E\"\nevil\n\"; evil; \"\nE\n) b\" && good",
        "good \"$(cat <<\\E\n$(evil)\nE\n)\" '; evil'",
        "CI=1 good",
        "CI='; evil' good \"$CI\"",
        "[ -f a.txt ] && good",
        "[ \"$(cat <<'E'\n$(evil)\nE\n)\" = x ] || good",
    ] {
        assert!(!bench.ran(form).contains("evil"), "{form}");
        let verdict = judge(&allowing, form, &bench.path("work"));
        assert!(matches!(verdict, Verdict::Allow(_)), "{form}: {verdict}");
    }
    let forms = [
        "good \"$(cat <<E\n$(evil)\nE\n)\"",
        "good \"$(cat <<E\n`evil`\nE\n)\"",
        "good \"$(cat <<'E'\nx\nE\nevil\n)\"",
        "good \"$(cat <<'E' | evil\nx\nE\n)\"",
        "good \"$(cat <<'E'; evil\nx\nE\n)\"",
        "good \"$(cat <<'E'\nx\nE\n)\"; evil",
        "good \"$(cat <<'E'\nx\nE\n)$(evil)\"",
        "good \"$(sh <<'E'\nevil\nE\n)\"",
        "eval \"$(cat <<'E'\nevil\nE\n)\"",
        "bash -c \"$(cat <<'E'\nevil\nE\n)\"",
        "\"$(cat <<'E'\nevil\nE\n)\"",
        "cat() { evil; }; good \"$(cat <<'E'\nx\nE\n)\"",
        "CI=$(evil) good",
        "CI=1 evil",
        "BASH_ENV=a.txt bash -c good; CI=1 evil",
        "[ -n \"$(evil)\" ] && good",
        "[ -v 'a[$(evil)]' ]; good",
        "[ -f a.txt ] && evil",
    ];
    let mut ran = 0;
    for form in forms {
        ran += usize::from(bench.ran(form).contains("evil"));
        let verdict = judge(&allowing, form, &bench.path("work"));
        assert!(!matches!(verdict, Verdict::Allow(_)), "{form}: {verdict}");
    }
    assert!(ran >= 15, "{ran} of {} ran it", forms.len());
}
