//! Check of arguments against a server's schema, with errors that a model can act on. They are never changed.
//!
//! It is not the whole of JSON Schema: the server checks the rest. What it refuses here, the schema refuses as well.

use countersign_runtime::tools::schema::INTENT;
use serde_json::{Map, Value};

use crate::schema_check::{properties_of, resolve_reference};

/// Deepest nesting that is looked into, references included.
const DEEPEST: usize = 32;
/// Most problems that are named.
const MOST: usize = 10;
/// Steps that every check may take.
const FEWEST_STEPS: usize = 1000;
/// Further steps for each part of the arguments: a part is compared with the schemas of one chain of references, and each of
/// these may name a few values.
const STEPS_PER_PART: usize = 4 * DEEPEST;
/// Names or values of a list that are compared in one step.
const ENTRIES_PER_STEP: usize = 16;
/// Steps beyond which no check goes, less than a second.
const MOST_STEPS: usize = 4_000_000;

/// Returns the problems of `arguments`, each with its place; empty if there are none.
pub(crate) fn find_problems(schema: &Value, arguments: &Map<String, Value>) -> Vec<String> {
    ArgumentCheck::run(schema, arguments).problems
}

struct ArgumentCheck<'a> {
    root: &'a Value,
    problems: Vec<String>,
    /// Place of the part that is looked at. It is written out for a problem only.
    path: Vec<PathPart<'a>>,
    /// Steps so far: parts that were compared, and lists of a schema with which they were compared.
    steps: usize,
    most_steps: usize,
}

#[derive(Clone, Copy)]
enum PathPart<'a> {
    Member(&'a str),
    Item(usize),
}

impl<'a> ArgumentCheck<'a> {
    fn run(schema: &'a Value, arguments: &'a Map<String, Value>) -> Self {
        let parts: usize = 1 + arguments.values().map(count_parts).sum::<usize>();
        let own = count_parts(schema).saturating_add(FEWEST_STEPS);
        let most_steps = parts.saturating_mul(STEPS_PER_PART).saturating_add(own).min(MOST_STEPS);
        let mut check = Self { root: schema, problems: Vec::new(), path: Vec::new(), steps: 0, most_steps };
        check.check_object(schema, arguments, 0);
        if check.steps > check.most_steps {
            check.problems = vec![format!(
                "they cannot be checked: the schema of the tool needs more than {most_steps} steps for them"
            )];
        }
        check.problems.truncate(MOST);
        check
    }

    /// Counts steps. True if the check is over.
    fn is_over(&mut self, steps: usize) -> bool {
        self.steps = self.steps.saturating_add(steps);
        self.steps > self.most_steps || self.problems.len() >= MOST
    }

    fn check_value(&mut self, schema: &'a Value, value: &'a Value, depth: usize) {
        if depth > DEEPEST || self.is_over(1) {
            return;
        }
        let Some(keywords) = schema.as_object() else {
            if schema == &Value::Bool(false) {
                let problem = format!("{} is not an argument", self.place());
                self.problems.push(problem);
            }
            return;
        };
        if let Some(target) = keywords.get("$ref").and_then(Value::as_str)
            && let Some(target) = resolve_reference(self.root, target)
        {
            self.check_value(target, value, depth + 1);
        }
        if let Some(Value::Array(allowed)) = keywords.get("enum") {
            if self.is_over(allowed.len() / ENTRIES_PER_STEP) {
                return;
            }
            if !allowed.contains(value) {
                let allowed: Vec<String> = allowed.iter().map(Value::to_string).collect();
                let problem = format!("{} must be one of {}", self.place(), allowed.join(", "));
                return self.problems.push(problem);
            }
        }
        if let Some(types) = keywords.get("type")
            && !fits_type(types, value)
        {
            let problem = format!("{} must be of type {}", self.place(), type_names(types));
            return self.problems.push(problem);
        }
        match value {
            Value::Object(members) => self.check_object(schema, members, depth),
            Value::Array(items) => {
                let Some(form) = keywords.get("items").filter(|form| form.is_object()) else { return };
                if keywords.contains_key("prefixItems") {
                    return;
                }
                for (index, item) in items.iter().enumerate() {
                    if self.is_over(0) {
                        return;
                    }
                    self.check_part(PathPart::Item(index), form, item, depth);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn check_part(&mut self, at: PathPart<'a>, schema: &'a Value, value: &'a Value, depth: usize) {
        self.path.push(at);
        self.check_value(schema, value, depth + 1);
        self.path.pop();
    }

    fn check_object(&mut self, schema: &'a Value, members: &'a Map<String, Value>, depth: usize) {
        let Some(keywords) = schema.as_object() else { return };
        let required = keywords.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if self.is_over(required.len() / ENTRIES_PER_STEP) {
            return;
        }
        for name in required.iter().filter_map(Value::as_str).filter(|name| !members.contains_key(*name)) {
            let problem = format!("{} is required", self.place_of(name));
            self.problems.push(problem);
            if self.is_over(0) {
                return;
            }
        }
        let properties = properties_of(keywords);
        // Names that match a pattern are left to the server.
        let further = keywords.get("additionalProperties").filter(|_| !keywords.contains_key("patternProperties"));
        let is_top = self.path.is_empty();
        for (name, value) in members.iter().filter(|(name, _)| !(is_top && *name == INTENT)) {
            if self.is_over(1) {
                return;
            }
            match (properties.and_then(|properties| properties.get(name)), further) {
                (Some(form), _) => self.check_part(PathPart::Member(name), form, value, depth),
                (None, Some(Value::Bool(false))) => {
                    let known: Vec<&str> =
                        properties.into_iter().flat_map(Map::keys).map(String::as_str).take(50).collect();
                    let problem = format!("{} is not an argument; known: {}", self.place_of(name), known.join(", "));
                    self.problems.push(problem);
                }
                (None, Some(form)) => self.check_part(PathPart::Member(name), form, value, depth),
                (None, None) => {}
            }
        }
    }

    fn place_of(&self, name: &str) -> String {
        let place = self.place();
        if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") }
    }

    fn place(&self) -> String {
        let mut place = String::new();
        for part in &self.path {
            match part {
                PathPart::Member(name) if place.is_empty() => place.push_str(name),
                PathPart::Member(name) => {
                    place.push('.');
                    place.push_str(name);
                }
                PathPart::Item(index) => place.push_str(&format!("[{index}]")),
            }
        }
        place
    }
}

fn count_parts(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(count_parts).sum::<usize>(),
        Value::Object(members) => 1 + members.values().map(count_parts).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

fn fits_type(types: &Value, value: &Value) -> bool {
    let fits = |name: &Value| match (name.as_str(), value) {
        (Some("string"), Value::String(_))
        | (Some("boolean"), Value::Bool(_))
        | (Some("null"), Value::Null)
        | (Some("object"), Value::Object(_))
        | (Some("array"), Value::Array(_))
        | (Some("number"), Value::Number(_)) => true,
        (Some("integer"), Value::Number(number)) => {
            number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        _ => false,
    };
    match types {
        Value::Array(names) => names.iter().any(fits),
        one => fits(one),
    }
}

fn type_names(types: &Value) -> String {
    match types {
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        one => one.as_str().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{ArgumentCheck, find_problems};

    #[test]
    fn arguments_that_the_schema_refuses_are_named() {
        let schema = json!({
            "type": "object",
            "required": ["path"],
            "additionalProperties": false,
            "properties": {
                "path": {"type": "string"},
                "due": {"type": ["string", "null"]},
                "count": {"type": "integer"},
                "mode": {"enum": ["a", "b"]},
                "items": {"type": "array", "items": {"$ref": "#/$defs/item"}},
                "free": {"type": "object"},
            },
            "$defs": {"item": {"type": "object", "required": ["id"]}},
        });
        for (given, want) in [
            (json!({"path": "x", "due": null, "count": 3.0, "mode": "a", "free": {"any": 1}, "_i": "look"}), vec![]),
            (json!({}), vec!["path is required"]),
            (json!({"path": 1}), vec!["path must be of type string"]),
            (json!({"path": "x", "due": 1}), vec!["due must be of type string or null"]),
            (json!({"path": "x", "count": 1.5}), vec!["count must be of type integer"]),
            (json!({"path": "x", "mode": "c"}), vec!["mode must be one of \"a\", \"b\""]),
            (json!({"path": "x", "items": [{"id": 1}, {}]}), vec!["items[1].id is required"]),
            (json!({"path": "x", "no": 1}), vec!["no is not an argument; known: path, due, count, mode, items, free"]),
        ] {
            assert_eq!(find_problems(&schema, given.as_object().unwrap()), want, "{given}");
        }
    }

    #[test]
    fn a_schema_that_refers_to_itself_ends() {
        let schema = json!({"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}});
        assert_eq!(find_problems(&schema, json!({"a": 1}).as_object().unwrap()), [""; 0]);
    }

    #[test]
    fn a_schema_for_all_further_arguments_counts_for_each_of_them() {
        let schema = json!({
            "type": "object",
            "properties": {"server": {"type": "string"}},
            "additionalProperties": {"type": "string"},
        });
        let given = json!({"server": "a", "x": 1, "y": {"z": [1]}, "z": "text"});
        let want = ["x must be of type string", "y must be of type string"];
        assert_eq!(find_problems(&schema, given.as_object().unwrap()), want);
        let patterned = json!({"additionalProperties": {"type": "string"}, "patternProperties": {"^x": {}}});
        assert_eq!(find_problems(&patterned, given.as_object().unwrap()), [""; 0]);
    }

    #[test]
    fn steps_grow_with_the_arguments_and_not_with_their_product() {
        let schema = json!({"type": "object", "properties": {"a": {
            "type": "array",
            "items": {"$ref": "#/$defs/item"},
        }}, "$defs": {"item": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}}});
        for size in [10, 1000, 100_000] {
            let given = json!({"a": vec![json!({"id": 1}); size]});
            let check = ArgumentCheck::run(&schema, given.as_object().unwrap());
            assert_eq!(check.problems, [""; 0], "{size}");
            assert!(check.steps <= 6 * size + 10, "{size}: {} steps", check.steps);
        }
    }

    #[test]
    fn arguments_for_which_a_schema_needs_too_many_steps_are_refused() {
        let bomb = json!({"type": "object", "properties": {
            "a": {"$ref": "#/properties/a", "properties": {"a": {"$ref": "#/properties/a"}}},
        }});
        for size in [10, 24, 40, 100] {
            let mut given = json!({"x": 1});
            for _ in 0..size {
                given = json!({ "a": given });
            }
            let check = ArgumentCheck::run(&bomb, given.as_object().unwrap());
            assert!(check.steps <= 1200 + 128 * (size + 3), "{size}: {} steps", check.steps);
            let is_refused = check.problems.iter().any(|problem| problem.starts_with("they cannot be checked: "));
            assert!(is_refused, "{size}: {:?}", check.problems);
        }
    }

    #[test]
    fn many_problems_and_long_names_are_not_all_written_out() {
        let schema = json!({"type": "object", "additionalProperties": false, "required": vec!["r"; 100]});
        let given: serde_json::Map<_, _> = (0..100_000).map(|at| (format!("a{at}"), json!(1))).collect();
        let check = ArgumentCheck::run(&schema, &given);
        assert_eq!(check.problems.len(), 10);
        assert!(check.steps < 200, "{} steps", check.steps);
    }
}
