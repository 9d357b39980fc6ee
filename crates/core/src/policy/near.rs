//! Which rules nearly decided about a subject, and what kept each from it: for people who wonder why.
//!
//! It must not decide anything. Unlike decisions it looks at every rule.

use std::{cmp::Reverse, fmt};

use crate::{
    digest::canonical,
    policy::{
        bound::{Caller, Side},
        compile::{Compiled, Entry},
        demand::{Demand, values},
        evaluate::Surroundings,
        fnmatch::Pattern,
        narrow::NarrowPath,
        obeyed,
        rules::{Action, Args, Rule},
        shell::{self, Line},
        spelling::Spellings,
        subject::Subject,
        table,
        verdict::{Named, Verdict},
    },
};

/// A rule that is about the same tool and did not decide.
#[derive(Clone, Debug, PartialEq)]
pub struct Near {
    /// The rule.
    pub rule: Named,
    /// What it says.
    pub action: Action,
    /// True if it is one of the defaults.
    pub is_default: bool,
    /// Why it does not match. Empty: it matches, and what decided goes before it.
    pub misses: Vec<Miss>,
}

/// One thing that keeps a rule from matching. Its text follows "because".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Miss {
    /// It is bound to another principal, door or target.
    Bound {
        /// To what: `principal`, `door` or `target`.
        side: &'static str,
        /// The pattern.
        wanted: String,
        /// What the subject has.
        got: Option<String>,
    },
    /// The arguments in the signature are others.
    Arguments {
        /// The signature.
        signature: String,
    },
    /// It wants arguments, and there are none.
    Bare,
    /// It is about calls without arguments, and there are some.
    NotBare,
    /// Only capital and small letters differ.
    Case,
    /// One argument is not as it demands.
    Argument {
        /// Where.
        path: String,
        /// The matcher, in words.
        wanted: String,
        /// What is there, as JSON.
        got: Option<String>,
    },
    /// It allows, and the tool does not declare these.
    Undeclared(Vec<String>),
    /// It covers a part of the elements of a list, or of a shell line, and not this.
    Part(String),
    /// It is about arguments, and a shell line is allowed by patterns over its commands only.
    Shell,
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bound { side, wanted, got: Some(got) } => {
                write!(f, "it is bound to the {side} \"{wanted}\", and this is \"{got}\"")
            }
            Self::Bound { side, wanted, got: None } => {
                write!(f, "it is bound to the {side} \"{wanted}\", and this has no {side}")
            }
            Self::Arguments { signature } => write!(f, "its pattern does not match {signature}"),
            Self::Bare => f.write_str("it wants arguments in the signature, and there are none"),
            Self::NotBare => f.write_str("it is about calls without arguments in the signature"),
            Self::Case => f.write_str("capital and small letters differ"),
            Self::Argument { path, wanted, got: Some(got) } => {
                write!(f, "it wants {path} to be {wanted}, and it is {got}")
            }
            Self::Argument { path, wanted, got: None } => {
                write!(f, "it wants {path} to be {wanted}, and it is not there")
            }
            Self::Undeclared(names) => {
                write!(f, "it looks at arguments, and the tool does not declare {}", names.join(", "))
            }
            Self::Part(what) => write!(f, "it does not cover {what}"),
            Self::Shell => f.write_str("shell lines are allowed by patterns over their commands only"),
        }
    }
}

/// The rules that nearly decided what `verdict` says of `subject`, the nearest first: those that match and came too late,
/// then those that little keeps from matching. The rule that decided is not among them.
pub fn near(compiled: &Compiled, surroundings: &Surroundings, subject: &Subject, verdict: &Verdict) -> Vec<Near> {
    let line = shell::line_of(subject, surroundings);
    let caller = Caller::of(subject, surroundings.door.as_deref());
    let spellings = Spellings::of(subject, surroundings.home.as_deref());
    let call = Asked { subject, caller, line: line.as_ref(), home: surroundings.home.as_deref(), spellings };
    let decided = verdict.why().cause.rule();
    let others = compiled.tables().entries().iter().filter(|entry| decided != Some((&entry.named, entry.is_default)));
    let mut found: Vec<(usize, Reverse<usize>, Near)> = others.filter_map(|entry| call.near(entry)).collect();
    // Stable, so that among equals the order of the file stays.
    found.sort_by_key(|(misses, alike, _)| (*misses, *alike));
    found.into_iter().map(|(_, _, near)| near).collect()
}

struct Asked<'a> {
    subject: &'a Subject,
    caller: Caller<'a>,
    line: Option<&'a Line>,
    home: Option<&'a str>,
    spellings: Spellings<'a>,
}

impl Asked<'_> {
    /// The rule with how much keeps it off, and how far its text is that of the signature.
    fn near(&self, entry: &Entry) -> Option<(usize, Reverse<usize>, Near)> {
        let rule = &entry.rule;
        let mut misses = match (&rule.pattern, &rule.tool) {
            (Some(pattern), _) => self.pattern(pattern, rule.action)?,
            (None, Some(tool)) => self.structured(tool, rule)?,
            (None, None) => return None,
        };
        let undeclared = &self.subject.undeclared;
        if rule.action == Action::Allow && !undeclared.is_empty() && entry.looks_at_arguments {
            misses.push(Miss::Undeclared(undeclared.clone()));
        }
        misses.extend(Side::ALL.into_iter().filter(|side| !self.caller.meets(rule, *side)).map(|side| Miss::Bound {
            side: side.word(),
            wanted: side.of(rule).unwrap_or_default().to_owned(),
            got: self.caller.shown(side).map(str::to_owned),
        }));
        let text = rule.pattern.as_deref().unwrap_or_default();
        let alike = text.chars().zip(self.subject.signature.chars()).take_while(|(one, other)| one == other).count();
        let near = Near { rule: entry.named.clone(), action: rule.action, is_default: entry.is_default, misses };
        Some((near.misses.len(), Reverse(alike), near))
    }

    /// What keeps a pattern off; none if it is about something else.
    fn pattern(&self, text: &str, action: Action) -> Option<Vec<Miss>> {
        let pattern = Pattern::new(text);
        let first = |text: &str| pattern.matches(text).then_some(0);
        let uncovered = self.subject.signatures().find(|signature| !pattern.matches(signature));
        let touches = self.subject.signatures().any(|signature| pattern.matches(signature))
            || self.line.is_some_and(|line| line.touched_by(&first).is_some())
            || action != Action::Allow && self.spellings.all().any(|spelled| pattern.matches(&spelled.signature));
        let part = match (action, self.line) {
            (Action::Allow, Some(line)) => {
                let names = |paths: &[&NarrowPath]| paths.iter().all(|path| path.is_named_by(text));
                let find = |text: &str, paths: &[&NarrowPath]| first(text).filter(|_| names(paths));
                line.covered_by(&find, pattern.is_everything().then_some(0)).err()
            }
            (Action::Allow, None) => {
                let obeyed = obeyed::of_subject(self.subject, self.home);
                let unnamed = || obeyed.iter().find(|path| !path.is_named_by(text)).map(ToString::to_string);
                let leads_elsewhere = || self.spellings.covered_by(&|spelled| first(&spelled.signature)).err();
                uncovered.map(str::to_owned).or_else(unnamed).or_else(leads_elsewhere)
            }
            (Action::Deny | Action::Ask, _) => None,
        };
        if touches {
            return Some(part.into_iter().map(Miss::Part).collect());
        }
        let (tool, signature) = (&self.subject.tool, &self.subject.signature);
        if Pattern::new(&text.to_lowercase()).matches(&signature.to_lowercase()) {
            return Some(vec![Miss::Case]);
        }
        let of_tool = text.split_once('(').map(|(tool, _)| Pattern::new(tool));
        match of_tool {
            Some(of_tool) if of_tool.matches(tool) && signature == tool => Some(vec![Miss::Bare]),
            Some(of_tool) if of_tool.matches(tool) => Some(vec![Miss::Arguments { signature: signature.clone() }]),
            None if pattern.matches(tool) => Some(vec![Miss::NotBare]),
            Some(_) | None => None,
        }
    }

    fn structured(&self, tool: &str, rule: &Rule) -> Option<Vec<Miss>> {
        let mut misses = Vec::new();
        if !Pattern::new(tool).matches(&self.subject.tool) {
            let is_alike = Pattern::new(&tool.to_lowercase()).matches(&self.subject.tool.to_lowercase());
            misses.push(is_alike.then_some(Miss::Case)?);
        }
        if self.line.is_some() && rule.action == Action::Allow {
            misses.push(Miss::Shell);
        }
        let Some(Args::Each(each)) = &rule.args else { return Some(misses) };
        for (path, matcher) in each {
            let (demand, quantity) = (Demand::new(path, matcher), table::quantity(rule.action));
            if demand.holds(&self.subject.arguments, quantity) {
                continue;
            }
            let found = values(&self.subject.arguments, demand.path(), quantity);
            let got: Vec<String> = found.into_iter().flatten().map(canonical).collect();
            misses.push(Miss::Argument {
                path: path.clone(),
                wanted: matcher.to_string(),
                got: (!got.is_empty()).then(|| got.join(", ")),
            });
        }
        Some(misses)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::near;
    use crate::{
        policy::{
            Constraints, Grants, Layer, Layers, Posture, Source, Subject, Surroundings, compile, evaluate,
            testing::{bash, subject},
        },
        time::Millis,
    };

    fn told(rules: Value, subject: &Subject) -> Vec<String> {
        let rules = serde_json::from_value(rules).unwrap();
        let compiled =
            compile(vec![Source { name: "permissions.yaml".to_owned(), layer: Layer::Main, rules }]).unwrap();
        let surroundings = Surroundings::default();
        let layers = Layers {
            compiled: &compiled,
            constraints: &Constraints::default(),
            contract: None,
            grants: &Grants::default(),
            posture: Posture::Gateway,
            surroundings: &surroundings,
        };
        let verdict = evaluate(&layers, subject, Millis(0));
        let found = near(&compiled, &surroundings, subject, &verdict);
        let line = |near: super::Near| {
            let misses: Vec<String> = near.misses.iter().map(ToString::to_string).collect();
            format!("{}: {}", near.rule.pattern, misses.join("; "))
        };
        found.into_iter().map(line).collect()
    }

    #[test]
    fn a_rule_that_nearly_matched_says_what_kept_it_off() {
        let turn_on = subject("light", json!({"entity": "light.kitchen"}));
        let listed = Subject {
            signature: "light(a)".to_owned(),
            further_signatures: vec!["light(b)".to_owned()],
            ..subject("light", json!({"entity": ["a", "b"]}))
        };
        let undeclared = Subject { undeclared: vec!["brightness".to_owned()], ..turn_on.clone() };
        let pay = subject("pay", json!({"order": {"total": 51}}));
        let bound = "bound to the";
        for (rule, subject, want) in [
            (json!({"pattern": "light(lock.*)"}), &turn_on, Some("its pattern does not match light(light.kitchen)")),
            (json!({"pattern": "Light(*)"}), &turn_on, Some("capital and small letters differ")),
            (json!({"pattern": "light"}), &turn_on, Some("it is about calls without arguments in the signature")),
            (
                json!({"pattern": "light(*)"}),
                &subject("light", json!({})),
                Some("it wants arguments in the signature, and there are none"),
            ),
            (json!({"pattern": "light(a)"}), &listed, Some("it does not cover light(b)")),
            (
                json!({"pattern": "light(*)"}),
                &undeclared,
                Some("it looks at arguments, and the tool does not declare brightness"),
            ),
            (
                json!({"pattern": "light(*)", "principal": "garage"}),
                &turn_on,
                Some(&*format!("it is {bound} principal \"garage\", and this is \"pi\"")),
            ),
            (
                json!({"pattern": "*", "door": "omp"}),
                &turn_on,
                Some(&*format!("it is {bound} door \"omp\", and this has no door")),
            ),
            (
                json!({"tool": "pay", "args": {"order.total": {"max": 50}}}),
                &pay,
                Some("it wants order.total to be at most 50, and it is 51"),
            ),
            (
                json!({"tool": "p*", "args": {"order.to": "acme"}}),
                &pay,
                Some("it wants order.to to be \"acme\", and it is not there"),
            ),
            (json!({"pattern": "bash(ls*)"}), &bash("ls; make"), Some("it does not cover bash(make)")),
            (json!({"pattern": "other(*)"}), &turn_on, None),
            (json!({"tool": "other"}), &pay, None),
        ] {
            let mut rule = rule;
            rule["action"] = json!("allow");
            let told = told(json!({ "rules": [rule] }), subject);
            let got = told.first().map(|told| told.split_once(": ").unwrap().1);
            assert_eq!(got, want, "{rule}");
        }
    }

    #[test]
    fn what_matches_comes_before_what_misses_and_the_decider_is_not_told_of() {
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
        let told = told(rules, &subject("t", json!({"a": "ab"})));
        let patterns: Vec<&str> = told.iter().map(|told| told.split_once(": ").unwrap().0).collect();
        assert_eq!(patterns, ["t(a*)", "*", "t(abc*)", "t(b*)", "t(*), principal x, door y"]);
        assert_eq!(told[0], "t(a*): ");
    }
}
