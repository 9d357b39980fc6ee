use std::sync::LazyLock;

use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::line_classes::LineClasses;

/// One shell line with the class that it has, and with all of them where there are several.
#[derive(Deserialize)]
struct ClassCase {
    line: String,
    worst: Class,
    all: Option<Vec<Class>>,
}

static CASES: LazyLock<Vec<ClassCase>> = LazyLock::new(|| {
    let lines = include_str!("../../tests/data/class_cases.jsonl").lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
});

fn classes(line: &str) -> LineClasses {
    LineClasses::for_command(line, "/home/ana/project", Some("/home/ana"))
}

fn worst(line: &str) -> Class {
    classes(line).worst_class()
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[test]
fn every_line_of_the_table_has_its_class() {
    assert!(CASES.len() > 200);
    let mismatch = |case: &ClassCase| {
        let classes = classes(&case.line);
        let all: Vec<Class> = classes.iter().collect();
        let right = classes.worst_class() == case.worst && case.all.as_ref().is_none_or(|expected| *expected == all);
        (!right).then(|| format!("{:?} is {}, not {}", case.line, classes.worst_class(), case.worst))
    };
    let wrong: Vec<String> = CASES.iter().filter_map(mismatch).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Ways to have a line run by something else. Each must hold for every line.
const WRAPPINGS: [&str; 20] = [
    "bash -c Q",
    "sh -ec Q",
    "bash -o errexit -c Q",
    "bash -c Q _ a b",
    "eval Q",
    "sudo bash -c Q",
    "env A=b sh -c Q",
    "timeout 5 nice -n 3 sh -c Q",
    "xargs -n 1 sh -c Q",
    "find . -exec sh -c Q \\;",
    "ssh host Q",
    "trap Q EXIT",
    "ls\nL",
    "ls; L",
    "(\nL\n)",
    "{\nL\n}",
    "if true; then\nL\nfi",
    "f() {\nL\n}\nf",
    "echo $(\nL\n)",
    "while read x; do\nL\ndone < f",
];

#[test]
fn no_wrapping_lowers_the_class_of_any_line_of_the_table() {
    let mut wrong = Vec::new();
    for (at, case) in CASES.iter().enumerate() {
        // A quarter of the pairs, so that every line and every wrapping has its turn.
        for wrapping in WRAPPINGS.iter().skip(at % 4).step_by(4) {
            let wrapped = wrapping.replace('Q', &quoted(&case.line)).replace('L', &case.line);
            let wrapped_class = worst(&wrapped);
            if wrapped_class < case.worst {
                wrong.push(format!("{wrapped:?} is {wrapped_class}, but {:?} is {}", case.line, case.worst));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Words before a plain command that have it run.
const PREFIXES: [&str; 14] = [
    "env ",
    "env A=b ",
    "command ",
    "exec ",
    "nohup ",
    "nice -n 5 ",
    "time ",
    "timeout 5 ",
    "setsid ",
    "sudo ",
    "sudo -u bob ",
    "doas ",
    "xargs ",
    "stdbuf -oL ",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_prefix_lowers_the_class_of_a_plain_command(
        command in prop::sample::select(vec![
            "ls", "touch x", "tee x", "rm x", "rm -rf x", "git push -f", "git push origin :x", "git reset --hard", "dd if=a of=b",
            "find . -delete", "sed -i p x", "frobnicate", "shred x", "bash -c 'rm x'", "sh x",
        ]),
        first in prop::sample::select(vec!["", "A=b ", "! ", "A=b C=d "]),
        prefixes in prop::collection::vec(prop::sample::select(PREFIXES.to_vec()), 0..7),
    ) {
        let wrapped = format!("{first}{}{command}", prefixes.concat());
        prop_assert!(worst(&wrapped) >= worst(command), "{wrapped:?} is {}, but {command:?} is {}", worst(&wrapped), worst(command));
    }

    #[test]
    fn what_follows_on_the_next_line_never_lowers_the_class(
        line in r"(ls|rm|git push|-f|curl|x|A=|\$A|~|/| |;|&&|\||&|\n|\{|\}|\(|\)|>|<|\*|if|fi|then|for|in|do|done|\$\(|'|!){0,24}",
        next in prop::sample::select(vec!["ls", "rm x", "git push -f", "dd of=x", "touch x"]),
    ) {
        let longer = format!("{line}\n{next}");
        let parses = |line: &str| !matches!(worst(line), Class::BashDestructive);
        // Within quotes, brackets or a comment the next line is a part of what stands before it.
        let swallowed = line.contains(['\'', '(', '<', '\\', '#']) || !parses(&line);
        prop_assert!(swallowed || worst(&longer) >= worst(&line).max(worst(next)), "{longer:?} is {}", worst(&longer));
    }

    #[test]
    fn any_text_has_a_class(line in r#"([ -~\n]|\$\(|`|<<EOF\n|\$\{|&&|;|\[\[|é|\{a,b\}){0,60}"#) {
        worst(&line);
    }
}
