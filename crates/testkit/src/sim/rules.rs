//! Sets of rules that a simulation switches between.

use std::{sync::Arc, time::Duration};

use countersign_core::{
    engine::ActiveRules,
    gate::{ApprovalStep, IdentityMap, OnExpiry},
    id::PrincipalId,
    policy::{
        CompiledRules, DefaultPolicy, PathContext, Rule, RuleAction, RuleLayer, RuleSet as Written, RuleSource,
        compile_rules,
    },
};

/// Number of sets of rules.
pub(super) const SETS: u64 = 5;

/// Returns one of the sets of rules.
pub(super) fn rule_set(number: u64) -> ActiveRules {
    let of_rules = |rules: Vec<Rule>| {
        let rules = Written { rules, defaults: Vec::new() };
        let source = RuleSource { name: "permissions.yaml".to_owned(), layer: RuleLayer::Main, rules };
        compile_rules(vec![source]).expect("the rules of the simulation are sound")
    };
    let of = |lines: &[(&str, RuleAction)]| {
        of_rules(lines.iter().map(|(pattern, action)| Rule::new(*pattern, *action)).collect())
    };
    let (compiled, posture) = match number % SETS {
        0 => (CompiledRules::default(), DefaultPolicy::Gateway),
        1 => (CompiledRules::default(), DefaultPolicy::Stdio),
        2 => (
            of(&[("look*", RuleAction::Allow), ("write(a*)", RuleAction::Allow), ("bash(ls*)", RuleAction::Allow)]),
            DefaultPolicy::Gateway,
        ),
        3 => (
            of_rules(vec![Rule { steps: approval_steps(), ..Rule::new("write(*)", RuleAction::Ask) }]),
            DefaultPolicy::Gateway,
        ),
        _ => (
            of(&[("look*", RuleAction::Allow), ("write(*)", RuleAction::Ask), ("write(b*)", RuleAction::Deny)]),
            DefaultPolicy::Gateway,
        ),
    };
    let surroundings = PathContext { home: Some("/home/ana".to_owned()), ..PathContext::default() };
    ActiveRules { compiled, default_policy: posture, path_context: surroundings, people: test_people() }
}

/// Returns two of three approvers, asked twice, and then one of others.
fn approval_steps() -> Vec<ApprovalStep> {
    let from = |names: &[&str]| Some(Arc::new(names.iter().map(|&name| name.to_owned()).collect()));
    let within = Some(Duration::from_secs(600));
    vec![
        ApprovalStep { approvals: 2, within, on_expiry: OnExpiry::Next, ..ApprovalStep::default() },
        ApprovalStep { approvals: 2, from: from(&["ana", "cleo"]), within, on_expiry: OnExpiry::Again(1) },
    ]
}

/// Returns approvers of whom Ana has two identities; one identity belongs to none.
pub(super) fn test_people() -> IdentityMap {
    let all = [("ana", &["person:ana", "chat:ana"][..]), ("bo", &["person:bo"]), ("cleo", &["person:cleo"])];
    IdentityMap::new(all.map(|(name, all)| (name.to_owned(), all.iter().map(|one| PrincipalId::new(*one)))))
}
