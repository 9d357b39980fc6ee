//! Finds the rule that decides before another one wherever that one fits. Knows nothing of calls.
//!
//! The tables that decisions are looked up in are asked with the pattern of the rule as if it were the text of a call, so
//! that a file of many rules is not compared rule by rule.

use crate::policy::{
    bound::{Caller, Side},
    compile::{Compiled, Listed},
    fnmatch::matches,
    rules::{Action, Rule},
    table::Table,
};

impl Compiled {
    /// Returns the first rule that decides before `rule` about every call that `rule` fits, as far as their texts show it.
    /// Rules that `counts` refuses, defaults and rules on arguments are never that rule.
    pub fn preceding<'a>(&'a self, rule: &Rule, counts: impl Fn(&Listed<'a>) -> bool) -> Option<Listed<'a>> {
        let pattern = rule.pattern.as_deref()?;
        let tables = self.tables();
        let before: &[&Table] = match rule.action {
            Action::Deny => &[],
            Action::Allow => &[&tables.deny],
            Action::Ask => &[&tables.deny, &tables.allow],
        };
        let caller = Caller::bound_by(rule);
        let first = |table: &&Table| {
            let lookup = table.of(caller);
            let mut next = lookup.first(pattern);
            while let Some(rank) = next {
                let listed = self.listed(rank);
                if counts(&listed) && covers(listed.rule, rule) {
                    return Some(rank);
                }
                next = lookup.first_where(pattern, |other| other > rank);
            }
            None
        };
        before.iter().filter_map(first).min().map(|rank| self.listed(rank))
    }
}

/// True if `wide` plainly fits whatever `narrow` fits.
fn covers(wide: &Rule, narrow: &Rule) -> bool {
    let bounds = Side::ALL.iter().all(|side| match (side.of(wide), side.of(narrow)) {
        // Whoever asks has a name, so a star over it bounds nothing.
        (None, _) | (Some("*"), None) => true,
        (Some(wide), Some(narrow)) => pattern_covers(wide, narrow),
        (Some(_), None) => false,
    });
    bounds && matches!((&wide.pattern, &narrow.pattern), (Some(wide), Some(narrow)) if pattern_covers(wide, narrow))
}

/// True if whatever matches `narrow` matches `wide`. Where that is not plain, it says no.
fn pattern_covers(wide: &str, narrow: &str) -> bool {
    // Without other wildcards a star of `wide` is all that can stand for one of `narrow`.
    let is_plain = !wide.contains(['?', '[']) && !narrow.contains('[');
    wide == narrow || is_plain && matches(wide, narrow)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::pattern_covers;
    use crate::policy::{Layer, Rules, Source, compile};

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
            assert_eq!(pattern_covers(wide, narrow), want, "{wide} {narrow}");
        }
    }

    #[test]
    fn a_rule_is_preceded_by_a_stricter_one_that_is_bound_no_narrower() {
        for (before, rule, want) in [
            (json!({"pattern": "t(*", "action": "deny"}), json!({"pattern": "t(a)", "action": "allow"}), true),
            (json!({"pattern": "t(*", "action": "allow"}), json!({"pattern": "t(a)", "action": "ask"}), true),
            (json!({"pattern": "t(*", "action": "ask"}), json!({"pattern": "t(a)", "action": "allow"}), false),
            (json!({"pattern": "t(*", "action": "allow"}), json!({"pattern": "t(a)", "action": "deny"}), false),
            (json!({"pattern": "t(a)", "action": "deny"}), json!({"pattern": "t(*", "action": "allow"}), false),
            (json!({"tool": "t", "action": "deny"}), json!({"pattern": "t(a)", "action": "allow"}), false),
        ] {
            assert_eq!(preceded(&[before.clone(), rule.clone()], 1), want, "{before} {rule}");
        }
        for (wide, narrow, want) in [
            (json!(null), json!("kitchen"), true),
            (json!("k*"), json!("kitchen"), true),
            (json!("*"), json!(null), true),
            (json!("k*"), json!(null), false),
            (json!("agent:k*"), json!("agent:kitchen"), true),
            // A pattern that does not begin with the kind of the principal is about ids alone.
            (json!("agent*"), json!("agent:kitchen"), false),
            (json!("k?"), json!("k*"), false),
        ] {
            let rule = |principal: &Value, action: &str| {
                let mut rule = json!({"pattern": "t", "action": action});
                if !principal.is_null() {
                    rule["principal"] = principal.clone();
                }
                rule
            };
            assert_eq!(preceded(&[rule(&wide, "deny"), rule(&narrow, "allow")], 1), want, "{wide} {narrow}");
        }
    }

    #[test]
    fn the_first_rule_that_counts_is_named() {
        let rules = json!([
            {"pattern": "t*", "action": "deny"},
            {"pattern": "t(?)", "action": "deny"},
            {"pattern": "t(*", "action": "deny"},
            {"pattern": "t(a)", "action": "allow"},
        ]);
        let compiled = compiled(&rules);
        let last = compiled.rules().last().unwrap().rule;
        let found = |skip: &str| compiled.preceding(last, |listed| listed.named.pattern != skip);
        assert_eq!(found("").unwrap().named.pattern, "t*");
        assert_eq!(found("t*").unwrap().named.pattern, "t(*");
    }

    fn preceded(rules: &[Value], at: usize) -> bool {
        let compiled = compiled(&json!(rules));
        let rule = compiled.rules().nth(at).unwrap().rule;
        compiled.preceding(rule, |_| true).is_some()
    }

    fn compiled(rules: &Value) -> crate::policy::Compiled {
        let rules: Rules = serde_json::from_value(json!({ "rules": rules })).unwrap();
        compile(vec![Source { name: "permissions.yaml".to_owned(), layer: Layer::Main, rules }]).unwrap()
    }
}
