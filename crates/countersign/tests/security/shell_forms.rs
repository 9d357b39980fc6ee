//! Shell lines in every disguise, judged and then run: a line that runs something else is covered by no rule for the one.
//!
//! The programs report which of them ran: each of them is a script of the test that writes its name down.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
};

use countersign_core::{
    digest::{Digest, canonical_json},
    id::{PrincipalId, SessionId},
    policy::{
        ApprovalMode, CompiledRules, Constraints, DefaultPolicy, EffectReach, GrantSet, PathContext, PolicyLayers,
        PolicySubject, Rule, RuleAction, RuleLayer, RuleSet, RuleSource, Verdict, compile_rules, evaluate, signature,
    },
    time::Millis,
    tool::{ShellInput, ToolEffect},
};
use serde_json::{Map, Value};

/// Rules of these tests that allow.
const ALLOWED: [&str; 4] = ["bash(good)", "bash(good *)", "bash(fine *)", "bash(env)"];

pub(crate) fn compiled(rules: Vec<Rule>) -> CompiledRules {
    let rules = RuleSet { rules, defaults: vec![Rule::new("*", RuleAction::Ask)] };
    compile_rules(vec![RuleSource { name: "permissions.yaml".to_owned(), layer: RuleLayer::Main, rules }]).unwrap()
}

pub(crate) fn judge(compiled: &CompiledRules, command: &str, folder: &Path) -> Verdict {
    let arguments = Map::from_iter([("command".to_owned(), Value::from(command))]);
    let subject = PolicySubject {
        principal: PrincipalId::new("agent:pi"),
        door: None,
        target: None,
        session: SessionId::new("s1"),
        tool: "bash".to_owned(),
        signature: signature::undeclared_signatures("bash", &arguments).unwrap().remove(0),
        further_signatures: Vec::new(),
        named: vec!["command".to_owned()],
        undeclared: Vec::new(),
        arguments_digest: Digest::hash_bytes(canonical_json(&Value::Object(arguments.clone())).as_bytes()),
        arguments,
        effect: ToolEffect::Changes,
        reach: EffectReach::Files,
        cwd: folder.display().to_string(),
        session_folder: None,
        is_later: false,
        leads_to: None,
        paths: Vec::new(),
        shell: ShellInput::of_own("bash"),
        classes: BTreeSet::new(),
    };
    let surroundings = PathContext {
        home: Some(folder.display().to_string()),
        temporary: vec![],
        protected: vec![],
        unreadable: vec![],
        door: None,
        realm: None,
        approval: ApprovalMode::default(),
        always_asked: Vec::new(),
    };
    let layers = PolicyLayers {
        compiled,
        constraints: &Constraints::default(),
        contract: None,
        grants: &GrantSet::default(),
        default_policy: DefaultPolicy::Gateway,
        path_context: &surroundings,
    };
    evaluate(&layers, &subject, Millis(1_000))
}

/// A folder with programs that say that they ran, and nothing else on their path.
pub(crate) struct ShellBench {
    root: tempfile::TempDir,
}

impl ShellBench {
    pub(crate) fn new() -> Self {
        let bench = Self { root: tempfile::tempdir().unwrap() };
        let bin = bench.path("bin");
        fs::create_dir(&bin).unwrap();
        for name in ["good", "fine", "evil"] {
            let script = format!("#!/bin/sh\necho {name} >>{}\necho evil\n", bench.path("ran").display());
            fs::write(bin.join(name), script).unwrap();
            fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        for name in [
            "bash", "sh", "env", "xargs", "nice", "nohup", "timeout", "find", "cat", "echo", "true", "setsid",
            "stdbuf", "awk", "sed", "touch", "ls", "tee", "sort", "tar", "split", "dash", "git", "ionice", "printf",
        ] {
            for folder in ["/usr/bin", "/bin"] {
                if Path::new(folder).join(name).exists() {
                    std::os::unix::fs::symlink(Path::new(folder).join(name), bin.join(name)).unwrap();
                    break;
                }
            }
        }
        bench
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.root.path().join(name)
    }

    /// Returns the programs that ran.
    pub(crate) fn ran(&self, line: &str) -> BTreeSet<String> {
        let work = self.path("work");
        let _ = fs::remove_dir_all(&work);
        fs::create_dir(&work).unwrap();
        fs::write(work.join("a.txt"), "evil\n").unwrap();
        // Leads nowhere, unless a test puts a folder there.
        std::os::unix::fs::symlink("../foreign/sub", work.join(".way")).unwrap();
        let _ = fs::remove_file(self.path("ran"));
        let bash = self.path("bin/bash");
        let mut command = Command::new(bash);
        command.arg("-c").arg(line).current_dir(work).env_clear().env("PATH", self.path("bin"));
        command.env("HOME", self.path("work")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // A line that cannot be parsed ends with an error, and runs nothing.
        let _ = command.status().unwrap();
        let record = fs::read_to_string(self.path("ran")).unwrap_or_default();
        record.lines().map(str::to_owned).collect()
    }
}

/// Returns lines of which most run `evil`, made of forms that users and models write.
fn forms() -> BTreeSet<String> {
    let mut forms = BTreeSet::new();
    let seconds = ["evil", "evil x", "'evil'", "e\\vil", "\"ev\"il", "./../bin/evil", "$(echo evil)", "`echo evil`"];
    let joints = [
        "; ",
        ";",
        " && ",
        "&&",
        " || ",
        " | ",
        "|",
        " & ",
        "&",
        "\n",
        " |& ",
        "\n\n",
        " ; ; ",
        " &\n",
        "; : ; ",
        " && : && ",
        "\\\n; ",
        "; # x\n",
    ];
    for first in ["good", "good a.txt", "fine x"] {
        for joint in joints {
            for second in seconds {
                forms.insert(format!("{first}{joint}{second}"));
            }
        }
    }
    let around = [
        "good {}",
        "good \"{}\"",
        "good x{}",
        "good > {}",
        "good < {}",
        "fine {} a",
        "good -o={}",
        "good --x {} --",
        "good a$(:){}",
        "good ${{x:-{}}}",
        "good \"${{x:={}}}\"",
        "good $[0]{}",
        "good [{}]",
        "good {{a,{}}}",
    ];
    let within =
        ["$(evil)", "`evil`", "<(evil)", ">(evil)", "$( evil )", "$(good; evil)", "$(\nevil\n)", "$($(echo evil))"];
    for outer in around {
        for inner in within {
            forms.insert(outer.replace("{{", "{").replace("}}", "}").replacen("{}", inner, 1));
        }
    }
    let wrappers = [
        "env evil",
        "env A=b evil",
        "env -i evil",
        "env -S 'evil x'",
        "env -S'good evil' evil",
        "env -u A evil",
        "nice evil",
        "nice -n 5 evil",
        "nohup evil",
        "timeout 5 evil",
        "timeout -k 1 5 evil",
        "setsid evil",
        "stdbuf -o0 evil",
        "command evil",
        "command -p evil; evil",
        "exec evil",
        "builtin command evil",
        "eval evil",
        "eval 'ev''il'",
        "bash -c evil",
        "sh -c evil",
        "sh -c 'good; evil'",
        "bash -lc evil",
        "bash <<<evil",
        "bash <<X\nevil\nX",
        "sh < a.txt",
        ". ./a.txt",
        "source ./a.txt",
        "xargs evil </dev/null",
        "cat a.txt | sh",
        "cat a.txt | xargs good; evil",
        "find . -exec evil ';'",
        "find . -name a.txt -exec evil {} +",
        "find . -execdir evil ';' ; evil",
        "awk 'BEGIN{system(\"evil\")}'",
        "sed -n '1e evil' a.txt",
        "trap evil EXIT",
        "trap evil DEBUG; good",
        "alias good=evil; evil",
        "function good { evil; }; good",
        "good() { evil; }; good",
        "good () ( evil ); good x",
        "PATH=.:$PATH evil",
        "A=b evil",
        "A=$(evil) good",
        "A=`evil` good x",
        "export A=$(evil); good",
        "declare A=$(evil)",
        "local x; evil",
        "readonly A=$(evil)",
        "typeset A=$(evil); good",
        "time evil",
        "! evil",
        "coproc evil; wait",
        "(evil)",
        "{ evil; }",
        "( good; evil )",
        "{ good; evil; }",
        "if good; then evil; fi",
        "if evil; then good; fi",
        "while evil; do break; done",
        "until evil; do :; done",
        "for x in 1; do evil; done",
        "for x in $(evil); do good; done",
        "case x in x) evil;; esac",
        "case $(evil) in *) good;; esac",
        "select x in 1; do evil; done <<<1",
        "[[ $(evil) ]] && good",
        "(( $(evil) ))",
        "echo $(( $(evil) ))",
        "good <<X\n$(evil)\nX",
        "good <<\"X\"\nx\nX\nevil",
        "good <<<$(evil)",
        "good <<X\n`evil`\nX",
        "good 2>&1 | evil",
        "good 2>$(evil)",
        "good &>x; evil",
        "mapfile -C evil -c 1 a < a.txt",
        "x=evil; $x",
        "x=evil; good; \"$x\"",
        "${x:-evil}",
        "$'evil'",
        "$'\\x65vil'",
        "ev$''il",
        "e''vil",
        "ev\"\"il",
        "\\evil",
        "../bin/evil",
        "../bin/./evil",
        "$HOME/../bin/evil",
        "~/../bin/evil",
        "../b?n/evil",
        "../bin/ev[i]l",
        "../bin/e*l",
        "{evil,x}",
        "good; {evil,}",
        "printf evil | sh",
        "echo evil | bash",
        "echo evil >x; sh x",
        "enable -n good; evil",
        "hash -p ../bin/evil good; good",
        "set -- evil; \"$@\"",
        "set evil; $1",
        "compgen -F evil; evil",
        "PROMPT_COMMAND=evil; evil",
        "BASH_ENV=a.txt bash -c good; evil",
        "env BASH_ENV=a.txt bash -c good",
        "BASH_ENV=a.txt bash -c good",
        "ENV=a.txt sh -c good; evil",
        "PS4='$(evil)' bash -xc good",
        "unset x; evil",
        "good ${x:-a<(evil)b}",
        "good ${x:-@(<(evil))}",
        "good ${x:-${y:->(evil)}}",
        "x=${y:-<(evil)}; good",
        "good a[<(evil)]=1",
        "x=(<(evil)); good",
        "good ~<(evil)",
        "good\u{a0}; evil",
        "good\r; evil",
        "good \u{200b}; evil",
        "good\t;\tevil",
        "good #\nevil",
        "good '#'; evil",
        "good \"; x\"; evil",
        "good ';'; evil",
        "good '\n'; evil",
        "good \\; ; evil",
        "good \\\nx; evil",
        "good 'a\\'; evil",
    ];
    forms.extend(wrappers.into_iter().map(str::to_owned));
    forms
}

#[test]
fn allow_list_prefix_and_chaining() {
    let bench = ShellBench::new();
    let allowing = compiled(ALLOWED.iter().map(|pattern| Rule::new(*pattern, RuleAction::Allow)).collect());
    let forms = forms();
    assert!(forms.len() >= 500, "{} lines", forms.len());
    let (mut ran_evil, mut wrong) = (0, Vec::new());
    for form in &forms {
        let did = bench.ran(form).contains("evil");
        ran_evil += usize::from(did);
        let verdict = judge(&allowing, form, &bench.path("work"));
        if did && matches!(verdict, Verdict::Allow(_)) {
            wrong.push(form);
        }
    }
    assert!(wrong.is_empty(), "allowed, and ran what no rule names: {wrong:#?}");
    // Else the corpus would be of lines that do nothing.
    assert!(ran_evil >= 450, "{ran_evil} of {} ran it", forms.len());
    for plain in ["good", "good a.txt", "fine x", "good x; fine y", "good 'x; evil'", "good x && good y | fine z"] {
        assert!(!bench.ran(plain).contains("evil"), "{plain}");
        let verdict = judge(&allowing, plain, &bench.path("work"));
        assert!(matches!(verdict, Verdict::Allow(_)), "{plain}: {verdict}");
    }
}

/// Programs that people allow whole, because they do no harm by themselves.
const HARMLESS: [&str; 13] =
    ["echo", "sort", "tar", "find", "printf", "test", "sed", "awk", "split", "git", "declare", "read", "cat"];

/// Tests that rules on harmless programs do not let through another program after an option, in a value or an expansion.
#[test]
fn harmless_programs_that_run_another() {
    let bench = ShellBench::new();
    let rules = HARMLESS.iter().map(|program| Rule::new(format!("bash({program} *)"), RuleAction::Allow)).collect();
    let allowing = compiled(rules);
    let (mut ran, mut wrong) = (0, Vec::new());
    let forms = [
        "echo x | xargs --replace evil echo pwned",
        "echo x | xargs --max-lines evil echo pwned",
        "echo x | xargs --eof evil echo pwned",
        "nice -n ${X:-5 evil} echo hi",
        "timeout -k ${X:-1 5 evil} 5 echo hi",
        "timeout -- ${X:-5 evil} echo hi",
        "stdbuf -o ${X:-L evil} echo hi",
        "exec -a ${X:-a evil} echo hi",
        "env -u ${X:-FOO evil} echo hi",
        "env FOO=${X:-a evil} echo hi",
        "X='5 evil'; nice -n $X echo hi",
        "sh -c 'echo &>/dev/null evil'",
        "dash -c 'echo &>/dev/null evil'",
        "dash -c \"echo \\$'\\\\'; evil #'\"",
        "dash -c '[[ a && evil ]]'",
        "dash -c '((evil))'",
        "$'evil\\0x'",
        "echo a; $'\\x{65}vil'",
        "printf '-va[$(evil)]' x",
        "test -v 'a[$(evil)]'",
        "test a -ef b -o -v 'a[$(evil)]'",
        "declare -i x='a[$(evil)]'",
        "read 'a[$(evil)]' < a.txt",
        "find . -maxdepth 0 ${X:--exec} evil \\;",
        "find . -maxdepth 0 {-exec,\"evil\"} \\;",
        "find . -maxdepth 0 -exec echo + \\; -exec evil \\;",
        "sort --compress-prog=evil -S 1k a.txt",
        "tar cf o.tar --checkpoint=1 --checkpoint-act=exec=evil a.txt",
        "tar cf o.tar --use-compress-pro=evil a.txt",
        "tar -cvIevil -f o.tar a.txt",
        "tar cIf evil o.tar a.txt",
        "tar cf o.tar a.txt; tar xf o.tar --to-comm=evil",
        "echo '--checkpoint-action=exec=evil' > n; echo '--checkpoint=1' >> n; tar cf o.tar -T n a.txt",
        "git clone -u evil . c",
        "git clone --upload-pa=evil . c",
        "git ls-remote --exe=evil .",
        "git -c alias.x='!evil' x",
        "git -c core.pager=evil -p version",
        "git init -q .; git config alias.x '!evil'; git x",
        "split --filter=evil a.txt",
        "sed 's_.*_evil_e' a.txt",
        "sed s+.*+evil+e a.txt",
        "sed -n 1eevil a.txt",
        "sed --expr=1eevil a.txt",
        "sed -n '/evil/{e evil\n}' a.txt",
        "sed -n 's/.*/evil/MIg1pe' a.txt",
        "sed -e '1a\\' -e x -e '1e evil' a.txt",
        "awk 'BEGIN { \"evil\" | getline }'",
        "for f in evil; do $f; done",
        "echo $((a[$(evil)]))",
        "x='a[$(evil)]'; echo $((x))",
        "x='a[$(evil)]'; y=abc; echo ${y:x}",
        "x='a[$(evil)]'; echo $[x]",
        "cat - <<E\nE\\\n\nevil\nE",
        "cat - <<-E\n\tE\\\n\nevil\nE",
        "cat - <<E\nx\\\nE\ncat - <<F\nE\nevil\nF",
        "cat - <<$'E'\nE\nevil\n$E",
        "cat - <<E\n$\\\n(evil)\nE",
        "cat - <<E\n${x:-$\\\n(evil)}\nE",
        "split --f=evil a.txt",
        "split --f evil a.txt",
        "git clone --u=evil . c",
        "git ls-remote --u=evil .",
        "echo '-exec evil {} +' | xargs -I x -n 9 find .",
        "echo x | xargs -I a -I b evil",
        "for f in 'BEGIN{system(\"evil\")}'; do awk \"$f\"; done",
        "find . -maxdepth 0 \"${x:--exec}\" evil \\;",
        "read -r l <<< 1eevil; sed -n \"$l\" a.txt",
        "sed '# c\n1e evil' a.txt",
        "sed '\\,x,e evil\n1e evil' a.txt",
    ];
    for form in forms {
        let did = bench.ran(form).contains("evil");
        ran += usize::from(did);
        let verdict = judge(&allowing, form, &bench.path("work"));
        if matches!(verdict, Verdict::Allow(_)) {
            wrong.push((form, did));
        }
    }
    assert!(wrong.is_empty(), "allowed: {wrong:#?}");
    // A program that is not installed, or of another version, runs nothing.
    assert!(ran >= 30, "{ran} of {} ran it", forms.len());
    for plain in [
        "sort a.txt",
        "tar cf o.tar a.txt",
        "find . -name '*.txt'",
        "sed s/a/b/ a.txt",
        "git status",
        "cat - <<E\na \\\n  b\nE",
        "for f in a.txt; do sort \"$f\"; done",
        "for f in ./*; do awk '$1 > 5 {print}' \"$f\"; done",
        "git commit -m 'use std::fs'",
    ] {
        assert!(!bench.ran(plain).contains("evil"), "{plain}");
        let verdict = judge(&allowing, plain, &bench.path("work"));
        assert!(matches!(verdict, Verdict::Allow(_)), "{plain}: {verdict}");
    }
}

/// Tests that a rule that denies a program holds for every spelling, or an approval is required: the line is never simply run.
#[test]
fn argv0_spelling() {
    let bench = ShellBench::new();
    let denying = compiled(vec![Rule::new("bash(evil*)", RuleAction::Deny), Rule::new("bash(*)", RuleAction::Allow)]);
    let mut spelt = 0;
    for form in [
        "evil",
        "evil x",
        "'evil'",
        "e\\vil",
        "\"ev\"il",
        "ev''il x",
        "$'evil'",
        "../bin/evil",
        "../bin/./evil",
        "../bin//evil",
        "../work/../bin/evil x",
        "command evil",
        "exec evil",
        "env evil",
        "nice evil",
        "nohup evil",
        "timeout 5 evil",
        "good; evil",
        "good && ../bin/evil",
        "(evil)",
        "{ evil; }",
        "! evil",
        "time evil",
        "A=b evil",
        "if :; then evil; fi",
    ] {
        assert!(bench.ran(form).contains("evil"), "{form}");
        let verdict = judge(&denying, form, &bench.path("work"));
        assert!(matches!(verdict, Verdict::Deny(_)), "{form}: {verdict}");
        spelt += 1;
    }
    assert!(spelt >= 20);
    // Some of the line is only known when it runs, or read in different ways.
    for form in [
        "ev${X}il",
        "${X:-evil} x",
        "X=evil; $X",
        "nice -n ${X:-5 evil} good",
        "dash -c 'good &>/dev/null evil'",
        "dash -c \"good \\$'\\\\'; evil #'\"",
        "$'evil\\0x'",
        "$'\\545vil'",
        "echo x | xargs --replace evil good",
        "find . -maxdepth 0 ${X:--exec} evil \\;",
        "{x}</dev/null evil",
        "cat <<E\nE\\\n\nevil\nE",
        "cat <<E\n$\\\n(evil)\nE",
        "time -- evil",
        "bash -c -- 'evil'",
        "bash -c -x 'evil'",
        "bash -c '\"$@\"' _ evil",
        "bash -c '$0 x' evil",
        "(bash) <<< 'evil'",
        "{ bash; } <<E\nevil\nE",
        "if bash; then :; fi <<< evil",
        "bash < <(echo evil)",
        "jobs -x evil",
        "compgen -C evil x",
        "find . -maxdepth 0 -name -exec -o -exec evil \\;",
        "echo \"$(case x in x) evil;; esac)\"",
        "echo \"`echo \\\"'\\\"; evil; \\\"'\\\"`\"",
    ] {
        assert!(bench.ran(form).contains("evil"), "{form}");
        let verdict = judge(&denying, form, &bench.path("work"));
        assert!(!matches!(verdict, Verdict::Allow(_)), "{form}: {verdict}");
    }
}
