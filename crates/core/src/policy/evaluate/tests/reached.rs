//! Shell lines that may run a denied command, in words that are unknown before they run.

use super::{PolicyFixture, word};
use crate::policy::testing::bash;

#[test]
fn a_line_that_may_come_to_what_is_denied_asks_whatever_allows_it() {
    for (line, want) in [
        ("g() { git \"$@\"; }; g push", "ask"),
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
        let verdict = PolicyFixture::new(&["deny bash(git push*)", "allow *"]).judge(&bash(line));
        assert_eq!(word(&verdict), want, "{line}: {verdict}");
        if want == "ask" {
            assert!(verdict.to_string().contains("git push*"), "{line}: {verdict}");
            let free = PolicyFixture::new(&["deny write(*)", "allow *"]).judge(&bash(line));
            assert_eq!(word(&free), "allow", "{line}: {free}");
        }
    }
}

fn judge_each(rules: &[&str], lines: &[(&str, &str)]) {
    let wrong: Vec<String> = lines
        .iter()
        .filter_map(|(line, want)| {
            let verdict = PolicyFixture::new(rules).judge(&bash(line));
            (word(&verdict) != *want).then(|| format!("{want}: {line}: {verdict}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const NO_PUSH: [&str; 2] = ["deny bash(git push*)", "allow *"];

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
            ("docker run -v $(pwd):/src image make", "ask"),
            ("docker run --rm -v \"$D\":/src -w /src image make", "ask"),
            ("docker run -p $PORT:80 image", "ask"),
            ("podman run -v \"$(git rev-parse --show-toplevel)\":/w image make test", "ask"),
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
            ("ssh host \"$T\"", "ask"),
        ],
    );
}

#[test]
fn what_a_line_sets_for_later_words_is_not_trusted() {
    for line in [
        "X=status; git $X",
        "X=PUSH; declare -l X; git $X",
        "declare \"-l\" X=PUSH; git $X",
        "declare \\-l X=PUSH; git $X",
        "O=-l; declare $O X=PUSH; git $X",
        "export X=status Y=$X; git $Y",
        "A=X; declare -l ${A}Y; XY=PUSH; git $XY",
        "A=X; XY=status; declare \"${A}Y[0]=push\"; git $XY",
        "A=X; XY=status; mapfile -t ${A}Y <<< push; git $XY",
        "A=X; XY=status; printf -v \"${A}Y[0]\" %s push; git $XY",
        "A=X; XY=pu; eval \"${A}Y+=\\$(echo sh)\"; git $XY",
        "A=X; XY=status; trap \"${A}Y[0]=push\" DEBUG; git $XY",
        "X=; : ${X[0]:=push}; git $X",
        "shopt -s extglob; X='@(push)'; git $X",
        "f() { local \"-l\" X=PUSH; git $X; }; f",
        "f() { git $1; }; f status; A=f; eval \"$A push\"",
        "su -c \"$Y git push origin HEAD:main\"",
        "su -c \"$(echo git) push origin HEAD:main\"",
        "su -c \"${Y}git push origin HEAD:main\"",
        "su -c \"cd $D && git push\"",
        "flock -n l -c \"$(echo git push) origin HEAD:main\"",
        "flock -n l -c \"cd $D; git push\"",
        "script -qc \"cd ${D:-.}; git push\" /dev/null",
        "X=\"$(echo git push) \"; sudo -n $X:main",
        "sudo -n $(cat f):main",
        "sh -c \"echo $1\"",
        "bash -c \"cd $D && make\"",
        "bash -c \"$X status\"",
        "eval \"echo $X\"",
        "X='$(git push)'; eval \"echo $X\"",
        "trap \"echo $X\" EXIT",
        "su -c \"echo $1\"",
        "sudo -n bash -c \"echo $1\"",
        "docker exec c sh -c \"echo $1\"",
        "PAGER='git push' git log",
        "GIT_SSH_COMMAND='git push' git fetch",
        "export GIT_EDITOR='git push'; git commit",
        "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.p GIT_CONFIG_VALUE_0=push git p",
        "export GIT_CONFIG_PARAMETERS=\"'alias.p'='push'\"; git p",
        "GIT_CONFIG_GLOBAL=x.cfg git p",
        "alias g=git",
        "alias g=\"$X\"",
        "shopt -s expand_aliases\nalias g=git\ng push",
        "BASH_ALIASES[g]=git",
        "hash -p /usr/bin/git g; g push",
        "parallel git ::: push",
        "git filter-branch --tree-filter 'git push' HEAD",
        "/usr/lib/git-core/git-push origin",
        "npx -p a -p b -p c git push",
        "uv run --with a --with b --with c --with d git push",
        "docker run --rm -it a b c d e f git push",
    ] {
        let verdict = PolicyFixture::new(&["deny bash(git push*)", "allow *"]).judge(&bash(line));
        assert_ne!(word(&verdict), "allow", "{line}: {verdict}");
    }
}

#[test]
fn texts_in_the_word_of_an_option_or_in_the_environment_are_judged() {
    judge_each(
        &NO_PUSH,
        &[
            ("sh -c 'time -f %e git push'", "deny"),
            ("bash --posix -c 'time -f %e git push'", "deny"),
            ("time -p git push", "deny"),
            ("sh -c 'time -f %e git status'", "allow"),
            ("env -vS\"git push\"", "deny"),
            ("env -iS'git push'", "deny"),
            ("env --split-s='git push'", "deny"),
            ("env -vS\"git status\"", "allow"),
            ("git rebase -x\"git push\" main", "deny"),
            ("git rebase -ix \"git push\" main", "deny"),
            ("git rebase --ex=\"git push\" main", "deny"),
            ("git rebase --exec 'git push' main", "deny"),
            ("git rebase -x 'make test' main", "allow"),
            ("git rebase -i main", "allow"),
            ("script -qc\"git push\" /dev/null", "deny"),
            ("GIT_SSH_COMMAND='bash -c \"git push\"' git fetch", "deny"),
            ("PAGER='sh -c \"git push\"' git log", "deny"),
            ("X='git push'; PAGER=\"$X\" git log", "deny"),
            ("PAGER=\"$X\" git log", "ask"),
            ("GIT_EXTERNAL_DIFF='git push' git diff", "deny"),
            ("RUSTC_WRAPPER='git push' cargo build", "deny"),
            ("CFLAGS='-O2 -g' make", "allow"),
            ("RUSTFLAGS='-C target-cpu=native' cargo build", "allow"),
            ("GIT_SSH_COMMAND='ssh -i k' git fetch", "allow"),
            ("git -c core.sshCommand='git push;' fetch ssh://h/x", "deny"),
            ("git -c credential.helper='!git push' fetch", "deny"),
            ("git -ccore.pager='git push' log", "deny"),
            ("git config core.editor 'git push'", "deny"),
            ("git config user.name 'Ana Example'", "allow"),
            ("git -c user.name='Ana Example' commit -m x", "allow"),
            ("git commit -m 'explain git push'", "allow"),
            ("git commit -m 'say \"git push now\" to them'", "allow"),
        ],
    );
}

#[test]
fn a_command_in_the_arguments_of_an_unknown_program_asks() {
    judge_each(
        &NO_PUSH,
        &[
            ("retry git push", "ask"),
            ("retry -n 3 -- git push origin", "ask"),
            ("doppler run -- git push", "ask"),
            ("nix develop -c git push", "ask"),
            ("nix develop --command sh -c 'git push'", "ask"),
            ("cross-env A=b git push", "ask"),
            ("concurrently 'npm test' 'git push'", "ask"),
            ("./wrap git push", "ask"),
            ("/opt/bin/retry /usr/bin/git push", "ask"),
            ("retry git -C x push", "ask"),
            ("retry git \"$A\"", "ask"),
            ("retry sudo git push", "ask"),
            ("retry sh -c 'A=1 git push'", "ask"),
            ("retry sh -c 'if true; then git push; fi'", "ask"),
            ("retry 'env git push'", "ask"),
            ("retry \"sh -c 'git push'\"", "ask"),
            ("retry 'true && ! git push'", "ask"),
            ("retry --cmd='git push'", "ask"),
            ("nix develop --command='git push'", "ask"),
            ("npm x -- git push", "deny"),
            ("npm exec --call=true --call='git push'", "deny"),
            ("mapfile -C'git push;:' -c 1 x < f", "deny"),
            ("mapfile -C true -C 'git push' x < f", "deny"),
            ("gh pr create --body \"Steps:\ngit push origin main\"", "ask"),
            ("gh pr create --body \"Steps: git push origin main\"", "allow"),
            ("gh pr create --body \"Don't (yet) push; it's 1 of 2\"", "allow"),
            ("gh issue create --title 'git push asks twice'", "ask"),
            ("gh issue create --title 'Fix git push'", "allow"),
            ("gh pr create --title='git push fix'", "ask"),
            ("fzf --preview 'git push'", "ask"),
            ("fzf --preview='cd x && git push'", "ask"),
            ("fzf --preview 'git show {}' --bind 'enter:execute(git push)'", "ask"),
            ("fzf --preview 'git show {}'", "allow"),
            ("nodemon --exec 'git push'", "ask"),
            ("pytest tests/git push", "allow"),
            ("retry git status", "allow"),
            ("doppler run -- make test", "allow"),
            ("gh pr list --author git", "allow"),
            ("retry \"$A\"", "allow"),
            ("echo git push", "allow"),
            ("grep -r git push", "allow"),
            ("git log --grep 'git push'", "allow"),
        ],
    );
    let defaults = ["allow bash(retry *)", "deny bash(git push*)"];
    assert_eq!(word(&PolicyFixture::new(&defaults).judge(&bash("retry git push"))), "ask");
    let many: String = (0..300).map(|at| format!(" src/file{at}.rs")).collect();
    let (checked, long) = (format!("prettier --check{many}"), format!("retry{many} git push"));
    let nested = format!("retry {}git push", "sudo ".repeat(200));
    judge_each(&NO_PUSH, &[(&checked, "allow"), (&long, "ask"), (&nested, "ask")]);
    let free = PolicyFixture::new(&["deny bash(rm *)", "allow *"]).judge(&bash("retry git push"));
    assert_eq!(word(&free), "allow", "{free}");
}

#[test]
fn a_denied_command_that_a_program_may_be_given_asks() {
    judge_each(
        &NO_PUSH,
        &[
            ("python3 wrap.py git push", "ask"),
            ("node wrap.js -- git push origin", "ask"),
            ("zsh wrap.sh git push", "ask"),
            ("go run x.go git push", "ask"),
            ("cargo run -- git push", "ask"),
            ("npm run wrap git push", "ask"),
            ("cargo watch -s 'git push'", "ask"),
            ("retry -s 'git push'", "ask"),
            ("retry -s'git push'", "ask"),
            ("make --eval='$(shell git push)'", "ask"),
            ("make -f - <<< $'a:\n\tgit push'", "ask"),
            ("make -f - <<'E'\na:\n\t@git push\nE", "ask"),
            ("runner <<'E'\nsudo -n git push\nE", "ask"),
            ("echo 'git push' | runner", "ask"),
            ("env make -f - <<< $'a:\n\tgit push'", "ask"),
            ("timeout 5 nice make -f - <<< $'a:\n\tgit push'", "ask"),
            ("sudo runner <<< 'git push'", "deny"),
            ("{ make -f -; } <<< $'a:\n\tgit push'", "ask"),
            ("for i in 1 2; do runner; done <<< 'git push'", "ask"),
            ("if runner; then :; fi <<< 'git push'", "ask"),
            ("f() { runner; }; f <<< 'git push'", "ask"),
            ("{ echo 'git push'; } | runner", "ask"),
            ("cat <<< 'git push' | runner", "ask"),
            ("{ cat; } <<< 'git push' | tr a b | env runner", "ask"),
            ("echo 'git push' | while read l; do echo \"$l\" | runner; done", "ask"),
            ("{ cat; } <<< 'git push'", "allow"),
            ("echo 'git push' > f; runner", "allow"),
            ("(echo 'git push' > f; make -f x)", "allow"),
            ("python3 - <<'E'\nimport os\nos.system('git push')\nE", "ask"),
            ("git fetch --upload-pack='git push' .", "ask"),
            ("git grep -O'git push'", "ask"),
            ("git difftool -x 'git push'", "ask"),
        ],
    );
    let no_sudo = ["deny bash(sudo*)", "allow *"];
    judge_each(
        &no_sudo,
        &[
            ("npx jest -t \"sudo is refused\"", "ask"),
            ("npx jest -t sudo", "ask"),
            ("npx -p x sudo ls", "deny"),
            ("npx sudo ls", "deny"),
        ],
    );
}

#[test]
fn a_denied_command_behind_many_words_is_not_overlooked() {
    let words = |count: usize, word: &str| format!("{word} ").repeat(count);
    let lines = [
        format!("docker run {} git push", words(40, "a")),
        format!("sudo -A {} git push", words(2_000, "-u x")),
        format!("retry {} git push", words(2_000, "a")),
        format!("retry {} --do 'git push'", words(40, "-m 'a b'")),
        format!("npx {} git push", words(40, "-p a")),
        format!("git fetch {} --upload-pack='git push' .", words(40, "-o 'a b'")),
    ];
    for line in lines {
        let verdict = PolicyFixture::new(&NO_PUSH).judge(&bash(&line));
        assert_ne!(word(&verdict), "allow", "{}… {verdict}", &line[..30]);
    }
}

#[test]
fn a_denied_command_that_is_data_of_a_known_program_is_allowed() {
    let rules = ["deny bash(git push*)", "deny bash(sudo*)", "allow *"];
    let lines = [
        "grep 'git push' README.md",
        "grep -e 'git push' README.md",
        "echo git push",
        "echo 'git push' > notes.txt",
        "git commit -m \"git push later\"",
        "git commit -qm'git push later'",
        "git commit -F - <<'E'\ngit push later\nE",
        "git -c user.name='Ana Example' commit -m 'git push later'",
        "git log --grep='git push'",
        "git log --grep 'git push'",
        "git log -S'git push'",
        "cargo test",
        "cargo test sudo",
        "cargo add sudo",
        "pip install sudo",
        "python3 script.py --flag",
        "python3 -c 'print(1)'",
        "python3 - <<'E'\nx = f'{y}'\nprint(x)\nE",
        "npm test",
        "make test CFLAGS='-O2 -g'",
        "rg sudo",
        "command -v sudo",
        "cat > notes.md <<'E'\ngit push\nE",
        "sed -n '/git push/p' f",
        "sed s/a/b/ <<< 'git push'",
        "read x <<< 'git push'",
        "curl -d 'git push' http://localhost/",
        "gh pr create --title='Fix git push' --description 'When git push fails'",
        "env grep x <<< 'git push'",
        "while read l; do echo \"$l\"; done <<< 'git push'",
        "i=0; ((i++)); echo \"$((i + 1))\"",
    ];
    judge_each(&rules, &lines.map(|line| (line, "allow")));
}

#[test]
fn a_denied_command_in_a_value_that_the_shell_computes_asks() {
    judge_each(
        &NO_PUSH,
        &[
            ("for r in 'a[$(git push)]'; do ((r)); done", "ask"),
            ("for r in 'a[$(git push)]'; do echo $((r + 1)); done", "ask"),
            ("for r in 'a[$(git push)]'; do echo ${x[r]}; done", "ask"),
            ("for r in 'a[`git push`]'; do [[ $r -eq 1 ]]; done", "ask"),
            ("read x <<< 'a[$(git push)]'; ((x))", "ask"),
            ("read x <<'E'\na[$(git push)]\nE\n((x))", "deny"),
            ("for r in 'a[$(git status)]'; do ((r)); done", "allow"),
            ("for r in 'a[$(git push)]'; do echo \"$r\"; done", "allow"),
            ("compgen -W '$(git push)'", "deny"),
        ],
    );
}

#[test]
fn texts_that_the_shell_expands_later_are_judged() {
    judge_each(
        &NO_PUSH,
        &[
            ("BASH_ENV='$(git push)' bash x.sh", "deny"),
            ("PS4='$(git push)' bash -x x.sh", "deny"),
            ("PS4='+ $(git push)'; set -x; ls", "deny"),
            ("[[ 'a[$(git push)]' -eq 1 ]]", "deny"),
            ("npx --call='git push'", "deny"),
            ("npx --call 'git push'", "deny"),
            ("mapfile -C 'git push' -c 1 x < f", "deny"),
            ("npm exec --call='git push'", "deny"),
            ("let 'a[$(git push)]'", "deny"),
            ("declare -i 'x=a[$(git push)]'", "deny"),
            ("test -v 'a[$(git push)]'", "deny"),
            ("printf -v 'a[$(git push)]' x", "deny"),
            ("unset 'a[`git push`]'", "deny"),
            ("nix-shell --run='git push'", "deny"),
            ("printf '%s' '$(git push)'", "allow"),
            ("[[ $x == '$(git push)' ]]", "allow"),
            ("test -v 'a[$(git status)]'", "allow"),
            ("npx --call='eslint .'", "allow"),
        ],
    );
}
