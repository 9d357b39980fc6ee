//! What a rule demands of one argument, found by its path. Knows nothing of what follows from it.
//!
//! A path is names with dots between, from the outside in: `order.total`, `items.0.price`, `items.*.price`. A name that holds
//! dots itself is found as well; where both readings lead somewhere, both count.

use serde_json::{Map, Number, Value};

use crate::{
    digest::canonical,
    policy::{
        fnmatch::Pattern,
        rules::{Matcher, Operator},
    },
};

/// How many of the values that a path leads to must be as demanded: those of a list count one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// One is enough: rules that deny or ask.
    Any,
    /// All of them, and there must be one: rules that allow.
    All,
}

impl Quantity {
    const fn other(self) -> Self {
        match self {
            Self::Any => Self::All,
            Self::All => Self::Any,
        }
    }

    fn of<T>(self, items: &[T], holds: impl FnMut(&T) -> bool) -> bool {
        match self {
            Self::Any => items.iter().any(holds),
            Self::All => !items.is_empty() && items.iter().all(holds),
        }
    }
}

/// What is demanded of the values at one path.
#[derive(Debug)]
pub(crate) struct Demand {
    path: Vec<String>,
    test: Test,
}

#[derive(Debug)]
enum Test {
    Pattern(Pattern),
    Is(Value),
    In(Vec<Value>),
    Max(f64),
    Min(f64),
    Present(bool),
    Not(Box<Test>),
}

impl Demand {
    pub(crate) fn new(path: &str, matcher: &Matcher) -> Self {
        Self { path: path.split('.').map(str::to_owned).collect(), test: Test::new(matcher) }
    }

    /// True if `arguments` are as demanded.
    pub(crate) fn holds(&self, arguments: &Map<String, Value>, quantity: Quantity) -> bool {
        quantity.of(&values(arguments, &self.path), |value| self.test.holds(*value, quantity))
    }

    pub(crate) fn path(&self) -> &[String] {
        &self.path
    }

    /// Patterns of which one matches one of [`texts`] wherever this holds; none if no such patterns are known.
    pub(crate) fn patterns(&self) -> Option<Vec<Pattern>> {
        match &self.test {
            Test::Pattern(pattern) => Some(vec![pattern.clone()]),
            Test::Is(value) => Some(literals(value).collect()),
            Test::In(values) => Some(values.iter().flat_map(literals).collect()),
            Test::Max(_) | Test::Min(_) | Test::Present(_) | Test::Not(_) => None,
        }
    }
}

fn literals(value: &Value) -> impl Iterator<Item = Pattern> {
    text_of(value).into_iter().chain(value.as_f64().map(|float| float.to_string())).map(|text| Pattern::literal(&text))
}

fn text_of(value: &Value) -> Option<String> {
    Some(value.as_str().map_or_else(|| canonical(value), str::to_owned))
}

/// The texts that patterns of demands see at `path`: of every value, of the items of lists, and of numbers however written.
pub(crate) fn texts(arguments: &Map<String, Value>, path: &[String]) -> Vec<String> {
    fn add(value: &Value, texts: &mut Vec<String>) {
        texts.extend(text_of(value));
        texts.extend(value.as_f64().map(|float| float.to_string()));
        if let Value::Array(items) = value {
            items.iter().for_each(|item| add(item, texts));
        }
    }
    let mut texts = Vec::new();
    values(arguments, path).into_iter().flatten().for_each(|value| add(value, &mut texts));
    texts
}

/// What stands at `path`, `None` for each place at which it ends before. Never empty.
pub(crate) fn values<'a>(members: &'a Map<String, Value>, path: &[String]) -> Vec<Option<&'a Value>> {
    let mut found = Vec::new();
    for names in 1..=path.len() {
        if let Some(member) = members.get(&path[..names].join(".")) {
            found.extend(reached(member, &path[names..]));
        }
    }
    if path.first().is_some_and(|first| first == "*") {
        found.extend(members.values().flat_map(|member| reached(member, &path[1..])));
    }
    if found.is_empty() { vec![None] } else { found }
}

fn reached<'a>(value: &'a Value, path: &[String]) -> Vec<Option<&'a Value>> {
    let Some(first) = path.first() else { return vec![Some(value)] };
    let mut found = Vec::new();
    match value {
        Value::Object(members) => found = values(members, path),
        Value::Array(items) if first == "*" => found.extend(items.iter().flat_map(|item| reached(item, &path[1..]))),
        Value::Array(items) => {
            let item = first.parse::<usize>().ok().and_then(|at| items.get(at));
            found.extend(item.into_iter().flat_map(|item| reached(item, &path[1..])));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    if found.is_empty() { vec![None] } else { found }
}

impl Test {
    fn new(matcher: &Matcher) -> Self {
        match matcher {
            Matcher::Pattern(pattern) => Self::Pattern(Pattern::new(pattern)),
            Matcher::Equals(value) | Matcher::Operator(Operator::Is(value)) => Self::Is(value.clone()),
            Matcher::Operator(Operator::In(values)) => Self::In(values.clone()),
            Matcher::Operator(Operator::Max(most)) => Self::Max(*most),
            Matcher::Operator(Operator::Min(least)) => Self::Min(*least),
            Matcher::Operator(Operator::Present(present)) => Self::Present(*present),
            Matcher::Operator(Operator::Not(matcher)) => Self::Not(Box::new(Self::new(matcher))),
        }
    }

    fn holds(&self, value: Option<&Value>, quantity: Quantity) -> bool {
        match (self, value) {
            (Self::Present(present), value) => value.is_some() == *present,
            (Self::Not(test), value) => !test.holds(value, quantity.other()),
            (Self::Pattern(_) | Self::Is(_) | Self::In(_) | Self::Max(_) | Self::Min(_), None) => false,
            (Self::Pattern(_) | Self::Max(_) | Self::Min(_), Some(Value::Array(items))) if !items.is_empty() => {
                quantity.of(items, |item| self.holds(Some(item), quantity))
            }
            (Self::Pattern(pattern), Some(Value::String(text))) => pattern.matches(text),
            (Self::Pattern(pattern), Some(value)) => pattern.matches(&canonical(value)),
            (Self::Is(wanted), Some(value)) => is(wanted, value, quantity) || self.holds_in_items(value, quantity),
            (Self::In(wanted), Some(value)) => {
                wanted.iter().any(|one| is(one, value, quantity)) || self.holds_in_items(value, quantity)
            }
            (Self::Max(most), Some(value)) => number(value, quantity).is_some_and(|number| number <= *most),
            (Self::Min(least), Some(value)) => number(value, quantity).is_some_and(|number| number >= *least),
        }
    }

    fn holds_in_items(&self, value: &Value, quantity: Quantity) -> bool {
        value.as_array().is_some_and(|items| quantity.of(items, |item| self.holds(Some(item), quantity)))
    }
}

/// Whether `value` is `wanted`. Where a slip would let something through that is to be stopped, 5 is 5.0 as well.
fn is(wanted: &Value, value: &Value, quantity: Quantity) -> bool {
    canonical(wanted) == canonical(value)
        || (quantity == Quantity::Any
            && matches!((wanted, value), (Value::Number(wanted), Value::Number(value)) if wanted.as_f64() == value.as_f64()))
}

/// The number that `value` is. To stop something, a text that a service would read as a number counts as one.
fn number(value: &Value, quantity: Quantity) -> Option<f64> {
    match (value, quantity) {
        (Value::Number(number), _) => Number::as_f64(number),
        (Value::String(text), Quantity::Any) => text.trim().parse().ok(),
        (Value::String(_), Quantity::All) => None,
        (Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_), _) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{Demand, Quantity, texts};

    fn demand(path: &str, matcher: Value) -> Demand {
        Demand::new(path, &serde_json::from_value(matcher).unwrap())
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
            let got = (demand.holds(&arguments, Quantity::Any), demand.holds(&arguments, Quantity::All));
            assert_eq!(got, (any, all), "{path} {matcher}");
        }
    }

    #[test]
    fn a_name_with_dots_cannot_stand_in_for_what_lies_deeper() {
        let arguments = map(json!({"order.total": 1, "order": {"total": 900}}));
        assert!(!demand("order.total", json!({"max": 50})).holds(&arguments, Quantity::All));
        assert!(demand("order.total", json!({"min": 500})).holds(&arguments, Quantity::Any));
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
            let got = (demand.holds(&arguments, Quantity::Any), demand.holds(&arguments, Quantity::All));
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
        ] {
            let demand = demand("v", matcher.clone());
            let arguments = map(json!({ "v": value }));
            assert!(demand.holds(&arguments, Quantity::Any), "{arguments:?} {matcher}");
            assert!(!demand.holds(&arguments, Quantity::All), "{arguments:?} {matcher}");
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
                let texts = texts(&arguments, demand.path());
                let patterns = demand.patterns().unwrap();
                let found = patterns.iter().any(|pattern| texts.iter().any(|text| pattern.matches(text)));
                for quantity in [Quantity::Any, Quantity::All] {
                    assert!(found || !demand.holds(&arguments, quantity), "{arguments:?} {matcher}");
                }
            }
        }
    }
}
