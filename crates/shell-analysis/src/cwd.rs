//! Possible working folders of the shell at some point of a line.

use std::collections::BTreeSet;

use super::{
    path_aliases::{self, AliasTarget},
    path_globs::HiddenNames,
    word::{GLOB, UNKNOWN},
};
use crate::path;

/// The most folders that are kept.
const MOST_FOLDERS: usize = 16;

/// Possible working folders of the shell at some point of a line: `cd` may fail, so it never leaves for sure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PossibleCwd {
    dirs: BTreeSet<String>,
    unknown: bool,
    hidden_names: HiddenNames,
    /// True if it may be in any folder below those, too.
    below: bool,
    /// The folders if every `cd` of the current `&&` list succeeded: the command after one runs only then. None outside of such a
    /// list, and if one of them may have done something else.
    chained: Option<BTreeSet<String>>,
    /// The number of changes of folder so far.
    moves: usize,
    /// True if not even the line tells where it may be.
    lost: bool,
}

/// State at the beginning of a list of commands.
pub(super) struct ListStart {
    chained: Option<BTreeSet<String>>,
    moves: usize,
}

impl PossibleCwd {
    pub(super) fn from_dir(dir: &str, hidden_names: HiddenNames) -> Self {
        Self {
            dirs: BTreeSet::from([dir.to_owned()]),
            unknown: false,
            hidden_names,
            below: false,
            chained: None,
            moves: 0,
            lost: false,
        }
    }

    /// Returns the folder that it is in, if there is only one that it may be in.
    pub(super) fn only_dir(&self) -> Option<&str> {
        self.dirs.first().filter(|_| self.dirs.len() == 1 && !self.unknown).map(String::as_str)
    }

    /// Notes that it may be anywhere from here on.
    pub(super) const fn lose_track(&mut self) {
        self.unknown = true;
        self.lost = true;
    }

    /// Returns every folder that it may be in, as far as known.
    pub(super) fn possible_dirs(&self) -> impl Iterator<Item = &str> {
        self.dirs.iter().map(String::as_str)
    }

    /// Returns the same as far as no `cd` of the list at hand failed.
    pub(super) fn likely_dirs(&self) -> impl Iterator<Item = &str> {
        self.chained.as_ref().unwrap_or(&self.dirs).iter().map(String::as_str)
    }

    /// Takes note that a list of commands begins.
    pub(super) fn begin_list(&mut self) -> ListStart {
        let before = ListStart { chained: self.chained.clone(), moves: self.moves };
        if !self.unknown {
            self.chained.get_or_insert_with(|| self.dirs.clone());
        }
        before
    }

    /// Takes note that a list ends which began with `before`: what follows runs whether a `cd` of it failed or not.
    pub(super) fn end_list(&mut self, before: ListStart) {
        self.chained = before.chained.filter(|_| before.moves == self.moves);
    }

    /// Marks the rest of the list as one in which any `cd` may have failed.
    pub(super) fn lose_list(&mut self) {
        self.chained = None;
    }

    /// Notes that it may be in any folder below, too, from here on.
    pub(super) const fn go_below(&mut self) {
        self.below = true;
    }

    /// Reports whether it may be in a folder below those that are known.
    pub(super) const fn is_below(&self) -> bool {
        self.below
    }

    /// Reports whether it may be elsewhere than it was `before`.
    pub(super) fn has_left(&self, before: &Self) -> bool {
        (&self.dirs, self.unknown) != (&before.dirs, before.unknown)
    }

    /// Reports whether not even the line tells where it may be.
    pub(super) const fn is_lost(&self) -> bool {
        self.lost
    }

    /// Records a `cd` to one of `texts`; to which one is unknown.
    pub(super) fn go_to_one_of(&mut self, texts: &[String]) {
        let lost = self.lost;
        self.change_dir(None);
        self.lost = lost;
        texts.iter().for_each(|to| self.change_dir(Some(to)));
    }

    /// Reports whether it may be in the folder that `text` leads to, or below that.
    pub(super) fn is_within(&self, text: &str) -> bool {
        self.dirs.iter().any(|dir| self.dirs.iter().any(|here| path::is_within(&path::resolve(dir, text), here)))
    }

    /// Reports whether it may be anywhere.
    pub(super) const fn is_unknown(&self) -> bool {
        self.unknown
    }

    /// Returns the treatment of names that begin with a dot by a wildcard.
    pub(super) const fn hidden_names(&self) -> HiddenNames {
        self.hidden_names
    }

    /// Returns the way that `text` takes from `dir` if it goes through a name that leads elsewhere.
    pub(super) fn alias_target(&self, dir: &str, text: &str) -> Option<AliasTarget> {
        path_aliases::alias_target(self.hidden_names, dir, text)
    }

    /// Returns every path that `text` may lead to from `dir`, as far as it can be determined.
    pub(super) fn reached_paths(&self, dir: &str, text: &str) -> Vec<String> {
        path_aliases::reached_paths(self.hidden_names, dir, text)
    }

    /// Takes note of a `cd`; none or a text that is not known means anywhere.
    pub(super) fn change_dir(&mut self, to: Option<&str>) {
        self.moves += 1;
        let likely = self.likely_after(to);
        match to.filter(|to| !to.contains([UNKNOWN, GLOB]) && *to != "-") {
            Some(to) => {
                // A descriptor may be a folder's.
                let within = format!("{to}/x");
                if self.dirs.iter().any(|dir| self.alias_target(dir, &within) == Some(AliasTarget::Anywhere)) {
                    self.lose_track();
                }
                for reached in self.dirs.iter().flat_map(|dir| self.reached_paths(dir, to)).collect::<Vec<_>>() {
                    match self.dirs.len() < MOST_FOLDERS {
                        true => drop(self.dirs.insert(reached)),
                        false if !self.dirs.contains(&reached) => self.lose_track(),
                        false => {}
                    }
                }
            }
            None => self.lose_track(),
        }
        self.chained = likely;
    }

    /// Returns the folder after a `cd` that succeeded. `None` if it is not known.
    fn likely_after(&self, to: Option<&str>) -> Option<BTreeSet<String>> {
        let to = to.filter(|to| !to.contains([UNKNOWN, GLOB]) && *to != "-")?;
        let dirs = self.chained.as_ref().filter(|_| !self.unknown)?;
        Some(dirs.iter().flat_map(|dir| self.reached_paths(dir, to)).take(MOST_FOLDERS).collect())
    }
}
