//! Target that a command runs, and the possible targets if it is unknown.
//!
//! It must not know programs.

use super::word::{ShellWord, UNKNOWN};

/// Target that a command runs.
#[derive(Debug, PartialEq)]
pub(super) enum RunTarget {
    /// Itself only.
    Itself,
    /// Another command in its place and nothing else: the wrapper adds nothing. With assignments that it makes.
    Other { assignments: Vec<ShellWord>, argv: Vec<ShellWord> },
    /// Itself, and others in addition: all must be covered.
    Beside(Vec<Vec<ShellWord>>),
    /// A text of the shell, in its place.
    Text(String),
    /// Unknown; these are possible.
    Anything {
        why: &'static str,
        perhaps: Vec<Vec<ShellWord>>,
        texts: Vec<String>,
        /// True if a shell reads one of the texts after insertion of words that are only known when it runs: they may be any command.
        is_open: bool,
    },
}

impl RunTarget {
    /// Returns the commands that are possible if the target is unknown.
    pub(super) fn into_commands(self) -> Vec<Vec<ShellWord>> {
        match self {
            Self::Anything { perhaps, .. } => perhaps,
            Self::Itself | Self::Other { .. } | Self::Beside(_) | Self::Text(_) => Vec::new(),
        }
    }
}

/// The most words that are looked at for the one that is run.
pub(super) const MOST_TAILS: usize = 16;

/// The most words of a program that is not known at which a command may begin.
const MOST_ARGUMENTS: usize = 1024;

/// Words in the name of an option whose value is a command, at any program.
const COMMAND_OPTIONS: [&str; 7] = ["command", "cmd", "exec", "run", "call", "shell", "script"];

/// Returns the tails of `argv` that begin with a word that may be a program, and the words that may be texts of the shell.
///
/// The value of an option is a text if the name of the option says so: others are messages and searches. A text of several lines is
/// prose, such as the description of a change: programs that run a text take it in one line.
pub(super) fn argument_commands(argv: &[ShellWord]) -> (Vec<&[ShellWord]>, Vec<String>) {
    // A word with a blank in it is a text, and no name of a program.
    let is_start = |at: &usize| {
        let value = &argv[*at].value;
        !value.starts_with('-') && !value.contains(['=', ' ', '\n'])
    };
    let tails = (1..argv.len()).filter(is_start).take(MOST_ARGUMENTS).map(|at| &argv[at..]);
    let text = |at: usize| {
        let word = argv[at].approximate_text();
        let joined = word.strip_prefix('-').and_then(|option| option.split_once('='));
        let (option, text) = match joined {
            Some((option, value)) => (option, value),
            None => (argv[at - 1].value.strip_prefix('-').filter(|_| at > 1).unwrap_or("command"), word.as_str()),
        };
        let is_command = option == "c" || COMMAND_OPTIONS.iter().any(|name| option.contains(name));
        (is_command && text.contains(' ') && !text.contains('\n')).then(|| text.to_owned())
    };
    (tails.collect(), (1..argv.len()).filter_map(text).take(MOST_TAILS).collect())
}

/// Returns every tail that begins with a word that may be a program, and every word that may be a text of the shell.
pub(super) fn possible_targets(argv: &[ShellWord], why: &'static str) -> RunTarget {
    let starts = |word: &ShellWord| !word.value.starts_with('-') && !word.value.contains('=');
    let tails = (1..argv.len()).filter(|at| starts(&argv[*at])).take(MOST_TAILS);
    let texts =
        argv.iter().skip(1).filter(|word| word.value.contains(char::is_whitespace)).map(ShellWord::approximate_text);
    let tails = tails.map(|at| argv[at..].to_vec());
    RunTarget::Anything {
        why,
        perhaps: tails.chain(torn_commands(argv)).collect(),
        texts: texts.collect(),
        is_open: false,
    }
}

/// Reports whether a text for a shell has inserted words that are only known when it runs.
pub(super) fn is_open(text: &ShellWord) -> bool {
    // The values of these are numbers.
    let rest = ["$?", "$$", "$#", "$!"].iter().fold(text.raw.clone(), |raw, number| raw.replace(number, ""));
    text.value.contains(UNKNOWN) && !text.settled && rest.contains(['$', '`'])
}

/// Returns the same of words that may turn out to be several: `${X:-5 rm}` in front of others has `rm` run.
fn torn_commands(argv: &[ShellWord]) -> impl Iterator<Item = Vec<ShellWord>> {
    let torn = argv.iter().enumerate().skip(1).filter(|(_, word)| word.splits).flat_map(|(at, word)| {
        word.perhaps.iter().flat_map(move |text| {
            let parts: Vec<ShellWord> = text.split_whitespace().map(ShellWord::from_text).collect();
            (1..parts.len()).map(move |from| (at, parts[from..].to_vec())).collect::<Vec<_>>()
        })
    });
    torn.take(8).map(|(at, parts)| [parts.as_slice(), &argv[at + 1..]].concat())
}

/// Puts `by` into a word wherever it says `mark`.
pub(super) fn replace_mark(word: &mut ShellWord, mark: &str, by: &str) {
    if !mark.is_empty() && word.value.contains(mark) {
        word.value = word.value.replace(mark, by);
        word.expands = true;
    }
}
