//! Finds the rule that decides before another one in all its cases. Knows nothing of calls.
//!
//! The decision tables are queried with the pattern of the rule as if it were the text of a call, so
//! that a file of many rules is not compared rule by rule.

use crate::policy::{
    compile::{CompiledRules, RuleRef},
    fnmatch::pattern_matches,
    rule_scope::{CallerScope, RuleScopeKey},
    rules::{Rule, RuleAction},
    search_budget::SearchBudget,
    table::RuleTable,
};

/// A search through many rules for those that others precede.
///
/// Its steps grow with the number of rules and not with its square. If patterns match too many others for
/// that, it stops at a limit.
#[derive(Clone, Debug)]
pub struct PrecedenceCheck<'a> {
    compiled: &'a CompiledRules,
    effort: SearchBudget,
}

/// The search through all rules reached its limit of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("precedence check stopped: too many overlapping patterns")]
pub struct SearchLimitReached;

impl<'a> PrecedenceCheck<'a> {
    /// Returns the same as [`CompiledRules::preceding_rule`].
    ///
    /// # Errors
    /// [`SearchLimitReached`] if that would take too long.
    pub fn preceding_rule(
        &mut self,
        rule: &Rule,
        counts: impl Fn(&RuleRef<'a>) -> bool,
    ) -> Result<Option<RuleRef<'a>>, SearchLimitReached> {
        if self.effort.is_spent() {
            return Err(SearchLimitReached);
        }
        Ok(self.compiled.preceding_counted(rule, counts, &mut self.effort.taken))
    }
}

impl CompiledRules {
    /// Begins a search through all rules.
    pub fn precedence_check(&self) -> PrecedenceCheck<'_> {
        PrecedenceCheck { compiled: self, effort: SearchBudget::of_rules(self.rules().count()) }
    }

    /// Returns the first rule that decides before `rule` about every call that `rule` matches, as far as their texts show it.
    /// Rules that `counts` refuses, defaults and rules on arguments are never that rule.
    pub fn preceding_rule<'a>(&'a self, rule: &Rule, counts: impl Fn(&RuleRef<'a>) -> bool) -> Option<RuleRef<'a>> {
        self.preceding_counted(rule, counts, &mut 0)
    }

    fn preceding_counted<'a>(
        &'a self,
        rule: &Rule,
        counts: impl Fn(&RuleRef<'a>) -> bool,
        steps: &mut usize,
    ) -> Option<RuleRef<'a>> {
        let pattern = rule.pattern.as_deref()?;
        let tables = self.tables();
        let before: &[&RuleTable] = match rule.action {
            RuleAction::Deny => &[],
            RuleAction::Allow => &[&tables.deny],
            RuleAction::Ask => &[&tables.deny, &tables.allow],
        };
        let caller = CallerScope::bound_by(rule);
        let predicate = |rank: usize| {
            let listed = self.rule_at(rank);
            counts(&listed) && rule_covers(listed.rule, rule)
        };
        let first = before.iter().filter_map(|table| table.first_counted(caller, pattern, steps, predicate));
        first.min().map(|rank| self.rule_at(rank))
    }
}

/// Reports whether `wide` plainly matches everything that `narrow` matches.
fn rule_covers(wide: &Rule, narrow: &Rule) -> bool {
    let bounds = RuleScopeKey::ALL.iter().all(|side| match (side.rule_pattern(wide), side.rule_pattern(narrow)) {
        // Every caller has a name, so a star over it bounds nothing.
        (None, _) | (Some("*"), None) => true,
        (Some(wide), Some(narrow)) => pattern_covers(wide, narrow),
        (Some(_), None) => false,
    });
    bounds && matches!((&wide.pattern, &narrow.pattern), (Some(wide), Some(narrow)) if pattern_covers(wide, narrow))
}

/// Reports whether `wide` matches everything that `narrow` matches. In doubt it returns false.
fn pattern_covers(wide: &str, narrow: &str) -> bool {
    // Without other wildcards only a star of `wide` can match one of `narrow`.
    let is_plain = !wide.contains(['?', '[']) && !narrow.contains('[');
    wide == narrow || is_plain && pattern_matches(wide, narrow)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::pattern_covers;
    use crate::policy::{CompiledRules, Rule, RuleAction, RuleLayer, RuleSet, RuleSource, SearchBudget, compile_rules};

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
        let found = |skip: &str| compiled.preceding_rule(last, |listed| listed.named.pattern != skip);
        assert_eq!(found("").unwrap().named.pattern, "t*");
        assert_eq!(found("t*").unwrap().named.pattern, "t(*");
    }

    fn preceded(rules: &[Value], at: usize) -> bool {
        let compiled = compiled(&json!(rules));
        let rule = compiled.rules().nth(at).unwrap().rule;
        compiled.preceding_rule(rule, |_| true).is_some()
    }

    fn compiled(rules: &Value) -> CompiledRules {
        let rules: RuleSet = serde_json::from_value(json!({ "rules": rules })).unwrap();
        compile_rules(vec![RuleSource { name: "permissions.yaml".to_owned(), layer: RuleLayer::Main, rules }]).unwrap()
    }

    /// Layouts of files, each a rule by its number.
    const LAYOUTS: [fn(usize) -> String; 12] = [
        |at| format!("bash(tool{at} *)"),
        |at| format!("call(*, light.l{at})"),
        |at| format!("*{at}"),
        |at| format!("*{at}*"),
        |at| format!("?x{at}y*"),
        |at| format!("bash(* --x{at} *)"),
        |at| format!("bash(*{} *{}*)", at % 100, at / 100),
        |at| format!("b[a-z]sh([abc]?{at}*[!x]*)"),
        |at| format!("bash(* [t]ool-{at} ?)"),
        |_| "bash(*)".to_owned(),
        |at| format!("t{}(*)", at % 7),
        |at| format!("*é{at}日*"),
    ];

    fn file(count: usize, rule: impl Fn(usize) -> Rule) -> CompiledRules {
        let rules = RuleSet { rules: (0..count).map(rule).collect(), ..RuleSet::default() };
        compile_rules(vec![RuleSource { name: "permissions.yaml".to_owned(), layer: RuleLayer::Main, rules }]).unwrap()
    }

    fn action(at: usize) -> RuleAction {
        [RuleAction::Deny, RuleAction::Allow, RuleAction::Ask][at % 3]
    }

    #[test]
    fn steps_for_a_rule_do_not_grow_with_the_number_of_rules() {
        for count in [10, 1_000, 10_000] {
            for (number, pattern) in LAYOUTS.iter().enumerate() {
                let compiled = file(count, |at| Rule::new(pattern(at), action(at)));
                let steps = steps(&compiled).expect("all are looked at");
                assert!(steps <= 64 * count, "{steps} steps for {count} of layout {number}");
            }
        }
    }

    #[test]
    fn steps_for_a_rule_that_is_bound_do_not_grow_with_the_number_of_rules() {
        type BindRule = fn(&mut Rule, usize);
        let layouts: [BindRule; 5] = [
            |rule, at| rule.principal = Some(format!("agent-{at}")),
            |rule, at| rule.principal = Some(format!("agent:*-{at}")),
            |rule, at| rule.principal = Some(format!("*a{at}?*")),
            |rule, at| rule.door = Some(format!("*-{at}")),
            |rule, at| rule.target = Some(format!("?{at}*")),
        ];
        for count in [10, 1_000, 10_000] {
            for (number, bind) in layouts.iter().enumerate() {
                let compiled = file(count, |at| {
                    let mut rule = Rule::new("pay(*)", action(at));
                    bind(&mut rule, at);
                    rule
                });
                let steps = steps(&compiled).expect("all are looked at");
                assert!(steps <= 64 * count, "{steps} steps for {count} of layout {number}");
            }
        }
    }

    #[test]
    fn where_all_patterns_may_meet_the_steps_are_bounded() {
        let pattern = |at: usize| {
            let class = |at: usize| {
                let (from, to) = (char::from(b"abcdefghij"[at % 10]), char::from(b"klmnopqrst"[at % 10]));
                format!("[{from}-{to}]")
            };
            format!("*{}?{}*{}{}?", class(at), class(at / 10), class(at / 100), class(at / 1_000))
        };
        for (count, is_whole) in [(10, true), (300, true), (3_000, false)] {
            let compiled = file(count, |at| Rule::new(pattern(at), action(at)));
            let mut all = compiled.precedence_check();
            let left = compiled.rules().filter(|listed| all.preceding_rule(listed.rule, |_| true).is_err()).count();
            assert_eq!(left == 0, is_whole, "{count}");
            let SearchBudget { most, taken } = all.effort;
            assert!(taken <= most + count, "{taken} steps for {count}");
        }
    }

    /// Returns the steps of a search for all rules; none if it was not completed.
    fn steps(compiled: &CompiledRules) -> Option<usize> {
        let mut all = compiled.precedence_check();
        for listed in compiled.rules() {
            all.preceding_rule(listed.rule, |_| true).ok()?;
        }
        Some(all.effort.taken)
    }
}
