//! Targets of programs that delete or move, by their own reading of their words.

use super::DeleteReach;
use crate::{
    find, git,
    word::{GLOB, ShellWord, UNKNOWN},
};

/// A target, and how it is treated.
pub(super) type ReachedTarget = (DeleteReach, String);

/// Returns the targets of `rm`. If no program is known, only those that would be gone with all their content.
pub(super) fn of_rm(arguments: &[ShellWord], is_known: bool) -> Vec<ReachedTarget> {
    let targets = operand_texts(arguments);
    if is_recursive(arguments, "recursive", "rR") {
        return with_reach(DeleteReach::Tree, targets);
    }
    if !is_known {
        return Vec::new();
    }
    // A file that a wildcard finds may be called `-rf`, and so may what a variable holds.
    let begins = |word: &ShellWord| word.possible_texts().any(|text| text.starts_with([GLOB, UNKNOWN]));
    let hides = before_end(arguments).any(|word| begins(word) && !word.is_in_folder());
    // A user's home is outside, whether or not its path is known.
    let homes: Vec<&str> = arguments
        .iter()
        .filter(|word| word.is_in_folder() && word.value.starts_with(UNKNOWN) && !word.value.contains(GLOB))
        .map(|word| word.value.as_str())
        .collect();
    let reach = |target: &str| match hides && (!target.contains([GLOB, UNKNOWN]) || homes.contains(&target)) {
        true => DeleteReach::Tree,
        false => DeleteReach::Files,
    };
    targets.into_iter().map(|target| (reach(&target), target)).collect()
}

/// Returns the targets that are removed whole, whatever the options.
pub(super) fn of_trash(arguments: &[ShellWord]) -> Vec<ReachedTarget> {
    with_reach(DeleteReach::Tree, operand_texts(arguments))
}

/// Returns the targets that are removed file by file.
pub(super) fn of_files(arguments: &[ShellWord]) -> Vec<ReachedTarget> {
    with_reach(DeleteReach::Files, operand_texts(arguments))
}

/// Returns the files that are put into an archive and removed, if `option` or an equivalent is given.
pub(super) fn of_archive(arguments: &[ShellWord], option: &str) -> Vec<ReachedTarget> {
    let letter = option.chars().nth(1).filter(|letter| *letter != '-');
    let long = if letter.is_some() { "--move" } else { option };
    let is_given = before_end(arguments).any(|word| {
        let text = word.value.as_str();
        let is_group = text.starts_with('-') && !text.starts_with("--");
        is_group && letter.is_some_and(|letter| text.contains(letter)) || text.len() > 4 && long.starts_with(text)
    });
    if is_given { with_reach(DeleteReach::Tree, operand_texts(arguments)) } else { Vec::new() }
}

/// Returns the targets that `chmod` and similar programs change with all their content.
pub(super) fn of_rights(program: &str, arguments: &[ShellWord]) -> Vec<ReachedTarget> {
    if !is_recursive(arguments, "recursive", "R") {
        return Vec::new();
    }
    let is_mode = |text: &str| program == "chmod" && text.starts_with('-') && !text.starts_with("--");
    let is_given = before_end(arguments).any(|word| {
        let text = word.value.as_str();
        text.starts_with("--ref") || is_mode(text) && text.contains(['r', 'w', 'x', 'X', 's', 't'])
    });
    let mut targets = operand_texts(arguments);
    // Rights among the operands are recognised by their signs.
    match program {
        "chattr" => targets.retain(|text| !text.starts_with(['+', '='])),
        "setfacl" => targets.retain(|text| !text.contains(':')),
        _ => {}
    }
    if !is_given && !targets.is_empty() && !matches!(program, "chattr" | "setfacl") {
        targets.remove(0);
    }
    with_reach(DeleteReach::Rights, targets)
}

/// Returns the sources of `mv`: all but the target.
pub(super) fn of_mv(arguments: &[ShellWord]) -> Vec<ReachedTarget> {
    let is_group = |text: &str| text.starts_with('-') && !text.starts_with("--");
    let names_target =
        |word: &ShellWord| word.value.starts_with("--t") || is_group(&word.value) && word.value.contains('t');
    let Some(at) = before_end(arguments).position(names_target) else {
        let is_over = arguments.iter().rev().skip(1).any(|word| word.value == "--");
        let last = arguments.iter().rposition(|word| is_over || !word.value.starts_with('-'));
        // One that may become several words may be the first of them too.
        return match last.filter(|at| !arguments[*at].splits) {
            Some(last) => {
                with_reach(DeleteReach::Move, operand_texts(&[&arguments[..last], &arguments[last + 1..]].concat()))
            }
            None => {
                let mut targets = operand_texts(arguments);
                targets.pop();
                with_reach(DeleteReach::Move, targets)
            }
        };
    };
    let text = arguments[at].value.as_str();
    let is_apart = if is_group(text) { text.ends_with('t') } else { !text.contains('=') };
    let rest = [&arguments[..at], arguments.get(at + 1 + usize::from(is_apart)..).unwrap_or_default()].concat();
    with_reach(DeleteReach::Move, operand_texts(&rest))
}

/// Returns the folders in which a `find` deletes.
pub(super) fn of_find(arguments: &[ShellWord]) -> Vec<ReachedTarget> {
    let deletes = arguments.iter().flat_map(ShellWord::all_texts).any(|text| text == "-delete");
    let starts = if deletes { find::start_folders(arguments) } else { Vec::new() };
    with_reach(DeleteReach::Contents, starts.into_iter().map(str::to_owned).collect())
}

/// Returns the folders in which an `rsync` deletes: any word but the first may be the target, for options may follow it.
pub(super) fn of_rsync(arguments: &[ShellWord]) -> Vec<ReachedTarget> {
    const VALUED: [&str; 8] =
        ["-e", "-f", "--rsh", "--filter", "--exclude", "--exclude-from", "--include", "--include-from"];
    let says = |begins: &str| arguments.iter().any(|word| word.value.starts_with(begins));
    let (deletes, moves) = (says("--del"), says("--remove-s"));
    if !deletes && !moves {
        return Vec::new();
    }
    let mut is_value = false;
    let own = arguments.iter().filter(|word| {
        let was_value = std::mem::replace(&mut is_value, VALUED.contains(&word.value.as_str()));
        !was_value
    });
    let own: Vec<ShellWord> = own.cloned().collect();
    let words = operand_texts(&own);
    // Moved files are removed from their place.
    let here = words.iter().rev().skip(1).filter(|_| moves);
    let there = words.iter().skip(1).filter(|_| deletes).chain(here).filter(|word| !word.contains(':'));
    with_reach(DeleteReach::Contents, there.cloned().collect())
}

/// Returns the folders in which a `git clean` deletes: the one that its options, or the environment, name.
pub(super) fn of_git(assignments: &[ShellWord], arguments: &[ShellWord]) -> Vec<ReachedTarget> {
    let values: Vec<&str> = arguments.iter().map(|word| word.value.as_str()).collect();
    let mut found = Vec::new();
    for at in git::command_positions(&values).into_iter().filter(|at| values.get(*at) == Some(&"worktree")) {
        let rest = &arguments[at + 1..];
        let is_forced = rest.iter().any(|word| word.value.starts_with("--f") || word.value.starts_with("-f"));
        if is_forced && rest.first().is_some_and(|word| word.value == "remove") {
            found.extend(with_reach(DeleteReach::Tree, operand_texts(&rest[1..])));
        }
    }
    for at in git::command_positions(&values).into_iter().filter(|at| values.get(*at) == Some(&"clean")) {
        let mut folder = ".".to_owned();
        let mut trees: Vec<&str> =
            assignments.iter().filter_map(|word| word.value.strip_prefix("GIT_WORK_TREE=")).collect();
        let mut globals = values[..at].iter();
        while let Some(word) = globals.next() {
            match *word {
                "-C" => folder = globals.next().map_or_else(|| folder.clone(), |to| join_folder(&folder, to)),
                "--work-tree" => trees.extend(globals.next()),
                word => trees.extend(word.strip_prefix("--work-tree=")),
            }
        }
        let folder = trees.last().map_or_else(|| folder.clone(), |tree| join_folder(&folder, tree));
        let named = operand_texts(&arguments[at + 1..]);
        found.extend(named.iter().map(|target| (DeleteReach::Contents, join_folder(&folder, target))));
        if named.is_empty() {
            found.push((DeleteReach::Contents, folder));
        }
    }
    found
}

fn join_folder(folder: &str, path: &str) -> String {
    if path.starts_with(['/', UNKNOWN]) { path.to_owned() } else { format!("{folder}/{path}") }
}

fn with_reach(reach: DeleteReach, targets: Vec<String>) -> Vec<ReachedTarget> {
    targets.into_iter().map(|target| (reach, target)).collect()
}

fn before_end(arguments: &[ShellWord]) -> impl Iterator<Item = &ShellWord> {
    arguments.iter().take_while(|word| word.value != "--")
}

/// Returns every word, or part of one, that a word may turn out to be as far as the line tells.
fn possible_parts(word: &ShellWord) -> impl Iterator<Item = &str> {
    word.perhaps.iter().flat_map(|text| {
        let split = word.splits.then(|| text.split_whitespace());
        (!word.splits).then_some(text.as_str()).into_iter().chain(split.into_iter().flatten())
    })
}

fn is_recursive(arguments: &[ShellWord], long: &str, short: &str) -> bool {
    let is_option = |text: &str| match (text.strip_prefix("--"), text.strip_prefix('-')) {
        (Some(name), _) => !name.is_empty() && long.starts_with(name),
        (None, Some(letters)) => letters.contains(|c| short.contains(c)),
        (None, None) => false,
    };
    // The output of a command that only prints its words.
    let is_said = |text: &String| {
        let mut words = text.split_whitespace();
        matches!(words.next(), Some("echo" | "printf")) && words.any(|word| is_option(word.trim_matches(['\'', '"'])))
    };
    before_end(arguments).any(|word| {
        let text = word.value.as_str();
        let is_open = match (text.starts_with('-'), text.starts_with(UNKNOWN)) {
            (true, _) => text.contains(GLOB) || text.contains(UNKNOWN) && !word.settled,
            (false, true) => {
                word.raw.starts_with('$') && !word.settled && arguments.len() > 1 && !word.raw.contains('/')
            }
            (false, false) => false,
        };
        is_open
            || is_option(text)
            || possible_parts(word).any(is_option)
            || word.splits && word.runs.iter().any(is_said)
    })
}

fn operand_texts(arguments: &[ShellWord]) -> Vec<String> {
    let end = arguments.iter().position(|word| word.value == "--").unwrap_or(arguments.len());
    let texts = |word: &ShellWord| -> Vec<String> {
        let value = (!word.settled).then_some(word.value.as_str());
        value.into_iter().chain(possible_parts(word)).map(str::to_owned).collect()
    };
    let before = arguments.iter().take(end).flat_map(texts).filter(|text| !text.starts_with('-'));
    before.chain(arguments.iter().skip(end + 1).flat_map(texts)).collect()
}
