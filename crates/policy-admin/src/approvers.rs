//! Approvers that rules name, compared with the people that the configuration knows.
//!
//! It must not know how people answer, only whether they could.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use countersign_config::{ApproverAccounts, PersonConfig};
use countersign_core::{
    gate::ApprovalStep,
    policy::{self, Rule, RuleAction, RuleScopeKey, RuleSource, SearchBudget},
};

use super::unchecked::unchecked_note;

/// Approver that a rule names and the configuration does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: unknown approver \"{name}\": it is neither in `people` nor a set")]
pub struct UnknownApprover {
    /// The file.
    pub file: String,
    /// The rule's line.
    pub line: u32,
    /// The name.
    pub name: String,
}

/// A step that asks for more people than can answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{file}:{line}: approval step {step} needs {needed} approvals, but only {there} can answer: each \
     approver needs in `people` an account under `local`, one under `telegram` that is in `allowed_users`, or a login under \
     `console` that is in `web.users`"
)]
pub struct TooFew {
    /// The file.
    pub file: String,
    /// The rule's line.
    pub line: u32,
    /// Number of the step, counted from 1.
    pub step: usize,
    /// Number of people who have to allow.
    pub needed: u32,
    /// Number of people who could.
    pub there: usize,
}

/// Returns every approver that rules name and that is not one of `people`.
pub(super) fn unknown_approvers(source: &RuleSource, people: &[PersonConfig]) -> Vec<UnknownApprover> {
    let known: BTreeSet<&str> = people.iter().map(|person| person.id.as_str()).collect();
    // A set that many rules share is reported at the first of them.
    let mut seen = BTreeSet::new();
    let mut unknown = Vec::new();
    for rule in all_rules(source) {
        let sets = rule.steps.iter().filter_map(|step| step.from.as_ref());
        let new = sets.filter(|set| set.len() == 1 || seen.insert(Arc::as_ptr(set)));
        let names: BTreeSet<&String> = new.flat_map(|set| set.iter()).collect();
        let missing = names.into_iter().filter(|name| !known.contains(name.as_str()));
        unknown.extend(missing.map(|name| UnknownApprover {
            file: source.name.clone(),
            line: rule.line,
            name: name.clone(),
        }));
    }
    unknown
}

/// Returns every step that cannot be satisfied. `accounts` are those from which answers come; if they are not known, every person
/// counts as able to answer.
pub(super) fn too_few(
    source: &RuleSource,
    people: &[PersonConfig],
    accounts: Option<&ApproverAccounts>,
) -> Vec<TooFew> {
    let can_answer = |person: &&PersonConfig| accounts.is_none_or(|accounts| accounts.can_reach(person));
    let able: BTreeSet<&str> = people.iter().filter(can_answer).map(|person| person.id.as_str()).collect();
    let mut counts = BTreeMap::new();
    let mut there = |step: &ApprovalStep| match &step.from {
        Some(from) => *counts
            .entry(Arc::as_ptr(from))
            .or_insert_with(|| from.iter().filter(|name| able.contains(name.as_str())).count()),
        // An account that belongs to no person may be the first to allow.
        None => able.len() + 1,
    };
    let steps =
        all_rules(source).flat_map(|rule| rule.steps.iter().enumerate().map(move |(at, step)| (rule, at, step)));
    let shortages = steps.map(|(rule, at, step)| TooFew {
        file: source.name.clone(),
        line: rule.line,
        step: at + 1,
        needed: step.approvals,
        there: there(step),
    });
    shortages.filter(|few| usize::try_from(few.needed).is_ok_and(|needed| needed > few.there)).collect()
}

/// Warns for every rule that names its approvers if another one, which names none, goes before it where both match.
pub(super) fn outranked_steps(source: &RuleSource) -> Vec<String> {
    with_effort(source, &mut SearchBudget::of_rules(source.rules.rules.len()))
}

fn with_effort(source: &RuleSource, effort: &mut SearchBudget) -> Vec<String> {
    let first = |rule: &Rule| rule.steps.first().filter(|_| rule.action == RuleAction::Ask).cloned();
    let asking: Vec<(&Rule, ApprovalStep)> =
        source.rules.rules.iter().filter_map(|rule| Some((rule, first(rule)?))).collect();
    let (naming, open): (Vec<_>, Vec<_>) = asking.into_iter().partition(|(_, step)| step.from.is_some());
    let open = OpenRules::from_rules(&open);
    let (mut warnings, mut left) = (Vec::new(), 0);
    for (rule, step) in &naming {
        if effort.is_spent() {
            left += 1;
            continue;
        }
        let before = open.first_matching(rule, effort, |other, before| {
            before.approvals > step.approvals && may_overlap(rule, other)
        });
        if let Some((other, before)) = before {
            let (file, line, by, count) = (&source.name, rule.line, other.line, before.approvals);
            warnings.push(format!(
                "{file}:{line}: if both rules match, the rule on line {by} takes precedence, because it needs {count} \
                 approvers; `from` of this rule does not apply then"
            ));
        }
    }
    warnings.extend(unchecked_note(&source.name, left, "rules with more approvers that take precedence"));
    warnings
}

/// Rules by the one principal that they are bound to, if it is one.
struct OpenRules<'a>(BTreeMap<Option<&'a str>, ByPrefix<'a>>);

/// Rules by the text with which everything begins that they match: only those whose texts begin alike can overlap.
#[derive(Default)]
struct ByPrefix<'a>(BTreeMap<&'a str, Vec<(usize, &'a Rule, &'a ApprovalStep)>>);

/// Returns the one principal that a rule is bound to.
fn only_principal(rule: &Rule) -> Option<&str> {
    RuleScopeKey::Principal.rule_pattern(rule).and_then(|pattern| RuleScopeKey::Principal.single_id(pattern))
}

impl<'a> OpenRules<'a> {
    fn from_rules(rules: &'a [(&'a Rule, ApprovalStep)]) -> Self {
        let mut all: BTreeMap<Option<&str>, ByPrefix<'_>> = BTreeMap::new();
        for (at, (rule, step)) in rules.iter().enumerate() {
            let by_prefix = &mut all.entry(only_principal(rule)).or_default().0;
            by_prefix.entry(literal_prefix(rule)).or_default().push((at, rule, step));
        }
        Self(all)
    }

    /// Returns the first rule in the order of the file that may match where `rule` does and that `accepts` takes.
    fn first_matching(
        &self,
        rule: &Rule,
        effort: &mut SearchBudget,
        accepts: impl Fn(&Rule, &ApprovalStep) -> bool,
    ) -> Option<(&'a Rule, &'a ApprovalStep)> {
        let found = match only_principal(rule) {
            Some(one) => [None, Some(one)].iter().filter_map(|key| self.0.get(key)).collect::<Vec<_>>(),
            None => self.0.values().collect(),
        };
        let found = found.into_iter().filter_map(|by_prefix| by_prefix.first_matching(rule, effort, &accepts));
        found.min_by_key(|(at, ..)| *at).map(|(_, rule, step)| (rule, step))
    }
}

impl<'a> ByPrefix<'a> {
    /// Returns the first rule, with its place, that may begin as `rule` does and that `accepts` takes.
    fn first_matching(
        &self,
        rule: &Rule,
        effort: &mut SearchBudget,
        accepts: impl Fn(&Rule, &ApprovalStep) -> bool,
    ) -> Option<(usize, &'a Rule, &'a ApprovalStep)> {
        let prefix = literal_prefix(rule);
        let ends = (0..prefix.len()).filter(|at| prefix.is_char_boundary(*at));
        let shorter = ends.filter_map(|end| self.0.get(&prefix[..end]));
        let longer = self.0.range(prefix..).take_while(|(other, _)| other.starts_with(prefix)).map(|(_, rules)| rules);
        let mut first: Option<(usize, &Rule, &ApprovalStep)> = None;
        effort.take_steps(1);
        for rules in shorter.chain(longer) {
            effort.take_steps(1);
            for (at, other, step) in rules.iter().take_while(|(at, ..)| first.is_none_or(|(first, ..)| *at < first)) {
                effort.take_steps(1);
                if accepts(other, step) {
                    first = Some((*at, other, step));
                    break;
                }
            }
        }
        first
    }
}

/// Returns the text before the first wildcard of the pattern of a rule, or of the tool that it is about.
fn literal_prefix(rule: &Rule) -> &str {
    let text = rule.pattern.as_deref().or(rule.tool.as_deref()).unwrap_or_default();
    &text[..literal_length(text)]
}

fn all_rules(source: &RuleSource) -> impl Iterator<Item = &Rule> {
    source.rules.rules.iter().chain(&source.rules.defaults)
}

/// Returns true if both rules may match one call.
fn may_overlap(one: &Rule, other: &Rule) -> bool {
    let is_about_one = match (&one.pattern, &other.pattern) {
        (Some(one), Some(other)) => may_meet(one, other),
        (None, _) | (_, None) => may_meet(tool_pattern(one), tool_pattern(other)),
    };
    let bounds = |side: &RuleScopeKey| match (side.rule_pattern(one), side.rule_pattern(other)) {
        (Some(one), Some(other)) => may_meet(one, other),
        (None, _) | (_, None) => true,
    };
    is_about_one && RuleScopeKey::ALL.iter().all(bounds)
}

/// Returns the tool that a rule is about, itself a pattern.
fn tool_pattern(rule: &Rule) -> &str {
    let pattern = rule.pattern.as_deref().map(|pattern| pattern.split_once('(').map_or(pattern, |(tool, _)| tool));
    pattern.or(rule.tool.as_deref()).unwrap_or_default()
}

/// Returns the length of the text before the first wildcard.
fn literal_length(pattern: &str) -> usize {
    pattern.find(['*', '?', '[']).unwrap_or(pattern.len())
}

/// Returns true if a text may match both patterns: the texts before their first wildcards do not keep them apart.
fn may_meet(one: &str, other: &str) -> bool {
    let (first, second) = (literal_length(one), literal_length(other));
    match (first == one.len(), second == other.len()) {
        (true, _) => policy::pattern_matches(other, one),
        (_, true) => policy::pattern_matches(one, other),
        (false, false) => one[..first].starts_with(&other[..second]) || other[..second].starts_with(&one[..first]),
    }
}

#[cfg(test)]
mod tests {
    use countersign_core::policy::{RuleLayer, RuleSet, RuleSource, SearchBudget};
    use serde_json::{Value, json};

    use super::{outranked_steps, too_few, with_effort};
    use countersign_config::{ApproverAccounts, PersonConfig};

    fn source(rules: Value) -> RuleSource {
        let rules: RuleSet = serde_json::from_value(json!({ "rules": rules })).unwrap();
        RuleSource { name: "permissions.yaml".to_owned(), layer: RuleLayer::Main, rules }
    }

    fn person(id: &str, telegram: &[i64], local: &[u32]) -> PersonConfig {
        PersonConfig { id: id.to_owned(), telegram: telegram.to_vec(), console: Vec::new(), local: local.to_vec() }
    }

    #[test]
    fn a_step_without_enough_approvers_is_reported() {
        let people = [person("ana", &[111], &[]), person("ben", &[222], &[]), person("cleo", &[], &[0])];
        let nameless = person("x", &[], &[]);
        let login = |id: &str| PersonConfig { console: vec![id.to_owned()], ..person(id, &[], &[]) };
        let at_consoles = [people[0].clone(), login("dora"), login("emil")];
        let one = [people[0].clone()];
        let with_x = [people[0].clone(), nameless];
        let any = |approvals: u32| json!({ "approvals": approvals });
        let from = |approvals: u32, names: &[&str]| json!({ "approvals": approvals, "from": names });
        for (steps, people, users, want) in [
            (vec![any(3)], &one[..], Some(&[111][..]), vec![(1, 3, 2)]),
            (vec![any(3)], &one[..], None, vec![(1, 3, 2)]),
            (vec![any(2)], &one[..], Some(&[111][..]), vec![]),
            (vec![any(2)], &one[..], Some(&[][..]), vec![(1, 2, 1)]),
            (vec![any(1)], &[][..], Some(&[][..]), vec![]),
            (vec![any(2)], &[][..], Some(&[][..]), vec![(1, 2, 1)]),
            (vec![from(2, &["ana", "x"])], &with_x[..], Some(&[111][..]), vec![(1, 2, 1)]),
            (vec![from(1, &["x"])], &with_x[..], Some(&[111][..]), vec![(1, 1, 0)]),
            (vec![from(2, &["ana", "x"])], &with_x[..], None, vec![]),
            (vec![from(1, &["ben"])], &people[..], Some(&[111][..]), vec![(1, 1, 0)]),
            (vec![from(2, &["ana", "cleo"])], &people[..], Some(&[111][..]), vec![]),
            (vec![from(2, &["ana", "dora"])], &at_consoles[..], Some(&[111][..]), vec![]),
            (vec![from(2, &["dora", "emil"])], &at_consoles[..], Some(&[111][..]), vec![(1, 2, 1)]),
            (vec![any(1), from(1, &["ben"])], &people[..], Some(&[111][..]), vec![(2, 1, 0)]),
        ] {
            let rules = source(json!([{ "pattern": "pay(*)", "action": "ask", "steps": steps }]));
            let accounts =
                users.map(|users| ApproverAccounts { telegram: users.to_vec(), console: vec!["dora".to_owned()] });
            let got = too_few(&rules, people, accounts.as_ref());
            let got: Vec<(usize, u32, usize)> = got.iter().map(|few| (few.step, few.needed, few.there)).collect();
            assert_eq!(got, want, "{steps:?} {users:?}");
        }
    }

    #[test]
    fn rules_that_name_people_are_held_against_few_others() {
        // A rule that begins with a wildcard may meet all others: if there are too many they are not checked, and that is reported.
        for (layout, is_whole) in [
            (&(|at| (format!("pay(acme{at}, *)"), format!("agent-{at}"))) as &dyn Fn(usize) -> (String, String), true),
            (&|at| ("pay(*)".to_owned(), format!("agent-{at}")), true),
            (&|at| (format!("pay(*, acme{at})"), "*".to_owned()), false),
            (&|at| (format!("*{at}"), format!("*-{at}")), false),
        ] {
            for count in [10, 4_000] {
                let rules = (0..count).map(|at| {
                    let (pattern, principal) = layout(at);
                    // The first of two rules names approvers, and the second needs no more people.
                    let step = match at % 2 {
                        0 => json!({ "approvals": 3, "from": ["ana", "ben", "cleo"] }),
                        _ => json!({ "approvals": 2 }),
                    };
                    json!({ "pattern": pattern, "principal": principal, "action": "ask", "steps": [step] })
                });
                let mut effort = SearchBudget::of_rules(count);
                let warnings = with_effort(&source(rules.collect()), &mut effort);
                assert_eq!(warnings.is_empty(), is_whole || count == 10, "{:?} {count}: {warnings:?}", layout(7));
                assert!(effort.steps_taken() <= 64 * count + 250_000 + 3 * count, "{:?} {count}", layout(7));
            }
        }
    }

    #[test]
    fn a_rule_that_names_nobody_and_goes_before_one_that_does_draws_a_warning() {
        let named = json!([{ "approvals": 1, "from": ["ana"] }]);
        let ask = |pattern: &str, steps: Value| json!({ "pattern": pattern, "action": "ask", "steps": steps });
        let many = |pattern: &str| ask(pattern, json!([{ "approvals": 2 }]));
        for (one, other, is_told) in [
            (ask("pay(*)", named.clone()), many("pay(*)"), true),
            (ask("pay(acme*)", named.clone()), many("pay(*)"), true),
            (ask("pay(acme)", named.clone()), many("*"), true),
            (ask("pay(acme)", named.clone()), many("pay(b*)"), false),
            (ask("pay(*)", named.clone()), many("turn(*)"), false),
            (ask("pay(*)", named.clone()), ask("pay(*)", json!([{ "approvals": 1 }])), false),
            (ask("pay(*)", named.clone()), ask("pay(*)", json!([{ "approvals": 2, "from": ["ana", "ben"] }])), false),
            (ask("pay(*)", named.clone()), json!({"pattern": "pay(*)", "action": "ask"}), false),
            (json!({"tool": "pay", "action": "ask", "steps": named}), many("pay(*)"), true),
            (
                json!({"pattern": "pay(*)", "principal": "a", "action": "ask", "steps": named}),
                json!({"pattern": "pay(*)", "principal": "b", "action": "ask", "steps": [{ "approvals": 2 }]}),
                false,
            ),
        ] {
            let warnings = outranked_steps(&source(json!([one, other])));
            assert_eq!(!warnings.is_empty(), is_told, "{one} {other} {warnings:?}");
        }
    }
}
