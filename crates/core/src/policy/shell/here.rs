//! Where the shell is at some point of a line.

use std::collections::BTreeSet;

use super::{
    roundabout::{Way, reached, straight},
    word::{GLOB, UNKNOWN},
};
use crate::policy::path;

/// The most folders that are kept.
const MOST_FOLDERS: usize = 16;

/// Where the shell may be at some point of a line: `cd` may fail, so it never leaves for sure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Here {
    dirs: BTreeSet<String>,
    unknown: bool,
    matches_hidden: bool,
}

impl Here {
    pub(super) fn at(dir: &str, matches_hidden: bool) -> Self {
        Self { dirs: BTreeSet::from([dir.to_owned()]), unknown: false, matches_hidden }
    }

    /// The folder that it is in, if there is only one that it may be in.
    pub(super) fn only(&self) -> Option<&str> {
        self.dirs.first().filter(|_| self.dirs.len() == 1 && !self.unknown).map(String::as_str)
    }

    /// From here on it may be anywhere.
    pub(super) const fn lose(&mut self) {
        self.unknown = true;
    }

    /// Every folder that it may be in, as far as known.
    pub(super) fn dirs(&self) -> impl Iterator<Item = &str> {
        self.dirs.iter().map(String::as_str)
    }

    /// True if it may be in the folder that `text` leads to, or below that.
    pub(super) fn is_within(&self, text: &str) -> bool {
        self.dirs.iter().any(|dir| self.dirs.iter().any(|here| path::is_within(&path::resolve(dir, text), here)))
    }

    /// True if it may be anywhere.
    pub(super) const fn is_unknown(&self) -> bool {
        self.unknown
    }

    /// True if a wildcard may match a name that begins with a dot.
    pub(super) const fn matches_hidden(&self) -> bool {
        self.matches_hidden
    }

    /// Takes note of a `cd`; none or a text that is not known means anywhere.
    pub(super) fn go(&mut self, to: Option<&str>) {
        match to.filter(|to| !to.contains([UNKNOWN, GLOB]) && *to != "-") {
            Some(to) => {
                // A descriptor may be a folder's.
                let within = format!("{to}/x");
                self.unknown |= self.dirs.iter().any(|dir| straight(self, dir, &within) == Some(Way::Anywhere));
                for reached in self.dirs.iter().flat_map(|dir| reached(self, dir, to)).collect::<Vec<_>>() {
                    match self.dirs.len() < MOST_FOLDERS {
                        true => drop(self.dirs.insert(reached)),
                        false => self.unknown |= !self.dirs.contains(&reached),
                    }
                }
            }
            None => self.unknown = true,
        }
    }
}
