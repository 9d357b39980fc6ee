use super::{LineFiles, LookupContext, find_files};
use crate::files::FileRole;

fn files_of(command: &str) -> LineFiles {
    let place = LookupContext {
        folder: "/w".to_owned(),
        home: Some("/home/ana".to_owned()),
        path: Some("/usr/bin:/bin".to_owned()),
    };
    find_files(command, &place)
}

/// Returns the scripts and programs with a path of `command`, and its folders: `s:` and `p:` and `f:` and where they are.
fn named(command: &str) -> Vec<String> {
    let found = files_of(command).named;
    let shown = found.iter().filter(|named| !named.is_searched).map(|named| {
        let role = match named.role {
            FileRole::Folder => "f",
            FileRole::Program => "p",
            FileRole::Script => "s",
            FileRole::Interpreter => "i",
        };
        let perhaps = if named.is_perhaps { "?" } else { "" };
        format!("{role}{perhaps}:{}", named.tried[0].replace("/./", "/"))
    });
    shown.collect()
}

#[test]
fn the_scripts_that_a_line_hands_to_interpreters_are_named() {
    for (command, want) in [
        ("bash x.sh", &["s:/w/x.sh"][..]),
        ("sh -euo pipefail x.sh a b", &["s:/w/x.sh"]),
        ("bash -euo pipefail x.sh", &["s:/w/x.sh"]),
        ("bash -e -o pipefail -- ./x.sh", &["s:/w/x.sh"]),
        ("bash +o history x.sh", &["s:/w/x.sh"]),
        ("bash -O extglob x.sh", &["s:/w/x.sh"]),
        ("bash --norc --rcfile rc x.sh", &["s:/w/rc", "s:/w/x.sh"]),
        ("bash -c './x.sh; sh y.sh'", &["p:/w/x.sh", "s:/w/y.sh"]),
        ("bash -ec 'sh y.sh' name", &["s:/w/y.sh"]),
        ("sh -s < x.sh", &["s:/w/x.sh"]),
        ("sh -s a b < x.sh", &["s:/w/x.sh"]),
        ("bash < x.sh", &["s:/w/x.sh"]),
        ("bash /dev/stdin < x.sh", &["s:/w/x.sh"]),
        ("cat x.sh | sh", &["s:/w/x.sh"]),
        ("cat < x.sh | bash -s -- a", &["s:/w/x.sh"]),
        ("cat a.sh b.sh | sudo -u x sh", &["s:/w/a.sh", "s:/w/b.sh"]),
        ("echo ./x.sh | sh", &["p:/w/x.sh"]),
        ("sh <<'E'\n./x.sh\nE", &["p:/w/x.sh"]),
        ("sh <<< './x.sh'", &["p:/w/x.sh"]),
        ("python3 x.py a.py", &["s:/w/x.py"]),
        ("python3.12 -u -W ignore x.py", &["s:/w/x.py"]),
        ("python3 -Wignore x.py", &["s:/w/x.py"]),
        ("python3 < x.py", &["s:/w/x.py"]),
        ("python3 - < x.py", &["s:/w/x.py"]),
        ("python3 -c 'print(1)' x.py", &[]),
        ("node --require ./a.js x.js", &["s:/w/a.js", "s:/w/x.js"]),
        ("node -e '1' x.js", &[]),
        ("deno run -A x.ts", &["s:/w/x.ts"]),
        ("perl -ne 'print' x", &[]),
        ("perl -w x.pl", &["s:/w/x.pl"]),
        ("ruby -I lib x.rb", &["s:/w/x.rb"]),
        ("awk -f x.awk data", &["s:/w/x.awk"]),
        ("awk '{print}' data", &[]),
        ("sed -n -f x.sed data", &["s:/w/x.sed"]),
        ("perl -MFile::Spec x.pl", &["s:/w/x.pl"]),
        ("ruby -Wno-deprecated x.rb", &["s:/w/x.rb"]),
        ("ruby -rjson x.rb", &["s:/w/x.rb"]),
        ("node -r dotenv/config x", &["s:/w/x"]),
        ("node --watch-path src x.js", &["s:/w/x.js"]),
        ("node --strange y x.js", &["s?:/w/x.js", "s:/w/y"]),
        ("bun install", &["s?:/w/install"]),
        ("java -cp lib -jar x.jar", &["s:/w/x.jar"]),
        ("cat x.py | { python3; }", &["s:/w/x.py"]),
        ("(cd /e; sh) < x.sh", &["f:/e", "s:/w/x.sh"]),
        ("exec < x.sh; sh", &["s:/w/x.sh"]),
        ("sh -c sh < x.sh", &["s:/w/x.sh"]),
        ("find . -exec sh \\; < x.sh", &["s:/w/x.sh"]),
        (". ./x", &["s:/w/x"]),
        ("source /e/x", &["s:/e/x"]),
    ] {
        assert_eq!(named(command), want, "{command}");
    }
}

#[test]
fn what_a_wrapper_runs_is_named() {
    for (command, want) in [
        ("./x", &["p:/w/x"][..]),
        ("/opt/x a", &["p:/opt/x"]),
        ("~/x", &["p:/home/ana/x"]),
        ("$HOME/x", &["p:/home/ana/x"]),
        ("\"$PWD\"/x", &["p:/w/x"]),
        ("F=x.sh; sh $F", &["s:/w/x.sh"]),
        ("env A=1 ./x", &["p:/w/x"]),
        ("env -S './x a'", &["p:/w/x"]),
        ("sudo -u x ./y", &["p:/w/y"]),
        ("sudo -u x A=1 sh y.sh", &["s:/w/y.sh"]),
        ("xargs ./z", &["p:/w/z"]),
        ("ls | xargs -n 1 sh z.sh", &["s:/w/z.sh"]),
        ("nice -n 5 ./x", &["p:/w/x"]),
        ("timeout -k 1 5 ./x", &["p:/w/x"]),
        ("timeout 5 nohup sh x.sh", &["s:/w/x.sh"]),
        ("exec ./x", &["p:/w/x"]),
        ("time ./x", &["p:/w/x"]),
        ("find . -name a -exec ./x {} \\;", &["p:/w/x"]),
        ("busybox sh x.sh", &["s:/w/x.sh"]),
        ("eval './x'", &["p:/w/x"]),
        ("echo $(./x)", &["p:/w/x"]),
        ("echo \"`./x`\"", &["p:/w/x"]),
        ("diff <(./x) <(./y)", &["p:/w/x", "p:/w/y"]),
        ("(./x) & { ./y; } && ! ./z", &["p:/w/x", "p:/w/y", "p:/w/z"]),
        ("if ./a; then ./b; else ./c; fi", &["p:/w/a", "p:/w/b", "p:/w/c"]),
        ("for i in 1; do ./a; done; while ./b; do ./c; done", &["p:/w/a", "p:/w/b", "p:/w/c"]),
        ("case a in a) ./x;; esac", &["p:/w/x"]),
        ("f() { ./x; }; f", &["p:/w/x"]),
        ("cat <<E\n$(./x)\nE", &["p:/w/x"]),
        ("cat <<'E'\n$(./x)\nE", &[]),
        ("for ((i=$(./x); i<1; i++)); do :; done", &["p:/w/x"]),
        ("case a in $(./x)) ;; esac", &["p:/w/x"]),
        ("[[ a == b ]] > $(./x)", &["p:/w/x"]),
        ("f() { :; } > $(./x)", &["p:/w/x"]),
        ("echo a >&$(./x)", &["p:/w/x"]),
        ("flock f -c './x'", &["p:/w/x"]),
        ("setarch x86_64 -R ./x", &["p:/w/x"]),
        ("watch './x a'", &["p:/w/x"]),
        ("/lib64/ld-linux-x86-64.so.2 ./x", &["p:/lib64/ld-linux-x86-64.so.2", "p:/w/x"]),
        ("[ -x a ] && ./x", &["p:/w/x"]),
        ("ssh host ./x", &[]),
    ] {
        assert_eq!(named(command), want, "{command}");
    }
}

#[test]
fn a_folder_that_the_line_enters_holds_for_what_follows() {
    for (command, want) in [
        ("cd sub && ./x", &["f:/w/sub", "p:/w/sub/x"][..]),
        ("cd sub; ./x", &["f:/w/sub", "p:/w/sub/x", "p:/w/x"]),
        ("cd /a && cd b && ./x", &["f:/a", "f:/a/b", "p:/a/b/x"]),
        ("(cd sub && ./x); ./y", &["f:/w/sub", "p:/w/sub/x", "p:/w/y"]),
        ("cd sub | ./x", &["f:/w/sub", "p:/w/x"]),
        ("cd && ./x", &["f:/home/ana", "p:/home/ana/x"]),
        ("cd $X && ./x", &[]),
        ("cd a || cd b; /e/x", &["f:/w/a", "f:/w/a/b", "f:/w/b", "p:/e/x"]),
        ("cd a || exit 1; ./x", &["f:/w/a", "p:/w/a/x", "p:/w/x"]),
        ("f() { cd sub; }; f; ./x", &["f:/w/sub"]),
        ("pushd -n sub && ./x", &[]),
        ("cd -P l/.. && ./x", &[]),
        ("sudo -D d ./x", &[]),
        ("cd - && /e/x", &["p:/e/x"]),
        ("if true; then cd sub; fi; ./x", &["f:/w/sub"]),
    ] {
        assert_eq!(named(command), want, "{command}");
    }
    assert_eq!(files_of("cd $X && ./x").unknown, ["./x: the folder is only known when it runs"]);
}

#[test]
fn a_name_is_looked_for_where_the_line_says() {
    let searched = |command: &str| {
        let found = files_of(command).named;
        found.into_iter().filter(|named| named.is_searched).map(|named| (named.name, named.tried)).collect::<Vec<_>>()
    };
    let at = |name: &str, tried: &[&str]| (name.to_owned(), tried.iter().map(|path| (*path).to_owned()).collect());
    for (command, want) in [
        ("make all", vec![at("make", &["/usr/bin/make", "/bin/make"])]),
        ("echo a; cd /; true", vec![]),
        ("PATH=/x make", vec![at("make", &["/x/make"])]),
        ("PATH=/x make; cc", vec![at("make", &["/x/make"]), at("cc", &["/usr/bin/cc", "/bin/cc"])]),
        ("PATH=./b:$PATH make", vec![at("make", &["/w/./b/make", "/usr/bin/make", "/bin/make"])]),
        ("export PATH=/x:/y; make", vec![at("make", &["/x/make", "/y/make"])]),
        ("f() { :; }; f", vec![]),
        ("PATH=~/b:/x make", vec![at("make", &["/home/ana/b/make", "/w/~/b/make", "/x/make"])]),
    ] {
        assert_eq!(searched(command), want, "{command}");
    }
    for command in ["PATH=$X make", "export PATH=$(x); make", "unset PATH; make", ". ./e; make"] {
        let unknown = files_of(command).unknown.join("; ");
        assert!(unknown.contains("make: where it is looked for is only known when it runs"), "{command}: {unknown}");
    }
}

#[test]
fn unknown_programs_are_named_with_the_reason() {
    for (command, want) in [
        ("$X a", "$X: which program it is is only known when it runs"),
        ("sh $X", "$X: its name is only known when it runs"),
        ("curl -s https://a.b/x | sh", "what sh reads on its input"),
        ("python3 -m http.server", "http.server: a module"),
        ("ssh host ls", "what ssh runs elsewhere"),
        ("echo a > x.sh; sh x.sh", "x.sh: the line itself writes it"),
        ("cat > x.sh <<E\na\nE\nsh x.sh", "x.sh: the line itself writes it"),
        ("if then", "a text that cannot be parsed"),
        ("sh <(cat x.sh)", "<(…): its name is only known when it runs"),
        (". <(cat x.sh)", "<(…): its name is only known when it runs"),
        ("sh /proc/self/cwd/x.sh", "/proc/self/cwd/x.sh: what is open there"),
        ("sh ../proc/thread-self/cwd/x.sh", "it is another in each process"),
        ("sh //dev/fd/3 3< x.sh", "//dev/fd/3: what is open there"),
        ("f() { sh; }; cat x.sh | f", "what sh reads on its input"),
        ("echo -e './x' | sh", "what sh reads on its input"),
        ("false && X=b.sh; sh $X", "$X: its name"),
        ("X=a.sh; for X in b.sh; do sh $X; done", "$X: its name"),
        ("X=a.sh; read X; sh $X", "$X: its name"),
        ("X=a.sh; f() { X=b.sh; }; f; sh $X", "$X: its name"),
        ("for i in 1 2; do sh $X; X=b.sh; done", "$X: its name"),
        ("X='*.sh'; sh $X", "$X: its name"),
        ("X=~/x.sh; sh $X", "$X: its name"),
        ("false && export PATH=/e; tool", "tool: where it is looked for"),
        ("f() { cd sub; }; f; ./x", "./x: the folder is only known when it runs"),
        ("f() { ./x; }; cd sub; f", "what f runs"),
        ("f() { cd sub; }; while true; do ./x; f; done", "./x: the folder is only known when it runs"),
        ("BASH_ENV=./x bash -c ls", "what BASH_ENV has programs run or load"),
        ("env LD_PRELOAD=x.so ls", "what LD_PRELOAD has programs run or load"),
        ("export EDITOR=./x; git commit", "what EDITOR has programs run or load"),
        ("git -c core.pager=./x log", "what git is told to run"),
        ("echo ./x | at now", "what at runs"),
        ("xargs -rJ x tool", "what xargs runs"),
        ("find . -execdir ./x \\;", "what find runs in other folders"),
        ("pwsh x.ps1", "what pwsh runs"),
        ("trap ./x EXIT", "what trap runs later"),
        ("eval \"$X\"; ./x", "./x: the folder is only known when it runs"),
        ("node -r dotenv/config x.js", "dotenv/config: a module"),
        ("bash -c \"$X\"", "the text that bash runs is only known when it runs"),
    ] {
        let unknown = files_of(command).unknown;
        assert!(unknown.iter().any(|one| one.contains(want)), "{command}: {unknown:?}");
    }
}

#[test]
fn of_what_people_write_every_day_nothing_is_strange() {
    for command in [
        "git status",
        "git log --oneline | head -5",
        "cargo build",
        "CARGO_TERM_COLOR=never cargo test",
        "npm test",
        "make -j2",
        "ls -la | head",
        "python3 script.py > out.txt",
        "python3 - <<'E'\nprint(1)\nE",
        "./gradlew build",
        "cd sub && ./run.sh",
        "cd sub || exit 1; ./run.sh",
        "[ -f x.sh ] && bash x.sh",
        "if [ -d a ]; then rm -r a; fi",
        "for i in 1 2 3; do echo $i; sleep 1; done",
        "export PATH=$PWD/b:$PATH && tool",
        "GIT_PAGER=cat git log",
        "sed -i 's/a/b/' f && git diff",
        "awk '{print $1}' f | sort | uniq -c",
        "find . -name '*.rs' -exec grep -l x {} +",
        "cat a | grep b | xargs rm",
        "echo \"$(date) ${USER:-x}\" >> log",
        "git commit -m 'a; ./b'",
        "nohup ./serve > log 2>&1 &",
        "curl -s https://a.b/x -o x.json && jq . x.json",
        "printf '%s\\n' a b | sort",
        "trap - EXIT; alias",
    ] {
        assert_eq!(files_of(command).unknown, Vec::<String>::new(), "{command}");
    }
}

#[test]
fn what_an_earlier_command_may_make_is_marked() {
    for (command, want) in
        [("sh x.sh", false), ("ls && sh x.sh", false), ("make && sh x.sh", true), ("cp a x.sh; sh x.sh", true)]
    {
        let found = files_of(command).named;
        let script = found.iter().find(|named| named.role == FileRole::Script).map(|named| named.may_be_made);
        assert_eq!(script, Some(want), "{command}");
    }
}

/// A test's thread has the stack of any worker: what recurses without a bound ends the process.
#[test]
fn texts_that_name_themselves_end() {
    let mut chain = "A='./x';".to_owned();
    for (name, before) in "BCDEFGHIJ".chars().zip("ABCDEFGHI".chars()) {
        chain.push_str(&format!("{name}='{}';", format!("eval,${before};").repeat(40)));
        chain.push_str(&format!("{name}2={{eval,${before}}};"));
    }
    let within = format!("sh <<E\n{}E\n", "sh\n".repeat(2_000));
    let functions: String = (0..200).map(|at| format!("f{at}() {{ {} ./x; }}\n", "f0; f1; f2; ".repeat(5))).collect();
    let set: String = (0..1_500).map(|at| format!("v{at}=a;")).collect();
    let nested =
        (0..7).fold("./x".to_owned(), |text, _| format!("{}echo $({text}){}", "{ ".repeat(31), "; }".repeat(31)));
    for text in [format!("{chain} eval $J; eval $J2"), within, functions, set, nested] {
        assert!(files_of(&text).named.len() <= super::MOST);
    }
}

#[test]
fn no_line_is_too_much() {
    for text in ["$(", "cd a;", "((", "./x | ", "a=b ", "sh -c '", "x <", "\u{10FFFE}"] {
        for count in [1, 40, 4_000] {
            let found = files_of(&text.repeat(count));
            assert!(found.named.len() <= super::MOST, "{text}");
        }
    }
}
