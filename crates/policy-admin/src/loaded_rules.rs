//! Rules as they were read from a file.

use std::collections::{HashMap, HashSet};

use countersign_config::PolicyCase;
use countersign_core::engine::ActiveRules;

use super::malformed::{MalformedRule, restrictions_without_effect};

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
        let malformed: HashMap<&str, &MalformedRule> =
            malformed.iter().map(|rule| (rule.message.as_str(), rule)).collect();
        let to_warning = |warning: &String| {
            malformed.get(warning.as_str()).map_or_else(|| warning.clone(), |rule| rule.effect_warning())
        };
        self.warnings.iter().map(to_warning).collect()
    }

    /// Returns the warnings about other rules than the `malformed` ones, which the caller reports as errors.
    pub fn other_warnings(&self, malformed: &[MalformedRule]) -> Vec<String> {
        let known: HashSet<&str> = malformed.iter().map(|rule| rule.message.as_str()).collect();
        self.warnings.iter().filter(|warning| !known.contains(warning.as_str())).cloned().collect()
    }
}
