//! Words of `find`: its start folders, the commands that it runs, and the words that may turn out to be an action.

use super::{
    run_target::{RunTarget, possible_targets, replace_mark},
    word::{GLOB, ShellWord, UNKNOWN},
};
use crate::fnmatch::GlobPattern;

/// Tests that take the next word for their value. Those of `-newer` come in many forms.
const VALUED: &str = "-name -iname -path -ipath -wholename -iwholename -lname -ilname -regex -iregex -regextype -type -xtype \
    -anewer -cnewer -mtime -atime -ctime -mmin -amin -cmin -size -maxdepth -mindepth -perm -user -group -uid -gid -fstype \
    -links -inum -samefile -printf";

/// Actions that run another command.
const EXECS: [&str; 4] = ["-exec", "-execdir", "-ok", "-okdir"];

/// Actions that run, write or remove something.
const ACTIONS: [&str; 9] =
    ["-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprintf", "-fls", "-files0-from"];

/// Returns the folders that a `find` with `arguments` begins with.
pub(super) fn start_folders(arguments: &[ShellWord]) -> Vec<&str> {
    let words = arguments.iter().skip(behind_options(arguments)).map(|word| word.value.as_str());
    let starts: Vec<&str> = words.take_while(|word| !word.starts_with(['-', '(', '!'])).collect();
    if starts.is_empty() { vec!["."] } else { starts }
}

/// Returns the folders in which a command of `find` may begin, besides its own folder: its starts and those around them. Deeper folders
/// matter only for a path that goes up.
pub(super) fn goes_to(argv: &[ShellWord]) -> Vec<String> {
    if !argv.iter().any(|word| matches!(word.value.as_str(), "-execdir" | "-okdir")) {
        return Vec::new();
    }
    // The start is found as well, in the folder that its name tells.
    let around = |start: &str| match start.trim_end_matches('/').rsplit_once('/') {
        Some((folder, _)) => format!("{folder}/"),
        None => ".".to_owned(),
    };
    start_folders(&argv[1..]).iter().flat_map(|start| [(*start).to_owned(), around(start)]).collect()
}

/// Returns the position after the options that precede everything else.
fn behind_options(arguments: &[ShellWord]) -> usize {
    let mut at = 0;
    while let Some(word) = arguments.get(at) {
        at += match word.value.as_str() {
            "-H" | "-L" | "-P" | "--" => 1,
            "-D" => 2,
            text if text.starts_with("-O") => 1,
            _ => return at,
        };
    }
    at
}

/// One command that a `find` runs, by the places of its words.
struct ExecCommand {
    from: usize,
    end: usize,
}

/// The most pairs of a folder and a command that are looked at one by one.
const MOST_PAIRS: usize = 256;

/// Returns the parts of an expression: the positions at which an action may stand, and the commands that are run.
fn parse_expression(arguments: &[ShellWord]) -> (Vec<usize>, Vec<ExecCommand>) {
    let (mut places, mut execs) = (Vec::new(), Vec::new());
    let mut at = behind_options(arguments);
    while let Some(word) = arguments.get(at) {
        places.push(at);
        let text = word.value.as_str();
        at += 1;
        if EXECS.contains(&text) {
            // A plus ends it only after `{}`; other uses are checked only in addition.
            let ends = |(at, word): &(usize, &ShellWord)| {
                word.value == ";" || word.value == "+" && arguments[at - 1].value == "{}"
            };
            let end = arguments.iter().enumerate().skip(at).find(ends).map_or(arguments.len(), |(at, _)| at);
            execs.push(ExecCommand { from: at, end });
            at = end;
        } else if text.starts_with("-newer") || VALUED.split_ascii_whitespace().any(|known| known == text) {
            at += 1;
        }
    }
    (places, execs)
}

/// Tells what `argv`, a `find`, runs.
pub(super) fn unwrap_find(argv: &[ShellWord]) -> RunTarget {
    let arguments = &argv[1..];
    let (places, execs) = parse_expression(arguments);
    let mut beside = Vec::new();
    let starts = start_folders(arguments);
    let found: Vec<String> = match starts.len() * execs.len() > MOST_PAIRS {
        true => vec![UNKNOWN.to_string()],
        false => starts.iter().map(|start| format!("{}/{GLOB}", start.trim_end_matches('/'))).collect(),
    };
    for exec in execs.iter().filter(|exec| exec.from < exec.end) {
        // For a path that goes up from a match, the depth of the match counts: there, or anywhere below.
        let goes_up =
            arguments[exec.from..exec.end].iter().any(|word| word.value.contains("{}/") && word.value.contains(".."));
        let deeper: Vec<String> = match goes_up {
            true => starts
                .iter()
                .flat_map(|start| [(*start).to_owned(), format!("{}/{UNKNOWN}", start.trim_end_matches('/'))])
                .collect(),
            false => Vec::new(),
        };
        for found in found.iter().chain(&deeper) {
            let mut one = arguments[exec.from..exec.end].to_vec();
            one.iter_mut().for_each(|word| replace_mark(word, "{}", found));
            beside.push(one);
        }
    }
    let may_end = |exec: &ExecCommand| may_end_early(&arguments[exec.from..exec.end]);
    let hides = places.into_iter().any(|at| may_be_an_action(&arguments[at])) || execs.iter().any(may_end);
    // A word that splits may move the words after it.
    let splits = arguments.iter().any(|word| word.splits && word.value.contains(UNKNOWN));
    if splits || hides {
        let RunTarget::Anything { why, perhaps, texts, is_open } =
            possible_targets(argv, "a find of which not every word can be told")
        else {
            return RunTarget::Itself;
        };
        return RunTarget::Anything { why, perhaps: [beside, perhaps].concat(), texts, is_open };
    }
    if beside.is_empty() { RunTarget::Itself } else { RunTarget::Beside(beside) }
}

/// Reports whether a word that is expanded may turn out to be an action.
fn may_be_an_action(word: &ShellWord) -> bool {
    let matches = |text: &str| {
        let pattern = GlobPattern::new(&text.replace([GLOB, UNKNOWN], "*"));
        ACTIONS.iter().any(|action| pattern.matches(action))
    };
    let is_open = |text: &str| text.contains([GLOB, UNKNOWN]) && matches(text);
    word.expands && !word.is_in_folder() && word.possible_texts().any(is_open)
        || word.perhaps.iter().any(|text| text.starts_with('-'))
}

/// Reports whether a command may end before its last word, so that actions follow: at the name of a file, which may bring some with it,
/// or at a word that is only known when the line runs, if there are some.
fn may_end_early(words: &[ShellWord]) -> bool {
    let is_action = |word: &ShellWord| may_be_an_action(word) || word.all_texts().any(|text| ACTIONS.contains(&text));
    let last_action = words.iter().rposition(is_action).unwrap_or(0);
    words.iter().any(|word| word.splits && word.all_texts().any(|text| text.contains(GLOB) && may_be_an_end(text)))
        || words[..last_action].iter().any(|word| word.expands && word.all_texts().any(may_be_an_end))
}

/// Reports whether a text may turn out to be the end of a command, or the word before a plus that is one.
fn may_be_an_end(text: &str) -> bool {
    let pattern = GlobPattern::new(&text.replace([GLOB, UNKNOWN], "*"));
    [";", "+", "{}"].into_iter().any(|end| pattern.matches(end))
}

#[cfg(test)]
mod tests {
    use super::{parse_expression, start_folders, unwrap_find};
    use crate::{
        run_target::RunTarget,
        word::{KnownVariables, ShellWord, scan_word},
    };

    fn words(line: &str) -> Vec<ShellWord> {
        line.split(' ').map(|word| scan_word(word, KnownVariables { home: None, cwd: None, tried: &[] })).collect()
    }

    #[test]
    fn options_stand_before_where_it_begins() {
        for (line, want) in [
            ("-L /home -name x", vec!["/home"]),
            ("-O3 / -delete", vec!["/"]),
            ("-D tree / /x", vec!["/", "/x"]),
            ("-- /", vec!["/"]),
            ("-name x", vec!["."]),
        ] {
            assert_eq!(start_folders(&words(line)), want, "{line}");
        }
    }

    #[test]
    fn the_value_of_a_test_is_no_action() {
        let (_, execs) = parse_expression(&words("/ -name -exec -o -exec evil ;"));
        assert_eq!(execs.iter().map(|exec| (exec.from, exec.end)).collect::<Vec<_>>(), [(5, 6)]);
        for line in ["find . -name \"$X\"", "find src/\"$X\" -type f", "find . -newermt \"$X\"", "find . -name *.rs"] {
            assert_eq!(unwrap_find(&words(line)), RunTarget::Itself, "{line}");
        }
        for line in ["find \"$X\"", "find . -name a \"$X\"", "find . \"-$X\"", "find . *", "find . -name $X"] {
            assert!(matches!(unwrap_find(&words(line)), RunTarget::Anything { .. }), "{line}");
        }
    }
}
