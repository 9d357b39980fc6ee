//! Rules that nearly decided about a subject, and the reason for which each did not: for people who look for the cause.
//!
//! It must not decide anything. Unlike decisions it visits every rule.

use std::{cmp::Reverse, fmt};

use crate::{
    digest::canonical_json,
    policy::{
        arg_condition::{ArgCondition, values_at},
        compile::{CompiledRule, CompiledRules},
        evaluate::PathContext,
        fnmatch::GlobPattern,
        narrow::NarrowPath,
        obeyed,
        rule_scope::{CallerScope, RuleScopeKey},
        rules::{ArgConditions, Rule, RuleAction},
        shell::{self, LineAnalysis},
        spelling::CallSpellings,
        subject::PolicySubject,
        table,
        verdict::{NamedRule, Verdict},
    },
};

/// A rule that is about the same tool and did not decide.
#[derive(Clone, Debug, PartialEq)]
pub struct NearMiss {
    /// The rule.
    pub rule: NamedRule,
    /// Its action.
    pub action: RuleAction,
    /// True if it is one of the defaults.
    pub is_default: bool,
    /// Reasons for which it does not match. Empty: it matches, and the deciding rule precedes it.
    pub misses: Vec<MissReason>,
}

/// One reason for which a rule does not match. Its text follows "because".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissReason {
    /// The rule is bound to another principal, door or target.
    Bound {
        /// The bound side: `principal`, `door` or `target`.
        side: &'static str,
        /// The pattern.
        expected: String,
        /// Value of the subject.
        got: Option<String>,
    },
    /// The arguments in the signature differ.
    Arguments {
        /// The signature.
        signature: String,
    },
    /// The rule requires arguments, and there are none.
    Bare,
    /// The rule is about calls without arguments, and there are some.
    NotBare,
    /// Only capital and small letters differ.
    Case,
    /// One argument does not meet its condition.
    Argument {
        /// Path of the argument.
        path: String,
        /// The matcher, in words.
        expected: String,
        /// The actual value, as JSON.
        got: Option<String>,
    },
    /// The rule allows, and the tool does not declare these arguments.
    Undeclared(Vec<String>),
    /// The rule covers a part of the elements of a list, or of a shell line, and not this.
    Part(String),
    /// The rule is about arguments, and a shell line is allowed by patterns over its commands only.
    Shell,
}

impl fmt::Display for MissReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bound { side, expected, got: Some(got) } => {
                write!(f, "it applies only to {side} \"{expected}\"; the call has \"{got}\"")
            }
            Self::Bound { side, expected, got: None } => {
                write!(f, "it applies only to {side} \"{expected}\"; the call has no {side}")
            }
            Self::Arguments { signature } => write!(f, "its pattern does not match {signature}"),
            Self::Bare => f.write_str("it requires arguments in the signature; the call has none"),
            Self::NotBare => f.write_str("it matches only calls without arguments in the signature"),
            Self::Case => f.write_str("upper and lower case differ"),
            Self::Argument { path, expected, got: Some(got) } => {
                write!(f, "it requires {path} to be {expected}; the value is {got}")
            }
            Self::Argument { path, expected, got: None } => {
                write!(f, "it requires {path} to be {expected}; the argument is missing")
            }
            Self::Undeclared(names) => {
                write!(f, "it matches arguments, and the tool does not declare {}", names.join(", "))
            }
            Self::Part(what) => write!(f, "it does not cover {what}"),
            Self::Shell => f.write_str("a shell line is allowed only by patterns for its commands"),
        }
    }
}

/// Returns the rules that nearly decided about `subject` in place of `verdict`, the nearest first: those that match and came too late,
/// then those with few mismatches. The rule that decided is not among them.
pub fn near_misses(
    compiled: &CompiledRules,
    path_context: &PathContext,
    subject: &PolicySubject,
    verdict: &Verdict,
) -> Vec<NearMiss> {
    let line = shell::line_of(subject, path_context);
    let caller = CallerScope::from_subject(subject, path_context.door.as_deref());
    let spellings = CallSpellings::from_subject(subject, path_context.home.as_deref());
    let call = NearMissFinder { subject, caller, line: line.as_ref(), home: path_context.home.as_deref(), spellings };
    let decided = verdict.why().cause.deciding_rule();
    let others = compiled.tables().entries().iter().filter(|entry| decided != Some((&entry.named, entry.is_default)));
    let mut found: Vec<(usize, Reverse<usize>, NearMiss)> = others.filter_map(|entry| call.near_miss(entry)).collect();
    // Stable: equal entries keep the order of the file.
    found.sort_by_key(|(misses, alike, _)| (*misses, *alike));
    found.into_iter().map(|(_, _, near)| near).collect()
}

struct NearMissFinder<'a> {
    subject: &'a PolicySubject,
    caller: CallerScope<'a>,
    line: Option<&'a LineAnalysis>,
    home: Option<&'a str>,
    spellings: CallSpellings<'a>,
}

impl NearMissFinder<'_> {
    /// Returns the rule with its number of mismatches, and the length of the text that it shares with the signature.
    fn near_miss(&self, entry: &CompiledRule) -> Option<(usize, Reverse<usize>, NearMiss)> {
        let rule = &entry.rule;
        let mut misses = match (&rule.pattern, &rule.tool) {
            (Some(pattern), _) => self.pattern_misses(pattern, rule.action)?,
            (None, Some(tool)) => self.argument_misses(tool, rule)?,
            (None, None) => return None,
        };
        let undeclared = &self.subject.undeclared;
        if rule.action == RuleAction::Allow && !undeclared.is_empty() && entry.looks_at_arguments {
            misses.push(MissReason::Undeclared(undeclared.clone()));
        }
        misses.extend(RuleScopeKey::ALL.into_iter().filter(|side| !self.caller.meets_rule(rule, *side)).map(|side| {
            MissReason::Bound {
                side: side.key_name(),
                expected: side.rule_pattern(rule).unwrap_or_default().to_owned(),
                got: self.caller.display_text(side).map(str::to_owned),
            }
        }));
        let text = rule.pattern.as_deref().unwrap_or_default();
        let alike = text.chars().zip(self.subject.signature.chars()).take_while(|(one, other)| one == other).count();
        let near = NearMiss { rule: entry.named.clone(), action: rule.action, is_default: entry.is_default, misses };
        Some((near.misses.len(), Reverse(alike), near))
    }

    /// Returns the mismatches of a pattern; none if it is about something else.
    fn pattern_misses(&self, text: &str, action: RuleAction) -> Option<Vec<MissReason>> {
        let pattern = GlobPattern::new(text);
        let first = |text: &str| pattern.matches(text).then_some(0);
        let uncovered = self.subject.all_signatures().find(|signature| !pattern.matches(signature));
        let touches = self.subject.all_signatures().any(|signature| pattern.matches(signature))
            || self.line.is_some_and(|line| line.touched_by(&first).is_some())
            || action != RuleAction::Allow
                && self.spellings.all_spellings().any(|spelled| pattern.matches(&spelled.signature));
        let part = match (action, self.line) {
            (RuleAction::Allow, Some(line)) => {
                let names = |paths: &[&NarrowPath]| paths.iter().all(|path| path.is_named_by(text));
                let find = |text: &str, paths: &[&NarrowPath]| first(text).filter(|_| names(paths));
                line.covered_by(&find, pattern.is_everything().then_some(0)).err()
            }
            (RuleAction::Allow, None) => {
                let obeyed = obeyed::of_subject(self.subject, self.home);
                let unnamed = || obeyed.iter().find(|path| !path.is_named_by(text)).map(ToString::to_string);
                let leads_elsewhere = || self.spellings.covered_by(&|spelled| first(&spelled.signature)).err();
                uncovered.map(str::to_owned).or_else(unnamed).or_else(leads_elsewhere)
            }
            (RuleAction::Deny | RuleAction::Ask, _) => None,
        };
        if touches {
            return Some(part.into_iter().map(MissReason::Part).collect());
        }
        let (tool, signature) = (&self.subject.tool, &self.subject.signature);
        if GlobPattern::new(&text.to_lowercase()).matches(&signature.to_lowercase()) {
            return Some(vec![MissReason::Case]);
        }
        let of_tool = text.split_once('(').map(|(tool, _)| GlobPattern::new(tool));
        match of_tool {
            Some(of_tool) if of_tool.matches(tool) && signature == tool => Some(vec![MissReason::Bare]),
            Some(of_tool) if of_tool.matches(tool) => {
                Some(vec![MissReason::Arguments { signature: signature.clone() }])
            }
            None if pattern.matches(tool) => Some(vec![MissReason::NotBare]),
            Some(_) | None => None,
        }
    }

    fn argument_misses(&self, tool: &str, rule: &Rule) -> Option<Vec<MissReason>> {
        let mut misses = Vec::new();
        if !GlobPattern::new(tool).matches(&self.subject.tool) {
            let is_alike = GlobPattern::new(&tool.to_lowercase()).matches(&self.subject.tool.to_lowercase());
            misses.push(is_alike.then_some(MissReason::Case)?);
        }
        if self.line.is_some() && rule.action == RuleAction::Allow {
            misses.push(MissReason::Shell);
        }
        let Some(ArgConditions::Each(each)) = &rule.args else { return Some(misses) };
        for (path, matcher) in each {
            let (demand, quantity) = (ArgCondition::new(path, matcher), table::quantifier_for(rule.action));
            if demand.holds(&self.subject.arguments, quantity) {
                continue;
            }
            let found = values_at(&self.subject.arguments, demand.path(), quantity);
            let got: Vec<String> = found.into_iter().flatten().map(canonical_json).collect();
            misses.push(MissReason::Argument {
                path: path.clone(),
                expected: matcher.to_string(),
                got: (!got.is_empty()).then(|| got.join(", ")),
            });
        }
        Some(misses)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::near_misses;
    use crate::{
        policy::{
            Constraints, DefaultPolicy, GrantSet, PathContext, PolicyLayers, PolicySubject, RuleLayer, RuleSource,
            compile_rules, evaluate,
            testing::{bash, subject},
        },
        time::Millis,
    };

    fn near_miss_texts(rules: Value, subject: &PolicySubject) -> Vec<String> {
        let rules = serde_json::from_value(rules).unwrap();
        let compiled =
            compile_rules(vec![RuleSource { name: "permissions.yaml".to_owned(), layer: RuleLayer::Main, rules }])
                .unwrap();
        let path_context = PathContext::default();
        let layers = PolicyLayers {
            compiled: &compiled,
            constraints: &Constraints::default(),
            contract: None,
            grants: &GrantSet::default(),
            default_policy: DefaultPolicy::Gateway,
            path_context: &path_context,
        };
        let verdict = evaluate(&layers, subject, Millis(0));
        let found = near_misses(&compiled, &path_context, subject, &verdict);
        let line = |near: super::NearMiss| {
            let misses: Vec<String> = near.misses.iter().map(ToString::to_string).collect();
            format!("{}: {}", near.rule.pattern, misses.join("; "))
        };
        found.into_iter().map(line).collect()
    }

    #[test]
    fn a_rule_that_nearly_matched_says_what_kept_it_off() {
        let turn_on = subject("light", json!({"entity": "light.kitchen"}));
        let listed = PolicySubject {
            signature: "light(a)".to_owned(),
            further_signatures: vec!["light(b)".to_owned()],
            ..subject("light", json!({"entity": ["a", "b"]}))
        };
        let undeclared = PolicySubject { undeclared: vec!["brightness".to_owned()], ..turn_on.clone() };
        let pay = subject("pay", json!({"order": {"total": 51}}));
        let applies = "applies only to";
        for (rule, subject, want) in [
            (json!({"pattern": "light(lock.*)"}), &turn_on, Some("its pattern does not match light(light.kitchen)")),
            (json!({"pattern": "Light(*)"}), &turn_on, Some("upper and lower case differ")),
            (json!({"pattern": "light"}), &turn_on, Some("it matches only calls without arguments in the signature")),
            (
                json!({"pattern": "light(*)"}),
                &subject("light", json!({})),
                Some("it requires arguments in the signature; the call has none"),
            ),
            (json!({"pattern": "light(a)"}), &listed, Some("it does not cover light(b)")),
            (
                json!({"pattern": "light(*)"}),
                &undeclared,
                Some("it matches arguments, and the tool does not declare brightness"),
            ),
            (
                json!({"pattern": "light(*)", "principal": "garage"}),
                &turn_on,
                Some(&*format!("it {applies} principal \"garage\"; the call has \"pi\"")),
            ),
            (
                json!({"pattern": "*", "door": "omp"}),
                &turn_on,
                Some(&*format!("it {applies} door \"omp\"; the call has no door")),
            ),
            (
                json!({"tool": "pay", "args": {"order.total": {"max": 50}}}),
                &pay,
                Some("it requires order.total to be at most 50; the value is 51"),
            ),
            (
                json!({"tool": "p*", "args": {"order.to": "acme"}}),
                &pay,
                Some("it requires order.to to be \"acme\"; the argument is missing"),
            ),
            (json!({"pattern": "bash(ls*)"}), &bash("ls; make"), Some("it does not cover bash(make)")),
            (json!({"pattern": "other(*)"}), &turn_on, None),
            (json!({"tool": "other"}), &pay, None),
        ] {
            let mut rule = rule;
            rule["action"] = json!("allow");
            let lines = near_miss_texts(json!({ "rules": [rule] }), subject);
            let got = lines.first().map(|line| line.split_once(": ").unwrap().1);
            assert_eq!(got, want, "{rule}");
        }
    }

    #[test]
    fn matching_rules_precede_near_misses_and_the_deciding_rule_is_left_out() {
        let rules = json!({
            "rules": [
                {"pattern": "t(b*)", "action": "allow"},
                {"pattern": "t(abc*)", "action": "allow"},
                {"pattern": "t(*)", "action": "allow", "principal": "x", "door": "y"},
                {"pattern": "t(a*)", "action": "allow"},
                {"pattern": "t(*)", "action": "deny"},
            ],
            "defaults": [{"pattern": "*", "action": "ask"}],
        });
        let lines = near_miss_texts(rules, &subject("t", json!({"a": "ab"})));
        let patterns: Vec<&str> = lines.iter().map(|line| line.split_once(": ").unwrap().0).collect();
        assert_eq!(patterns, ["t(a*)", "*", "t(abc*)", "t(b*)", "t(*), principal x, door y"]);
        assert_eq!(lines[0], "t(a*): ");
    }
}
