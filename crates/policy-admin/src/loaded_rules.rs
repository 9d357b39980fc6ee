//! Rules as they were read from a file.

use countersign_config::PolicyCase;
use countersign_core::engine::ActiveRules;

use super::malformed::restrictions_without_effect;

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

impl LoadedRules {
    /// Returns the warnings of a start: those about a deny or ask rule that matches nothing name its missing effect.
    pub fn start_warnings(&self) -> Vec<String> {
        let malformed = restrictions_without_effect(&self.rules.compiled);
        let to_warning = |warning: &String| {
            let rule = malformed.iter().find(|rule| rule.message == *warning);
            rule.map_or_else(|| warning.clone(), |rule| rule.effect_warning())
        };
        self.warnings.iter().map(to_warning).collect()
    }
}
