//! Programs that run others, beyond those that rules on their own name cover: for deny rules and the floor.
//!
//! It must not decide what is covered: a rule on `npx eslint` covers that line, and one that denies `eslint` denies it.

use super::{
    classes, git, options,
    programs::{self, base_name},
    run_target::{self, GivenText, MOST_TAILS, PossibleCommands, argument_commands, is_open, replace_mark},
    unwrap::{self, glued_text},
    word::{ShellWord, UNKNOWN},
};

/// Commands that a command runs, as far as its words show.
#[derive(Debug, Default, PartialEq)]
pub(super) struct NestedCommands {
    /// Words that may be a command.
    pub(super) commands: Vec<Vec<ShellWord>>,
    /// Texts that a shell may read.
    pub(super) texts: Vec<String>,
    /// True if a text that a shell surely reads has inserted words that are only known when it runs.
    pub(super) is_open: bool,
}

/// Shells whose text this grammar does not read.
const OTHER_SHELLS: &str = "zsh ksh mksh oksh lksh ash posh yash fish csh tcsh osh ysh";

/// Programs that run the words after their options.
const RUNNERS: &str = "npx bunx uvx valgrind catchsegv caffeinate chronic linux32 linux64 x86_64 i386 i486 i586 i686 uname26 choom \
    uclampset ssh-agent gpg-agent systemd-cat systemd-inhibit dbus-launch tini aa-exec dumb-init catatonit \
    eatmydata softlimit pgrphack fghack cpulimit cgexec trickle tsocks proxychains4 wine with-contenv";

/// Programs that run the words after their options and one more word, such as a user or a file.
const RUNNERS_BEHIND_OPERAND: &str = "pipx coresched gosu su-exec runcon faketime setlock envdir envuidgid setuidgid s6-setuidgid \
    argv0 dotenv";

/// Beginnings of the names of the programs that load others.
const LOADERS: [&str; 5] = ["ld-linux", "ld-musl", "ld.so", "ld64.so", "ld-2."];

/// Programs that run the words after one of theirs, each with the number of operands in between.
const RUNNERS_BY_WORD: [(&str, &[&str], usize); 22] = [
    ("cmake", &["-E"], 1),
    ("uv", &["run"], 0),
    ("poetry", &["run"], 0),
    ("pipenv", &["run"], 0),
    ("pdm", &["run"], 0),
    ("rye", &["run"], 0),
    ("hatch", &["run"], 1),
    ("conda", &["run"], 0),
    ("bundle", &["exec"], 0),
    // Its words may be cut short.
    ("npm", &["exec", "exe", "ex", "x", "explore"], 0),
    ("pnpm", &["exec", "dlx"], 0),
    ("yarn", &["exec", "dlx"], 0),
    ("perf", &["stat", "record"], 0),
    // Its words may be cut short.
    ("ip", &["exec", "exe", "ex", "e"], 1),
    ("mise", &["exec", "x"], 1),
    ("asdf", &["exec"], 0),
    ("rbenv", &["exec"], 0),
    ("pyenv", &["exec"], 0),
    ("nodenv", &["exec"], 0),
    ("rustup", &["run"], 1),
    ("mamba", &["run"], 0),
    ("micromamba", &["run"], 0),
];

/// Reads what the arguments of a runner hand on.
type RunnerForm = fn(&[ShellWord]) -> NestedCommands;

/// Programs with a form of their own, each with the function that finds what it runs.
const RUNNERS_BY_FORM: [(&str, RunnerForm); 4] = [
    ("parallel", parallel_commands),
    ("start-stop-daemon", started_commands),
    ("hyperfine", argument_texts),
    ("sg", argument_texts),
];

/// Options of these that have no value.
const FLAGS: &str = "-- -y --yes --no --no-install -q --quiet --silent --offline --verbose --no-sync --frozen --locked";

/// Reports whether `program` reads commands on its input, so that its written input is analysed.
pub(super) fn reads_commands(program: &str) -> bool {
    is_listed(OTHER_SHELLS, program)
        || matches!(program, "ssh" | "sudo" | "doas" | "su" | "runuser" | "at" | "batch" | "crontab" | "sg")
}

/// What becomes of the arguments of a program, beyond what is known to be run.
#[derive(Clone, Copy, PartialEq)]
enum ArgumentUse {
    /// They are data, or judged where the program is unwrapped.
    Data,
    /// Those behind a word that says so are run.
    RunBehindWord,
    /// Any of them may be run, because the program is not known, or runs a program that is not.
    MayRun,
}

fn use_of_arguments(program: &str) -> ArgumentUse {
    let is_runner = RUNNERS_BY_FORM.iter().any(|(runner, _)| *runner == program)
        || [RUNNERS, RUNNERS_BEHIND_OPERAND, OTHER_SHELLS].iter().any(|list| is_listed(list, program));
    if unwrap::is_known(program) {
        ArgumentUse::Data
    } else if is_runner || programs::is_interpreter(program) {
        ArgumentUse::MayRun
    } else if programs::is_listed_program(program) {
        ArgumentUse::Data
    } else if RUNNERS_BY_WORD.iter().any(|(runner, ..)| *runner == program)
        || classes::is_known_program(program)
        || options::has_known_options(program)
    {
        ArgumentUse::RunBehindWord
    } else {
        ArgumentUse::MayRun
    }
}

/// Returns the commands that `argv` may run although no table says so.
pub(super) fn possible_commands(argv: &[ShellWord]) -> PossibleCommands<'_> {
    let Some(program) = argv.first().and_then(ShellWord::as_literal).map(base_name) else {
        return PossibleCommands::default();
    };
    let runs = use_of_arguments(program);
    if runs == ArgumentUse::MayRun {
        return argument_commands(argv);
    }
    let says_run = |word: &str| run_target::says_run(word) || unwrap::is_known(word) || programs::is_interpreter(word);
    let operands = (1..argv.len()).filter(|at| !argv[*at].value.starts_with('-')).take(MOST_SUBCOMMANDS);
    let mut operands = operands.filter(|_| runs == ArgumentUse::RunBehindWord);
    let at = operands.find(|at| argv[*at].as_literal().is_some_and(says_run));
    let mut found = at.map(|at| argument_commands(&argv[at..])).unwrap_or_default();
    found.lines.extend(option_texts(program, argv));
    found
}

/// The most operands of a program that are looked at for a subcommand.
const MOST_SUBCOMMANDS: usize = 3;

/// Returns the values of the options by which `program` runs something else, as far as they may be texts of the shell.
fn option_texts(program: &str, argv: &[ShellWord]) -> Vec<String> {
    let is_operand = |word: &&ShellWord| !word.value.starts_with('-') && !word.value.contains(' ');
    let runs = |at: usize| {
        let given = GivenText::at(argv, at).filter(|given| given.is_of_option() && given.text.contains(' '))?;
        // Each by itself: another option of the line says nothing about this one.
        let option = &argv[if given.is_joined { at } else { at - 1 }..=at];
        let operands = argv[1..at].iter().filter(is_operand).take(MOST_TAILS);
        let alone: Vec<ShellWord> = operands.chain(option).cloned().collect();
        options::run_something(program, &alone).then_some(given.text)
    };
    (1..argv.len()).filter(|at| argv[*at].value.contains(' ')).filter_map(runs).collect()
}

/// Reports whether what a program reads on its input may be commands, although no table says so.
pub(super) fn may_obey_input(argv: &[ShellWord]) -> bool {
    let Some(program) = argv.first().and_then(ShellWord::as_literal).map(base_name) else { return false };
    // In place of a file of its instructions, such as that of `make -f`.
    let names_input = |word: &ShellWord| word.value.starts_with("/dev/stdin") || word.value.ends_with('-');
    match use_of_arguments(program) {
        ArgumentUse::Data => false,
        ArgumentUse::RunBehindWord => {
            !classes::is_reading_program(program)
                && (argv[1..].iter().any(names_input) || options::run_something(program, &argv[1..]))
        }
        ArgumentUse::MayRun => true,
    }
}

/// Tells what `argv` hands on.
pub(super) fn nested_commands(argv: &[ShellWord]) -> NestedCommands {
    let Some(program) = argv.first().and_then(ShellWord::as_literal).map(base_name) else {
        return NestedCommands::default();
    };
    let arguments = &argv[1..];
    let behind = |option: &dyn Fn(&str) -> bool| {
        let at = arguments.iter().position(|word| option(&word.value));
        at.and_then(|at| arguments.get(at + 1..)).unwrap_or_default()
    };
    let commands = |words: &[ShellWord], operands| NestedCommands {
        commands: command_tails(words, operands),
        ..NestedCommands::default()
    };
    let text = |words: &[ShellWord]| NestedCommands {
        texts: words.iter().take(1).map(ShellWord::approximate_text).collect(),
        is_open: words.iter().take(1).any(is_open),
        ..NestedCommands::default()
    };
    // The values of these options, in the next word or in its own: a program takes the last one, or the first.
    let values_of = |options: &[&str]| {
        let mut found = NestedCommands::default();
        for (at, word) in arguments.iter().enumerate() {
            let joined = word.value.split_once('=').filter(|(option, _)| options.contains(option));
            let next = arguments.get(at + 1).filter(|_| options.contains(&word.value.as_str()));
            found.texts.extend(joined.map(|(_, value)| value.replace(UNKNOWN, "$unknown")));
            found.texts.extend(next.map(ShellWord::approximate_text));
            found.is_open |= joined.is_some() && is_open(word) || next.is_some_and(is_open);
        }
        found
    };
    let is_short = |text: &str, letter: char| text.starts_with('-') && !text.starts_with("--") && text.contains(letter);
    if let Some((_, words, operands)) = RUNNERS_BY_WORD.iter().find(|(runner, ..)| *runner == program) {
        let texts = match program {
            "npm" | "pnpm" | "yarn" => values_of(&["-c", "--call", "--shell-mode"]),
            _ => NestedCommands::default(),
        };
        return NestedCommands { commands: command_tails(behind(&|text| words.contains(&text)), *operands), ..texts };
    }
    if let Some((_, commands_of)) = RUNNERS_BY_FORM.iter().find(|(runner, _)| *runner == program) {
        return commands_of(arguments);
    }
    match program {
        "git" => by_git(arguments),
        "tar" | "gtar" | "bsdtar" | "make" | "gmake" | "dpkg" => {
            NestedCommands { texts: assigned_texts(arguments), ..NestedCommands::default() }
        }
        "jobs" => commands(behind(&|text| is_short(text, 'x')), 0),
        "compgen" => text(behind(&|text| is_short(text, 'C') || is_short(text, 'W'))),
        "fd" | "fdfind" => {
            with_unknown_words(behind(&|text| is_short(text, 'x') || is_short(text, 'X') || text.starts_with("--exec")))
        }
        "nix-shell" => values_of(&["--run", "--command"]),
        "mapfile" | "readarray" => {
            let glued = arguments.iter().filter_map(ShellWord::as_literal).filter_map(|word| glued_text(word, 'C'));
            let mut found = values_of(&["-C"]);
            found.texts.extend(glued);
            found
        }
        name if is_listed(OTHER_SHELLS, name) => text(behind(&|text| is_short(text, 'c'))),
        "npx" => NestedCommands { commands: command_tails(arguments, 0), ..values_of(&["-c", "--call"]) },
        name if is_listed(RUNNERS_BEHIND_OPERAND, name) => commands(arguments, 1),
        name if is_listed(RUNNERS, name) || LOADERS.iter().any(|loader| name.starts_with(loader)) => {
            commands(arguments, 0)
        }
        _ => NestedCommands::default(),
    }
}

/// Returns the commands that `parallel` runs. The words after colons are those that it appends to the command.
fn parallel_commands(arguments: &[ShellWord]) -> NestedCommands {
    let inputs = arguments.iter().position(|word| word.value.starts_with(":::"));
    let marked = |word: &ShellWord| {
        let mut word = word.clone();
        ["{}", "{1}", "{.}", "{/}"].iter().for_each(|mark| replace_mark(&mut word, mark, &UNKNOWN.to_string()));
        word
    };
    let marked: Vec<ShellWord> = arguments[..inputs.unwrap_or(arguments.len())].iter().map(marked).collect();
    with_unknown_words(&marked)
}

/// Returns every argument as a text that a shell may read.
fn argument_texts(arguments: &[ShellWord]) -> NestedCommands {
    NestedCommands { texts: arguments.iter().map(ShellWord::approximate_text).collect(), ..NestedCommands::default() }
}

/// Returns the command that `start-stop-daemon` starts: the program is an option's value, its arguments follow two dashes.
fn started_commands(arguments: &[ShellWord]) -> NestedCommands {
    const OPTIONS: [&str; 4] = ["--exec", "--startas", "-x", "-a"];
    let values: Vec<String> = arguments.iter().map(ShellWord::approximate_text).collect();
    let behind = values.iter().position(|text| text == "--").map_or(&[][..], |at| &values[at + 1..]);
    let joined = |text: &str| {
        let rest = OPTIONS.iter().find_map(|option| text.strip_prefix(option))?;
        Some(rest.trim_start_matches('=').to_owned()).filter(|rest| !rest.is_empty())
    };
    let apart = values.windows(2).filter(|pair| OPTIONS.contains(&pair[0].as_str())).map(|pair| pair[1].clone());
    let programs = values.iter().filter_map(|text| joined(text)).chain(apart);
    let texts = programs.map(|program| [&[program], behind].concat().join(" ")).collect();
    NestedCommands { texts, ..NestedCommands::default() }
}

/// Returns the same of commands to which words from elsewhere are appended.
fn with_unknown_words(words: &[ShellWord]) -> NestedCommands {
    let longer = |words: Vec<ShellWord>| [words.as_slice(), &[ShellWord::unknown_word()]].concat();
    NestedCommands { commands: command_tails(words, 0).into_iter().map(longer).collect(), ..NestedCommands::default() }
}

/// Returns the words up to the first that is surely a program, each with the words after it: any of them may be that program.
/// `operands` is the number of words before the program, except options and their values. Words after it are its arguments.
fn command_tails(words: &[ShellWord], operands: usize) -> Vec<Vec<ShellWord>> {
    let is_option = |word: &ShellWord| word.value.starts_with('-');
    let may_be_value = |at: usize| {
        let before = at.checked_sub(1).map(|before| &words[before]);
        before
            .is_some_and(|before| is_option(before) && !is_listed(FLAGS, &before.value) && !before.value.contains('='))
    };
    let is_known = |at: &usize| words[*at].as_literal().is_some() && !may_be_value(*at) && !is_option(&words[*at]);
    let program = (0..words.len()).filter(is_known).nth(operands).unwrap_or(words.len());
    // A text is no name of a program.
    let is_text = |word: &ShellWord| word.as_literal().is_some_and(|text| text.contains(' '));
    let starts = |at: &usize| !is_option(&words[*at]) && !is_text(&words[*at]);
    let last = words.len().min(program + 1);
    (0..last).filter(starts).take(MOST_TAILS).map(|at| words[at..].to_vec()).collect()
}

fn by_git(arguments: &[ShellWord]) -> NestedCommands {
    let values: Vec<&str> = arguments.iter().map(|word| word.value.as_str()).collect();
    let mut found = NestedCommands::default();
    for at in git::command_positions(&values) {
        let rest = arguments.get(at + 1..).unwrap_or_default();
        let behind = |any_of: &[&str]| {
            let at = rest.iter().position(|word| any_of.contains(&word.value.as_str()));
            at.and_then(|at| rest.get(at + 1..)).unwrap_or_default()
        };
        match values.get(at).copied() {
            Some("submodule" | "submodule--helper") => {
                let words = behind(&["foreach"]);
                found.texts.extend(words.iter().map(ShellWord::approximate_text));
                found.is_open |= words.iter().any(is_open);
                found.commands.extend(command_tails(words, 0));
            }
            // The values of its options are texts for a shell.
            Some("filter-branch") => {
                found.texts.extend(rest.iter().map(ShellWord::approximate_text));
                found.is_open |= rest.iter().any(is_open);
            }
            Some("bisect") => found.commands.extend(command_tails(behind(&["run"]), 0)),
            Some("rebase") => {
                // A long option may be cut short, and a short one has its value in the same word or the next.
                for (at, word) in rest.iter().enumerate() {
                    let is_long = word.value.starts_with("--e");
                    if !is_long && (word.value.starts_with("--") || !word.value.starts_with('-')) {
                        continue;
                    }
                    found.texts.extend(glued_text(&word.approximate_text(), 'x'));
                    if is_long && !word.value.contains('=') || !is_long && word.value.ends_with('x') {
                        let next = rest.get(at + 1);
                        found.is_open |= next.is_some_and(is_open);
                        found.texts.extend(next.map(ShellWord::approximate_text));
                    }
                    found.is_open |= is_open(word);
                }
            }
            Some(_) | None => {}
        }
    }
    found
}

/// Returns texts after the options of `tar` and `dpkg` and in the variables of `make` that are run.
fn assigned_texts(arguments: &[ShellWord]) -> Vec<String> {
    const SIGNS: [&str; 6] = ["exec=", "--to-command=", "--use-compress-program=", "--rsh-command=", "-invoke=", "!="];
    let behind = |word: &ShellWord| {
        let text = word.approximate_text();
        SIGNS.iter().find_map(|sign| text.split_once(sign).map(|(_, text)| text.to_owned()))
    };
    arguments.iter().filter_map(behind).collect()
}

fn is_listed(list: &str, name: &str) -> bool {
    list.split_ascii_whitespace().any(|known| known == name)
}
