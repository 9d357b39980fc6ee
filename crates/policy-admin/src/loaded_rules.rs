//! Rules as they were read from a file.

use countersign_config::PolicyCase;
use countersign_core::engine::ActiveRules;

/// Rules, and the warnings about them for a person.
#[derive(Debug)]
pub struct LoadedRules {
    /// The rules.
    pub rules: ActiveRules,
    /// The cases that they are tested with.
    pub cases: Vec<PolicyCase>,
    /// Number of rules and defaults.
    pub count: usize,
    /// One line each.
    pub warnings: Vec<String>,
    /// Warnings among them that a rule matches nothing, with its line.
    pub idle: Vec<(u32, String)>,
}
