//! Sorts shell lines into the classes of actions that an unattended contract names.
//!
//! It must not know contracts. A command that is not known may change anything and is [`Class::BashMutating`], as is code of
//! another language. A line whose commands cannot be determined is [`Class::BashDestructive`]: a line that cannot be parsed, a name or
//! a text that is only known when it runs, a shell that reads its commands from elsewhere.

mod git;
mod programs;

use std::collections::BTreeSet;

use super::{
    options,
    programs::{SHELLS, base_name, is_opaque_wrapper},
    run_target::RunTarget,
    word::{GLOB, ShellWord, UNKNOWN},
};
use crate::action_class::ActionClass as Class;

/// The most words of a wrapper that are looked at for the program that it runs.
const MOST_WORDS: usize = 64;

/// Wrappers that hand their words to a shell, where they are text again.
const JOINERS: [&str; 7] = ["ssh", "watch", "parallel", "su", "runuser", "script", "at"];

/// Shells of which the grammar does not read the text.
const OTHER_SHELLS: [&str; 11] = ["zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh", "pwsh", "nu", "elvish", "xonsh"];

/// Reports whether a function called `name` would make lines mean something else than what is judged here.
pub(super) fn means_something(name: &str) -> bool {
    name == "echo" || SHELLS.contains(&name)
}

/// Reports whether the class of `program` is known by its name.
pub(super) fn is_known_program(program: &str) -> bool {
    programs::is_known(program)
}

/// Reports whether `program` is known to read only, except for some of its options.
pub(super) fn is_reading_program(program: &str) -> bool {
    programs::is_reader(program)
}

/// Reports whether the first word of a command names a program that the system looks up, or a builtin, not a file of a user.
pub(super) fn is_by_name(argv: &[ShellWord]) -> bool {
    argv.first().and_then(ShellWord::as_literal).is_some_and(|name| !is_ones_own(name))
}

/// Returns the classes of one command without what it runs, which is sorted by itself. `fed` says that what it reads on its input is
/// written out in the line, and sorted by itself as well.
pub(super) fn classes_of_command(argv: &[ShellWord], runs: &RunTarget, fed: bool, surely: bool) -> BTreeSet<Class> {
    let Some((first, rest)) = argv.split_first() else { return BTreeSet::from([Class::BashReadonly]) };
    let names = program_names(first);
    if names.is_empty() {
        // A word of a wrapper that is only perhaps a command says nothing by itself.
        return BTreeSet::from([if surely { Class::BashDestructive } else { Class::BashMutating }]);
    }
    let arguments = argument_texts(rest);
    let own = names.iter().any(|name| is_ones_own(name)).then_some(Class::BashMutating);
    names.iter().flat_map(|name| classes_by_name(name, argv, &arguments, runs, fed)).chain(own).collect()
}

fn classes_by_name(name: &str, argv: &[ShellWord], arguments: &[&str], runs: &RunTarget, fed: bool) -> BTreeSet<Class> {
    let program = base_name(name);
    let one = |class| BTreeSet::from([class]);
    match runs {
        _ if SHELLS.contains(&program) || OTHER_SHELLS.contains(&program) => shell_classes(program, argv, fed),
        RunTarget::Other { .. } | RunTarget::Text(_) if program == "timeout" => one(Class::BashMutating),
        RunTarget::Other { .. } | RunTarget::Text(_) => BTreeSet::new(),
        RunTarget::Beside(_) => one(Class::FileDelete),
        RunTarget::Anything { .. } if program == "eval" => {
            if argv[1..].iter().all(is_known) {
                BTreeSet::new()
            } else {
                one(Class::BashDestructive)
            }
        }
        RunTarget::Anything { .. } if program == "find" => BTreeSet::from([Class::FileDelete, Class::BashDestructive]),
        RunTarget::Anything { .. } => wrapper_classes(program, argv),
        RunTarget::Itself if is_opaque_wrapper(program) => wrapper_classes(program, argv),
        RunTarget::Itself if is_ones_own(name) => {
            one(programs::program_class(program, arguments).max(Class::BashMutating))
        }
        RunTarget::Itself => one(class_with_options(program, argv.get(1..).unwrap_or_default(), arguments)),
    }
}

/// Returns the class of a program with what its options make of it: what one runs may be anything, and a script of sed may write.
fn class_with_options(program: &str, words: &[ShellWord], arguments: &[&str]) -> Class {
    let class = programs::program_class(program, arguments);
    match options::run_something(program, words) {
        true => class.max(if program == "sed" { Class::FileWrite } else { Class::BashMutating }),
        false => class,
    }
}

/// Returns the program names that a word may stand for; none if they cannot be determined.
fn program_names(word: &ShellWord) -> Vec<&str> {
    let known = |text: &&str| !text.contains([UNKNOWN, GLOB]) && !text.is_empty();
    if word.runs.is_empty() && known(&word.value.as_str()) {
        return vec![&word.value];
    }
    let perhaps: Vec<&str> = word.perhaps.iter().filter_map(|text| text.split_whitespace().next()).collect();
    if word.runs.is_empty() && perhaps.iter().all(known) { perhaps } else { Vec::new() }
}

/// Returns the possible texts of argument words: their text, and the possible values of their variables. [`UNKNOWN`] stays in it.
fn argument_texts(words: &[ShellWord]) -> Vec<&str> {
    let perhaps = |word: &ShellWord| !word.perhaps.is_empty();
    words
        .iter()
        .flat_map(|word| {
            let value = (!perhaps(word)).then_some(word.value.as_str());
            value.into_iter().chain(word.perhaps.iter().flat_map(|text| text.split_whitespace()))
        })
        .collect()
}

/// Reports whether nothing in a word is left to when it runs.
fn is_known(word: &ShellWord) -> bool {
    !word.value.contains([UNKNOWN, GLOB]) && word.runs.is_empty()
}

/// Returns true for a path outside the folders of the system: a program of one's own may have any name.
fn is_ones_own(name: &str) -> bool {
    name.contains('/') && !is_of_the_system(name)
}

fn is_of_the_system(name: &str) -> bool {
    let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
    matches!(folder, "/bin" | "/usr/bin" | "/sbin" | "/usr/sbin" | "/usr/local/bin" | "/opt/homebrew/bin")
}

/// Returns the classes of a shell: its text is sorted by itself, if it is written out and the grammar reads it.
fn shell_classes(program: &str, argv: &[ShellWord], fed: bool) -> BTreeSet<Class> {
    let readable = SHELLS.contains(&program);
    let (mut takes_a_word, mut is_plain) = (false, true);
    for (at, word) in argv.iter().enumerate().skip(1) {
        let text = word.value.as_str();
        if std::mem::take(&mut takes_a_word) && is_known(word) {
            continue;
        }
        let is_short = text.starts_with('-') && !text.starts_with("--");
        match text {
            _ if !is_known(word) => return BTreeSet::from([Class::BashDestructive]),
            "--version" | "--help" => return BTreeSet::from([Class::BashReadonly]),
            _ if is_short && text.contains('c') => {
                let script = argv.get(at + 1).filter(|word| is_known(word));
                // After an option that takes a word, only text that looks like a program is read as one.
                let written_out = script.is_some_and(|text| is_plain || text.value.contains(char::is_whitespace));
                let class = if readable && written_out { Class::BashReadonly } else { Class::BashDestructive };
                return BTreeSet::from([class]);
            }
            // A file that is read first, and reading from elsewhere.
            "--rcfile" | "--init-file" | "-s" | "-i" => return BTreeSet::from([Class::BashDestructive]),
            _ if text.starts_with(['-', '+']) && text.ends_with(['o', 'O']) => (takes_a_word, is_plain) = (true, false),
            _ if !text.starts_with(['-', '+']) => return BTreeSet::from([Class::BashMutating]),
            _ => {}
        }
    }
    let class = if readable && fed { Class::BashReadonly } else { Class::BashDestructive };
    BTreeSet::from([class])
}

/// Returns the classes of a wrapper whose program word cannot be determined: the worst of all its words.
fn wrapper_classes(program: &str, argv: &[ShellWord]) -> BTreeSet<Class> {
    let mut classes = BTreeSet::from([Class::BashMutating]);
    if argv.len() > MOST_WORDS {
        classes.insert(Class::BashDestructive);
    }
    let mut found = false;
    for at in 1..argv.len().min(MOST_WORDS) {
        let (word, rest) = (&argv[at], &argv[at + 1..]);
        if word.value.starts_with('-') {
            continue;
        }
        // Text that has white space is sorted by itself.
        let is_text =
            word.value.contains(|c| "$`;&|<>(){}\\'\"\n".contains(c)) && !word.value.contains(char::is_whitespace);
        if is_text && is_known(word) && (!found || JOINERS.contains(&program)) {
            classes.insert(Class::BashDestructive);
        }
        match program_names(word).as_slice() {
            [] if !found => {
                classes.insert(Class::BashDestructive);
            }
            [] => {}
            names => {
                for program in names.iter().map(|name| base_name(name)) {
                    found |= programs::is_known(program);
                    classes.insert(class_with_options(program, rest, &argument_texts(rest)));
                }
            }
        }
    }
    classes
}

#[cfg(test)]
mod tests;
