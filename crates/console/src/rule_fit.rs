//! Calls that a rule would decide, and those where another rule takes precedence.

use std::collections::{BTreeMap, BTreeSet};

use countersign_core::{
    engine::ActiveRules,
    policy::{self, GrantSet, PathContext, Rule, RuleAction, RuleLayer, RuleSource},
    time::Millis,
};
use countersign_policy_admin::{explained::verdict_action, outranked::outranking_rule};

use super::{
    effect::{ActionCounts, PolicySnapshot},
    history::PastCall,
};

/// Most reasons that are listed.
const REASONS: usize = 4;

/// Calls that a rule fits.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RuleFit {
    /// Actions on them.
    pub(super) then: ActionCounts,
    /// Number of them whose action would differ from the rule's.
    pub(super) held: u64,
    /// Reasons, the most frequent first.
    pub(super) why: Vec<(String, u64)>,
    /// Rule that takes precedence wherever it fits.
    pub(super) outranked: Option<String>,
}

/// Returns the effect of `rule` on `calls`, where `then` has it among its rules.
pub(super) fn fit_rule(rule: &Rule, then: &PolicySnapshot, calls: &[PastCall], at: Millis) -> RuleFit {
    let mut fit =
        RuleFit { outranked: outranking_rule(rule, &then.rules.compiled, &BTreeSet::new()), ..RuleFit::default() };
    let Some(alone) = isolate_rule(rule, then) else { return fit };
    let mut why: BTreeMap<String, u64> = BTreeMap::new();
    for subject in calls.iter().filter_map(|made| made.subject.as_ref()) {
        if verdict_action(&alone.verdict_for(subject, at)) != RuleAction::Deny {
            continue;
        }
        let verdict = then.verdict_for(subject, at);
        let action = verdict_action(&verdict);
        fit.then.add(action);
        if action != rule.action {
            fit.held += 1;
            *why.entry(verdict.why().to_string()).or_default() += 1;
        }
    }
    fit.why = why.into_iter().collect();
    fit.why.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    fit.why.truncate(REASONS);
    fit
}

/// Returns rules that deny exactly the calls which `rule` fits: nothing takes precedence over a deny.
fn isolate_rule(rule: &Rule, then: &PolicySnapshot) -> Option<PolicySnapshot> {
    let rule = Rule { action: RuleAction::Deny, steps: Vec::new(), ..rule.clone() };
    let rules = policy::RuleSet { defaults: Vec::new(), rules: vec![rule] };
    let source = RuleSource { name: String::new(), layer: RuleLayer::Main, rules };
    let around = then.rules.path_context.clone();
    let surroundings = PathContext { protected: Vec::new(), unreadable: Vec::new(), ..around };
    let compiled = policy::compile_rules(vec![source]).ok()?;
    Some(PolicySnapshot {
        rules: ActiveRules { compiled, path_context: surroundings, ..then.rules.clone() },
        grants: GrantSet::default(),
    })
}
