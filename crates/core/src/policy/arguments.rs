//! Checks the arguments of a request against its tool's declaration. Source: agent-gate's validation, ARCHITECTURE.md, Policy.
//!
//! It must not know the place of tool declarations.

use std::borrow::Cow;

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use super::signature::{forbidden_argument, template_names};

/// A pattern that a text must match from its beginning, but not to its end: as Python's `re.match` does.
#[derive(Clone, Debug)]
pub struct ArgumentValidator {
    source: String,
    regex: Regex,
}

impl PartialEq for ArgumentValidator {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for ArgumentValidator {}

/// A pattern that is invalid, that would take too much memory, or that needs more than finite automata can do (look-around,
/// back references).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadPattern(String);

impl ArgumentValidator {
    /// Compiles `pattern`, which is written for Python.
    ///
    /// # Errors
    /// [`BadPattern`] with the problem, in one line.
    pub fn new(pattern: &str) -> Result<Self, BadPattern> {
        let built = RegexBuilder::new(&translate_pattern(pattern)).size_limit(1 << 20).nest_limit(100).build();
        let regex = built.map_err(|error| {
            // The library draws the position in the lines before the last.
            let text = error.to_string();
            BadPattern(text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned())
        })?;
        Ok(Self { source: pattern.to_owned(), regex })
    }

    /// Returns the pattern as it was written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Reports whether `text` matches.
    pub fn accepts(&self, text: &str) -> bool {
        // The leftmost match begins at the beginning exactly if any match does.
        self.regex.find(text).is_some_and(|found| found.start() == 0)
    }
}

/// An argument as its tool declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredArgument {
    /// Its name.
    pub name: String,
    /// True if it must be present; null counts.
    pub required: bool,
    /// Pattern that every text in it must match.
    pub validate: Option<ArgumentValidator>,
    /// True if it is free text: any character may be in it, and it is no part of the signature.
    pub free_text: bool,
}

/// Arguments that are refused; its text is sent to the agent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// A text contains a character that has a meaning in patterns or signatures.
    #[error("Argument '{0}' contains forbidden characters")]
    Forbidden(String),
    /// An argument is missing.
    #[error("Missing required argument: {0}")]
    Missing(String),
    /// A text does not match.
    #[error("Invalid value for {name}: '{value}'")]
    Value {
        /// The argument's name.
        name: String,
        /// The text, from any depth.
        value: String,
    },
}

/// Decides whether `arguments` may be judged: first no forbidden characters, then all that is required, then the patterns.
///
/// Free text may hold any character, since no signature has it.
/// Texts in lists and objects are checked as well; names, numbers, booleans and null are not. For a tool without a
/// definition `declared` is empty.
///
/// # Errors
/// [`ArgumentError`] for the first that does not fit, in the order of `declared`.
pub fn validate_arguments(declared: &[DeclaredArgument], arguments: &Map<String, Value>) -> Result<(), ArgumentError> {
    if let Some(name) = forbidden_argument(arguments, |name| is_free_text(declared, name)) {
        return Err(ArgumentError::Forbidden(name.to_owned()));
    }
    if let Some(missing) = declared.iter().find(|one| one.required && !arguments.contains_key(&one.name)) {
        return Err(ArgumentError::Missing(missing.name.clone()));
    }
    for one in declared {
        let (Some(validator), Some(value)) = (&one.validate, arguments.get(&one.name)) else { continue };
        if let Some(text) = first_text(value, &|text| !validator.accepts(text)) {
            return Err(ArgumentError::Value { name: one.name.clone(), value: text.to_owned() });
        }
    }
    Ok(())
}

/// Reports whether a tool declares the argument `name` as free text.
pub fn is_free_text(declared: &[DeclaredArgument], name: &str) -> bool {
    declared.iter().any(|one| one.free_text && one.name == name)
}

/// Keeps the part of `arguments` that a signature is made of: all but free text.
pub fn signature_arguments<'a>(
    declared: &[DeclaredArgument],
    arguments: &'a Map<String, Value>,
) -> Cow<'a, Map<String, Value>> {
    if !arguments.keys().any(|name| is_free_text(declared, name)) {
        return Cow::Borrowed(arguments);
    }
    let judged = arguments.iter().filter(|(name, _)| !is_free_text(declared, name));
    Cow::Owned(judged.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// Returns names of `arguments` that are neither declared nor named by the signature's template, in their order.
pub fn undeclared_names<'a>(
    declared: &[DeclaredArgument],
    template: Option<&str>,
    arguments: &'a Map<String, Value>,
) -> Vec<&'a str> {
    let named = template_names(template.unwrap_or_default());
    let is_known = |name: &str| declared.iter().any(|one| one.name == name) || named.contains(&name);
    arguments.keys().map(String::as_str).filter(|name| !is_known(name)).collect()
}

fn first_text<'a>(value: &'a Value, predicate: &dyn Fn(&str) -> bool) -> Option<&'a str> {
    match value {
        Value::String(text) => Some(text.as_str()).filter(|text| predicate(text)),
        Value::Array(items) => items.iter().find_map(|item| first_text(item, predicate)),
        Value::Object(map) => map.values().find_map(|item| first_text(item, predicate)),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Translates Python's notation if Rust's has another meaning: `\Z`, and characters that are no operators inside its classes.
fn translate_pattern(pattern: &str) -> String {
    let mut text = String::new();
    let mut class = CharClassState::Outside;
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c == '\\' {
            let escaped = chars.next();
            match (class, escaped) {
                (CharClassState::Outside, Some('Z')) => text.push_str("\\z"),
                // To Rust these are the edges of words, to Python plain characters.
                (_, Some(edge @ ('<' | '>'))) => text.push(edge),
                (_, Some(escaped)) => text.extend(['\\', escaped]),
                (_, None) => text.push('\\'),
            }
            class = class.after_member();
            continue;
        }
        class = match (class, c) {
            (CharClassState::Outside, '[') => CharClassState::Begun,
            (CharClassState::Outside, _) => CharClassState::Outside,
            (CharClassState::Begun, '^') => CharClassState::Negated,
            (CharClassState::Inside, ']') => CharClassState::Outside,
            (CharClassState::Begun | CharClassState::Negated | CharClassState::Inside, _) => {
                if matches!(c, '[' | '&' | '~') {
                    text.push('\\');
                }
                CharClassState::Inside
            }
        };
        text.push(c);
    }
    text
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CharClassState {
    Outside,
    /// After `[`, where `^` negates and `]` is a member.
    Begun,
    /// After `[^`, where `]` is a member.
    Negated,
    Inside,
}

impl CharClassState {
    fn after_member(self) -> Self {
        if self == Self::Outside { self } else { Self::Inside }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{
        ArgumentError, ArgumentValidator, DeclaredArgument, signature_arguments, undeclared_names, validate_arguments,
    };

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn declared(name: &str, required: bool, pattern: Option<&str>) -> DeclaredArgument {
        let validate = pattern.map(|text| ArgumentValidator::new(text).unwrap());
        DeclaredArgument { name: name.to_owned(), required, validate, free_text: false }
    }

    #[test]
    fn a_pattern_means_what_python_takes_it_for() {
        for (pattern, text, accepted) in [
            ("b", "abc", false),
            ("b", "bcd", true),
            ("a|b", "cb", false),
            ("a|ab$", "abc", true),
            ("^a$", "a", true),
            ("^a$", "ab", false),
            (r"a\Z", "ab", false),
            (r"a\Z", "a", true),
            ("(?i)ABC", "abc", true),
            ("(?x)a # b)", "a", true),
            ("", "anything", true),
            ("[a&&b]+$", "&", true),
            ("[a&&b]+$", "ab", true),
            ("[[x]+$", "[x", true),
            ("[]x]+$", "]x", true),
            ("[^]x]+$", "]", false),
            (r"[\]~~]+$", "]~", true),
            (r"\[[^[]", "[a", true),
            (r"\d+$", "٣", true),
            (r"\<a\>$", "<a>", true),
            ("(?P<n>a)b$", "ab", true),
        ] {
            assert_eq!(ArgumentValidator::new(pattern).unwrap().accepts(text), accepted, "{pattern} {text}");
        }
        for pattern in ["(", "[a", "(?=a)", r"(a)\1", "a{2", "\\", ")|(", "*", "[", "a{99999}{99999}"] {
            let error = ArgumentValidator::new(pattern).unwrap_err().to_string();
            assert!(!error.is_empty() && !error.contains('\n'), "{pattern}: {error}");
        }
    }

    #[test]
    fn texts_are_checked_at_every_depth() {
        let tool = [declared("e", true, Some("^[a-z]+$")), declared("o", false, None)];
        for (arguments, want) in [
            (json!({"e": "a"}), None),
            (json!({"e": null}), None),
            (json!({"e": 5, "o": "ANY", "x": "ANY"}), None),
            (json!({"e": ["a", {"k": ["b"]}]}), None),
            (json!({}), Some("Missing required argument: e")),
            (json!({"e": ["a", "B"]}), Some("Invalid value for e: 'B'")),
            (json!({"e": {"k": [{"l": "it's"}]}}), Some("Invalid value for e: 'it's'")),
            (json!({"o": {"k": ["a,b"]}}), Some("Argument 'o' contains forbidden characters")),
            (json!({"e": "B", "x": "\n"}), Some("Argument 'x' contains forbidden characters")),
        ] {
            let refused = validate_arguments(&tool, &map(arguments.clone())).err().map(|invalid| invalid.to_string());
            assert_eq!(refused.as_deref(), want, "{arguments}");
        }
    }

    #[test]
    fn what_is_required_comes_before_what_does_not_match() {
        let tool = [declared("a", true, Some("^x$")), declared("b", true, None)];
        assert_eq!(validate_arguments(&tool, &map(json!({"a": "y"}))), Err(ArgumentError::Missing("b".to_owned())));
    }

    #[test]
    fn an_argument_that_the_template_names_is_declared() {
        let arguments = map(json!({"a": 1, "b": 2, "c": 3}));
        assert_eq!(undeclared_names(&[declared("a", false, None)], Some("{b}"), &arguments), ["c"]);
        assert_eq!(undeclared_names(&[], None, &arguments), ["a", "b", "c"]);
    }
    #[test]
    fn free_text_may_hold_anything_and_is_no_part_of_a_signature() {
        let free = |pattern| DeclaredArgument { free_text: true, ..declared("text", false, pattern) };
        let text = json!({"text": "{{ states('a.b') }}, [*]?\n\u{0}", "e": "a"});
        assert_eq!(validate_arguments(&[free(None), declared("e", true, None)], &map(text.clone())), Ok(()));
        let kept = signature_arguments(&[free(None)], &map(text.clone())).into_owned();
        assert_eq!(kept, map(json!({"e": "a"})));
        // Nothing else becomes free by it, at any depth, and the other declarations hold.
        for (tool, arguments, want) in [
            (declared("text", false, None), text.clone(), "Argument 'text' contains forbidden characters"),
            (free(None), json!({"text": "(", "e": "("}), "Argument 'e' contains forbidden characters"),
            (free(None), json!({"text": "(", "e": {"text": "("}}), "Argument 'e' contains forbidden characters"),
            (free(Some("^[a-z]+$")), json!({"text": "(a)"}), "Invalid value for text: '(a)'"),
        ] {
            let refused = validate_arguments(&[tool], &map(arguments.clone())).unwrap_err().to_string();
            assert_eq!(refused, want, "{arguments}");
        }
    }
}
