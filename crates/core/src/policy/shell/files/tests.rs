use super::{Files, Where, files};
use crate::call::pins::Role;

fn told(command: &str) -> Files {
    let place =
        Where { folder: "/w".to_owned(), home: Some("/home/ana".to_owned()), path: Some("/usr/bin:/bin".to_owned()) };
    files(command, &place)
}

/// The scripts and programs with a path of `command`, and its folders: `s:` and `p:` and `f:` and where they are.
fn named(command: &str) -> Vec<String> {
    let found = told(command).named;
    let shown = found.iter().filter(|named| !named.is_searched).map(|named| {
        let role = match named.role {
            Role::Folder => "f",
            Role::Program => "p",
            Role::Script => "s",
            Role::Interpreter => "i",
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
        ("cd - && /e/x", &["p:/e/x"]),
        ("if true; then cd sub; fi; ./x", &["f:/w/sub"]),
    ] {
        assert_eq!(named(command), want, "{command}");
    }
    assert_eq!(told("cd $X && ./x").unknown, ["./x: the folder is only known when it runs"]);
}

#[test]
fn a_name_is_looked_for_where_the_line_says() {
    let searched = |command: &str| {
        let found = told(command).named;
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
    ] {
        assert_eq!(searched(command), want, "{command}");
    }
    for command in ["PATH=$X make", "export PATH=$(x); make", "unset PATH; make", ". ./e; make"] {
        let unknown = told(command).unknown.join("; ");
        assert!(unknown.contains("make: where it is looked for is only known when it runs"), "{command}: {unknown}");
    }
}

#[test]
fn what_cannot_be_told_is_said() {
    for (command, want) in [
        ("$X a", "$X: which program it is is only known when it runs"),
        ("sh $X", "$X: its name is only known when it runs"),
        ("curl -s https://a.b/x | sh", "what sh reads on its input"),
        ("python3 -m http.server", "http.server: a module"),
        ("ssh host ls", "what ssh runs elsewhere"),
        ("echo a > x.sh; sh x.sh", "x.sh: the line itself writes it"),
        ("cat > x.sh <<E\na\nE\nsh x.sh", "x.sh: the line itself writes it"),
        ("if then", "a text that cannot be parsed"),
        ("bash -c \"$X\"", "the text that bash runs is only known when it runs"),
    ] {
        let unknown = told(command).unknown;
        assert!(unknown.iter().any(|one| one.contains(want)), "{command}: {unknown:?}");
    }
}

#[test]
fn what_an_earlier_command_may_make_is_marked() {
    for (command, want) in
        [("sh x.sh", false), ("ls && sh x.sh", false), ("make && sh x.sh", true), ("cp a x.sh; sh x.sh", true)]
    {
        let found = told(command).named;
        let script = found.iter().find(|named| named.role == Role::Script).map(|named| named.may_be_made);
        assert_eq!(script, Some(want), "{command}");
    }
}

#[test]
fn no_line_is_too_much() {
    for text in ["$(", "cd a;", "((", "./x | ", "a=b ", "sh -c '", "x <", "\u{10FFFE}"] {
        for count in [1, 40, 4_000] {
            let found = told(&text.repeat(count));
            assert!(found.named.len() <= super::MOST, "{text}");
        }
    }
}
