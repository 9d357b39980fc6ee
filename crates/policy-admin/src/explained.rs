//! An explanation in full: which rule decided, who has to allow, and what nearly decided, for people and programs.
//!
//! It must not judge anything: that was done before.

use countersign_core::{
    gate::{OnExpiry, Step},
    policy::{Action, Named, Near, Subject, Verdict},
};
use serde_json::{Value, json};

/// What rules make of a request, and what they nearly made of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// What policy was asked.
    pub subject: Subject,
    /// What it says.
    pub verdict: Verdict,
    /// The rules that nearly decided, the nearest first.
    pub near: Vec<Near>,
}

/// What policy makes of something, without why.
pub const fn action(verdict: &Verdict) -> Action {
    match verdict {
        Verdict::Allow(_) => Action::Allow,
        Verdict::Deny(_) => Action::Deny,
        Verdict::Ask(_) => Action::Ask,
    }
}

/// Why a rule did not decide, a line each.
pub fn kept_off(near: &Near) -> Vec<String> {
    if near.misses.is_empty() {
        return vec!["it matches too, and what decided goes before it".to_owned()];
    }
    near.misses.iter().map(ToString::to_string).collect()
}

impl Explained {
    /// The rule that decided, if it was one, and whether it is a default.
    pub fn rule(&self) -> Option<(&Named, bool)> {
        self.verdict.why().cause.rule()
    }

    /// Who has to allow what is asked about: the steps of the rule, or any one person.
    pub fn steps(&self) -> Vec<Step> {
        if action(&self.verdict) != Action::Ask {
            return Vec::new();
        }
        let steps = self.rule().map(|(rule, _)| rule.steps.clone()).unwrap_or_default();
        if steps.is_empty() { vec![Step::default()] } else { steps }
    }

    /// All of an explanation, for programs.
    pub fn told(&self) -> Value {
        let Explained { subject, verdict, near } = self;
        let named = |rule: &Named, is_default: bool| {
            json!({
                "pattern": rule.pattern, "file": rule.origin.file, "line": rule.origin.line, "default": is_default,
                "description": rule.description,
            })
        };
        let near: Vec<Value> = near
            .iter()
            .map(|near| {
                let mut told = named(&near.rule, near.is_default);
                told["action"] = json!(near.action);
                told["matches"] = json!(near.misses.is_empty());
                told["why"] = json!(kept_off(near));
                told
            })
            .collect();
        let step = |step: &Step| {
            let (expiry, times) = match step.on_expiry {
                OnExpiry::Deny => ("deny", None),
                OnExpiry::Again(times) => ("again", Some(times)),
                OnExpiry::Next => ("next", None),
            };
            json!({
                "approvals": step.approvals, "from": step.from, "within": step.within.map(|time| time.as_secs()),
                "on_expiry": expiry, "times": times,
            })
        };
        json!({
            "verdict": action(verdict),
            "steps": self.steps().iter().map(step).collect::<Vec<_>>(),
            "why": verdict.why().to_string(),
            "rule": self.rule().map(|(rule, is_default)| named(rule, is_default)),
            "signature": subject.signature,
            "further_signatures": subject.further_signatures,
            "undeclared": subject.undeclared,
            "secrets": subject.secrets().unwrap_or_default(),
            "principal": subject.principal.as_str(),
            "door": subject.door,
            "target": subject.target,
            "policy": verdict.why().policy.to_string(),
            "nearly": near,
        })
    }
}
