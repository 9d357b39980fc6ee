//! Rules that decide nothing, because another one goes before them wherever they fit.

use countersign_core::policy::{Action, Compiled, Rule, Side, matches};

/// Says of every rule that decides nothing which one goes before it. Those of the lines `idle` match nothing themselves.
pub(super) fn all(compiled: &Compiled, idle: &[u32]) -> Vec<String> {
    let listed = compiled.rules().filter(|listed| !listed.is_default);
    let told = listed.filter_map(|listed| {
        let before = outranked(listed.rule, compiled, idle)?;
        let (origin, pattern) = (&listed.named.origin, &listed.named.pattern);
        Some(format!("{origin}: {pattern} decides nothing: {before} goes before it wherever it fits"))
    });
    told.collect()
}

/// A rule that decides before `rule` about whatever that one fits, as far as their texts show.
pub(crate) fn outranked(rule: &Rule, compiled: &Compiled, idle: &[u32]) -> Option<String> {
    let pattern = rule.pattern.as_deref()?;
    let goes_before = |other: &Rule| match rule.action {
        Action::Deny => false,
        Action::Allow => other.action == Action::Deny,
        Action::Ask => other.action != Action::Ask,
    };
    let covers = |wide: Option<&str>, narrow: Option<&str>| match (wide, narrow) {
        (None, _) => true,
        (Some(wide), Some(narrow)) => covers(wide, narrow),
        (Some(_), None) => false,
    };
    let found = compiled
        .rules()
        .filter(|listed| !listed.is_default && goes_before(listed.rule) && !idle.contains(&listed.named.origin.line))
        .find(|listed| {
            let bounds = Side::ALL.iter().all(|side| covers(side.of(listed.rule), side.of(rule)));
            bounds && listed.rule.pattern.as_deref().is_some_and(|wide| self::covers(wide, pattern))
        });
    found.map(|listed| format!("{} ({})", listed.named.pattern, listed.named.origin))
}

/// Whether whatever matches `narrow` matches `wide`. Where that is not plain, it says no.
fn covers(wide: &str, narrow: &str) -> bool {
    // Without other wildcards a star of `wide` is all that can stand for one of `narrow`.
    let is_plain = !wide.contains(['?', '[']) && !narrow.contains('[');
    wide == narrow || is_plain && matches(wide, narrow)
}

#[cfg(test)]
mod tests {
    use super::covers;

    #[test]
    fn a_pattern_covers_another_only_where_that_is_plain() {
        for (wide, narrow, want) in [
            ("turn(lock*", "turn(lock-1, *)", true),
            ("turn(lock*", "turn(l*", false),
            ("*", "anything?(*)", true),
            ("turn(?)", "turn(*)", false),
            ("turn(*]", "turn([a]", false),
            ("turn([ab])", "turn([ab])", true),
            ("turn(lamp)", "turn(*)", false),
        ] {
            assert_eq!(covers(wide, narrow), want, "{wide} {narrow}");
        }
    }
}
