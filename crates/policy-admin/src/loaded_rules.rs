//! Rules as they were read from a file.

use countersign_config::PolicyCase;
use countersign_core::engine::ActiveRules;

/// Rules, and what a person should know about them.
#[derive(Debug)]
pub struct LoadedRules {
    /// The rules.
    pub rules: ActiveRules,
    /// The cases that they are tested with.
    pub cases: Vec<PolicyCase>,
    /// How many rules and defaults there are.
    pub count: usize,
    /// One line each.
    pub warnings: Vec<String>,
    /// Those of them that say of a rule that it matches nothing, with its line.
    pub idle: Vec<(u32, String)>,
}
