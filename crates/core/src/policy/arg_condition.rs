//! Condition of a rule on one argument, found by its path. Knows nothing of its consequences.
//!
//! A path is names with dots between, from the outside in: `order.total`, `items.0.price`, `items.*.price`. A name that contains
//! dots itself is found as well; if both readings find values, both count.

use serde_json::{Map, Number, Value};

use crate::{
    digest::canonical_json,
    policy::{
        fnmatch::GlobPattern,
        indirect::{UNKNOWN, is_in_names},
        rules::{ArgMatcher, MatchOperator},
        signature::joined_items,
    },
};

/// The arguments of a call, some of them in another spelling.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallArguments<'a> {
    pub(crate) own: &'a Map<String, Value>,
    /// Values that replace the arguments of the same name.
    pub(crate) others: Option<&'a Map<String, Value>>,
}

impl<'a> CallArguments<'a> {
    pub(crate) fn get(self, name: &str) -> Option<&'a Value> {
        self.others.and_then(|others| others.get(name)).or_else(|| self.own.get(name))
    }

    fn member_values(self) -> impl Iterator<Item = &'a Value> {
        self.own.keys().filter_map(move |name| self.get(name))
    }
}

impl<'a> From<&'a Map<String, Value>> for CallArguments<'a> {
    fn from(own: &'a Map<String, Value>) -> Self {
        Self { own, others: None }
    }
}

/// Number of the values at a path that must meet the condition: those of a list count one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatchQuantifier {
    /// One is enough: rules that deny or ask.
    Any,
    /// All of them, and there must be one: rules that allow.
    All,
}

impl MatchQuantifier {
    const fn for_negation(self) -> Self {
        match self {
            Self::Any => Self::All,
            Self::All => Self::Any,
        }
    }

    fn holds_for<T>(self, items: &[T], holds: impl FnMut(&T) -> bool) -> bool {
        match self {
            Self::Any => items.iter().any(holds),
            Self::All => !items.is_empty() && items.iter().all(holds),
        }
    }
}

/// Condition on the values at one path.
#[derive(Debug)]
pub(crate) struct ArgCondition {
    path: Vec<String>,
    test: ValueTest,
}

#[derive(Debug)]
enum ValueTest {
    Pattern(GlobPattern),
    Is(Value),
    In(Vec<Value>),
    Max(f64),
    Min(f64),
    Present(bool),
    Not(Box<ValueTest>),
}

impl ArgCondition {
    pub(crate) fn new(path: &str, matcher: &ArgMatcher) -> Self {
        Self { path: path.split('.').map(str::to_owned).collect(), test: ValueTest::new(matcher) }
    }

    /// Reports whether `arguments` meet the condition.
    pub(crate) fn holds<'a>(&self, arguments: impl Into<CallArguments<'a>>, quantity: MatchQuantifier) -> bool {
        quantity
            .holds_for(&values_at(arguments.into(), &self.path, quantity), |value| self.test.holds(*value, quantity))
    }

    /// Reports whether `text` at this path could meet the condition, for any value of [`UNKNOWN`] in it.
    pub(crate) fn may_hold(&self, text: &str) -> bool {
        self.test.may_hold(text)
    }

    pub(crate) fn path(&self) -> &[String] {
        &self.path
    }

    /// Returns patterns of which one matches one of [`texts_at`] wherever this holds; none if no such patterns are known.
    pub(crate) fn index_patterns(&self) -> Option<Vec<GlobPattern>> {
        match &self.test {
            ValueTest::Pattern(pattern) => Some(vec![pattern.clone()]),
            ValueTest::Is(value) => Some(literal_patterns(value).collect()),
            ValueTest::In(values) => Some(values.iter().flat_map(literal_patterns).collect()),
            ValueTest::Max(_) | ValueTest::Min(_) | ValueTest::Present(_) | ValueTest::Not(_) => None,
        }
    }
}

fn literal_patterns(value: &Value) -> impl Iterator<Item = GlobPattern> {
    equivalent_forms(value).into_iter().map(|text| GlobPattern::from_literal(&text))
}

/// Returns the texts under which a service may treat two values as equal: as it is written, and for any text that parses as a number
/// that number. True and false read as 1 and 0. A list of words reads as the joined text.
fn equivalent_forms(value: &Value) -> Vec<String> {
    let written = value.as_str().map_or_else(|| canonical_json(value), str::to_owned);
    let flag = match written.trim() {
        word if word.eq_ignore_ascii_case("true") => Some(1.0),
        word if word.eq_ignore_ascii_case("false") => Some(0.0),
        _ => None,
    };
    let number = flag.or_else(|| plain_number(&written));
    // Adding zero removes the sign of a negative zero.
    let number = number.map(|number| (number + 0.0).to_string());
    std::iter::once(written).chain(number).chain(joined_items(value)).collect()
}

/// Parses a text that is a number beyond doubt, in JSON notation. Some services read other notations, some do not.
fn plain_number(text: &str) -> Option<f64> {
    serde_json::from_str::<Number>(text).ok()?.as_f64()
}

/// Returns the texts that patterns of conditions see at `path`: of every value and of the items of lists, in each of their forms.
pub(crate) fn texts_at<'a>(arguments: impl Into<CallArguments<'a>>, path: &[String]) -> Vec<String> {
    fn add(value: &Value, texts: &mut Vec<String>) {
        texts.extend(equivalent_forms(value));
        if let Value::Array(items) = value {
            items.iter().for_each(|item| add(item, texts));
        }
    }
    let mut texts = Vec::new();
    values_at(arguments, path, MatchQuantifier::Any).into_iter().flatten().for_each(|value| add(value, &mut texts));
    texts
}

/// Returns the values at `path`, `None` for each place at which it ends before. Never empty. If all values count, a name that is
/// looked up in a list is also absent: a service that reads a list there may not read its items.
pub(crate) fn values_at<'a>(
    members: impl Into<CallArguments<'a>>,
    path: &[String],
    quantity: MatchQuantifier,
) -> Vec<Option<&'a Value>> {
    let members = members.into();
    let mut found = Vec::new();
    for names in 1..=path.len() {
        if let Some(member) = members.get(&path[..names].join(".")) {
            found.extend(values_within(member, &path[names..], quantity));
        }
    }
    if path.first().is_some_and(|first| first == "*") {
        found.extend(members.member_values().flat_map(|member| values_within(member, &path[1..], quantity)));
    }
    if found.is_empty() { vec![None] } else { found }
}

fn values_within<'a>(value: &'a Value, path: &[String], quantity: MatchQuantifier) -> Vec<Option<&'a Value>> {
    let Some(first) = path.first() else { return vec![Some(value)] };
    let mut found = Vec::new();
    match value {
        Value::Object(members) => found = values_at(members, path, quantity),
        Value::Array(items) if first == "*" => {
            found.extend(items.iter().flat_map(|item| values_within(item, &path[1..], quantity)));
        }
        Value::Array(items) => {
            let at = first.parse::<usize>().ok();
            let item = at.and_then(|at| items.get(at));
            found.extend(item.into_iter().flat_map(|item| values_within(item, &path[1..], quantity)));
            if item.is_none() && quantity == MatchQuantifier::All {
                found.push(None);
            }
            // A number that counts items is seldom a name in them; if it is one, both readings count.
            let named = items.iter().flat_map(|item| values_within(item, path, quantity));
            found.extend(named.filter(|value| at.is_none() || value.is_some()));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    if found.is_empty() { vec![None] } else { found }
}

impl ValueTest {
    fn new(matcher: &ArgMatcher) -> Self {
        match matcher {
            ArgMatcher::Pattern(pattern) => Self::Pattern(GlobPattern::new(pattern)),
            ArgMatcher::Equals(value) | ArgMatcher::Operator(MatchOperator::Is(value)) => Self::Is(value.clone()),
            ArgMatcher::Operator(MatchOperator::In(values)) => Self::In(values.clone()),
            ArgMatcher::Operator(MatchOperator::Max(most)) => Self::Max(*most),
            ArgMatcher::Operator(MatchOperator::Min(least)) => Self::Min(*least),
            ArgMatcher::Operator(MatchOperator::Present(present)) => Self::Present(*present),
            ArgMatcher::Operator(MatchOperator::Not(matcher)) => Self::Not(Box::new(Self::new(matcher))),
        }
    }

    fn holds(&self, value: Option<&Value>, quantity: MatchQuantifier) -> bool {
        match (self, value) {
            (Self::Present(present), value) => value.is_some() == *present,
            (Self::Not(test), value) => !test.holds(value, quantity.for_negation()),
            (Self::Pattern(_) | Self::Is(_) | Self::In(_) | Self::Max(_) | Self::Min(_), None) => false,
            (Self::Pattern(pattern), Some(value @ Value::Array(items))) if !items.is_empty() => {
                let in_a_row = || joined_items(value).is_some_and(|text| pattern.matches(&text));
                let is_met = quantity.holds_for(items, |item| self.holds(Some(item), quantity));
                is_met || quantity == MatchQuantifier::Any && in_a_row()
            }
            (Self::Max(_) | Self::Min(_), Some(Value::Array(items))) if !items.is_empty() => {
                quantity.holds_for(items, |item| self.holds(Some(item), quantity))
            }
            (Self::Pattern(pattern), Some(Value::String(text))) => pattern.matches(text),
            (Self::Pattern(pattern), Some(value)) => pattern.matches(&canonical_json(value)),
            (Self::Is(expected), Some(value)) => {
                is_equal_to(expected, value, quantity) || self.holds_in_items(value, quantity)
            }
            (Self::In(expected), Some(value)) => {
                expected.iter().any(|one| is_equal_to(one, value, quantity)) || self.holds_in_items(value, quantity)
            }
            (Self::Max(most), Some(value)) => is_number(value, quantity, |number| number <= *most),
            (Self::Min(least), Some(value)) => is_number(value, quantity, |number| number >= *least),
        }
    }

    fn may_hold(&self, text: &str) -> bool {
        let may_be =
            |expected: &Value| literal_patterns(expected).any(|pattern| pattern.may_match(text, UNKNOWN, is_in_names));
        match self {
            Self::Pattern(pattern) => pattern.may_match(text, UNKNOWN, is_in_names),
            Self::Is(expected) => may_be(expected),
            Self::In(expected) => expected.iter().any(may_be),
            Self::Present(present) => *present,
            Self::Not(test) => text.contains(UNKNOWN) || !test.may_hold(text),
            // A value that is not plainly a number is stopped by any bound.
            Self::Max(_) | Self::Min(_) => true,
        }
    }

    fn holds_in_items(&self, value: &Value, quantity: MatchQuantifier) -> bool {
        value.as_array().is_some_and(|items| quantity.holds_for(items, |item| self.holds(Some(item), quantity)))
    }
}

/// Reports whether `value` equals `expected`. If a mismatch would let something through that is to be stopped, any value that a
/// service may treat as equal counts: 5 is 5.0 and "5", false is "false" and 0.
fn is_equal_to(expected: &Value, value: &Value, quantity: MatchQuantifier) -> bool {
    match quantity {
        MatchQuantifier::Any => {
            let forms = equivalent_forms(value);
            self::equivalent_forms(expected).iter().any(|form| forms.contains(form))
        }
        MatchQuantifier::All => canonical_json(expected) == canonical_json(value),
    }
}

/// Reports whether `value` is a number that meets the condition. To stop something, a text that is plainly a number counts as that
/// number, and any other text as any number that is to be stopped: its reading by a service is unknown.
fn is_number(value: &Value, quantity: MatchQuantifier, is_as_demanded: impl Fn(f64) -> bool) -> bool {
    match (value, quantity) {
        (Value::Number(number), _) => number.as_f64().is_some_and(is_as_demanded),
        (Value::Bool(flag), MatchQuantifier::Any) => is_as_demanded(f64::from(u8::from(*flag))),
        (Value::String(text), MatchQuantifier::Any) => plain_number(text).is_none_or(is_as_demanded),
        (Value::Bool(_) | Value::String(_), MatchQuantifier::All) => false,
        (Value::Null | Value::Array(_) | Value::Object(_), _) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{ArgCondition, MatchQuantifier, texts_at};

    fn demand(path: &str, matcher: Value) -> ArgCondition {
        ArgCondition::new(path, &serde_json::from_value(matcher).unwrap())
    }

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_path_leads_into_objects_and_lists() {
        let arguments = map(json!({
            "order": {"total": 50, "lines": [{"sku": "a1"}, {"sku": "b2"}]},
            "a.b": {"c": "dotted"},
            "none": null,
        }));
        for (path, matcher, any, all) in [
            ("order.total", json!({"max": 50}), true, true),
            ("order.total", json!({"max": 49}), false, false),
            ("order.lines.0.sku", json!("a*"), true, true),
            ("order.lines.*.sku", json!("a*"), true, false),
            ("order.lines.*.sku", json!("??"), true, true),
            ("order.lines.2.sku", json!("*"), false, false),
            ("order.lines.2.sku", json!({"present": false}), true, true),
            ("order.*", json!({"present": true}), true, true),
            ("a.b.c", json!("dotted"), true, true),
            ("none", json!({"present": true}), true, true),
            ("order.total.deeper", json!({"present": true}), false, false),
            ("nowhere", json!({"not": "x"}), true, true),
        ] {
            let demand = demand(path, matcher.clone());
            let got = (demand.holds(&arguments, MatchQuantifier::Any), demand.holds(&arguments, MatchQuantifier::All));
            assert_eq!(got, (any, all), "{path} {matcher}");
        }
    }

    #[test]
    fn a_name_with_dots_cannot_stand_in_for_what_lies_deeper() {
        let arguments = map(json!({"order.total": 1, "order": {"total": 900}}));
        assert!(!demand("order.total", json!({"max": 50})).holds(&arguments, MatchQuantifier::All));
        assert!(demand("order.total", json!({"min": 500})).holds(&arguments, MatchQuantifier::Any));
    }

    #[test]
    fn a_name_on_a_list_is_looked_for_in_its_items() {
        let gift = json!([{"kind": "gift"}]);
        let mixed = json!([{"kind": "book"}, {"kind": "gift"}]);
        for (order, path, matcher, any, all) in [
            (&gift, "order.kind", json!("gift"), true, false),
            (&gift, "order.kind", json!({"not": "gift"}), false, false),
            (&gift, "order.kind", json!({"not": "book"}), true, true),
            (&gift, "order.kind", json!({"present": false}), false, false),
            (&gift, "order.0.kind", json!("gift"), true, true),
            (&mixed, "order.kind", json!("gift"), true, false),
            (&mixed, "order.kind", json!({"not": "gift"}), true, false),
            (&mixed, "order.kind", json!({"in": ["gift"]}), true, false),
            (&json!([[{"kind": "gift"}]]), "order.kind", json!("gift"), true, false),
            (&json!([{"total": 1}]), "order.kind", json!({"not": "gift"}), true, true),
            (&json!([{"0": "gift"}]), "order.0", json!("gift"), true, false),
            (&json!([{"7": "gift"}]), "order.7", json!("gift"), true, false),
            (&json!([]), "order.kind", json!({"present": true}), false, false),
        ] {
            let demand = demand(path, matcher.clone());
            let arguments = map(json!({ "order": order }));
            let got = (demand.holds(&arguments, MatchQuantifier::Any), demand.holds(&arguments, MatchQuantifier::All));
            assert_eq!(got, (any, all), "{arguments:?} {path} {matcher}");
        }
    }

    #[test]
    fn a_text_that_is_not_plainly_a_number_is_stopped_by_any_bound() {
        for value in ["９００", "1_000", "0x3e8", "900 EUR", "NaN", "inf", "+900", "0900", "1e999", "900,00", ""] {
            let arguments = map(json!({ "v": value }));
            for matcher in [json!({"min": 500}), json!({"max": 0}), json!({"not": {"max": 500}})] {
                assert!(demand("v", matcher.clone()).holds(&arguments, MatchQuantifier::Any), "{value:?} {matcher}");
            }
            for matcher in [json!({"max": 5000}), json!({"not": {"min": 500}})] {
                assert!(!demand("v", matcher.clone()).holds(&arguments, MatchQuantifier::All), "{value:?} {matcher}");
            }
        }
        for value in ["499", " 4.99e2 ", "-900"] {
            assert!(
                !demand("v", json!({"min": 500})).holds(&map(json!({ "v": value })), MatchQuantifier::Any),
                "{value:?}"
            );
        }
    }

    #[test]
    fn of_a_list_one_item_stops_and_all_must_be_allowed() {
        for (value, matcher, any, all) in [
            (json!(["light.a", "lock.b"]), json!("lock.*"), true, false),
            (json!([["lock.b"]]), json!("lock.*"), true, true),
            (json!(["EUR", "USD"]), json!({"not": "EUR"}), true, false),
            (json!(["EUR", "EUR"]), json!({"not": "EUR"}), false, false),
            (json!(["EUR", "USD"]), json!({"not": {"in": ["EUR"]}}), true, false),
            (json!([1, 900]), json!({"min": 500}), true, false),
            (json!([1, 2]), json!({"max": 2}), true, true),
            (json!([1, 2]), json!({"is": [1, 2]}), true, true),
            (json!([]), json!({"max": 2}), false, false),
            (json!([]), json!("*"), true, true),
        ] {
            let demand = demand("v", matcher.clone());
            let arguments = map(json!({ "v": value }));
            let got = (demand.holds(&arguments, MatchQuantifier::Any), demand.holds(&arguments, MatchQuantifier::All));
            assert_eq!(got, (any, all), "{arguments:?} {matcher}");
        }
    }

    #[test]
    fn what_a_service_may_read_as_the_number_stops_and_allows_nothing() {
        for (value, matcher) in [
            (json!("900"), json!({"min": 500})),
            (json!(" 900 "), json!({"min": 500})),
            (json!("9e2"), json!({"min": 500})),
            (json!(5.0), json!(5)),
            (json!(5.0), json!({"in": [4, 5]})),
            (json!("5"), json!(5)),
            (json!("5.0"), json!({"in": [4, 5]})),
            (json!(5), json!({"is": "5"})),
            (json!("false"), json!(false)),
            (json!("False"), json!(false)),
            (json!(0), json!(false)),
            (json!(1), json!(true)),
            (json!(-0.0), json!(0)),
            (json!("-0"), json!(0)),
            (json!("null"), json!({"is": null})),
            (json!(true), json!({"min": 1})),
        ] {
            let demand = demand("v", matcher.clone());
            let arguments = map(json!({ "v": value }));
            assert!(demand.holds(&arguments, MatchQuantifier::Any), "{arguments:?} {matcher}");
            assert!(!demand.holds(&arguments, MatchQuantifier::All), "{arguments:?} {matcher}");
        }
    }

    #[test]
    fn whatever_holds_is_found_by_its_texts() {
        for value in [json!("x"), json!(5), json!(5.0), json!(true), json!(["x", [5]]), json!({"a": 1}), json!(null)] {
            let arguments = map(json!({ "v": value }));
            for matcher in
                [json!("x"), json!("*"), json!(5), json!(5.0), json!({"in": ["x", 5]}), json!({"is": {"a": 1}})]
            {
                let demand = demand("v", matcher.clone());
                let texts = texts_at(&arguments, demand.path());
                let patterns = demand.index_patterns().unwrap();
                let found = patterns.iter().any(|pattern| texts.iter().any(|text| pattern.matches(text)));
                for quantity in [MatchQuantifier::Any, MatchQuantifier::All] {
                    assert!(found || !demand.holds(&arguments, quantity), "{arguments:?} {matcher}");
                }
            }
        }
    }
}
