//! The arguments of interpreters and wrappers: which of them is a file that is run.

use crate::policy::shell::word::Word;

/// What an interpreter runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reads {
    /// Nothing.
    Nothing,
    /// This text.
    Text(Word),
    /// This file.
    File(Word),
    /// A module, which it looks for itself.
    Module(String),
    /// What it is given on its input.
    Input,
    /// That depends on a word that is only known when it runs.
    Unclear(String),
}

/// What the words of an interpreter say.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) reads: Reads,
    /// Files that it runs beside.
    pub(super) files: Vec<Word>,
}

impl Found {
    fn only(reads: Reads) -> Self {
        Self { reads, files: Vec::new() }
    }
}

/// How an interpreter takes its options.
pub(super) struct Family {
    /// Options with a text of its language.
    texts: &'static [&'static str],
    /// Options with a value that is no file that runs.
    valued: &'static [&'static str],
    /// Options with a file that it runs beside, or before.
    files: &'static [&'static str],
    /// Options with a module.
    modules: &'static [&'static str],
    /// Words before the file.
    commands: &'static [&'static str],
    /// Whether a plain operand is data where a file was given by an option.
    is_filter: bool,
}

const PLAIN: Family = Family { texts: &[], valued: &[], files: &[], modules: &[], commands: &[], is_filter: false };

/// How the interpreter with this base name takes its options; none if it is none that is known.
pub(super) fn family(name: &str) -> Option<Family> {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    Some(match stem {
        "python" | "pypy" | "ipython" => {
            Family { texts: &["-c"], valued: &["-W", "-X", "-Q"], modules: &["-m"], ..PLAIN }
        }
        "node" | "nodejs" => Family {
            texts: &["-e", "--eval", "-p", "--print", "-pe"],
            valued: &["-C", "--conditions", "--env-file", "--loader", "--experimental-loader"],
            files: &["-r", "--require", "--import"],
            ..PLAIN
        },
        "deno" | "bun" | "tsx" | "ts-node" => {
            Family { texts: &["-e", "--eval"], files: &["-r", "--preload"], commands: &["run", "test"], ..PLAIN }
        }
        "perl" => Family { texts: &["-e", "-E"], valued: &["-I"], ..PLAIN },
        "ruby" => Family { texts: &["-e"], valued: &["-I", "-C", "-E"], files: &["-r"], ..PLAIN },
        "php" => Family { texts: &["-r"], valued: &["-d", "-c"], files: &["-f"], ..PLAIN },
        "lua" | "luajit" => Family { texts: &["-e"], modules: &["-l"], ..PLAIN },
        "Rscript" | "R" => Family { texts: &["-e"], files: &["-f"], ..PLAIN },
        "awk" | "gawk" | "mawk" | "nawk" => {
            Family { valued: &["-F", "-v"], files: &["-f", "--file"], is_filter: true, ..PLAIN }
        }
        "sed" | "gsed" => Family { texts: &["-e"], files: &["-f", "--file"], is_filter: true, ..PLAIN },
        "tclsh" | "wish" | "julia" | "groovy" | "scala" | "guile" | "escript" => Family { texts: &["-e"], ..PLAIN },
        _ => return None,
    })
}

/// What a shell runs.
pub(super) fn of_shell(argv: &[Word]) -> Found {
    let (mut at, mut files) = (1, Vec::new());
    let (mut takes_text, mut reads_input) = (false, false);
    while let Some(word) = argv.get(at) {
        let Some(text) = word.as_literal() else {
            // What stands there may be an option or the script.
            let is_operand = !word.value.starts_with('-') && !word.value.starts_with('+');
            if is_operand {
                break;
            }
            return Found { reads: Reads::Unclear(word.raw.clone()), files };
        };
        at += 1;
        match text {
            "--" | "-" => break,
            "--rcfile" | "--init-file" => {
                files.extend(argv.get(at).cloned());
                at += 1;
            }
            "--version" | "--help" => return Found::only(Reads::Nothing),
            _ if text.starts_with("--") => {}
            _ if text.len() > 1 && text.starts_with(['-', '+']) => {
                let letters = &text[1..];
                takes_text |= text.starts_with('-') && letters.contains('c');
                reads_input |= text.starts_with('-') && letters.contains('s');
                // Each of these takes a word, whatever it is combined with.
                at += letters.chars().filter(|letter| matches!(letter, 'o' | 'O')).count();
            }
            _ => {
                at -= 1;
                break;
            }
        }
    }
    let reads = match argv.get(at) {
        Some(word) if takes_text => Reads::Text(word.clone()),
        None if takes_text => Reads::Nothing,
        Some(word) if !reads_input => Reads::File(word.clone()),
        Some(_) | None => Reads::Input,
    };
    Found { reads, files }
}

/// What an interpreter of another language runs.
pub(super) fn of_interpreter(name: &str, argv: &[Word]) -> Found {
    let Some(family) = family(name) else { return Found::only(Reads::Nothing) };
    let (mut at, mut files, mut has_text) = (1, Vec::new(), false);
    while let Some(word) = argv.get(at) {
        let Some(text) = word.as_literal().filter(|text| text.starts_with('-') && text.len() > 1) else {
            if word.value.starts_with('-') && word.as_literal().is_none() {
                return Found { reads: Reads::Unclear(word.raw.clone()), files };
            }
            break;
        };
        at += 1;
        if text == "--" {
            break;
        }
        let (option, joined) = split(text, &family);
        let mut value = || {
            let given =
                joined.map(|joined| Word { raw: joined.to_owned(), value: joined.to_owned(), ..Word::default() });
            given.or_else(|| {
                at += 1;
                argv.get(at - 1).cloned()
            })
        };
        if family.texts.contains(&option) {
            value();
            has_text = true;
            // Behind the text of python and node nothing is an option.
            if !family.is_filter && !matches!(name, "perl" | "ruby") {
                return Found { reads: Reads::Nothing, files };
            }
        } else if family.modules.contains(&option) {
            let module = value().map(|word| word.raw).unwrap_or_default();
            return Found { reads: Reads::Module(module), files };
        } else if family.files.contains(&option) {
            files.extend(value());
            has_text |= family.is_filter || option == "-f";
        } else if family.valued.contains(&option) {
            value();
        }
    }
    if argv.get(at).and_then(Word::as_literal).is_some_and(|word| family.commands.contains(&word)) {
        at += 1;
        while argv.get(at).is_some_and(|word| word.value.starts_with('-')) {
            at += 1;
        }
    }
    let reads = match argv.get(at) {
        _ if has_text || family.is_filter => Reads::Nothing,
        Some(word) => Reads::File(word.clone()),
        None => Reads::Input,
    };
    Found { reads, files }
}

/// An option and what is joined to it: `-Wdefault`, `--file=x`, and `-ne` for `-n -e`.
fn split<'t>(text: &'t str, family: &Family) -> (&'t str, Option<&'t str>) {
    if text.starts_with("--") {
        return text.split_once('=').map_or((text, None), |(option, value)| (option, Some(value)));
    }
    let known = |option: &str| {
        [family.texts, family.valued, family.files, family.modules].iter().any(|list| list.contains(&option))
    };
    if known(text) {
        return (text, None);
    }
    let takes = |at: &usize| text.is_char_boundary(at + 1) && known(&format!("-{}", &text[*at..=*at]));
    let Some(at) = (1..text.len()).filter(|at| text.is_char_boundary(*at)).find(takes) else { return (text, None) };
    let option = [family.texts, family.valued, family.files, family.modules]
        .concat()
        .into_iter()
        .find(|option| option[1..] == text[at..=at])
        .unwrap_or(text);
    let rest = &text[at + 1..];
    (option, (!rest.is_empty()).then_some(rest))
}

/// Where the words begin that a wrapper runs as they stand, for wrappers whose options take words of their own. None if it is
/// none of these.
pub(super) fn wraps(name: &str, argv: &[Word]) -> Option<usize> {
    let (valued, operands): (&[&str], usize) = match name {
        "sudo" => {
            (&["-u", "-g", "-h", "-p", "-C", "-r", "-t", "-T", "-U", "-D", "-R", "--user", "--group", "--chdir"], 0)
        }
        "doas" => (&["-u", "-C"], 0),
        "busybox" | "toybox" | "fakeroot" | "unbuffer" | "torsocks" | "proxychains" | "rlwrap" => (&[], 0),
        "watch" => (&["-n", "--interval"], 0),
        "strace" | "ltrace" => (&["-e", "-o", "-p", "-s", "-u", "-P"], 0),
        "taskset" | "chrt" => (&["-p"], 1),
        "setarch" | "flock" => (&["-w", "-E", "--timeout"], 1),
        _ => return None,
    };
    let mut at = 1;
    while let Some(word) = argv.get(at) {
        match word.value.as_str() {
            "--" => {
                at += 1;
                break;
            }
            text if valued.contains(&text) => at += 2,
            text if text.starts_with('-') && text.len() > 1 => at += 1,
            // Variables stand before what sudo runs.
            text if text.contains('=') && matches!(name, "sudo" | "doas") => at += 1,
            _ => break,
        }
    }
    (argv.len() > at + operands).then_some(at + operands)
}

/// Whether a wrapper looks for programs in places of its own.
pub(super) fn has_own_path(name: &str) -> bool {
    matches!(name, "sudo" | "doas")
}
