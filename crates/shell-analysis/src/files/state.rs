//! State of the shell on which names depend, and its changes.

use std::collections::BTreeSet;

use super::{
    NamedFile,
    walk::{FileWalk, StdinSource},
};
use crate::{files::FileRole, path, programs::is_dangerous_variable, word::ShellWord};

/// Maximum number of folders of the shell that are tracked.
const MOST_FOLDERS: usize = 4;
/// Maximum number of variables that are tracked.
const MOST_VARIABLES: usize = 64;
/// Variables that make their readers run something, whatever they hold.
const RUN: &str = "BASH_ENV ENV IFS PS0 PS4 PROMPT_COMMAND SHELLOPTS BASHOPTS GLOBIGNORE NODE_OPTIONS PERL5OPT RUBYOPT \
    JAVA_TOOL_OPTIONS _JAVA_OPTIONS PYTHONSTARTUP";
const RUN_PREFIXES: [&str; 3] = ["LD_", "DYLD_", "BASH_FUNC_"];

/// State of the shell on which names depend.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ShellState {
    /// Possible folders, the likeliest first; none if they are not known.
    pub(super) folders: Option<Vec<String>>,
    /// Search path; none if it is not known.
    pub(super) path: Option<String>,
    /// Variables that the line set to something that is known.
    pub(super) variables: Vec<(String, String)>,
}

impl ShellState {
    /// Returns the same, where it is not known whether it became so or stayed as it was `before`.
    pub(super) fn merged_with(mut self, before: &Self) -> Self {
        if self.folders != before.folders {
            self.folders = self.folders.zip(before.folders.clone()).map(|(mut now, before)| {
                now.extend(before);
                now
            });
            self.bound_folders();
        }
        self.or_beside_folders(before)
    }

    /// Returns the same for all but the folders.
    pub(super) fn or_beside_folders(mut self, before: &Self) -> Self {
        if self.path != before.path {
            self.path = None;
        }
        self.variables.retain(|variable| before.variables.contains(variable));
        self
    }

    /// Lets go of the folders where there are too many of them.
    pub(super) fn bound_folders(&mut self) {
        if let Some(folders) = &mut self.folders {
            let mut seen = BTreeSet::new();
            folders.retain(|folder| seen.insert(folder.clone()));
            if folders.len() > MOST_FOLDERS {
                self.folders = None;
            }
        }
    }
}

impl FileWalk<'_> {
    /// Notes a variable that is set permanently.
    pub(super) fn set_variable(&mut self, word: &ShellWord) {
        self.set_path(std::slice::from_ref(word));
        self.note_variable(word);
        let Some((name, value)) = word.value.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
        else {
            return;
        };
        let name = name.trim_end_matches('+').to_owned();
        self.state.variables.retain(|(known, _)| *known != name);
        // Anything else the shell may split, expand, or read in another way where it is used.
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./@%+,:=".contains(letter);
        if Self::known_text(word).is_some()
            && value.chars().all(is_plain)
            && self.state.variables.len() < MOST_VARIABLES
            && !matches!(name.as_str(), "PATH" | "HOME" | "PWD")
            && self.is_named_once(&name)
        {
            self.state.variables.push((name, value));
        }
    }

    /// Reports whether the line names a variable once, where it sets it, and else only as `$name` or `${name}`: then no part of the line
    /// sets it to anything else.
    fn is_named_once(&self, name: &str) -> bool {
        let text = self.line;
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let named = text.match_indices(name).filter(|(at, _)| {
            let (before, after) = (&text[..*at], &text[at + name.len()..]);
            let is_whole = !before.ends_with(is_part) && !after.starts_with(is_part);
            let is_read = before.ends_with('$') || before.ends_with("${") && after.starts_with('}');
            is_whole && !is_read
        });
        named.take(2).count() == 1
    }

    pub(super) fn set_path(&mut self, set: &[ShellWord]) {
        for word in set {
            if let Some(value) = word.value.strip_prefix("PATH=") {
                self.state.path = Self::known_text(word).is_some().then(|| value.to_owned());
            } else if word.value.starts_with("PATH+") || word.value == "PATH" {
                self.state.path = None;
            }
        }
    }

    /// Says so of a variable that has other programs run or load something.
    pub(super) fn note_variable(&mut self, word: &ShellWord) {
        let Some((name, value)) = word.value.split_once('=') else { return };
        let name = name.trim_end_matches('+');
        let runs = RUN.split_ascii_whitespace().any(|known| known == name)
            || RUN_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        let is_word = value.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-.=,".contains(letter));
        let is_place = matches!(name, "PATH" | "HOME" | "PWD" | "OLDPWD" | "CDPATH");
        if !is_place && (runs || is_dangerous_variable(name) && !is_word) {
            self.note_unknown(format!("what {name} has programs run or load"));
        }
    }

    /// Applies the changes of a builtin to the state for later commands.
    pub(super) fn change_state(&mut self, name: &str, argv: &[ShellWord]) {
        let has =
            |letters: &[&str]| argv[1..].iter().any(|word| letters.iter().any(|letter| word.value.starts_with(letter)));
        match name {
            "cd" | "pushd" => self.change_folder(name, argv),
            "popd" => self.state.folders = None,
            "." | "source" => self.source_file(argv),
            "export" | "declare" | "typeset" | "local" | "readonly" => {
                argv[1..].iter().filter(|word| word.value.contains('=')).for_each(|word| self.set_variable(word));
                if has(&["-n"]) {
                    self.state.variables.clear();
                }
            }
            "mapfile" | "readarray" | "compgen" | "complete" if has(&["-C", "-F"]) => {
                self.note_unknown(format!("what {name} calls"));
            }
            "read" | "mapfile" | "readarray" | "getopts" | "let" => self.forget_variables(argv),
            "printf" | "wait" if has(&["-v", "-p"]) => self.forget_variables(argv),
            "unset" => self.forget_variables(argv),
            "hash" if argv.iter().any(|word| word.value.starts_with("-p")) => self.state.path = None,
            "alias" if argv.len() > 1 => self.note_unknown("what alias makes of names behind it"),
            "enable" => self.note_unknown("what enable makes of names behind it"),
            _ => {}
        }
    }

    fn forget_variables(&mut self, argv: &[ShellWord]) {
        self.state.variables.clear();
        if argv[1..].iter().any(|word| word.value.contains("PATH") || Self::known_text(word).is_none()) {
            self.state.path = None;
        }
    }

    /// Notes that it may be anywhere and look anywhere from here on.
    pub(super) fn forget_state(&mut self) {
        self.state = ShellState::default();
    }

    fn change_folder(&mut self, name: &str, argv: &[ShellWord]) {
        let is_option = |word: &&ShellWord| matches!(word.value.as_str(), "-P" | "-L" | "-e" | "-@" | "--");
        let is_physical = argv[1..].iter().any(|word| word.value == "-P");
        let to = argv[1..].iter().find(|word| !is_option(word)).cloned();
        let to = match to {
            None if name == "cd" => self.home_folder(),
            None => None,
            Some(word) => Self::known_text(&word).filter(|to| !to.starts_with(['-', '+'])).map(str::to_owned),
        };
        // Of the folder above a link only the disk knows.
        let to = to.filter(|to| !is_physical || !to.split('/').any(|part| part == ".."));
        let (Some(to), Some(before), false) = (to, self.state.folders.clone(), self.sets_folder()) else {
            self.state.folders = None;
            return;
        };
        let reached: Vec<String> = before.iter().map(|folder| path::resolve(folder, &to)).collect();
        for folder in &reached {
            self.note_file(NamedFile {
                name: to.clone(),
                role: FileRole::Folder,
                tried: vec![folder.clone()],
                is_searched: false,
                is_perhaps: false,
                may_be_made: self.may_have_made,
                path: None,
            });
        }
        self.state.folders = Some(reached);
        self.state.bound_folders();
    }

    fn source_file(&mut self, argv: &[ShellWord]) {
        let Some(word) = argv.get(1).cloned() else { return };
        let known = Self::known_text(&word).map(str::to_owned);
        match known {
            Some(name) if super::walk::stream_by_name(&name).is_some() => {
                self.note_unknown("what . reads on its input")
            }
            Some(name) if !name.contains('/') => {
                let path = self.state.path.clone();
                match (self.searched_paths(&name, path.as_deref()), self.candidate_paths(&name)) {
                    (Some(mut tried), Some(places)) => {
                        tried.extend(places);
                        self.note_file(NamedFile {
                            name: name.clone(),
                            role: FileRole::Script,
                            tried,
                            is_searched: false,
                            is_perhaps: false,
                            may_be_made: self.may_have_made,
                            path,
                        });
                    }
                    (None, _) | (_, None) => {
                        self.note_unknown(format!("{name}: where it is looked for is only known when it runs"));
                    }
                }
            }
            Some(_) | None => self.note_path(&word, FileRole::Script, false),
        }
        // It may set what it likes.
        self.state.path = None;
        self.state.variables.clear();
        self.note_unknown(format!("what {} changes for the commands behind it", word.raw));
    }

    /// Returns the same input for a reader in another folder.
    pub(super) fn seen_from_here(&self, input: &StdinSource) -> StdinSource {
        let StdinSource::Files(words) = input else { return input.clone() };
        let placed = words.iter().map(|word| {
            let name = Self::known_text(word)?;
            if super::walk::stream_by_name(name).is_some() {
                return Some(word.clone());
            }
            let mut places = self.candidate_paths(name)?;
            let only = places.pop().filter(|_| places.is_empty())?;
            Some(ShellWord { value: only, ..word.clone() })
        });
        placed.collect::<Option<Vec<_>>>().map_or(StdinSource::Unknown, StdinSource::Files)
    }

    /// Does `work` where a command that reads finds `input`, if that is anything.
    pub(super) fn with_input(&mut self, input: &StdinSource, work: impl FnOnce(&mut Self)) {
        if matches!(input, StdinSource::Nothing) {
            return work(self);
        }
        let input = self.seen_from_here(input);
        let before = std::mem::replace(&mut self.around, input);
        work(self);
        // The input that `exec` set stays.
        self.around = if self.reads_elsewhere { StdinSource::Unknown } else { before };
    }
}
