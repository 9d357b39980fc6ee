//! Look-up tables of rules: by their bounds, by pattern, by tool and by argument. Knows nothing of the consequences.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::policy::{
    arg_condition::{self, ArgCondition, CallArguments, MatchQuantifier},
    fnmatch::GlobPattern,
    indirect::{PossibleCall, UNKNOWN, is_in_names},
    patterns::PatternSet,
    rule_scope::{CallerScope, ScopeMap},
    rules::{ArgConditions, Rule, RuleAction},
    shell::GlobForm,
};

/// Rules with one action.
#[derive(Debug, Default)]
pub(crate) struct RuleTable(ScopeMap<RuleGroup>);

/// Rules with one action that are bound alike: by pattern over the signature, and by arguments.
#[derive(Debug, Default)]
struct RuleGroup {
    patterns: PatternSet,
    tools: BTreeMap<String, usize>,
    tool_patterns: PatternSet,
    by_tool: Vec<ToolRules>,
}

/// Rules on the arguments of the tools that one pattern names.
#[derive(Debug, Default)]
struct ToolRules {
    rules: Vec<ArgumentRule>,
    /// Rules with a condition that a look-up finds, by path.
    by_value: BTreeMap<Vec<String>, PatternSet>,
    /// Rules that are tried one by one.
    others: Vec<usize>,
}

#[derive(Debug)]
struct ArgumentRule {
    rank: usize,
    quantity: MatchQuantifier,
    demands: Vec<ArgCondition>,
}

/// The rules of a table that are bound to one caller, or to none.
pub(crate) struct RuleLookup<'a>(Vec<&'a RuleGroup>);

/// Returns whether the arguments must meet a condition in one of their values or in all.
pub(crate) const fn quantifier_for(action: RuleAction) -> MatchQuantifier {
    match action {
        RuleAction::Allow => MatchQuantifier::All,
        RuleAction::Deny | RuleAction::Ask => MatchQuantifier::Any,
    }
}

/// Returns the conditions of `rule` on the arguments.
pub(crate) fn arg_conditions(rule: &Rule) -> Vec<ArgCondition> {
    match &rule.args {
        Some(ArgConditions::Each(each)) => {
            each.iter().map(|(path, matcher)| ArgCondition::new(path, matcher)).collect()
        }
        Some(ArgConditions::Any(_)) | None => Vec::new(),
    }
}

impl RuleTable {
    pub(crate) fn insert(&mut self, rank: usize, rule: &Rule) {
        let group = self.0.entry_for(rule);
        if let Some(pattern) = &rule.pattern {
            group.patterns.insert(rank, GlobPattern::new(pattern));
        } else if let Some(tool) = &rule.tool {
            group.tool_rules(tool).insert(rank, rule);
        }
    }

    /// Compiles crowded sets.
    pub(crate) fn compile(&mut self) {
        self.0.compile();
        for group in self.0.iter_mut() {
            group.patterns.compile();
            group.tool_patterns.compile();
            group.by_tool.iter_mut().flat_map(|of_tool| of_tool.by_value.values_mut()).for_each(PatternSet::compile);
        }
    }

    /// Returns the rules that may concern `caller`.
    pub(crate) fn lookup_for(&self, caller: CallerScope<'_>) -> RuleLookup<'_> {
        RuleLookup(self.0.met_by(caller))
    }
}

impl RuleTable {
    /// Returns the first rule whose pattern matches `text`, whose bounds `caller` meets and that `predicate` accepts. `steps` grows by the
    /// number of patterns, ranks and bounds visited.
    pub(crate) fn first_counted(
        &self,
        caller: CallerScope<'_>,
        text: &str,
        steps: &mut usize,
        predicate: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let mut first: Option<usize> = None;
        for group in self.0.met_by_counted(caller, steps) {
            let is_before = |rank: usize| first.is_none_or(|first| rank < first);
            let found = group.patterns.first_counted(text, steps, |rank| is_before(rank) && predicate(rank));
            first = found.or(first);
        }
        first
    }
}

impl RuleGroup {
    fn tool_rules(&mut self, tool: &str) -> &mut ToolRules {
        let at = match self.tools.get(tool) {
            Some(at) => *at,
            None => {
                let at = self.by_tool.len();
                self.tools.insert(tool.to_owned(), at);
                self.tool_patterns.insert(at, GlobPattern::new(tool));
                self.by_tool.push(ToolRules::default());
                at
            }
        };
        &mut self.by_tool[at]
    }
}

impl ToolRules {
    fn insert(&mut self, rank: usize, rule: &Rule) {
        let (at, demands) = (self.rules.len(), arg_conditions(rule));
        // The longer the required text, the fewer values have it.
        let narrow =
            |patterns: &[GlobPattern]| patterns.iter().map(|pattern| pattern.literal_prefix().len()).min().unwrap_or(0);
        let known = demands.iter().filter_map(|demand| Some((demand.path(), demand.index_patterns()?)));
        match known.max_by_key(|(_, patterns)| narrow(patterns)) {
            Some((path, patterns)) => {
                let by_value = self.by_value.entry(path.to_vec()).or_default();
                patterns.into_iter().for_each(|pattern| by_value.insert(at, pattern));
            }
            None => self.others.push(at),
        }
        self.rules.push(ArgumentRule { rank, quantity: quantifier_for(rule.action), demands });
    }

    /// Returns the rules to try: every one that `arguments` meet is among them.
    fn candidate_rules<'a>(&self, arguments: impl Into<CallArguments<'a>>) -> BTreeSet<usize> {
        let arguments = arguments.into();
        let mut found: BTreeSet<usize> = self.others.iter().copied().collect();
        for (path, patterns) in &self.by_value {
            found
                .extend(arg_condition::texts_at(arguments, path).iter().flat_map(|text| patterns.matching_ranks(text)));
        }
        found
    }

    /// Returns the first rule that `arguments` meet if they stand for `possible`.
    fn first_possible(&self, arguments: &Map<String, Value>, possible: &PossibleCall) -> Option<usize> {
        let may_hold = |demand: &ArgCondition, quantity| {
            let text = match demand.path().last().map(String::as_str) {
                Some("entity_id") => Some(&possible.entity),
                Some("domain") => Some(&possible.domain),
                Some("service") => Some(&possible.service),
                Some(_) | None => None,
            };
            text.is_some_and(|text| demand.may_hold(text)) || demand.holds(arguments, quantity)
        };
        let met = self.rules.iter().filter(|rule| rule.demands.iter().all(|demand| may_hold(demand, rule.quantity)));
        met.map(|rule| rule.rank).min()
    }

    /// Returns the ranks of the rules that `arguments` meet.
    fn met_by(&self, arguments: CallArguments<'_>) -> impl Iterator<Item = usize> {
        let rules = self.candidate_rules(arguments).into_iter().map(|at| &self.rules[at]);
        rules
            .filter(move |rule| rule.demands.iter().all(|demand| demand.holds(arguments, rule.quantity)))
            .map(|rule| rule.rank)
    }
}

impl RuleLookup<'_> {
    /// Returns the first rule whose pattern matches `text`.
    pub(crate) fn first_match(&self, text: &str) -> Option<usize> {
        self.0.iter().filter_map(|group| group.patterns.first_match(text)).min()
    }

    /// Returns the first rule whose pattern may match `text`, in which [`UNKNOWN`] stands for anything.
    pub(crate) fn first_that_may(&self, text: &str) -> Option<usize> {
        self.0.iter().filter_map(|group| group.patterns.first_possible(text, UNKNOWN, |_| true)).min()
    }

    /// Returns the first rule that `predicate` accepts and whose pattern matches `text`.
    pub(crate) fn first_where(&self, text: &str, predicate: impl Fn(usize) -> bool) -> Option<usize> {
        self.0.iter().filter_map(|group| group.patterns.first_where(text, &predicate)).min()
    }

    /// Reports whether a rule may be about a call of `tool` whose signature begins with `begun`.
    pub(crate) fn may_concern(&self, tool: &str, begun: &str) -> bool {
        self.0
            .iter()
            .any(|group| group.patterns.may_begin(begun) || group.tool_patterns.matching_ranks(tool).next().is_some())
    }

    /// Reports whether the pattern of a rule may match a text that begins with `begun`, as far as that is known.
    pub(crate) fn may_go_on(&self, begun: &str) -> bool {
        self.0.iter().any(|group| group.patterns.may_go_on(begun))
    }

    /// Returns the first rule whose pattern may match a text that begins with `begun`, as far as that is known.
    pub(crate) fn first_going_on(&self, begun: &str) -> Option<usize> {
        self.0.iter().filter_map(|group| group.patterns.first_going_on(begun)).min()
    }

    /// Reports whether the pattern of a rule may match a command with wildcards, once they are expanded to file names.
    pub(crate) fn may_match(&self, wild: &GlobForm) -> bool {
        let covers = |c: char| c != '/' || wild.crosses;
        self.0.iter().any(|group| group.patterns.may_match(&wild.text, GlobForm::SIGN, covers))
    }

    /// Returns the first rule that `possible` may meet, if `tool` is called with `arguments`.
    pub(crate) fn first_possible(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        possible: &PossibleCall,
    ) -> Option<usize> {
        let by_pattern = possible.signature.iter().flat_map(|text| {
            self.0.iter().filter_map(move |group| group.patterns.first_possible(text, UNKNOWN, is_in_names))
        });
        let of_tools =
            self.0.iter().flat_map(|group| group.tool_patterns.matching_ranks(tool).map(|at| &group.by_tool[at]));
        let by_arguments = of_tools.filter_map(|of_tool| of_tool.first_possible(arguments, possible));
        by_pattern.chain(by_arguments).min()
    }

    /// Returns the first rule with a bare `*`.
    pub(crate) fn everything_rank(&self) -> Option<usize> {
        self.0.iter().filter_map(|group| group.patterns.everything_rank()).min()
    }

    /// Returns the first rule on arguments that a call of `tool` meets and `predicate` accepts.
    pub(crate) fn first_structured<'a>(
        &self,
        tool: &str,
        arguments: impl Into<CallArguments<'a>>,
        predicate: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let arguments = arguments.into();
        let of_tools = self.0.iter().flat_map(|group| {
            group.tool_patterns.matching_ranks(tool).map(|at| &group.by_tool[at]).collect::<Vec<_>>()
        });
        of_tools.flat_map(|of_tool| of_tool.met_by(arguments)).filter(|rank| predicate(*rank)).min()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::{RuleTable, arg_conditions, quantifier_for};
    use crate::policy::{Rule, rule_scope::CallerScope, testing::subject};

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop::sample::select(vec![
            json!(0),
            json!(-0.0),
            json!(0.0),
            json!(1),
            json!(1.0),
            json!(5e0),
            json!(9_007_199_254_740_993_u64),
            json!("0"),
            json!("-0"),
            json!("1.0"),
            json!(" 5 "),
            json!("1e0"),
            json!("x"),
            json!("False"),
            json!("null"),
            json!(true),
            json!(false),
            json!(null),
        ]);
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[ab0]", inner, 0..3).prop_map(|map| json!(map)),
            ]
        })
    }

    fn matchers() -> impl Strategy<Value = Value> {
        prop_oneof![
            prop::sample::select(vec![
                json!("*"),
                json!("0"),
                json!("-0*"),
                json!("?"),
                json!("x"),
                json!(0),
                json!(1.0)
            ]),
            prop::sample::select(vec![json!(true), json!(-0.0), json!({"min": 0}), json!({"present": true})]),
            values().prop_map(|value| json!({ "is": value })),
            prop::collection::vec(values(), 0..3).prop_map(|values| json!({ "in": values })),
            values().prop_map(|value| json!({ "not": { "is": value } })),
        ]
    }

    proptest! {
        #[test]
        fn the_look_up_finds_a_rule_exactly_where_its_demands_hold(
            value in values(),
            path in prop::sample::select(vec!["v", "v.a", "v.*", "v.0", "v.a.b", "v.*.a"]),
            matcher in matchers(),
            action in prop::sample::select(vec!["allow", "deny", "ask"]),
        ) {
            let rule = json!({"tool": "t", "args": { path: matcher }, "action": action});
            let read: Rule = serde_json::from_value(rule.clone()).unwrap();
            let call = crate::policy::PolicySubject {
                arguments: json!({ "v": value }).as_object().unwrap().clone(),
                ..subject("t", json!({}))
            };
            let holds = arg_conditions(&read).iter().all(|demand| demand.holds(&call.arguments, quantifier_for(read.action)));
            let table = table(std::iter::once(rule));
            let found = table.lookup_for(CallerScope::from_subject(&call, None)).first_structured("t", &call.arguments, |_| true);
            prop_assert_eq!(found.is_some(), holds);
        }
    }

    fn table(rules: impl Iterator<Item = Value>) -> RuleTable {
        let mut table = RuleTable::default();
        for (rank, rule) in rules.enumerate() {
            table.insert(rank, &serde_json::from_value::<Rule>(rule).unwrap());
        }
        table.compile();
        table
    }

    #[test]
    fn of_ten_thousand_bound_rules_those_for_the_caller_are_found() {
        for side in ["principal", "door", "target"] {
            let rules = (0..10_000).map(|at| json!({"pattern": "t(*)", side: format!("x{at}"), "action": "allow"}));
            let table = table(rules.chain([json!({"pattern": "t(*)", side: "x99*", "action": "allow"})]));
            let mut call = subject("t", json!({"a": 1}));
            match side {
                "principal" => call.principal = crate::id::PrincipalId::new("agent:x9950"),
                "door" => call.door = Some("x9950".to_owned()),
                _ => call.target = Some("x9950".to_owned()),
            }
            let found = table.lookup_for(CallerScope::from_subject(&call, None));
            assert_eq!((found.0.len(), found.first_match("t(1)")), (2, Some(9950)), "{side}");
            let stranger = subject("t", json!({"a": 1}));
            assert_eq!(table.lookup_for(CallerScope::from_subject(&stranger, None)).0.len(), 0, "{side}");
        }
    }

    #[test]
    fn of_ten_thousand_rules_on_one_argument_those_for_its_value_are_tried() {
        let rules = (0..10_000).map(|at| {
            let to =
                if at % 2 == 0 { json!(format!("acme{at}-*")) } else { json!({"in": [format!("acme{at}-x"), at]}) };
            json!({"tool": "pay", "args": {"order.to": to, "amount": {"max": 50}}, "action": "allow"})
        });
        let table = table(rules);
        for (to, want) in [(json!("acme7000-x"), Some(7000)), (json!("acme7001-x"), Some(7001)), (json!(77), Some(77))]
        {
            let call = subject("pay", json!({"order": {"to": to}, "amount": 5}));
            let found = table.lookup_for(CallerScope::from_subject(&call, None));
            assert_eq!(found.first_structured("pay", &call.arguments, |_| true), want);
            assert_eq!(found.0[0].by_tool[0].candidate_rules(&call.arguments).len(), 1, "{to}");
        }
    }
}
