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

/// Words of options and subcommands that say, at any program, that what follows is a command.
const COMMAND_WORDS: [&str; 7] = ["command", "cmd", "exec", "run", "call", "shell", "script"];

/// Commands that a program may run although no table says so.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PossibleCommands<'a> {
    /// Tails of its words that begin with a word that may be a program.
    pub(super) tails: Vec<&'a [ShellWord]>,
    /// Texts that may be lines of the shell: operands, and values of options whose name says so, or is a letter, which says nothing.
    pub(super) lines: Vec<String>,
    /// Texts that may be lines or prose, such as a title: values of other options, and texts of several lines.
    pub(super) prose: Vec<String>,
    /// True if there are more tails than these.
    pub(super) is_cut: bool,
}

impl PossibleCommands<'_> {
    pub(super) const fn is_empty(&self) -> bool {
        self.tails.is_empty() && self.lines.is_empty() && self.prose.is_empty()
    }
}

/// Returns the commands that may be among the arguments of a program that is not known.
pub(super) fn argument_commands(argv: &[ShellWord]) -> PossibleCommands<'_> {
    let is_blank = |text: &str| text.contains([' ', '\t', '\n']);
    // A word with a blank in it is a text, and no name of a program.
    let is_start = |at: &usize| {
        let value = &argv[*at].value;
        !value.starts_with('-') && !value.contains('=') && !is_blank(value)
    };
    let mut starts = (1..argv.len()).filter(is_start);
    let tails = starts.by_ref().take(MOST_ARGUMENTS).map(|at| &argv[at..]).collect();
    let mut found = PossibleCommands { tails, is_cut: starts.next().is_some(), ..PossibleCommands::default() };
    for (at, given) in (1..argv.len()).filter_map(|at| Some((at, GivenText::at(argv, at)?))) {
        // One word may be a command too. Where it stands alone, it is a tail.
        let is_value = given.is_joined && argv[at].value.contains('=') && !given.text.is_empty();
        if !is_blank(&given.text) && !is_value {
            continue;
        }
        let is_named = given.option.split('-').any(|part| COMMAND_WORDS.iter().any(|name| part.starts_with(name)));
        let is_line = (is_named || given.option.chars().nth(1).is_none()) && !given.text.contains('\n');
        if is_line { found.lines.push(given.text) } else { found.prose.push(given.text) }
    }
    found
}

/// Reports whether a word, such as the name of a subcommand, says that what follows is run.
pub(super) fn says_run(word: &str) -> bool {
    COMMAND_WORDS.contains(&word)
}

/// Text among the arguments of a program.
pub(super) struct GivenText {
    /// Name of the option that it is the value of, without dashes in front. Empty for an operand.
    option: String,
    pub(super) text: String,
    /// True if it stands in the word of its option.
    pub(super) is_joined: bool,
}

impl GivenText {
    /// Returns the text in the word `at` of `argv`, or none if that is an option without a value in its word.
    pub(super) fn at(argv: &[ShellWord], at: usize) -> Option<Self> {
        let word = argv[at].approximate_text();
        if let Some(option) = word.strip_prefix('-') {
            let (name, value) = match option.split_once('=') {
                Some((name, value)) if !name.contains(' ') => (name, value),
                // After a letter its value may follow at once.
                _ if !option.starts_with('-') => option.split_at(option.chars().next()?.len_utf8()),
                _ => return None,
            };
            let option = name.trim_start_matches('-').to_owned();
            return Some(Self { option, text: value.to_owned(), is_joined: true });
        }
        let before = argv[at - 1].value.strip_prefix('-').filter(|name| at > 1 && *name != "-" && !name.contains('='));
        let option = before.map_or("", |name| name.trim_start_matches('-')).to_owned();
        Some(Self { option, text: word, is_joined: false })
    }

    /// Reports whether an option gives it.
    pub(super) fn is_of_option(&self) -> bool {
        !self.option.is_empty()
    }
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

#[cfg(test)]
mod tests {
    use super::argument_commands;
    use crate::word::ShellWord;

    #[test]
    fn a_text_is_an_operand_or_the_value_of_any_option() {
        for (words, lines, prose) in [
            (vec!["x", "git push"], vec!["git push"], vec![]),
            (vec!["x", "--", "git push"], vec!["git push"], vec![]),
            (vec!["x", "-s", "git push"], vec!["git push"], vec![]),
            (vec!["x", "-sgit push"], vec!["git push"], vec![]),
            (vec!["x", "--cmd=reboot"], vec!["reboot"], vec![]),
            (vec!["x", "--post-command", "git push"], vec!["git push"], vec![]),
            (vec!["x", "--preview", "git push"], vec![], vec!["git push"]),
            (vec!["x", "--preview=git push"], vec![], vec!["git push"]),
            (vec!["x", "--preview=reboot"], vec![], vec!["reboot"]),
            (vec!["x", "--preview", "reboot"], vec![], vec![]),
            (vec!["x", "--preview="], vec![], vec![]),
            (vec!["x", "a\ngit push"], vec![], vec!["a\ngit push"]),
            (vec!["x", "git", "push"], vec![], vec![]),
        ] {
            let argv: Vec<ShellWord> = words.iter().map(|word| ShellWord::from_text(word)).collect();
            let found = argument_commands(&argv);
            let want = |texts: Vec<&str>| texts.into_iter().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!((found.lines, found.prose), (want(lines), want(prose)), "{words:?}");
        }
    }
}
