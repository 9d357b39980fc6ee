//! Programs that run another: what they run, as far as their words tell.

use super::{
    containers, find, posix,
    programs::{SHELLS, base_name, is_opaque_wrapper},
    run_target::{RunTarget, is_open, possible_targets, replace_mark},
    word::{ShellWord, UNKNOWN},
};

/// Tells what `argv`, whose first word is literal, runs.
pub(super) fn unwrap_command(argv: &[ShellWord]) -> RunTarget {
    let Some(program) = argv[0].as_literal().map(base_name) else { return RunTarget::Itself };
    let inner = match program {
        "command" if has_option(argv, &["-v", "-V"]) => return RunTarget::Itself,
        "command" | "builtin" => words_after_options(argv, &["-p"], &[], 0),
        "exec" => words_after_options(argv, &["-c", "-l", "-cl"], &["-a"], 0),
        "nohup" => words_after_options(argv, &[], &[], 0),
        "setsid" => words_after_options(argv, &["-c", "-f", "-w", "--fork", "--wait", "--ctty"], &[], 0),
        "nice" => words_after_options(argv, &[], &["-n", "--adjustment"], 0),
        "ionice" => words_after_options(argv, &["-t"], &["-c", "-n"], 0),
        "stdbuf" => words_after_options(argv, &[], &["-i", "-o", "-e", "--input", "--output", "--error"], 0),
        "time" => words_after_options(argv, &["-p", "-v"], &["-f"], 0),
        "timeout" => words_after_options(
            argv,
            &["-v", "--foreground", "--preserve-status", "--verbose"],
            &["-k", "-s", "--kill-after", "--signal"],
            1,
        ),
        "env" => return unwrap_env(argv),
        "xargs" => return unwrap_xargs(argv),
        "find" => return find::unwrap_find(argv),
        "eval" => return unwrap_eval(argv),
        "trap" | "alias" => return unwrap_deferred(argv),
        name if SHELLS.contains(&name) => return unwrap_shell(argv),
        name if containers::only_look(name, argv) => return RunTarget::Itself,
        name if is_opaque_wrapper(name) => return by_wrapper(name, argv),
        _ => return RunTarget::Itself,
    };
    match inner {
        Some(argv) if argv.is_empty() => RunTarget::Itself,
        Some(argv) => RunTarget::Other { assignments: Vec::new(), argv },
        None => possible_targets(argv, "a wrapper with an option that is not known"),
    }
}

/// Returns the possible targets of a wrapper whose words cannot be told apart.
fn by_wrapper(name: &str, argv: &[ShellWord]) -> RunTarget {
    let mut runs = possible_targets(argv, "what another program runs");
    let reads_text = matches!(name, "su" | "runuser" | "flock" | "script");
    let is_text = |pair: &[ShellWord]| takes_text(&pair[0].value) && is_open(&pair[1]);
    let is_joined =
        |word: &ShellWord| word.value.split_once('=').is_some_and(|(name, _)| takes_text(name)) && is_open(word);
    if let RunTarget::Anything { is_open, texts, .. } = &mut runs {
        if reads_text {
            texts.extend(argv.iter().filter_map(ShellWord::as_literal).filter_map(|word| glued_text(word, 'c')));
        }
        *is_open = reads_text && (argv.windows(2).any(is_text) || argv.iter().any(is_joined));
    }
    runs
}

/// Returns the value that is written into the same word as its option: after the letter of a short one (`-vS"…"`), or after `=`.
pub(super) fn glued_text(word: &str, letter: char) -> Option<String> {
    let (_, text) = match word.strip_prefix("--") {
        Some(long) => long.split_once('=')?,
        None => word.strip_prefix('-')?.split_once(letter)?,
    };
    (!text.is_empty()).then(|| text.to_owned())
}

/// Reports whether the value of an option may be a text for a shell, by the names that such options have.
fn takes_text(option: &str) -> bool {
    let is_short = option.starts_with('-') && !option.starts_with("--") && option.ends_with('c');
    is_short || matches!(option, "--command" | "--session-command")
}

/// Reports whether the targets of programs called `name` are known.
pub(super) fn is_known(name: &str) -> bool {
    const KNOWN: &str =
        "command builtin exec nohup setsid nice ionice stdbuf time timeout env xargs find eval trap alias";
    KNOWN.split_ascii_whitespace().any(|known| known == name) || is_opaque_wrapper(name)
}

fn has_option(argv: &[ShellWord], any_of: &[&str]) -> bool {
    argv.get(1).and_then(ShellWord::as_literal).is_some_and(|word| any_of.contains(&word))
}

/// Returns the words after the options and `operands` operands; none if an option is not known, or one of the words that are passed over
/// may become several, of which the next would be the program.
fn words_after_options(argv: &[ShellWord], flags: &[&str], valued: &[&str], operands: usize) -> Option<Vec<ShellWord>> {
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
    let inner = argv.get(at + operands..).unwrap_or_default();
    let passed = &argv[..argv.len() - inner.len()];
    (!passed.iter().any(|word| word.splits)).then(|| inner.to_vec())
}

fn unwrap_env(argv: &[ShellWord]) -> RunTarget {
    let mut assignments = Vec::new();
    let mut at = 1;
    while let Some(word) = argv.get(at) {
        match word.as_literal() {
            Some("-i" | "-" | "--ignore-environment" | "-0" | "--null") => at += 1,
            Some("-u" | "--unset") if argv.get(at + 1).is_none_or(|name| !name.splits) => at += 2,
            Some("--") => {
                at += 1;
                break;
            }
            Some(text) if text.starts_with('-') => {
                // `-S` splits a text into words: the wrapper that slips past lists of programs.
                let RunTarget::Anything { perhaps, mut texts, is_open, .. } = possible_targets(argv, "") else {
                    return RunTarget::Itself;
                };
                texts.extend(argv.iter().filter_map(ShellWord::as_literal).filter_map(|word| glued_text(word, 'S')));
                return RunTarget::Anything { why: "an option of env", perhaps, texts, is_open };
            }
            _ if word.raw.trim_start_matches(['\'', '"']).contains('=') || word.value.contains('=') => {
                if word.splits {
                    return possible_targets(argv, "an assignment of env that may be several words");
                }
                assignments.push(word.clone());
                at += 1;
            }
            _ => break,
        }
    }
    match argv.get(at..) {
        Some(rest) if !rest.is_empty() => RunTarget::Other { assignments, argv: rest.to_vec() },
        Some(_) | None => RunTarget::Itself,
    }
}

fn unwrap_xargs(argv: &[ShellWord]) -> RunTarget {
    const FLAGS: [&str; 11] =
        ["-0", "-r", "-t", "-x", "--null", "--no-run-if-empty", "--verbose", "--exit", "-p", "-0r", "--interactive"];
    // `--replace`, `--max-lines` and `--eof` take a value after `=` or none, never the next word.
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
        "--max-chars",
        "--process-slot-var",
        "--delimiter",
        "--arg-file",
    ];
    const JOINED: [&str; 3] = ["--replace", "--max-lines", "--eof"];
    let argv = &ungroup_flags(argv);
    let is_joined = |word: &&ShellWord| {
        let text = word.as_literal().unwrap_or_default();
        JOINED
            .iter()
            .any(|option| text.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('=')))
    };
    let joined: Vec<&str> = argv.iter().filter(is_joined).filter_map(ShellWord::as_literal).collect();
    let flags: Vec<&str> = FLAGS.iter().copied().chain(joined).collect();
    let Some(mut inner) = words_after_options(argv, &flags, &VALUED, 0) else {
        return possible_targets(argv, "an option of xargs");
    };
    if inner.is_empty() {
        return RunTarget::Itself;
    }
    // Only what stands before the command is an option of xargs.
    let options = &argv[..argv.len() - inner.len()];
    let mut marks = options.iter().enumerate().filter_map(|(at, word)| {
        let text = word.as_literal()?;
        let mark = match text {
            "-I" => argv.get(at + 1)?.as_literal()?,
            "--replace" => "{}",
            _ => text.strip_prefix("-I").or_else(|| text.strip_prefix("--replace="))?,
        };
        Some(mark.to_owned())
    });
    let Some(mark) = marks.next() else {
        inner.push(ShellWord::unknown_word());
        return RunTarget::Other { assignments: Vec::new(), argv: inner };
    };
    let counts = |word: &ShellWord| ["-n", "-L", "--max-"].iter().any(|option| word.value.starts_with(option));
    let appended = [inner.as_slice(), &[ShellWord::unknown_word()]].concat();
    inner.iter_mut().for_each(|word| replace_mark(word, &mark, &UNKNOWN.to_string()));
    // Some take the last of them for what counts, and some the mark.
    if marks.next().is_some() || options.iter().any(counts) {
        let RunTarget::Anything { perhaps, texts, is_open, .. } = possible_targets(argv, "") else {
            return RunTarget::Itself;
        };
        let perhaps = [vec![inner, appended], perhaps].concat();
        return RunTarget::Anything { why: "options of xargs that go against each other", perhaps, texts, is_open };
    }
    RunTarget::Other { assignments: Vec::new(), argv: inner }
}

/// Returns `argv` of `xargs` with each letter of its groups by itself: `-0rn1` is `-0 -r -n1`.
fn ungroup_flags(argv: &[ShellWord]) -> Vec<ShellWord> {
    let mut words: Vec<ShellWord> = argv.iter().take(1).cloned().collect();
    let mut at = 1;
    while let Some(text) = argv.get(at).and_then(ShellWord::as_literal) {
        let letters = text.strip_prefix('-').filter(|letters| !letters.is_empty() && !letters.starts_with('-'));
        let Some(letters) = letters else { break };
        let flags = letters.len() - letters.trim_start_matches(['0', 'r', 't', 'x', 'p']).len();
        let (flags, rest) = letters.split_at(flags);
        match rest {
            "" => {}
            "i" | "l" => {}
            _ if rest.starts_with(['n', 'L', 'P', 'I', 'd', 'a', 's', 'E']) => {}
            _ => break,
        }
        words.extend(flags.chars().map(|flag| ShellWord::from_text(&format!("-{flag}"))));
        at += 1;
        match rest {
            "" => {}
            "i" => words.extend(["-I", "{}"].map(ShellWord::from_text)),
            "l" => words.extend(["-L", "1"].map(ShellWord::from_text)),
            _ => {
                words.push(ShellWord::from_text(&format!("-{rest}")));
                let value = argv.get(at).filter(|_| rest.len() == 1);
                at += usize::from(value.is_some());
                words.extend(value.cloned());
            }
        }
    }
    words.extend(argv.get(at..).unwrap_or_default().iter().cloned());
    words
}

fn unwrap_eval(argv: &[ShellWord]) -> RunTarget {
    let words: Vec<String> = argv[1..].iter().map(ShellWord::approximate_text).collect();
    let is_open = argv[1..].iter().any(is_open);
    RunTarget::Anything { why: "eval", perhaps: Vec::new(), texts: vec![words.join(" ")], is_open }
}

/// Returns texts that the shell keeps to run at another time: those of `trap`, and those after the names of `alias`.
fn unwrap_deferred(argv: &[ShellWord]) -> RunTarget {
    let is_alias = argv[0].as_literal().map(base_name) == Some("alias");
    let value = |text: String| match text.split_once('=').filter(|_| is_alias) {
        Some((_, value)) => value.to_owned(),
        None => text,
    };
    let texts = argv[1..].iter().map(ShellWord::approximate_text).map(value).collect();
    let is_open = argv[1..].iter().any(is_open);
    RunTarget::Anything { why: "a text that runs later", perhaps: Vec::new(), texts, is_open }
}

/// Returns the position of the text of `-c`: after all options. None if one of them may take it for its value; and whether only a `--`
/// stands between.
fn script_at(argv: &[ShellWord], mut at: usize, mut plain: bool) -> Option<(usize, bool)> {
    while let Some(text) = argv.get(at).and_then(ShellWord::as_literal) {
        match text {
            "--" => return Some((at + 1, plain)),
            _ if !text.starts_with(['-', '+']) || text.len() == 1 => break,
            _ if text.ends_with(['o', 'O']) => return None,
            _ => (at, plain) = (at + 1, false),
        }
    }
    Some((at, plain))
}

fn unwrap_shell(argv: &[ShellWord]) -> RunTarget {
    for (at, word) in argv.iter().enumerate().skip(1) {
        let Some(text) = word.as_literal() else {
            return possible_targets(argv, "a shell with options that are not literal");
        };
        if text.ends_with(['o', 'O']) && text.starts_with(['-', '+']) || matches!(text, "--rcfile" | "--init-file") {
            return possible_targets(argv, "a shell with an option that takes a word");
        }
        let is_short = text.starts_with('-') && !text.starts_with("--");
        if is_short && text.contains('c') {
            let plain = text[1..].chars().all(|c| "ceuxl".contains(c));
            let Some((at, plain)) = script_at(argv, at + 1, plain) else {
                return possible_targets(argv, "a shell with an option that takes a word");
            };
            let Some(script) = argv.get(at) else { break };
            // The text may use them in any way.
            let rest = || possible_targets(&argv[at..], "").into_commands();
            let is_posix = matches!(argv[0].as_literal().map(base_name), Some("sh" | "dash"));
            return match script.as_literal() {
                Some(script) if is_posix && !posix::reads_alike(script) => RunTarget::Anything {
                    why: "a text that sh and bash read in different ways",
                    perhaps: rest(),
                    texts: vec![script.to_owned(), posix::as_posix(script)],
                    is_open: false,
                },
                Some(script) if plain && argv.len() == at + 1 => RunTarget::Text(script.to_owned()),
                Some(_) | None => RunTarget::Anything {
                    why: "a shell whose text or arguments are not plain",
                    perhaps: rest(),
                    texts: vec![script.approximate_text()],
                    is_open: is_open(script),
                },
            };
        }
        if matches!(text, "--version" | "--help") {
            return RunTarget::Itself;
        }
        if !text.starts_with('-') && !text.starts_with('+') {
            return RunTarget::Itself;
        }
    }
    let why = "a shell that reads its commands from elsewhere";
    RunTarget::Anything { why, perhaps: Vec::new(), texts: Vec::new(), is_open: false }
}
