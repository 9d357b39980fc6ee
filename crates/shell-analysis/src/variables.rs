//! Possible values of the variables of a line, as far as the line itself, its call or the shell sets them.
//!
//! It knows no order: a value that is set anywhere in the line counts everywhere.

mod operators;

use std::collections::{BTreeMap, BTreeSet};

use super::{
    line::Place,
    programs::is_dangerous_variable,
    word::{self, FILLED, GLOB, KnownVariables, ShellWord, UNKNOWN},
};
use crate::secret;

/// The most values of one word that are tried.
const MOST_CHOICES: usize = 64;

/// The most values that are tried in one line; where it is put in, a long one counts once more for each [`LONG`] bytes.
const MOST_TRIED: usize = 4_096;

/// Length from which a value counts as long, in bytes.
const LONG: usize = 256;

/// Maximum growth of a value over the word that sets it, in bytes: each of a few words may double it.
const MOST_LONGER: usize = 4_096;

/// Variables that the shell fills by itself, with words of the line among other things.
const BY_SHELL: &str = "_ REPLY OPTARG BASH_REMATCH BASH_COMMAND BASH_EXECUTION_STRING BASH_ARGV MAPFILE DIRSTACK FUNCNAME COMP_LINE \
    COMP_WORDS COMPREPLY READLINE_LINE HISTCMD OLDPWD";

/// Error: more values than are tried.
#[derive(Debug)]
pub(super) struct TooManyValues;

/// Every value that a variable may hold.
#[derive(Clone, Debug, Default)]
pub(super) struct LineVariables {
    values: BTreeMap<String, BTreeSet<String>>,
    /// Those that may hold too many values to look at.
    endless: BTreeSet<String>,
    /// True if the line may set any of them: by a name that is put together, or in a text that is not judged.
    any: bool,
    /// True if a line before may have set variables that this one does not set.
    before: bool,
    tried: usize,
}

impl PartialEq for LineVariables {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values && self.endless == other.endless && self.any == other.any
    }
}

impl LineVariables {
    /// Returns the variables that the call sets.
    pub(super) fn new(place: &Place) -> Self {
        let mut variables = Self { before: place.is_later, ..Self::default() };
        // The value of a secret is not known here.
        for (name, value) in place.environment.iter().filter(|(_, value)| !secret::is_asked_for(value)) {
            variables.insert_value(name, value);
        }
        variables
    }

    /// Takes note of a word that may be an assignment.
    pub(super) fn note_assignment(&mut self, word: &ShellWord, place: &Place) {
        for text in std::iter::once(&word.value).chain(&word.perhaps) {
            let Some((name, value)) = text.split_once('=') else { continue };
            let at_home = value.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'));
            let at_home = at_home.zip(place.home.as_ref()).map(|(rest, home)| format!("{home}{rest}"));
            let value = at_home.as_deref().unwrap_or(value);
            let most = word.value.len() + MOST_LONGER;
            match name.strip_suffix('+') {
                Some(name) => {
                    let before: Vec<String> = self.values.get(name).into_iter().flatten().cloned().collect();
                    before.iter().for_each(|before| self.insert_short(name, &format!("{before}{value}"), most));
                    self.insert_short(name, value, most);
                }
                None => self.insert_short(name, value, most),
            }
        }
    }

    /// Takes note that the line fills `name` with what it reads: that may be an option too.
    pub(super) fn fill_variable(&mut self, name: &str) {
        self.insert_value(name, FILLED);
    }

    /// Takes note that the line may set any variable.
    pub(super) const fn lose_track(&mut self) {
        self.any = true;
    }

    /// Reports whether a loop that sets `name` gives all its possible values: nothing else fills it.
    pub(super) fn is_told(&self, name: &str) -> bool {
        let is_filled = || self.values.get(name).is_some_and(|values| values.contains(FILLED));
        !self.any && !is_by_shell(name) && !is_filled()
    }

    /// Reports whether a line before may have left a value in `name`, as it stands in braces, that this line does not set. Some need an
    /// approval for every setting.
    pub(super) fn may_be_left(&self, name: &str) -> bool {
        let (plain, _) = split_operator(name);
        self.before && !plain.is_empty() && !self.values.contains_key(plain) && !is_dangerous_variable(plain)
    }

    /// Reports whether `name`, as it stands in braces, computes a value that is not followed here: another expansion in it, signs that
    /// quote, or parts that this line does not set.
    pub(super) fn is_unfollowed(&self, name: &str) -> bool {
        let (plain, operator) = split_operator(name);
        let is_set = self.values.contains_key(plain);
        let at_home = ["${HOME}", "$HOME", "${PWD}", "$PWD"]
            .iter()
            .fold(operator.to_owned(), |text, folder| text.replace(folder, ""));
        let expands = at_home.contains(['$', '`']);
        let quotes = operator.contains(['\'', '"', '\\']);
        match operator.as_bytes() {
            [] | [b'[', ..] => false,
            [b':', b'-' | b'=' | b'+' | b'?', ..] | [b'-' | b'=' | b'+' | b'?', ..] => expands,
            // A part of a known value can be anything that is in it.
            [b':', ..] => expands || quotes || !is_set && is_known_everywhere(plain),
            [b'/', ..] if is_set => expands || quotes,
            // The inserted text is the line's own.
            [b'/', ..] => operator.rsplit('/').next().is_some_and(|put| put.contains(TELLING)),
            _ => is_set && (expands || quotes),
        }
    }

    /// Takes note that `name` may hold what `word` says.
    pub(super) fn set_value(&mut self, name: &str, word: &ShellWord) {
        let most = word.value.len() + MOST_LONGER;
        std::iter::once(&word.value).chain(&word.perhaps).for_each(|value| self.insert_short(name, value, most));
    }

    /// Returns every way in which `names` may be filled in; `folders` are values that the shell itself gives.
    ///
    /// # Errors
    /// [`TooManyValues`].
    pub(super) fn value_choices(
        &mut self,
        names: &[String],
        folders: &[(&str, String)],
    ) -> Result<Vec<Vec<(String, String)>>, TooManyValues> {
        let mut choices = vec![Vec::new()];
        for name in names.iter().collect::<BTreeSet<_>>() {
            if self.tried > MOST_TRIED || self.endless.contains(split_operator(name).0) {
                return Err(TooManyValues);
            }
            let values = self.possible_values(name, folders);
            if values.is_empty() {
                continue;
            }
            if choices.len() * values.len() > MOST_CHOICES {
                return Err(TooManyValues);
            }
            choices = choices
                .iter()
                .flat_map(|known: &Vec<(String, String)>| {
                    values.iter().map(move |value| {
                        let mut longer = known.clone();
                        longer.push((name.clone(), value.clone()));
                        longer
                    })
                })
                .collect();
        }
        choices.retain(|choice| !choice.is_empty());
        let bytes = |(of, value): &(String, String)| names.iter().filter(|name| *name == of).count() * value.len();
        let tries = |choice: &Vec<(String, String)>| 1 + choice.iter().map(bytes).sum::<usize>() / LONG;
        self.tried += choices.iter().map(tries).sum::<usize>();
        Ok(choices)
    }

    /// Returns the possible values of `name`, or of `name:-text` as it stands in braces.
    fn possible_values(&self, name: &str, folders: &[(&str, String)]) -> Vec<String> {
        let (plain, operator) = split_operator(name);
        let mut values: Vec<String> = self.values.get(plain).into_iter().flatten().cloned().collect();
        values.extend(folders.iter().filter(|(known, _)| *known == plain).map(|(_, value)| value.clone()));
        let otherwise = [":-", ":=", ":+", "-", "=", "+"].iter().find_map(|sign| operator.strip_prefix(sign));
        if is_by_shell(plain) {
            values.push(FILLED.to_owned());
        }
        if let Some(otherwise) = otherwise {
            let home = folders.iter().find(|(known, _)| *known == "HOME").map(|(_, home)| home.as_str());
            values.push(word::scan_word(otherwise, KnownVariables { home, cwd: None, tried: &[] }).value);
        } else if !operator.is_empty() && !operator.starts_with('[') {
            let is_filled = |value: &String| value == FILLED;
            let computed = operators::apply_operator(operator, &values).filter(|_| !values.iter().any(is_filled));
            // A value that is computed in a way that is not followed may be anything.
            values = computed.filter(|computed| !computed.is_empty()).unwrap_or_else(|| vec![FILLED.to_owned()]);
        }
        // A value that begins with an unknown part may begin with a dash.
        values.iter_mut().filter(|value| value.starts_with(UNKNOWN)).for_each(|value| FILLED.clone_into(value));
        values
    }

    /// Adds a value that expansions made, unless they made more than `most` bytes of it.
    fn insert_short(&mut self, name: &str, value: &str, most: usize) {
        if value.len() > most {
            self.endless.insert(name.to_owned());
        } else {
            self.insert_value(name, value);
        }
    }

    fn insert_value(&mut self, name: &str, value: &str) {
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let values = if is_name { self.values.entry(name.to_owned()).or_default() } else { return };
        // One more than is ever tried, so that there are always too many.
        if values.len() <= MOST_CHOICES {
            // Unquoted, what the variable holds is a pattern too.
            values.insert(value.replace(['*', '?', '['], &GLOB.to_string()));
        }
    }
}

/// Splits a variable's name from the operator that follows it in braces.
fn split_operator(name: &str) -> (&str, &str) {
    name.split_at(name.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(name.len()))
}

/// Signs of options, paths and the ends of lists.
const TELLING: [char; 11] = ['-', '+', '.', '$', '`', ';', '{', '(', '[', '~', '='];

/// Variables with values that are known everywhere, or in part.
const KNOWN_EVERYWHERE: &str = "OSTYPE MACHTYPE HOSTTYPE BASH BASH_VERSION BASHOPTS SHELLOPTS PATH HOME PWD OLDPWD SHELL TERM LANG LC_ALL TZ \
    USER LOGNAME HOSTNAME UID EUID IFS PS4 0";

fn is_known_everywhere(name: &str) -> bool {
    KNOWN_EVERYWHERE.split_ascii_whitespace().any(|known| known == name)
}

/// Reports whether the shell fills a variable by itself.
fn is_by_shell(name: &str) -> bool {
    BY_SHELL.split_ascii_whitespace().any(|known| known == name)
}
