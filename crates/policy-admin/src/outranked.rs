//! Rules that decide nothing, because another one goes before them wherever they fit.

use std::collections::BTreeSet;

use countersign_core::policy::{self, CompiledRules, Rule};

use super::unchecked::unchecked_note;

/// Names, for every rule that decides nothing, the rule that goes before it. Rules of the lines `idle` match nothing themselves.
pub(super) fn outranked_rules(name: &str, compiled: &CompiledRules, idle: &BTreeSet<u32>) -> Vec<String> {
    let (mut precedence, mut warnings, mut left) = (compiled.precedence_check(), Vec::new(), 0);
    for listed in compiled.rules().filter(|listed| !listed.is_default) {
        match precedence.preceding_rule(listed.rule, |before| !idle.contains(&before.named.origin.line)) {
            Ok(Some(before)) => {
                let (origin, pattern) = (&listed.named.origin, &listed.named.pattern);
                let before = format!("{} ({})", before.named.pattern, before.named.origin);
                warnings
                    .push(format!("{origin}: {pattern} has no effect: {before} takes precedence wherever it matches"));
            }
            Ok(None) => {}
            Err(policy::SearchLimitReached) => left += 1,
        }
    }
    warnings.extend(unchecked_note(name, left, "rules that take precedence"));
    warnings
}

/// Returns the pattern and place of a rule that decides before `rule` in all its cases, as far as their texts show.
pub fn outranking_rule(rule: &Rule, compiled: &CompiledRules, idle: &BTreeSet<u32>) -> Option<String> {
    let found = compiled.preceding_rule(rule, |listed| !idle.contains(&listed.named.origin.line))?;
    Some(format!("{} ({})", found.named.pattern, found.named.origin))
}
