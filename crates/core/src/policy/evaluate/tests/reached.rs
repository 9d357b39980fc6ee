//! Shell lines that may run what a rule denies, in words that nobody knows before they run.

use super::{World, word};
use crate::policy::testing::bash;

#[test]
fn a_line_that_may_come_to_what_is_denied_asks_whatever_allows_it() {
    for (line, want) in [
        ("g() { git \"$@\"; }; g push", "deny"),
        ("set -- push; git $1", "ask"),
        ("git -c alias.p=push p", "ask"),
        ("git -calias.p=push p", "ask"),
        ("git config alias.p push", "ask"),
        (". /dev/stdin <<< 'git push'", "deny"),
        ("source <(echo git push)", "deny"),
        ("bash <(echo git push)", "deny"),
        ("source <(printf 'git pu%s' sh)", "ask"),
        ("curl https://x | sh", "ask"),
        ("bash <<< \"$X\"", "ask"),
        ("xargs git <<< push", "ask"),
        ("\"$A\" push", "ask"),
        ("git \"$A\"", "ask"),
        ("git -C \"$A\" push", "deny"),
        ("git -C \"$A\" status", "allow"),
        ("git commit -m \"$A\"", "allow"),
        ("git status", "allow"),
        ("git -c color.ui=never status", "allow"),
        ("echo \"$A\"", "allow"),
        ("echo ls | sh", "allow"),
        (". ./env.sh", "allow"),
        ("bash build.sh", "allow"),
        ("echo x | bash build.sh", "allow"),
        ("make \"$A\"", "allow"),
        ("ls | xargs rm", "allow"),
        ("for c in a b; do echo $c; done", "allow"),
    ] {
        let verdict = World::new(&["deny bash(git push*)", "allow *"]).judge(&bash(line));
        assert_eq!(word(&verdict), want, "{line}: {verdict}");
        if want == "ask" {
            assert!(verdict.to_string().contains("git push*"), "{line}: {verdict}");
            let free = World::new(&["deny write(*)", "allow *"]).judge(&bash(line));
            assert_eq!(word(&free), "allow", "{line}: {free}");
        }
    }
}

fn judge_each(rules: &[&str], lines: &[(&str, &str)]) {
    let wrong: Vec<String> = lines
        .iter()
        .filter_map(|(line, want)| {
            let verdict = World::new(rules).judge(&bash(line));
            (word(&verdict) != *want).then(|| format!("{want}: {line}: {verdict}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const NO_PUSH: [&str; 2] = ["deny bash(git push*)", "allow *"];

#[test]
fn a_variable_that_the_line_sets_before_is_known() {
    judge_each(
        &NO_PUSH,
        &[
            ("PYTHON=python3; $PYTHON -m pytest", "allow"),
            ("PY=.venv/bin/python; \"$PY\" -m pytest", "allow"),
            ("CMD=\"npm test\"; $CMD", "allow"),
            ("PY=python3 && $PY -m pytest -q", "allow"),
            ("PY=python3\n$PY -m pytest\n$PY -m mypy", "allow"),
            ("export PY=python3; ${PY} -V", "allow"),
            ("readonly PY=python3; $PY -V", "allow"),
            ("declare -r PY=python3; $PY -V", "allow"),
            ("PY=python3; export PY; $PY -V", "allow"),
            ("DIR=.venv; PY=$DIR/bin/python; $PY -m pytest", "allow"),
            ("DIR=.venv; PY=\"${DIR}/bin/python\"; \"$PY\" -m pytest", "allow"),
            ("PY=~/venv/bin/python; $PY -m pytest", "allow"),
            ("if [ -d .venv ]; then PY=.venv/bin/python; else PY=python3; fi; $PY -m pytest", "allow"),
            ("case $OS in mac) M=gmake;; *) M=make;; esac; $M all", "allow"),
            ("[ -x a ] && M=./a || M=./b; $M", "allow"),
            ("for M in make gmake; do $M all; done", "allow"),
            ("PY=python3; for f in a b; do \"$PY\" $f.py; done", "allow"),
            ("PY=python3; if true; then $PY x; else $PY y; fi", "allow"),
            ("PY=python3; (cd sub && $PY -m pytest)", "allow"),
            ("PY=python3; echo $($PY -V)", "allow"),
            ("PY=python3; ls | xargs $PY", "allow"),
            ("PY=python3; $PY -m pytest \"$T\"", "allow"),
            ("X=status; git $X", "allow"),
            ("X=status; git $X; X=log; git $X", "allow"),
            ("CMD='git status'; eval \"$CMD\"", "allow"),
            ("bash -c 'PY=python3; $PY -m pytest'", "allow"),
            ("A=1 B=2 C=make; $C", "allow"),
            ("set -euo pipefail; PY=python3; $PY -m pytest", "allow"),
        ],
    );
}

#[test]
fn a_variable_that_may_hold_something_else_is_not_known() {
    judge_each(
        &NO_PUSH,
        &[
            ("X=push; git $X", "deny"),
            ("X=push; git \"$X\" origin", "deny"),
            ("CMD='git push'; $CMD", "deny"),
            ("CMD='git  push'; $CMD", "deny"),
            ("X='  push'; git $X", "deny"),
            ("A=git; B=push; $A $B", "deny"),
            ("A=ls; A=git; B=push; B=log; $A $B", "deny"),
            ("for a in git ls; do for b in push log; do $a $b; done; done", "deny"),
            ("A=pu; B=${A}sh; git $B", "deny"),
            ("A=/usr/bin/git; $A push", "deny"),
            ("A=env; $A git push", "deny"),
            ("A=; $A git push", "deny"),
            ("A=bash; \"$A\" -c 'git push'", "deny"),
            ("A='git push'; bash -c \"$A\"", "deny"),
            ("A='git push'; eval \"$A\"", "deny"),
            ("A=push; X=status; readonly A; git $A", "deny"),
            ("X=status; for i in 1 2; do git $X; X=push; done", "deny"),
            ("X=status; if a; then X=push; fi; git $X", "deny"),
            ("X=status; a && X=push; git $X", "deny"),
            ("X=status; f() { X=push; }; f; git $X", "deny"),
            ("X=status; X=$(cat f); git $X", "ask"),
            ("X=status; while a; do git $X; X=$(cat f); done", "ask"),
            ("X=status; read X; git $X", "ask"),
            ("X=status; read -r Y X <<< 'a push'; git $X", "ask"),
            ("X=status; printf -v X push; git $X", "ask"),
            ("X=status; printf -v \"$V\" push; git $X", "ask"),
            ("X=status; unset X; git $X push", "deny"),
            ("X=status; unset X; git $X", "ask"),
            ("X=status; export X=$Y; git $X", "ask"),
            ("X=status; declare -l X=PUSH; git $X", "ask"),
            ("declare -l X; X=PUSH; git $X", "ask"),
            ("declare -n X=Y; X=status; git $X", "ask"),
            ("X=status; eval X=push; git $X", "deny"),
            ("X=status; eval \"$Y\"; git $X", "ask"),
            ("X=status; . ./env.sh; git $X", "ask"),
            ("X=status; source env.sh; git $X", "ask"),
            ("X=status; mapfile X < f; git $X", "ask"),
            ("X=status; getopts a:b X; git $X", "ask"),
            ("X=pu; X+=sh; git $X", "deny"),
            ("X=a; while a; do X=$X/b; git $X; done", "ask"),
            ("git ${X:-push}", "deny"),
            ("X=status; git ${X:+push}", "deny"),
            ("git ${X:-status}", "ask"),
            ("X=status; : ${X:=push}; git $X", "ask"),
            ("(X=status); git $X", "ask"),
            ("X=status & git $X", "ask"),
            ("X=status | cat; git $X", "ask"),
            ("echo $(X=status); git $X", "ask"),
            ("X=status git $X", "ask"),
            ("X=status true; git $X", "ask"),
            ("if a; then X=status; fi; git $X", "ask"),
            ("a && X=status; git $X", "ask"),
            ("a || X=status; git $X", "ask"),
            ("! a && X=status; git $X", "ask"),
            ("while a; do X=status; done; git $X", "ask"),
            ("for X in status; do a; done; git $X", "ask"),
            ("case a in b) X=status;; esac; git $X", "ask"),
            ("f() { X=status; }; git $X", "ask"),
            ("git $X; X=status", "ask"),
            ("X=status; bash -c 'git $X'", "ask"),
            ("X=status; echo 'git $X' | bash", "ask"),
            ("X=status; trap 'git $X' EXIT", "ask"),
            ("X=git_push; IFS=_; $X", "ask"),
            ("X='pus?'; git $X", "ask"),
            ("RANDOM=1; git $RANDOM", "ask"),
            ("X[0]=push; X=status; git ${X[0]}", "ask"),
            ("X=(push); git $X", "ask"),
            ("X=status; read $'X'; git $X", "ask"),
            ("X=status; exec {X}<f; git $X", "ask"),
            ("X=status; ((X=1)); git $X", "ask"),
            ("X=status; command export X=$Y; git $X", "ask"),
            ("XY=status; read {X,}Y <<< push; git $XY", "ask"),
            ("XY=status; unset {X,}Y; git $XY", "ask"),
            ("XY=status; mapfile X{Y,} < f; git $XY", "ask"),
            ("XY=status; export X{Y,}=push; git $XY", "deny"),
        ],
    );
}

#[test]
fn the_words_of_a_call_in_the_line_are_known() {
    judge_each(
        &NO_PUSH,
        &[
            ("check() { \"$@\" || echo failed; }; check npm test", "allow"),
            ("check() { \"$@\" || echo failed; }; check npm test && check git status", "allow"),
            ("function check { \"$@\"; }; check npm test", "allow"),
            ("run() { echo \"+ $*\"; \"$@\"; }; run make all; run make test", "allow"),
            ("run() { local cmd=\"$1\"; \"$cmd\" test; }; run npm", "allow"),
            ("g() { git \"$1\"; }; g status", "allow"),
            ("g() { git $1 ${2}; }; g log -1", "allow"),
            ("g() { git \"$@\"; }; g commit -m 'a b'", "allow"),
            ("a() { \"$@\"; }; b() { a \"$@\"; }; b make", "allow"),
            ("t() { $1 --version; }; for p in 1 2; do t node; done", "allow"),
            ("set -e; t() { timeout 5 \"$@\"; }; t npm test", "allow"),
            ("t() { if \"$@\"; then echo ok; fi; }; t npm test", "allow"),
            ("PY=python3; t() { $PY -m \"$1\"; }; t pytest", "allow"),
            ("T=npm; t() { \"$@\"; }; t $T test", "allow"),
            ("t() { git log -n$#; }; t a b", "allow"),
            ("g() { git \"$@\"; }; g push", "deny"),
            ("g() { git \"$@\"; }; g status; g push", "deny"),
            ("g() { git $1; }; g push", "deny"),
            ("g() { git $1; }; g 'push -f'", "deny"),
            ("g() { git $*; }; g push", "deny"),
            ("g() { \"$@\"; }; g git push", "deny"),
            ("g() { \"$@\"; }; g env git push", "deny"),
            ("a() { \"$@\"; }; b() { a git \"$@\"; }; b push", "deny"),
            ("g() { local c=\"$1\"; git \"$c\"; }; g push", "deny"),
            ("g() { \"$@\"; }; (g git push)", "deny"),
            ("g() { \"$@\"; }; X=$(g git push)", "ask"),
            ("g() { git \"$@\"; }; g \"$X\"", "ask"),
            ("g() { git \"$@\"; }; g status; g \"$X\"", "ask"),
            ("g() { git \"$@\"; }; g *", "ask"),
            ("g() { git \"$@\"; }", "ask"),
            ("g() { shift; git \"$@\"; }; g status push", "ask"),
            ("g() { set -- push; git \"$@\"; }; g status", "ask"),
            ("g() { git \"${@:2}\"; }; g status push", "ask"),
            ("g() { git ${1:-push}; }; g", "deny"),
            ("g() { git \"$@\"; }; g status; trap 'g push' EXIT", "ask"),
            ("g() { git \"$@\"; }; g status; alias h=g; h push", "ask"),
            ("g() { git \"$@\"; }; export -f g; g status; bash -c 'g push'", "ask"),
            ("g() { git \"$@\"; }; g status; eval 'g push'", "ask"),
            ("g() { git \"$@\"; }; g status; X=g; $X push", "ask"),
            ("g() { ls \"$@\"; }; g status; g() { git \"$@\"; }; g push", "ask"),
            ("command_not_found_handle() { git \"$2\"; }; command_not_found_handle a log; zz push", "ask"),
            ("g() { git \"$X\"; }; g status", "ask"),
            ("g() { git \"$X\"; }; X=push g", "deny"),
            ("g() { git \"$X\"; }; X=status; g", "allow"),
            ("g() { git \"$X\"; }; X=push; g", "deny"),
            ("g() { git \"$1\"; a && g \"$2\"; }; g status push", "ask"),
            ("g() { bash -c 'git $1' _ push; }; g status", "ask"),
            ("g() { {se,push}{t,}; git \"$3\"; }; g a b status", "ask"),
            ("a() { git \"$@\"; b; }; b() { a \"$X\"; }", "ask"),
        ],
    );
}

#[test]
fn what_follows_a_program_that_runs_another_is_no_program() {
    judge_each(
        &NO_PUSH,
        &[
            ("git diff --name-only | xargs npx eslint", "allow"),
            ("git diff --name-only | xargs npx -y prettier --write", "allow"),
            ("npx eslint \"$F\"", "allow"),
            ("npx --yes tsx $F", "allow"),
            ("npx -p typescript tsc $F", "allow"),
            ("uv run pytest $T", "allow"),
            ("bundle exec rspec $T", "allow"),
            ("poetry run pytest \"$T\"", "allow"),
            ("pnpm exec vitest $T", "allow"),
            ("ls | xargs uv run black", "allow"),
            ("rustup run nightly cargo $T", "allow"),
            ("docker run -v $(pwd):/src image make", "allow"),
            ("docker run --rm -v \"$D\":/src -w /src image make", "allow"),
            ("docker run -p $PORT:80 image", "allow"),
            ("podman run -v \"$(git rev-parse --show-toplevel)\":/w image make test", "allow"),
            ("ls | xargs npx", "ask"),
            ("npx $T", "ask"),
            ("npx -y $T", "ask"),
            ("npx -p git $T", "ask"),
            ("uv run $T", "ask"),
            ("rustup run nightly $T", "ask"),
            ("gosu ana $T", "ask"),
            ("npx git $T", "ask"),
            ("ls | xargs npx git", "ask"),
            ("npx git push $T", "deny"),
            ("sudo $T", "ask"),
            ("sudo -n $T", "ask"),
            ("docker run image $T", "ask"),
            ("docker run -v $(pwd):/src image git push", "deny"),
            ("docker run -v $(pwd):/src image git $T", "ask"),
            ("ssh host \"$T\"", "ask"),
        ],
    );
}
