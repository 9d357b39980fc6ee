//! Programs that run another: what they run, as far as their words tell.

use super::{
    programs::{SHELLS, base_name, is_opaque_wrapper},
    word::{UNKNOWN, Word},
};

/// What a command turns out to run.
#[derive(Debug, PartialEq)]
pub(super) enum Runs {
    /// Itself only.
    Itself,
    /// Another command in its place and nothing else: the wrapper adds nothing. With assignments that it makes.
    Other { assignments: Vec<Word>, argv: Vec<Word> },
    /// Itself, and others beside: all must be covered.
    Beside(Vec<Vec<Word>>),
    /// A text of the shell, in its place.
    Text(String),
    /// Nobody can tell for what; these are possible.
    Anything { why: &'static str, perhaps: Vec<Vec<Word>>, texts: Vec<String> },
}

/// Tells what `argv`, whose first word is literal, runs.
pub(super) fn runs(argv: &[Word]) -> Runs {
    let Some(program) = argv[0].as_literal().map(base_name) else { return Runs::Itself };
    let inner = match program {
        "command" if option(argv, &["-v", "-V"]) => return Runs::Itself,
        "command" | "builtin" => after(argv, &["-p"], &[], 0),
        "exec" => after(argv, &["-c", "-l", "-cl"], &["-a"], 0),
        "nohup" => after(argv, &[], &[], 0),
        "setsid" => after(argv, &["-c", "-f", "-w", "--fork", "--wait", "--ctty"], &[], 0),
        "nice" => after(argv, &[], &["-n", "--adjustment"], 0),
        "ionice" => after(argv, &["-t"], &["-c", "-n"], 0),
        "stdbuf" => after(argv, &[], &["-i", "-o", "-e", "--input", "--output", "--error"], 0),
        "time" => after(argv, &["-p", "-v"], &["-f"], 0),
        "timeout" => after(
            argv,
            &["-v", "--foreground", "--preserve-status", "--verbose"],
            &["-k", "-s", "--kill-after", "--signal"],
            1,
        ),
        "env" => return env(argv),
        "xargs" => return xargs(argv),
        "find" => return find(argv),
        "eval" => return eval(argv),
        "trap" | "alias" => return later(argv),
        name if SHELLS.contains(&name) => return shell(argv),
        name if is_opaque_wrapper(name) => return anything(argv, "what another program runs"),
        _ => return Runs::Itself,
    };
    match inner {
        Some(argv) if argv.is_empty() => Runs::Itself,
        Some(argv) => Runs::Other { assignments: Vec::new(), argv },
        None => anything(argv, "a wrapper with an option that is not known"),
    }
}

/// Whether it is told of programs called `name` what they run.
pub(super) fn is_known(name: &str) -> bool {
    const KNOWN: &str =
        "command builtin exec nohup setsid nice ionice stdbuf time timeout env xargs find eval trap alias";
    KNOWN.split_ascii_whitespace().any(|known| known == name) || is_opaque_wrapper(name)
}

fn option(argv: &[Word], wanted: &[&str]) -> bool {
    argv.get(1).and_then(Word::as_literal).is_some_and(|word| wanted.contains(&word))
}

/// The words behind the options and `operands` operands; none if an option is not known.
fn after(argv: &[Word], flags: &[&str], valued: &[&str], operands: usize) -> Option<Vec<Word>> {
    let mut at = 1;
    while let Some(word) = argv.get(at) {
        let text = word.as_literal()?;
        if text == "--" {
            at += 1;
            break;
        }
        if !text.starts_with('-') || text == "-" {
            break;
        }
        let joined = valued.iter().any(|option| {
            text.strip_prefix(option)
                .is_some_and(|rest| if option.starts_with("--") { rest.starts_with('=') } else { !rest.is_empty() })
        });
        let number = text[1..].bytes().all(|byte| byte.is_ascii_digit()) && valued.contains(&"-n");
        at += if flags.contains(&text) || joined || number {
            1
        } else if valued.contains(&text) {
            2
        } else {
            return None;
        };
    }
    Some(argv.get(at + operands..).unwrap_or_default().to_vec())
}

/// Every tail that begins with a word that may be a program, and every word that may be a text of the shell.
fn anything(argv: &[Word], why: &'static str) -> Runs {
    let starts = |word: &Word| !word.value.starts_with('-') && !word.value.contains('=');
    let tails = (1..argv.len()).filter(|at| starts(&argv[*at])).take(6);
    let texts = argv.iter().skip(1).filter_map(Word::as_literal).filter(|text| text.contains(char::is_whitespace));
    Runs::Anything {
        why,
        perhaps: tails.map(|at| argv[at..].to_vec()).collect(),
        texts: texts.map(str::to_owned).collect(),
    }
}

fn env(argv: &[Word]) -> Runs {
    let mut assignments = Vec::new();
    let mut at = 1;
    while let Some(word) = argv.get(at) {
        match word.as_literal() {
            Some("-i" | "-" | "--ignore-environment" | "-0" | "--null") => at += 1,
            Some("-u" | "--unset") => at += 2,
            Some("--") => {
                at += 1;
                break;
            }
            Some(text) if text.starts_with('-') => {
                // `-S` splits a text into words: the wrapper that slips past lists of programs.
                let Runs::Anything { perhaps, mut texts, .. } = anything(argv, "") else { return Runs::Itself };
                texts.extend(argv.iter().filter_map(Word::as_literal).filter_map(|word| {
                    word.split_once("-S")
                        .or_else(|| word.split_once("--split-string="))
                        .map(|(_, text)| text.to_owned())
                }));
                return Runs::Anything { why: "an option of env", perhaps, texts };
            }
            _ if word.raw.trim_start_matches(['\'', '"']).contains('=') || word.value.contains('=') => {
                assignments.push(word.clone());
                at += 1;
            }
            _ => break,
        }
    }
    match argv.get(at..) {
        Some(rest) if !rest.is_empty() => Runs::Other { assignments, argv: rest.to_vec() },
        Some(_) | None => Runs::Itself,
    }
}

fn xargs(argv: &[Word]) -> Runs {
    const FLAGS: [&str; 10] =
        ["-0", "-r", "-t", "-x", "--null", "--no-run-if-empty", "--verbose", "--exit", "-p", "-0r"];
    const VALUED: [&str; 14] = [
        "-n",
        "-L",
        "-P",
        "-I",
        "-d",
        "-a",
        "-s",
        "-E",
        "--max-args",
        "--max-procs",
        "--max-lines",
        "--delimiter",
        "--arg-file",
        "--replace",
    ];
    let Some(mut inner) = after(argv, &FLAGS, &VALUED, 0) else { return anything(argv, "an option of xargs") };
    if inner.is_empty() {
        return Runs::Itself;
    }
    let replaced = argv.iter().enumerate().find_map(|(at, word)| {
        let text = word.as_literal()?;
        let mark = if text == "-I" {
            argv.get(at + 1)?.as_literal()?
        } else {
            text.strip_prefix("-I").or_else(|| text.strip_prefix("--replace="))?
        };
        Some(mark.to_owned())
    });
    match replaced {
        Some(mark) => inner.iter_mut().for_each(|word| replace(word, &mark, &UNKNOWN.to_string())),
        None => inner.push(Word::unknown()),
    }
    Runs::Other { assignments: Vec::new(), argv: inner }
}

fn replace(word: &mut Word, mark: &str, by: &str) {
    if !mark.is_empty() && word.value.contains(mark) {
        word.value = word.value.replace(mark, by);
        word.expands = true;
    }
}

/// The folders that a `find` begins with.
pub(super) fn starts(argv: &[Word]) -> Vec<String> {
    let words = argv[1..].iter().take_while(|word| !word.value.starts_with(['-', '(', '!']));
    let starts: Vec<String> = words.map(|word| word.value.clone()).collect();
    if starts.is_empty() { vec![".".to_owned()] } else { starts }
}

fn find(argv: &[Word]) -> Runs {
    let mut beside = Vec::new();
    let mut at = 1;
    while let Some(word) = argv.get(at) {
        at += 1;
        if !matches!(word.value.as_str(), "-exec" | "-execdir" | "-ok" | "-okdir") {
            continue;
        }
        let inner: Vec<Word> =
            argv[at..].iter().take_while(|word| !matches!(word.value.as_str(), ";" | "+")).cloned().collect();
        at += inner.len();
        for root in starts(argv) {
            let found = format!("{}/{}", root.trim_end_matches('/'), super::word::GLOB);
            let mut one = inner.clone();
            one.iter_mut().for_each(|word| replace(word, "{}", &found));
            beside.push(one);
        }
    }
    beside.retain(|inner| !inner.is_empty());
    if beside.is_empty() { Runs::Itself } else { Runs::Beside(beside) }
}

fn eval(argv: &[Word]) -> Runs {
    let words: Vec<String> = argv[1..].iter().map(Word::approximate).collect();
    Runs::Anything { why: "eval", perhaps: Vec::new(), texts: vec![words.join(" ")] }
}

/// Texts that the shell keeps to run at another time: those of `trap`, and what stands behind the names of `alias`.
fn later(argv: &[Word]) -> Runs {
    let is_alias = argv[0].as_literal().map(base_name) == Some("alias");
    let value = |text: String| match text.split_once('=').filter(|_| is_alias) {
        Some((_, value)) => value.to_owned(),
        None => text,
    };
    let texts = argv[1..].iter().map(Word::approximate).map(value).collect();
    Runs::Anything { why: "a text that runs later", perhaps: Vec::new(), texts }
}

fn shell(argv: &[Word]) -> Runs {
    for (at, word) in argv.iter().enumerate().skip(1) {
        let Some(text) = word.as_literal() else { return anything(argv, "a shell with options that are not literal") };
        if text.ends_with(['o', 'O']) && text.starts_with(['-', '+']) || matches!(text, "--rcfile" | "--init-file") {
            return anything(argv, "a shell with an option that takes a word");
        }
        let is_short = text.starts_with('-') && !text.starts_with("--");
        if is_short && text.contains('c') {
            let plain = text[1..].chars().all(|c| "ceuxl".contains(c));
            let Some(script) = argv.get(at + 1) else { break };
            return match script.as_literal() {
                Some(script) if plain && argv.len() == at + 2 => Runs::Text(script.to_owned()),
                Some(_) | None => Runs::Anything {
                    why: "a shell whose text or arguments are not plain",
                    perhaps: Vec::new(),
                    texts: vec![script.approximate()],
                },
            };
        }
        if matches!(text, "--version" | "--help") {
            return Runs::Itself;
        }
        if !text.starts_with('-') && !text.starts_with('+') {
            return Runs::Itself;
        }
    }
    Runs::Anything { why: "a shell that reads its commands from elsewhere", perhaps: Vec::new(), texts: Vec::new() }
}
