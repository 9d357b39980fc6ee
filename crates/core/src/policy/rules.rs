//! Rules as people write them. Reading YAML is not done here: the types only define its shape.
//!
//! Source: the `permissions.yaml` of agent-gate, whose files load unchanged; ARCHITECTURE.md, Policy.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{digest::canonical_json, gate::ApprovalStep};

/// Action of a rule that matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleAction {
    /// The call is allowed.
    Allow,
    /// The call is denied.
    Deny,
    /// A person decides.
    Ask,
}

/// The content of a permissions file. Both lists may be absent or null.
///
/// # Example
///
/// ```
/// use countersign_core::policy::{CompileError, RuleLayer, RuleSet, RuleSource, RuleWarning, compile_rules};
/// use serde_json::json;
///
/// let compile = |pattern: &str| {
///     let rules: RuleSet = serde_json::from_value(json!({ "rules": [{ "pattern": pattern, "action": "allow" }] }))
///         .expect("a rule has this form");
///     compile_rules(vec![RuleSource { name: "permissions.yaml".to_owned(), layer: RuleLayer::Main, rules }])
/// };
/// assert!(compile("bash(git status)").expect("it compiles").warnings().is_empty());
///
/// // A pattern that matches nothing compiles with a warning.
/// let compiled = compile("bash(git status").expect("it compiles");
/// assert!(matches!(compiled.warnings(), [RuleWarning::NeverMatches { .. }]));
///
/// // A pattern that allows an interpreter to run any code is refused.
/// let refused = compile("bash(python3 *)").expect_err("it allows any code");
/// assert!(matches!(&refused[..], [CompileError::Interpreter { program, .. }] if program == "python3"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSet {
    /// Evaluated in order after every rule; the first that matches counts.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub defaults: Vec<Rule>,
    /// Evaluated by action: deny, then allow, then ask. Their order does not count.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub rules: Vec<Rule>,
}

fn null_is_empty<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Rule>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// One rule: by `pattern` over the signature, or by `tool` and `args`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Python's fnmatch over the whole signature. Exactly one of `pattern` and `tool` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// The tool's name, itself a pattern, for rules on arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Conditions on the arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<ArgConditions>,
    /// A pattern over the principal: an agent's id. Absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// A pattern over the door through which it came, such as `agent-gate`. Absent: any, and none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub door: Option<String>,
    /// A pattern over the service that the call goes to. Absent: any, and none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The action.
    pub action: RuleAction,
    /// Description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Required approvals of a rule that asks. None: any one approver.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<ApprovalStep>,
    /// The line of its file, set by the reader, 0 if not known.
    #[serde(skip)]
    pub line: u32,
}

impl Rule {
    /// Returns the rule of `pattern`, bound to nothing.
    pub fn new(pattern: impl Into<String>, action: RuleAction) -> Self {
        Self {
            pattern: Some(pattern.into()),
            tool: None,
            args: None,
            principal: None,
            door: None,
            target: None,
            action,
            description: None,
            steps: Vec::new(),
            line: 0,
        }
    }
}

/// Conditions of a rule on the arguments.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ArgConditions {
    /// The word `any`: arguments that the tool does not declare are covered too.
    Any(AnyArgs),
    /// One matcher a path; all must match. An argument that is not named here may be anything.
    ///
    /// A path is names with dots between: `order.total`, `items.0.price`, and `items.*.price` for all of them.
    Each(BTreeMap<String, ArgMatcher>),
}

/// The word `any`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnyArgs {
    /// `any`.
    Any,
}

/// Condition on one argument. For a list, one item is enough for a rule that denies or asks; one that allows needs all of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ArgMatcher {
    /// A pattern over a text, or over the JSON text of anything else.
    Pattern(String),
    /// One of the operators below.
    Operator(MatchOperator),
    /// Exactly this number or boolean.
    Equals(Value),
}

impl ArgMatcher {
    /// Returns the text or pattern that an argument has to match, if it is one.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Pattern(text) | Self::Operator(MatchOperator::Is(Value::String(text))) => Some(text),
            Self::Operator(_) | Self::Equals(_) => None,
        }
    }
}

/// A matcher that a pattern cannot express.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MatchOperator {
    /// Exactly this JSON value.
    Is(Value),
    /// One of these JSON values.
    In(Vec<Value>),
    /// A number of at most this. For a rule that denies or asks, a text that parses as a number counts too.
    Max(f64),
    /// A number of at least this.
    Min(f64),
    /// True: the argument must be present. False: it must be absent.
    Present(bool),
    /// The matcher must not match; an argument that is absent matches.
    Not(Box<ArgMatcher>),
}

/// Error in the place of a matcher.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatcherError {
    /// Neither `any` nor a mapping in the place of the arguments.
    #[error("expected `any` or a mapping from argument names to conditions")]
    Args,
    /// A list or nothing.
    #[error("expected a pattern, a number, true or false, or one of {OPERATORS}; write {{is: …}} for any other value")]
    Value,
    /// A mapping with an unknown operator: as a value no argument would ever equal it.
    #[error("unknown operator {0:?}; use one of {OPERATORS}, or {{is: …}} for a value that is a mapping")]
    Operator(String),
    /// None or several operators.
    #[error("expected exactly one of {OPERATORS}")]
    Several,
    /// An operator with an operand of the wrong type.
    #[error("{operator} needs {needs}")]
    Operand {
        /// The operator.
        operator: &'static str,
        /// The expected operand.
        needs: &'static str,
    },
}

const OPERATORS: &str = "is, in, max, min, present, not";

impl TryFrom<Value> for ArgConditions {
    type Error = MatcherError;

    fn try_from(value: Value) -> Result<Self, MatcherError> {
        match value {
            Value::String(word) if word == "any" => Ok(Self::Any(AnyArgs::Any)),
            Value::Object(each) => {
                let each = each.into_iter().map(|(path, value)| Ok((path, ArgMatcher::try_from(value)?)));
                Ok(Self::Each(each.collect::<Result<_, MatcherError>>()?))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err(MatcherError::Args)
            }
        }
    }
}

impl TryFrom<Value> for ArgMatcher {
    type Error = MatcherError;

    fn try_from(value: Value) -> Result<Self, MatcherError> {
        match value {
            Value::String(pattern) => Ok(Self::Pattern(pattern)),
            Value::Number(_) | Value::Bool(_) => Ok(Self::Equals(value)),
            Value::Null | Value::Array(_) => Err(MatcherError::Value),
            Value::Object(members) => {
                let mut members = members.into_iter();
                match (members.next(), members.next()) {
                    (Some((word, operand)), None) => Ok(Self::Operator(parse_operator(&word, operand)?)),
                    (None, _) | (Some(_), Some(_)) => Err(MatcherError::Several),
                }
            }
        }
    }
}

impl fmt::Display for ArgMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pattern(pattern) => write!(f, "\"{pattern}\""),
            Self::Equals(value) | Self::Operator(MatchOperator::Is(value)) => f.write_str(&canonical_json(value)),
            Self::Operator(MatchOperator::In(values)) => {
                write!(f, "one of {}", values.iter().map(canonical_json).collect::<Vec<_>>().join(", "))
            }
            Self::Operator(MatchOperator::Max(most)) => write!(f, "at most {most}"),
            Self::Operator(MatchOperator::Min(least)) => write!(f, "at least {least}"),
            Self::Operator(MatchOperator::Present(true)) => f.write_str("there"),
            Self::Operator(MatchOperator::Present(false)) => f.write_str("absent"),
            Self::Operator(MatchOperator::Not(matcher)) => write!(f, "other than {matcher}"),
        }
    }
}

fn parse_operator(word: &str, operand: Value) -> Result<MatchOperator, MatcherError> {
    let number = |operator| operand.as_f64().ok_or(MatcherError::Operand { operator, needs: "a number" });
    match word {
        "max" => Ok(MatchOperator::Max(number("max")?)),
        "min" => Ok(MatchOperator::Min(number("min")?)),
        "is" => Ok(MatchOperator::Is(operand)),
        "in" => match operand {
            Value::Array(values) => Ok(MatchOperator::In(values)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                Err(MatcherError::Operand { operator: "in", needs: "a list" })
            }
        },
        "present" => {
            let present = operand.as_bool();
            Ok(MatchOperator::Present(
                present.ok_or(MatcherError::Operand { operator: "present", needs: "true or false" })?,
            ))
        }
        "not" => Ok(MatchOperator::Not(Box::new(ArgMatcher::try_from(operand)?))),
        other => Err(MatcherError::Operator(other.to_owned())),
    }
}

impl<'de> Deserialize<'de> for ArgConditions {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for ArgMatcher {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// Owner of a file's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleLayer {
    /// The owner's: it may allow.
    Main,
    /// A repository's own: it can only tighten. Its allow rules are left out with a warning.
    Tighten,
}

/// One permissions file, read.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleSource {
    /// Its display name, such as `permissions.yaml`.
    pub name: String,
    /// Its owner.
    pub layer: RuleLayer,
    /// Its rules.
    pub rules: RuleSet,
}

/// Place where a rule was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RuleOrigin {
    /// The file's name.
    pub file: String,
    /// The line; 0 if not known.
    pub line: u32,
}

impl fmt::Display for RuleOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 { f.write_str(&self.file) } else { write!(f, "{}:{}", self.file, self.line) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{AnyArgs, ArgConditions, ArgMatcher, MatchOperator, MatcherError, RuleAction, RuleSet};

    #[test]
    fn a_file_reads_with_either_list_absent_or_null() {
        for given in [json!({}), json!({"rules": null, "defaults": null}), json!({"defaults": []})] {
            assert_eq!(serde_json::from_value::<RuleSet>(given).unwrap(), RuleSet::default());
        }
    }

    #[test]
    fn an_action_in_other_letters_and_a_key_that_nobody_knows_are_refused() {
        for given in [
            json!({"rules": [{"pattern": "*", "action": "DENY"}]}),
            json!({"rules": [{"pattern": "*"}]}),
            json!({"rules": [{"pattern": "*", "action": "deny", "unless": "x"}]}),
            json!({"rule": []}),
            json!({"rules": [{"tool": "t", "args": {"a": {"like": "x"}}, "action": "deny", "args2": 1}]}),
        ] {
            assert!(serde_json::from_value::<RuleSet>(given.clone()).is_err(), "{given}");
        }
    }

    #[test]
    fn arguments_are_matched_by_pattern_operator_or_value() {
        let rules: RuleSet = serde_json::from_value(json!({"rules": [
            {"tool": "pay", "args": {"to": "acme*", "amount": {"max": 50}, "dry": true}, "action": "allow"},
            {"pattern": "t*", "args": "any", "action": "allow"},
        ]}))
        .unwrap();
        let Some(ArgConditions::Each(each)) = &rules.rules[0].args else { panic!("a map") };
        assert_eq!(each["to"], ArgMatcher::Pattern("acme*".to_owned()));
        assert_eq!(each["amount"], ArgMatcher::Operator(MatchOperator::Max(50.0)));
        assert_eq!(each["dry"], ArgMatcher::Equals(json!(true)));
        assert_eq!(rules.rules[1].args, Some(ArgConditions::Any(AnyArgs::Any)));
        assert_eq!(rules.rules[1].action, RuleAction::Allow);
    }

    #[test]
    fn what_looks_like_an_operator_and_is_none_is_refused() {
        let operand = |operator, needs| Err(MatcherError::Operand { operator, needs });
        for (given, want) in [
            (json!({"maxx": 5}), Err(MatcherError::Operator("maxx".to_owned()))),
            (json!({"Max": 5}), Err(MatcherError::Operator("Max".to_owned()))),
            (json!({"not": {"mni": 5}}), Err(MatcherError::Operator("mni".to_owned()))),
            (json!({"max": 5, "min": 1}), Err(MatcherError::Several)),
            (json!({}), Err(MatcherError::Several)),
            (json!({"max": "5"}), operand("max", "a number")),
            (json!({"in": "x"}), operand("in", "a list")),
            (json!({"present": 1}), operand("present", "true or false")),
            (json!([1]), Err(MatcherError::Value)),
            (json!(null), Err(MatcherError::Value)),
            (json!({"is": {"maxx": 5}}), Ok(ArgMatcher::Operator(MatchOperator::Is(json!({"maxx": 5}))))),
            (json!({"not": {"max": 5}}), {
                let most = ArgMatcher::Operator(MatchOperator::Max(5.0));
                Ok(ArgMatcher::Operator(MatchOperator::Not(Box::new(most))))
            }),
        ] {
            assert_eq!(ArgMatcher::try_from(given.clone()), want, "{given}");
            let read = serde_json::from_value::<ArgMatcher>(given.clone()).map_err(|error| error.to_string());
            assert_eq!(read, want.map_err(|error| error.to_string()), "{given}");
        }
        for given in [json!("some"), json!(5), json!([1])] {
            assert_eq!(ArgConditions::try_from(given.clone()), Err(MatcherError::Args), "{given}");
        }
    }
}
