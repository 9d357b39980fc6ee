//! Rules as people write them. Reading YAML is not done here: the types only say what shape it has.
//!
//! Source: the `permissions.yaml` of agent-gate, whose files load unchanged; ARCHITECTURE.md, Policy.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::gate::Step;

/// What a rule says about what it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It may happen.
    Allow,
    /// It may not happen.
    Deny,
    /// A person decides.
    Ask,
}

/// The content of a permissions file. Both lists may be absent or null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// Looked at in order after every rule; the first that matches counts.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub defaults: Vec<Rule>,
    /// Looked at by action: deny, then allow, then ask. Their order does not count.
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
    /// What the arguments must be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Args>,
    /// What follows.
    pub action: Action,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Who has to allow, of a rule that asks. None: any one person who may answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// The line of its file, set by the reader, 0 if not known.
    #[serde(skip)]
    pub line: u32,
}

/// What a rule asks of the arguments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Args {
    /// The word `any`: arguments that the tool does not declare are covered too.
    Any(Any),
    /// One matcher an argument; all must match. An argument that is not named here may be anything.
    Each(BTreeMap<String, Matcher>),
}

/// The word `any`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Any {
    /// `any`.
    Any,
}

/// What one argument must be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Matcher {
    /// A pattern over a text, or over the JSON text of any other scalar.
    Pattern(String),
    /// One of the operators below.
    Operator(Operator),
    /// Exactly this number or boolean.
    Equals(Value),
}

/// A matcher that a pattern cannot say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operator {
    /// Exactly this JSON value.
    Is(Value),
    /// One of these JSON values.
    In(Vec<Value>),
    /// A number of at most this.
    Max(f64),
    /// A number of at least this.
    Min(f64),
    /// True: it must be there. False: it must not.
    Present(bool),
    /// The matcher must not match; an argument that is absent matches.
    Not(Box<Matcher>),
}

/// Whose rules a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// The owner's: it may allow.
    Main,
    /// A repository's own: it can only tighten. What it allows is left out with a warning.
    Tighten,
}

/// One permissions file, read.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// Its name as people know it, such as `permissions.yaml`.
    pub name: String,
    /// Whose it is.
    pub layer: Layer,
    /// What it says.
    pub rules: Rules,
}

/// Where a rule was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Origin {
    /// The file's name.
    pub file: String,
    /// The line; 0 if not known.
    pub line: u32,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 { f.write_str(&self.file) } else { write!(f, "{}:{}", self.file, self.line) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Action, Any, Args, Matcher, Operator, Rules};

    #[test]
    fn a_file_reads_with_either_list_absent_or_null() {
        for given in [json!({}), json!({"rules": null, "defaults": null}), json!({"defaults": []})] {
            assert_eq!(serde_json::from_value::<Rules>(given).unwrap(), Rules::default());
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
            assert!(serde_json::from_value::<Rules>(given.clone()).is_err(), "{given}");
        }
    }

    #[test]
    fn arguments_are_matched_by_pattern_operator_or_value() {
        let rules: Rules = serde_json::from_value(json!({"rules": [
            {"tool": "pay", "args": {"to": "acme*", "amount": {"max": 50}, "dry": true}, "action": "allow"},
            {"pattern": "t*", "args": "any", "action": "allow"},
        ]}))
        .unwrap();
        let Some(Args::Each(each)) = &rules.rules[0].args else { panic!("a map") };
        assert_eq!(each["to"], Matcher::Pattern("acme*".to_owned()));
        assert_eq!(each["amount"], Matcher::Operator(Operator::Max(50.0)));
        assert_eq!(each["dry"], Matcher::Equals(json!(true)));
        assert_eq!(rules.rules[1].args, Some(Args::Any(Any::Any)));
        assert_eq!(rules.rules[1].action, Action::Allow);
    }
}
