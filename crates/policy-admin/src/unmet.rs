//! Rules that are bound to an agent, an adapter or a service which is not there.

use std::collections::{BTreeMap, BTreeSet};

use countersign_core::policy::{RuleScopeKey, RuleSource, SearchBudget};
use countersign_view::Protocol;

use super::{tool_inventory::ToolInventory, unchecked::unchecked_note};

/// Rules that are bound to something which is not there.
pub(super) struct UnmetRules {
    /// A line about each, with its line in the file.
    pub(super) unmet: Vec<(u32, String)>,
    /// Warning about rules that were not checked, if any.
    pub(super) unchecked: Option<String>,
}

/// Warns for every rule that is bound to something which is not there. No warning if the existing things are not known.
pub(super) fn unmet_rules(source: &RuleSource, household: &ToolInventory) -> UnmetRules {
    let mut services: Vec<&str> = household.tools.values().map(|tool| &*tool.service).collect();
    services.sort_unstable();
    services.dedup();
    let agents: Vec<&str> = household.agents.iter().map(String::as_str).collect();
    let gateway = Protocol::OF_GATEWAY.map(Protocol::name);
    let there = |side| match side {
        RuleScopeKey::Principal => &agents[..],
        RuleScopeKey::Door => &gateway,
        RuleScopeKey::Target => &services[..],
    };
    let by_name = RuleScopeKey::ALL.map(|side| there(side).iter().copied().collect::<BTreeSet<&str>>());
    // Many rules are bound to few, and a pattern is held against all that are there.
    let mut known: BTreeMap<(usize, &str), bool> = BTreeMap::new();
    let (mut unmet, mut effort, mut left) = (Vec::new(), SearchBudget::of_rules(rule_count(source)), 0);
    for rule in source.rules.defaults.iter().chain(&source.rules.rules) {
        for (number, side) in RuleScopeKey::ALL.into_iter().enumerate() {
            let Some(pattern) = side.rule_pattern(rule).filter(|_| !there(side).is_empty()) else { continue };
            let is_met = match (known.get(&(number, pattern)), side.single_id(pattern)) {
                (Some(is_met), _) => *is_met,
                (None, Some(id)) => by_name[number].contains(id),
                (None, None) if effort.is_spent() => {
                    left += 1;
                    continue;
                }
                (None, None) => {
                    let is_met = there(side).iter().any(|id| side.matches_id(pattern, id));
                    effort.take_steps(there(side).len());
                    known.insert((number, pattern), is_met);
                    is_met
                }
            };
            if !is_met {
                let (file, line, there) = (&source.name, rule.line, listed_names(there(side)));
                let of_stdio = Protocol::STDIO.map(Protocol::name);
                let elsewhere =
                    of_stdio.into_iter().find(|name| side == RuleScopeKey::Door && side.matches_id(pattern, name));
                let warning = match elsewhere {
                    Some(name) => format!(
                        "{file}:{line}: {name} takes its rules from the permissions.yaml of its agent directory or from \
                         --permissions, not from a gateway; this rule matches nothing here"
                    ),
                    None => format!(
                        "{file}:{line}: unknown {} \"{pattern}\": expected one of {there}; this rule matches nothing",
                        side_noun(side)
                    ),
                };
                unmet.push((line, warning));
            }
        }
    }
    let unchecked = unchecked_note(&source.name, left, "unknown principals, adapters and targets");
    UnmetRules { unmet, unchecked }
}

/// Returns the noun for what a rule is bound to, in texts for people.
const fn side_noun(side: RuleScopeKey) -> &'static str {
    match side {
        RuleScopeKey::Principal => "principal",
        RuleScopeKey::Door => "adapter",
        RuleScopeKey::Target => "target",
    }
}

pub(super) fn rule_count(source: &RuleSource) -> usize {
    source.rules.rules.len() + source.rules.defaults.len()
}

/// Returns the first of `names`, and how many more there are.
fn listed_names(names: &[&str]) -> String {
    const SHOWN: usize = 20;
    match names.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        None => names.join(", "),
        Some(more) => format!("{} and {more} more", names[..SHOWN].join(", ")),
    }
}
