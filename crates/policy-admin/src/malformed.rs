//! Rules that a mistake in their text keeps from matching anything, for every place that refuses them.
//!
//! It must not decide what follows from that: `policy check`, `config check`, `doctor` and the editor of the console refuse such a rule,
//! and a start reports it.

use std::collections::BTreeMap;

use countersign_core::policy::{CompiledRules, PatternFault, RuleAction, RuleOrigin, RuleRef, RuleWarning};

/// Rule whose pattern or tool matches nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedRule {
    /// File and line of the rule.
    pub origin: RuleOrigin,
    /// The problem in one line, with file and line.
    pub message: String,
    /// Action of the rule.
    pub action: RuleAction,
    /// Fault of its text.
    pub fault: PatternFault,
}

impl MalformedRule {
    /// Reports whether the rule denies or asks: without it more is allowed than its author means.
    pub fn restricts(&self) -> bool {
        self.action != RuleAction::Allow
    }

    /// Returns a warning that names the action that has no effect.
    pub fn effect_warning(&self) -> String {
        let action = match self.action {
            RuleAction::Allow => "allow",
            RuleAction::Ask => "ask",
            RuleAction::Deny => "deny",
        };
        format!("{action} rule has no effect: {}", self.message)
    }

    /// Returns the suggested correction.
    pub const fn advice(&self) -> &'static str {
        match self.fault {
            PatternFault::Unclosed => "add \")\" at the end of the pattern",
            PatternFault::Space => "remove the spaces around the pattern or after its tool name",
            PatternFault::Arguments => "write the signature as `pattern` instead of `tool`",
        }
    }
}

/// Returns every rule that a mistake in its text keeps from matching anything.
pub fn malformed_rules(compiled: &CompiledRules) -> Vec<MalformedRule> {
    let faulty: Vec<_> = compiled
        .warnings()
        .iter()
        .filter_map(|warning| match warning {
            RuleWarning::NeverMatches { origin, pattern, slip } => Some((warning, origin, pattern.as_str(), *slip)),
            RuleWarning::AllowIgnored(_)
            | RuleWarning::MissesBareCalls { .. }
            | RuleWarning::ForeignForm { .. }
            | RuleWarning::Odd { .. }
            | RuleWarning::HiddenCharacter { .. } => None,
        })
        .collect();
    if faulty.is_empty() {
        return Vec::new();
    }
    // One pass over the rules: a file may have thousands of them, all with the same mistake.
    let mut restricting: BTreeMap<(&RuleOrigin, &str), RuleAction> = BTreeMap::new();
    for RuleRef { rule, named, .. } in compiled.rules().filter(|listed| listed.rule.action != RuleAction::Allow) {
        if let Some(text) = rule.pattern.as_deref().or(rule.tool.as_deref()) {
            restricting.entry((&named.origin, text)).or_insert(rule.action);
        }
    }
    let malformed = faulty.into_iter().map(|(warning, origin, text, fault)| {
        let action = restricting.get(&(origin, text)).copied().unwrap_or(RuleAction::Allow);
        MalformedRule { origin: origin.clone(), message: warning.to_string(), action, fault }
    });
    malformed.collect()
}

/// Returns the malformed rules that deny or ask.
pub fn restrictions_without_effect(compiled: &CompiledRules) -> Vec<MalformedRule> {
    malformed_rules(compiled).into_iter().filter(MalformedRule::restricts).collect()
}

#[cfg(test)]
mod tests {
    use countersign_core::policy::{self, Rule, RuleAction, RuleLayer, RuleSet, RuleSource};

    use super::{MalformedRule, malformed_rules};

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
            assert_eq!(found.first().map(MalformedRule::restricts), want, "{pattern} {action:?}");
            assert!(found.iter().all(|found| found.message.starts_with("p:3: ")), "{found:?}");
            let verb = format!("{action:?} rule has no effect: p:3: ").to_lowercase();
            assert!(found.iter().all(|found| found.effect_warning().starts_with(&verb)), "{found:?}");
        }
    }
    #[test]
    fn every_malformed_rule_of_a_long_file_is_found() {
        for count in [10, 1_000, 20_000] {
            let rule = |line| Rule { line, ..Rule::new(format!("bash(git push {line}"), RuleAction::Deny) };
            let rules = RuleSet { rules: (1..=count).map(rule).collect(), ..RuleSet::default() };
            let source = RuleSource { name: "p".to_owned(), layer: RuleLayer::Main, rules };
            let found = malformed_rules(&policy::compile_rules(vec![source]).unwrap());
            let lines = found.iter().filter(|found| found.restricts()).map(|found| found.origin.line);
            assert!(lines.eq(1..=count), "{count}");
        }
    }
}
