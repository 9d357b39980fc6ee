//! Findings of reading one file: all problems, and notices for its author.
//!
//! It must not know any key.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
};

use super::problem::{ConfigFault, ConfigProblem};

/// A credential that is written in a file itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiteralCredential {
    /// Counted from 1.
    pub line: u64,
    /// The whole key.
    pub key: String,
}

/// Findings of reading one file.
#[derive(Debug)]
pub(super) struct FileDiagnostics {
    pub(super) file: PathBuf,
    pub(super) problems: RefCell<Vec<ConfigProblem>>,
    pub(super) warnings: RefCell<Vec<String>>,
    pub(super) literals: RefCell<Vec<LiteralCredential>>,
    /// Files that this one names and that were read.
    pub(super) files: RefCell<Vec<PathBuf>>,
}

impl FileDiagnostics {
    pub(super) fn for_file(file: &Path) -> Self {
        let (problems, warnings, literals, files) = Default::default();
        Self { file: file.to_owned(), problems, warnings, literals, files }
    }

    /// Notes a problem. A key with nothing after it is reported once, in the words of the reader that needs a value there.
    pub(super) fn add_fault(&self, line: u64, key: &str, fault: ConfigFault) {
        let is_here = |problem: &ConfigProblem| problem.line == line && problem.key == key;
        let says_more = |problem: &ConfigProblem| is_here(problem) && !problem.fault.is_of_nothing_yet();
        if fault.is_of_nothing() && self.problems.borrow().iter().any(says_more) {
            return;
        }
        self.problems.borrow_mut().retain(|problem| !(is_here(problem) && problem.fault.is_of_nothing()));
        self.problems.borrow_mut().push(ConfigProblem { file: self.file.clone(), line, key: key.to_owned(), fault });
    }

    /// Returns the folder that relative paths in the file start from.
    pub(super) fn folder(&self) -> &Path {
        self.file.parent().unwrap_or_else(|| Path::new(""))
    }
}
