//! What is found out while one file is read: everything that is wrong with it, and what its author should know.
//!
//! It must not know any key.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
};

use super::problem::{Fault, Problem};

/// A credential that stands in a file as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Literal {
    /// Counted from 1.
    pub line: u64,
    /// The whole key.
    pub key: String,
}

/// What was found out while one file was read.
#[derive(Debug)]
pub(super) struct Notes {
    pub(super) file: PathBuf,
    pub(super) problems: RefCell<Vec<Problem>>,
    pub(super) warnings: RefCell<Vec<String>>,
    pub(super) literals: RefCell<Vec<Literal>>,
    /// Files that this one names and that were read.
    pub(super) files: RefCell<Vec<PathBuf>>,
}

impl Notes {
    pub(super) fn of(file: &Path) -> Self {
        let (problems, warnings, literals, files) = Default::default();
        Self { file: file.to_owned(), problems, warnings, literals, files }
    }

    /// Notes what is wrong. A key with nothing behind it is told once, in the words of whoever needs a value there.
    pub(super) fn fault(&self, line: u64, key: &str, fault: Fault) {
        let is_here = |problem: &Problem| problem.line == line && problem.key == key;
        let says_more = |problem: &Problem| is_here(problem) && !problem.fault.is_of_nothing_yet();
        if fault.is_of_nothing() && self.problems.borrow().iter().any(says_more) {
            return;
        }
        self.problems.borrow_mut().retain(|problem| !(is_here(problem) && problem.fault.is_of_nothing()));
        self.problems.borrow_mut().push(Problem { file: self.file.clone(), line, key: key.to_owned(), fault });
    }

    /// The folder that relative paths in the file start from.
    pub(super) fn folder(&self) -> &Path {
        self.file.parent().unwrap_or_else(|| Path::new(""))
    }
}
