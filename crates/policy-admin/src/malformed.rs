//! Rules that a mistake in their text keeps from matching anything, for every place that refuses them.
//!
//! It must not decide what follows from that: `policy check` and the editor of the console refuse such a rule, and a start reports it.

use countersign_core::policy::{CompiledRules, RuleAction, RuleOrigin, RuleRef, RuleWarning};

/// Rule whose pattern or tool matches nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedRule {
    /// File and line of the rule.
    pub origin: RuleOrigin,
    /// The problem in one line, with file and line.
    pub message: String,
    /// True if the rule denies or asks: without it more is allowed than its author means.
    pub restricts: bool,
}

/// Returns every rule that a mistake in its text keeps from matching anything.
pub fn malformed_rules(compiled: &CompiledRules) -> Vec<MalformedRule> {
    let found = compiled.warnings().iter().filter_map(|warning| match warning {
        RuleWarning::NeverMatches { origin, pattern, .. } => {
            let is_this = |listed: &RuleRef<'_>| {
                let text = listed.rule.pattern.as_deref().or(listed.rule.tool.as_deref());
                listed.named.origin == *origin && text == Some(pattern.as_str())
            };
            let restricts = compiled.rules().any(|listed| is_this(&listed) && listed.rule.action != RuleAction::Allow);
            Some(MalformedRule { origin: origin.clone(), message: warning.to_string(), restricts })
        }
        RuleWarning::AllowIgnored(_)
        | RuleWarning::MissesBareCalls { .. }
        | RuleWarning::ForeignForm { .. }
        | RuleWarning::Odd { .. }
        | RuleWarning::HiddenCharacter { .. } => None,
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use countersign_core::policy::{self, Rule, RuleAction, RuleLayer, RuleSet, RuleSource};

    use super::malformed_rules;

    #[test]
    fn a_malformed_rule_restricts_unless_it_allows() {
        for (pattern, action, want) in [
            ("bash(git push", RuleAction::Deny, Some(true)),
            ("bash(git push", RuleAction::Ask, Some(true)),
            ("bash(git push", RuleAction::Allow, Some(false)),
            ("read (*.pem)", RuleAction::Deny, Some(true)),
            ("bash(git push*", RuleAction::Deny, None),
            ("bash(git push*)", RuleAction::Deny, None),
            ("*", RuleAction::Ask, None),
        ] {
            let rule = Rule { line: 3, ..Rule::new(pattern, action) };
            let rules = RuleSet { rules: vec![rule], ..RuleSet::default() };
            let source = RuleSource { name: "p".to_owned(), layer: RuleLayer::Main, rules };
            let found = malformed_rules(&policy::compile_rules(vec![source]).unwrap());
            assert_eq!(found.first().map(|found| found.restricts), want, "{pattern} {action:?}");
            assert!(found.iter().all(|found| found.message.starts_with("p:3: ")), "{found:?}");
        }
    }
}
