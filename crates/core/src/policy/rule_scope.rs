//! Binding of a rule to a principal, a door, a target. Knows nothing of the decisions of rules.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::policy::{
    fnmatch::{GlobPattern, pattern_matches},
    patterns::PatternSet,
    rules::Rule,
    subject::PolicySubject,
};

/// Prefix of the id of an agent, which people do not have.
const AGENT: &str = "agent:";

/// Properties of a call that rules can be bound to. A bound rule does not match a call without the property.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallerScope<'a> {
    principal: &'a str,
    door: Option<&'a str>,
    target: Option<&'a str>,
}

/// One of the three things that a rule may be bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleScopeKey {
    /// The principal.
    Principal,
    /// The door through which it came.
    Door,
    /// The service that it goes to.
    Target,
}

impl RuleScopeKey {
    /// All of them, in display order.
    pub const ALL: [Self; 3] = [Self::Principal, Self::Door, Self::Target];

    /// Returns the key in a rule.
    pub(crate) const fn key_name(self) -> &'static str {
        match self {
            Self::Principal => "principal",
            Self::Door => "door",
            Self::Target => "target",
        }
    }

    /// Returns the pattern that `rule` has for it.
    pub fn rule_pattern(self, rule: &Rule) -> Option<&str> {
        match self {
            Self::Principal => rule.principal.as_deref(),
            Self::Door => rule.door.as_deref(),
            Self::Target => rule.target.as_deref(),
        }
    }

    /// Returns the one id that `pattern` matches on this side. `None` if it holds a wildcard.
    pub fn single_id(self, pattern: &str) -> Option<&str> {
        let id = if is_whole(self, pattern) { &pattern[AGENT.len()..] } else { pattern };
        Some(id).filter(|id| !id.contains(['*', '?', '[']))
    }

    /// Reports whether `pattern` matches the name `id` on this side.
    pub fn matches_id(self, pattern: &str, id: &str) -> bool {
        if is_whole(self, pattern) {
            return pattern_matches(pattern, &format!("{AGENT}{id}"));
        }
        pattern_matches(pattern, id)
    }
}

/// Reports whether `pattern` is about the whole name of a principal, which begins with its kind. Only a pattern with a kind is:
/// `a*` is about the agents whose ids begin with it, not about every agent.
fn is_whole(side: RuleScopeKey, pattern: &str) -> bool {
    side == RuleScopeKey::Principal && pattern.starts_with(AGENT)
}

impl fmt::Display for RuleScopeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key_name())
    }
}

impl<'a> CallerScope<'a> {
    /// Returns the properties of `subject`; a call without a door came through `door`.
    pub(crate) fn from_subject(subject: &'a PolicySubject, door: Option<&'a str>) -> Self {
        Self {
            principal: subject.principal.as_str(),
            door: subject.door.as_deref().or(door),
            target: subject.target.as_deref(),
        }
    }

    /// Returns the caller that `rule` is bound to, with its patterns as if they were names. A side without a pattern is a name that only a
    /// star matches.
    pub(crate) fn bound_by(rule: &'a Rule) -> Self {
        Self {
            principal: rule.principal.as_deref().unwrap_or_default(),
            door: rule.door.as_deref(),
            target: rule.target.as_deref(),
        }
    }

    /// Returns the text for display, which patterns match: for an agent its id.
    pub(crate) fn display_text(self, side: RuleScopeKey) -> Option<&'a str> {
        match side {
            RuleScopeKey::Principal => Some(self.principal.strip_prefix(AGENT).unwrap_or(self.principal)),
            RuleScopeKey::Door => self.door,
            RuleScopeKey::Target => self.target,
        }
    }

    /// Returns the text that `pattern` must match on `side`.
    fn match_text(self, side: RuleScopeKey, pattern: &str) -> Option<&'a str> {
        if is_whole(side, pattern) { Some(self.principal) } else { self.display_text(side) }
    }

    /// Reports whether `rule` is not bound to anything else on this side.
    pub(crate) fn meets_rule(self, rule: &Rule, side: RuleScopeKey) -> bool {
        side.rule_pattern(rule).is_none_or(|pattern| {
            self.match_text(side, pattern).is_some_and(|text| GlobPattern::new(pattern).matches(text))
        })
    }
}

/// Values by the callers that they are bound to.
///
/// The values of one caller are found by one look-up a side and one for each combination of the results.
#[derive(Debug)]
pub(crate) struct ScopeMap<T> {
    sides: [ScopePatterns; 3],
    groups: BTreeMap<[Option<usize>; 3], T>,
}

/// The patterns of one side, each with a number.
#[derive(Debug, Default)]
struct ScopePatterns {
    numbers: BTreeMap<String, usize>,
    patterns: PatternSet,
    /// Patterns about whole names.
    whole: PatternSet,
}

impl<T> Default for ScopeMap<T> {
    fn default() -> Self {
        Self { sides: Default::default(), groups: BTreeMap::new() }
    }
}

impl<T: Default> ScopeMap<T> {
    /// Returns the value for everything that is bound as `rule` is.
    pub(crate) fn entry_for(&mut self, rule: &Rule) -> &mut T {
        let mut key = [None; 3];
        for ((names, side), number) in self.sides.iter_mut().zip(RuleScopeKey::ALL).zip(&mut key) {
            *number = side.rule_pattern(rule).map(|pattern| names.pattern_number(pattern, side));
        }
        self.groups.entry(key).or_default()
    }
}

impl<T> ScopeMap<T> {
    /// Returns every value.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.groups.values_mut()
    }

    /// Compiles crowded sets.
    pub(crate) fn compile(&mut self) {
        self.sides.iter_mut().flat_map(|names| [&mut names.patterns, &mut names.whole]).for_each(PatternSet::compile);
    }

    /// Returns the values whose bounds `caller` meets.
    pub(crate) fn met_by(&self, caller: CallerScope<'_>) -> Vec<&T> {
        self.met_by_counted(caller, &mut 0)
    }

    /// Returns the same. `steps` grows by the number of patterns, ranks and combinations visited.
    pub(crate) fn met_by_counted(&self, caller: CallerScope<'_>, steps: &mut usize) -> Vec<&T> {
        if self.sides.iter().all(|names| names.numbers.is_empty()) {
            return self.groups.values().collect();
        }
        let mut met = RuleScopeKey::ALL.iter().zip(&self.sides).map(|(side, names)| names.met_by(caller, *side, steps));
        let [Some(principals), Some(doors), Some(targets)] = [met.next(), met.next(), met.next()] else {
            return Vec::new();
        };
        *steps += (principals.len() * doors.len() * targets.len()).min(self.groups.len());
        if principals.len() * doors.len() * targets.len() > self.groups.len() {
            let meets = |key: &[Option<usize>; 3]| {
                principals.contains(&key[0]) && doors.contains(&key[1]) && targets.contains(&key[2])
            };
            return self.groups.iter().filter(|(key, _)| meets(key)).map(|(_, value)| value).collect();
        }
        let mut values = Vec::new();
        for principal in &principals {
            for door in &doors {
                values.extend(targets.iter().filter_map(|target| self.groups.get(&[*principal, *door, *target])));
            }
        }
        values
    }
}

impl ScopePatterns {
    fn pattern_number(&mut self, pattern: &str, side: RuleScopeKey) -> usize {
        if let Some(number) = self.numbers.get(pattern) {
            return *number;
        }
        let number = self.numbers.len();
        self.numbers.insert(pattern.to_owned(), number);
        let patterns = if is_whole(side, pattern) { &mut self.whole } else { &mut self.patterns };
        patterns.insert(number, GlobPattern::new(pattern));
        number
    }

    /// Returns the unbound key, and every pattern that `caller` matches.
    fn met_by(&self, caller: CallerScope<'_>, side: RuleScopeKey, steps: &mut usize) -> BTreeSet<Option<usize>> {
        let mut met = BTreeSet::from([None]);
        if let Some(text) = caller.display_text(side) {
            met.extend(self.patterns.matching_counted(text, steps).map(Some));
        }
        met.extend(self.whole.matching_counted(caller.principal, steps).map(Some));
        met
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{CallerScope, RuleScopeKey, ScopeMap};
    use crate::{
        id::PrincipalId,
        policy::{Rule, testing::subject},
    };

    #[test]
    fn a_pattern_covers_an_agent_by_its_id_unless_it_begins_with_the_word() {
        for (pattern, principal, is_met) in [
            ("a*", "agent:kitchen", false),
            ("*g*", "agent:kitchen", false),
            ("[!k]*", "agent:kitchen", false),
            ("?????:*", "agent:kitchen", false),
            ("agent*", "agent:kitchen", false),
            ("[a]gent:*", "agent:kitchen", false),
            ("k*", "agent:kitchen", true),
            ("kitchen", "agent:kitchen", true),
            ("*", "agent:kitchen", true),
            ("agent:*", "agent:kitchen", true),
            ("agent:k*", "agent:kitchen", true),
            ("agent:g*", "agent:kitchen", false),
            ("agent*", "agent:agent-1", true),
            ("agent:x", "agent:agent:x", false),
            ("agent:*", "console", false),
            ("con*", "console", true),
        ] {
            let rule: Rule =
                serde_json::from_value(json!({"pattern": "*", "principal": pattern, "action": "allow"})).unwrap();
            let mut call = subject("t", json!({}));
            call.principal = PrincipalId::new(principal);
            let caller = CallerScope::from_subject(&call, None);
            let mut bound = ScopeMap::<u8>::default();
            bound.entry_for(&rule);
            bound.compile();
            assert_eq!(caller.meets_rule(&rule, RuleScopeKey::Principal), is_met, "{pattern} {principal}");
            assert_eq!(!bound.met_by(caller).is_empty(), is_met, "{pattern} {principal}, looked up");
            if let Some(id) = principal.strip_prefix("agent:") {
                assert_eq!(RuleScopeKey::Principal.matches_id(pattern, id), is_met, "{pattern} {principal}, by id");
            }
        }
    }
}
