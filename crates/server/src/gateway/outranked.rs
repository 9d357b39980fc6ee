//! Rules that decide nothing, because another one goes before them wherever they fit.

use std::collections::BTreeSet;

use countersign_core::policy::{Compiled, Rule};

/// Names, for every rule that decides nothing, the rule that goes before it. Rules of the lines `idle` match nothing themselves.
pub(super) fn all(compiled: &Compiled, idle: &BTreeSet<u32>) -> Vec<String> {
    let listed = compiled.rules().filter(|listed| !listed.is_default);
    let told = listed.filter_map(|listed| {
        let before = outranked(listed.rule, compiled, idle)?;
        let (origin, pattern) = (&listed.named.origin, &listed.named.pattern);
        Some(format!("{origin}: {pattern} decides nothing: {before} goes before it wherever it fits"))
    });
    told.collect()
}

/// Returns the pattern and place of a rule that decides before `rule` about whatever `rule` fits, as far as their texts show.
pub(crate) fn outranked(rule: &Rule, compiled: &Compiled, idle: &BTreeSet<u32>) -> Option<String> {
    let found = compiled.preceding(rule, |listed| !idle.contains(&listed.named.origin.line))?;
    Some(format!("{} ({})", found.named.pattern, found.named.origin))
}
