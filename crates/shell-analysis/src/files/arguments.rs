//! The arguments of interpreters and wrappers: which of them is a file that is run.

use crate::word::ShellWord;

/// Source of the code that an interpreter runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum InterpreterSource {
    /// Nothing.
    Nothing,
    /// This text.
    Text(ShellWord),
    /// This file.
    File(ShellWord),
    /// A module, which it looks for itself.
    Module(String),
    /// The text of its standard input.
    Input,
    /// That depends on a word that is only known when it runs.
    Unclear(String),
}

/// Parsed words of an interpreter.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct InterpreterArgs {
    pub(super) reads: InterpreterSource,
    /// Files that it runs in addition.
    pub(super) files: Vec<ShellWord>,
    /// Files that it may run.
    pub(super) perhaps: Vec<ShellWord>,
    /// Modules that it loads in addition, which it looks up itself.
    pub(super) modules: Vec<String>,
    /// Possible endings of a file whose name is written without.
    pub(super) endings: &'static [&'static str],
}

impl InterpreterArgs {
    fn from_source(reads: InterpreterSource) -> Self {
        Self { reads, files: Vec::new(), perhaps: Vec::new(), modules: Vec::new(), endings: &[] }
    }
}

/// Syntax of an interpreter's options.
pub(super) struct OptionStyle {
    /// Options with a text of its language.
    texts: &'static [&'static str],
    /// Options with a value that is no file that runs.
    valued: &'static [&'static str],
    /// Options with a file that it runs in addition, or before.
    files: &'static [&'static str],
    /// Options with a module that is loaded before; a file where it is written as a path.
    required: &'static [&'static str],
    /// Letters after which the rest of a word is a value.
    rest: &'static str,
    /// Possible endings of a file whose name is written without.
    endings: &'static [&'static str],
    /// True if a plain word may be a command of its own.
    has_commands: bool,
    /// Options with a module.
    modules: &'static [&'static str],
    /// Words before the file.
    commands: &'static [&'static str],
    /// True if a plain operand is data if a file was given by an option.
    is_filter: bool,
}

const PLAIN: OptionStyle = OptionStyle {
    texts: &[],
    valued: &[],
    files: &[],
    required: &[],
    rest: "",
    endings: &[],
    has_commands: false,
    modules: &[],
    commands: &[],
    is_filter: false,
};

/// Endings that `node` and similar programs append to a name.
const SCRIPTS: &[&str] = &[".js", ".cjs", ".mjs", ".ts", ".cts", ".mts", ".tsx", ".json", ".node"];

/// Returns the syntax of the options of the interpreter with this base name; None for an unknown one.
pub(super) fn option_style(name: &str) -> Option<OptionStyle> {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    Some(match stem {
        "python" | "pypy" | "ipython" => OptionStyle {
            texts: &["-c"],
            valued: &["-W", "-X", "-Q", "--check-hash-based-pycs"],
            modules: &["-m"],
            ..PLAIN
        },
        "node" | "nodejs" => OptionStyle {
            texts: &["-e", "--eval", "-p", "--print", "-pe"],
            valued: &["-C", "--conditions", "--env-file", "--title", "--watch-path"],
            required: &["-r", "--require", "--import", "--loader", "--experimental-loader"],
            modules: &["--run", "--test"],
            endings: SCRIPTS,
            ..PLAIN
        },
        "tsx" | "ts-node" => OptionStyle {
            texts: &["-e", "--eval"],
            valued: &["-P", "--project", "--tsconfig"],
            required: &["-r", "--require", "--import"],
            endings: SCRIPTS,
            ..PLAIN
        },
        "deno" | "bun" => OptionStyle {
            texts: &["-e", "--eval"],
            required: &["-r", "--preload"],
            commands: &["run", "test"],
            endings: SCRIPTS,
            has_commands: true,
            ..PLAIN
        },
        "perl" => OptionStyle { texts: &["-e", "-E"], valued: &["-I"], rest: "mMiFDxV", ..PLAIN },
        "ruby" => OptionStyle {
            texts: &["-e"],
            valued: &["-I", "-C", "-E"],
            required: &["-r"],
            rest: "WKiFxXT",
            endings: &[".rb"],
            ..PLAIN
        },
        "java" => OptionStyle {
            valued: &["-cp", "-classpath", "--class-path", "-p", "--module-path"],
            files: &["-jar"],
            modules: &["-m", "--module"],
            rest: "XDavde",
            has_commands: true,
            ..PLAIN
        },
        "php" => OptionStyle { texts: &["-r"], valued: &["-d", "-c"], files: &["-f"], ..PLAIN },
        "lua" | "luajit" => OptionStyle { texts: &["-e"], modules: &["-l"], ..PLAIN },
        "Rscript" | "R" => OptionStyle { texts: &["-e"], files: &["-f", "--file"], ..PLAIN },
        "awk" | "gawk" | "mawk" | "nawk" => {
            OptionStyle { valued: &["-F", "-v"], files: &["-f", "--file"], is_filter: true, ..PLAIN }
        }
        "sed" | "gsed" => OptionStyle { texts: &["-e"], files: &["-f", "--file"], is_filter: true, ..PLAIN },
        "tclsh" | "wish" | "julia" | "groovy" | "scala" | "guile" | "escript" => {
            OptionStyle { texts: &["-e"], ..PLAIN }
        }
        _ => return None,
    })
}

/// Returns the sources that a shell runs.
pub(super) fn of_shell(argv: &[ShellWord]) -> InterpreterArgs {
    let (mut at, mut files) = (1, Vec::new());
    let found = |reads, files| InterpreterArgs { files, ..InterpreterArgs::from_source(reads) };
    let (mut takes_text, mut reads_input) = (false, false);
    while let Some(word) = argv.get(at) {
        let Some(text) = word.as_literal() else {
            // The word may be an option or the script.
            let is_operand = !word.value.starts_with('-') && !word.value.starts_with('+');
            if is_operand {
                break;
            }
            return found(InterpreterSource::Unclear(word.raw.clone()), files);
        };
        at += 1;
        match text {
            "--" | "-" => break,
            "--rcfile" | "--init-file" => {
                files.extend(argv.get(at).cloned());
                at += 1;
            }
            "--version" | "--help" => return InterpreterArgs::from_source(InterpreterSource::Nothing),
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
        Some(word) if takes_text => InterpreterSource::Text(word.clone()),
        None if takes_text => InterpreterSource::Nothing,
        Some(word) if !reads_input => InterpreterSource::File(word.clone()),
        Some(_) | None => InterpreterSource::Input,
    };
    found(reads, files)
}

/// Returns the sources that an interpreter of another language runs.
pub(super) fn of_interpreter(name: &str, argv: &[ShellWord]) -> InterpreterArgs {
    let Some(family) = option_style(name) else { return InterpreterArgs::from_source(InterpreterSource::Nothing) };
    let mut found =
        InterpreterArgs { endings: family.endings, ..InterpreterArgs::from_source(InterpreterSource::Nothing) };
    let (mut at, mut has_text, mut is_strange) = (1, false, false);
    while let Some(word) = argv.get(at) {
        let Some(text) = word.as_literal().filter(|text| text.starts_with('-') && text.len() > 1) else {
            if word.value.starts_with('-') && word.as_literal().is_none() {
                found.reads = InterpreterSource::Unclear(word.raw.clone());
                return found;
            }
            break;
        };
        at += 1;
        is_strange = false;
        if text == "--" {
            break;
        }
        let (option, joined) = split_option(text, &family);
        let mut value = || {
            let given = joined.map(|joined| ShellWord {
                raw: joined.to_owned(),
                value: joined.to_owned(),
                ..ShellWord::default()
            });
            given.or_else(|| {
                at += 1;
                argv.get(at - 1).cloned()
            })
        };
        if family.texts.contains(&option) {
            value();
            has_text = true;
            // After the text of python and node there are no options.
            if !family.is_filter && !matches!(name, "perl" | "ruby") {
                return found;
            }
        } else if family.modules.contains(&option) {
            let module = value().map_or_else(|| option.to_owned(), |word| word.raw);
            found.reads = InterpreterSource::Module(module);
            return found;
        } else if family.files.contains(&option) {
            found.files.extend(value());
            has_text |= family.is_filter || matches!(option, "-f" | "-jar");
        } else if family.required.contains(&option) {
            match value() {
                Some(word) if word.as_literal().is_some_and(|name| !name.starts_with(['.', '/'])) => {
                    found.modules.push(word.raw);
                }
                word => found.files.extend(word),
            }
        } else if family.valued.contains(&option) {
            value();
        } else {
            is_strange = option.starts_with("--") && joined.is_none() && !option.contains('=');
        }
    }
    let mut is_command = family.has_commands;
    if argv.get(at).and_then(ShellWord::as_literal).is_some_and(|word| family.commands.contains(&word)) {
        at += 1;
        while argv.get(at).is_some_and(|word| word.value.starts_with('-')) {
            at += 1;
        }
    }
    is_command &= argv.get(at).and_then(ShellWord::as_literal).is_some_and(|word| !word.contains(['/', '.']));
    if is_strange && !has_text && !family.is_filter {
        // The word after an unknown option may be its value.
        found.perhaps.extend(argv.get(at + 1).cloned());
    }
    found.reads = match argv.get(at) {
        _ if has_text || family.is_filter => InterpreterSource::Nothing,
        Some(word) if is_command => {
            found.perhaps.push(word.clone());
            InterpreterSource::Module(word.raw.clone())
        }
        Some(word) => InterpreterSource::File(word.clone()),
        None => InterpreterSource::Input,
    };
    found
}

/// Returns an option and what is joined to it: `-Wdefault`, `--file=x`, and `-ne` for `-n -e`.
fn split_option<'t>(text: &'t str, family: &OptionStyle) -> (&'t str, Option<&'t str>) {
    if text.starts_with("--") {
        return text.split_once('=').map_or((text, None), |(option, value)| (option, Some(value)));
    }
    let lists = [family.texts, family.valued, family.files, family.required, family.modules];
    let known = |option: &str| lists.iter().find_map(|list| list.iter().find(|known| **known == option).copied());
    if known(text).is_some() {
        return (text, None);
    }
    for (at, letter) in text.char_indices().skip(1) {
        if family.rest.contains(letter) {
            break;
        }
        let rest = &text[at + letter.len_utf8()..];
        if let Some(option) = known(&format!("-{letter}")) {
            return (option, (!rest.is_empty()).then_some(rest));
        }
    }
    (text, None)
}

/// Returns the position of the first word that a wrapper runs as it stands, for wrappers whose options take words of their own. None if it
/// is none of these.
pub(super) fn wrapped_start(name: &str, argv: &[ShellWord]) -> Option<usize> {
    let (valued, operands): (&[&str], usize) = match name {
        "sudo" => {
            (&["-u", "-g", "-h", "-p", "-C", "-r", "-t", "-T", "-U", "-D", "-R", "--user", "--group", "--chdir"], 0)
        }
        "doas" => (&["-u", "-C"], 0),
        "busybox" | "toybox" | "fakeroot" | "unbuffer" | "torsocks" | "proxychains" | "rlwrap" => (&[], 0),
        "watch" => (&["-n", "--interval"], 0),
        "strace" | "ltrace" => (&["-e", "-o", "-p", "-s", "-u", "-P"], 0),
        "taskset" | "chrt" => (&["-p"], 1),
        // It hands a program to itself.
        name if name.starts_with("ld-linux") || name.starts_with("ld-musl") => {
            (&["--library-path", "--preload", "--audit", "--argv0", "--inhibit-rpath"], 0)
        }
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
    at += operands;
    while name == "setarch" && argv.get(at).is_some_and(|word| word.value.starts_with('-')) {
        at += 1;
    }
    (argv.len() > at).then_some(at)
}

/// Reports whether a wrapper looks programs up in places of its own.
pub(super) fn has_own_path(name: &str) -> bool {
    matches!(name, "sudo" | "doas")
}
