//! Problems with a configuration, each with its file, line and key.
//!
//! It must not repeat a value that may be secret.

use std::{fmt, path::PathBuf};

use crate::suggest;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The file.
    pub file: PathBuf,
    /// Counted from 1; 0 where it is not known.
    pub line: u64,
    /// The whole key, its levels joined by dots; empty for the file as a whole.
    pub key: String,
    /// Kind of the problem.
    pub fault: ConfigFault,
}

/// Kind of a problem. Messages do not name the key: [`ConfigProblem`] shows it before them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigFault {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Io(String),
    /// The file is not well-formed.
    #[error("{0}")]
    Syntax(String),
    /// A variable that is named in the file is not set.
    #[error("Environment variable {0} is not set")]
    Variable(String),
    /// An unknown key.
    #[error("unknown key; expected one of {}", .0.join(", "))]
    UnknownKey(&'static [&'static str]),
    /// A key that must be there is not, or is empty.
    #[error("Missing required config")]
    Missing(String),
    /// A key that must have one of a few values is not there, or is empty.
    #[error("Missing required config (must be {accepted})")]
    MissingChoice {
        /// The key.
        key: String,
        /// The accepted values.
        accepted: &'static str,
    },
    /// A value is nothing but a variable that is empty or blank, or a credential has such a variable in it.
    #[error("the environment variable {variable} is empty")]
    Empty {
        /// The variable.
        variable: String,
    },
    /// The value is of another kind.
    #[error("expected {expected}, found {found}")]
    Type {
        /// Expected value.
        expected: &'static str,
        /// Kind of the value found, never its text.
        found: &'static str,
    },
    /// The value is of the right kind and still not usable.
    #[error("{0}")]
    Refused(String),
}

/// Name of an expected value whose kind does not matter yet.
pub(super) const ANY: &str = "a value";

impl ConfigFault {
    /// Returns true if that is all, and not even the expected kind is known.
    pub(super) fn is_of_nothing_yet(&self) -> bool {
        matches!(self, Self::Type { expected: ANY, found: "nothing" })
    }

    /// Returns true if the only problem is a missing value.
    pub(super) fn is_of_nothing(&self) -> bool {
        matches!(self, Self::Type { found: "nothing", .. })
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        if let ConfigFault::UnknownKey(known) = &self.fault
            && let Some(meant) = meant_key(self.key.rsplit('.').next().unwrap_or_default(), known)
        {
            return write!(f, ": unknown key; did you mean `{meant}`? Expected one of {}", known.join(", "));
        }
        write!(f, ": {}", self.fault)
    }
}

/// Returns the key that was probably meant.
fn meant_key(key: &str, known: &[&'static str]) -> Option<&'static str> {
    // Short keys are near to everything, and no long text is one.
    let most = if key.len() < 5 { 1 } else { 2 };
    (key.len() <= 40).then(|| suggest::did_you_mean(key, known.iter().copied(), most))?
}

/// All problems; never empty. Shown one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigProblem>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
