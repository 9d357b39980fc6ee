//! Findings of reading one file: all problems, and notices for its author.
//!
//! It must not know any key.

use std::{
    cell::RefCell,
    collections::{HashMap, HashSet},
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

    /// Notes a problem.
    pub(super) fn add_fault(&self, line: u64, key: &str, fault: ConfigFault) {
        self.problems.borrow_mut().push(ConfigProblem { file: self.file.clone(), line, key: key.to_owned(), fault });
    }

    /// Reports whether a key of this section of the file has a problem, or the section itself.
    pub(super) fn has_fault_in(&self, section: &str) -> bool {
        let is_in = |key: &str| key.strip_prefix(section).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        self.problems.borrow().iter().any(|problem| problem.file == self.file && is_in(&problem.key))
    }

    /// Takes all problems. A key with nothing after it is among them once, in the words of the reader that needs a value there.
    pub(super) fn take_problems(&self) -> Vec<ConfigProblem> {
        let mut problems = self.problems.take();
        let mut best = HashMap::new();
        for (at, problem) in problems.iter().enumerate() {
            let chosen = best.entry((&problem.file, problem.line, &problem.key)).or_insert(at);
            if precision(problem) > precision(&problems[*chosen]) {
                *chosen = at;
            }
        }
        let best: HashSet<usize> = best.into_values().collect();
        let mut at = 0..;
        problems.retain(|problem| at.next().is_some_and(|at| best.contains(&at)) || !problem.fault.is_of_nothing());
        problems
    }

    /// Returns the folder that relative paths in the file start from.
    pub(super) fn folder(&self) -> &Path {
        self.file.parent().unwrap_or_else(|| Path::new(""))
    }
}

/// Returns how much a problem says about its key: least that there is nothing, more that a certain value is missing, most anything else.
fn precision(problem: &ConfigProblem) -> u8 {
    match &problem.fault {
        fault if fault.is_of_nothing_yet() => 0,
        fault if fault.is_of_nothing() => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::FileDiagnostics;
    use crate::problem::ConfigFault;

    #[test]
    fn every_fault_of_a_file_is_reported_however_many_there_are() {
        for count in [10, 1_000, 100_000] {
            let notes = FileDiagnostics::for_file(Path::new("permissions.yaml"));
            for line in 0..count {
                let nothing = ConfigFault::Type { expected: "a text", found: "nothing" };
                notes.add_fault(line, "rules", nothing);
                notes.add_fault(line, "rules", ConfigFault::Refused("no such action".to_owned()));
            }
            let lines: Vec<u64> = notes.take_problems().iter().map(|problem| problem.line).collect();
            assert_eq!(lines, (0..count).collect::<Vec<_>>());
        }
    }
}
