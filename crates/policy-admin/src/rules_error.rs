//! Why the rules of a file were not taken.

use countersign_config::ConfigErrors;
use countersign_core::policy::CompileError;

pub use super::approvers::{TooFew, UnknownApprover};
use super::case_result::CaseFailure;

/// Why rules were not taken.
#[derive(Debug, thiserror::Error)]
pub enum RulesLoadError {
    /// The file cannot be read, or is no rules file.
    #[error(transparent)]
    Form(#[from] ConfigErrors),
    /// The rules cannot be compiled.
    #[error("{}", joined_lines(.0))]
    Compile(Vec<CompileError>),
    /// Rules name people of whom nothing is known.
    #[error("{}", joined_lines(.0))]
    Nobody(Vec<UnknownApprover>),
    /// Rules ask for more people than can answer.
    #[error("{}", joined_lines(.0))]
    TooFew(Vec<TooFew>),
    /// Something else comes of cases than their author expects.
    #[error("{}", joined_lines(.0))]
    Cases(Vec<CaseFailure>),
}

fn joined_lines<T: ToString>(problems: &[T]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
