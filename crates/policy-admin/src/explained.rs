//! An explanation in full: which rule decided, who has to allow, and what nearly decided, for people and programs.
//!
//! It must not judge anything: that was done before.

use std::collections::BTreeSet;

use countersign_core::{
    gate::{ApprovalStep, OnExpiry},
    policy::{NamedRule, NearMiss, PolicySubject, RuleAction, Verdict, VerdictCause},
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

/// Verdict of rules on a request, with the rules that nearly decided.
#[derive(Clone, Debug, PartialEq)]
pub struct ExplainedVerdict {
    /// Subject of the verdict.
    pub subject: PolicySubject,
    /// Verdict of policy.
    pub verdict: Verdict,
    /// The rules that nearly decided, the nearest first.
    pub near: Vec<NearMiss>,
}

/// Returns the action of a verdict, without its reason.
pub const fn verdict_action(verdict: &Verdict) -> RuleAction {
    match verdict {
        Verdict::Allow(_) => RuleAction::Allow,
        Verdict::Deny(_) => RuleAction::Deny,
        Verdict::Ask(_) => RuleAction::Ask,
    }
}

/// Returns the reason of a verdict for the author of the rules. Agents and the record have that of the verdict itself.
pub fn reason_text(verdict: &Verdict) -> String {
    match &verdict.why().cause {
        VerdictCause::Default(rule) => {
            let action = match verdict_action(verdict) {
                RuleAction::Allow => "allow",
                RuleAction::Deny => "deny",
                RuleAction::Ask => "ask",
            };
            format!("no rule matches, and the default {rule} is {action}")
        }
        _ => verdict.why().to_string(),
    }
}

/// Returns the reasons why a rule did not decide, a line each.
pub fn kept_off(near: &NearMiss) -> Vec<String> {
    if near.misses.is_empty() {
        return vec!["also matches, but the deciding rule takes precedence".to_owned()];
    }
    near.misses.iter().map(ToString::to_string).collect()
}

impl ExplainedVerdict {
    /// Returns the rule that decided, if it was one, and whether it is a default.
    pub fn deciding_rule(&self) -> Option<(&NamedRule, bool)> {
        self.verdict.why().cause.deciding_rule()
    }

    /// Returns the approval steps: those of the rule, or any one person.
    pub fn approval_steps(&self) -> Vec<ApprovalStep> {
        if verdict_action(&self.verdict) != RuleAction::Ask {
            return Vec::new();
        }
        let steps = self.deciding_rule().map(|(rule, _)| rule.steps.clone()).unwrap_or_default();
        if steps.is_empty() { vec![ApprovalStep::default()] } else { steps }
    }

    /// Returns all of it, for programs.
    pub fn to_explanation(&self) -> Explanation {
        let Self { subject, verdict, near } = self;
        Explanation {
            verdict: verdict_action(verdict).into(),
            steps: self.approval_steps().iter().map(ExplainedStep::new).collect(),
            why: verdict.why().to_string(),
            rule: self.deciding_rule().map(|(rule, is_default)| ExplainedRule::new(rule, is_default)),
            signature: subject.signature.clone(),
            further_signatures: subject.further_signatures.clone(),
            undeclared: subject.undeclared.clone(),
            secrets: subject.secret_names().unwrap_or_default(),
            principal: subject.principal.as_str().to_owned(),
            door: subject.door.clone(),
            target: subject.target.clone(),
            policy: verdict.why().policy.to_string(),
            nearly: near.iter().map(NearRule::new).collect(),
        }
    }

    /// Returns all of an explanation as an object, for programs.
    pub fn to_json(&self) -> Value {
        json!(self.to_explanation())
    }
}

/// Verdict on a request, and the rules that decide it. *Shape:* members in this order.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Explanation {
    /// Action that the rules give.
    pub verdict: ExplainedAction,
    /// Required approvals, step by step; empty if no approval is required.
    pub steps: Vec<ExplainedStep>,
    /// Reason in one line.
    pub why: String,
    /// Rule that decided, if a rule did.
    pub rule: Option<ExplainedRule>,
    /// The text that rules were matched against.
    pub signature: String,
    /// Further texts that rules were matched against, one for each further element where an argument is a list.
    pub further_signatures: Vec<String>,
    /// Arguments that the tool does not declare.
    pub undeclared: Vec<String>,
    /// Names of the secrets that the arguments refer to.
    pub secrets: BTreeSet<String>,
    /// Principal that would make the request.
    pub principal: String,
    /// Door of the request; null if it is the one that the rules are for.
    pub door: Option<String>,
    /// Service that would execute the request, if there is one.
    pub target: Option<String>,
    /// The digest of the rules.
    pub policy: String,
    /// The rules that nearly decided, the nearest first.
    pub nearly: Vec<NearRule>,
}

/// Action of a rule or of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Action")]
pub enum ExplainedAction {
    /// It may happen.
    Allow,
    /// It may not happen.
    Deny,
    /// A person decides.
    Ask,
}

impl From<RuleAction> for ExplainedAction {
    fn from(action: RuleAction) -> Self {
        match action {
            RuleAction::Allow => Self::Allow,
            RuleAction::Deny => Self::Deny,
            RuleAction::Ask => Self::Ask,
        }
    }
}

/// Rule, with its file and line.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Rule")]
pub struct ExplainedRule {
    /// Its pattern, or its tool and arguments.
    pub pattern: String,
    /// The name of its file.
    pub file: String,
    /// Line in the file; 0 if not known.
    pub line: u32,
    /// True if the rule is a default.
    pub default: bool,
    /// Description of the rule.
    pub description: Option<String>,
}

impl ExplainedRule {
    fn new(rule: &NamedRule, is_default: bool) -> Self {
        Self {
            pattern: rule.pattern.clone(),
            file: rule.origin.file.clone(),
            line: rule.origin.line,
            default: is_default,
            description: rule.description.clone(),
        }
    }
}

/// Rule about the same tool that did not decide.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct NearRule {
    /// The rule.
    #[serde(flatten)]
    pub rule: ExplainedRule,
    /// Action of the rule.
    pub action: ExplainedAction,
    /// True if the rule matches, but another one takes precedence.
    pub matches: bool,
    /// Reasons why the rule did not decide, one per line.
    pub why: Vec<String>,
}

impl NearRule {
    fn new(near: &NearMiss) -> Self {
        Self {
            rule: ExplainedRule::new(&near.rule, near.is_default),
            action: near.action.into(),
            matches: near.misses.is_empty(),
            why: kept_off(near),
        }
    }
}

/// Step of the required approvals.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Step")]
pub struct ExplainedStep {
    /// Number of required approvals.
    pub approvals: u32,
    /// People who may allow; null means any approver.
    pub from: Option<BTreeSet<String>>,
    /// Time limit of the step in seconds; null means the limit of any approval.
    pub within: Option<u64>,
    /// Effect when the time limit of the step is reached.
    pub on_expiry: ExpiryAction,
    /// Number of times that the same approvers are asked again, if on_expiry is again.
    pub times: Option<u32>,
}

impl ExplainedStep {
    fn new(step: &ApprovalStep) -> Self {
        let (on_expiry, times) = match step.on_expiry {
            OnExpiry::Deny => (ExpiryAction::Deny, None),
            OnExpiry::Again(times) => (ExpiryAction::Again, Some(times)),
            OnExpiry::Next => (ExpiryAction::Next, None),
        };
        Self {
            approvals: step.approvals,
            from: step.from.as_deref().cloned(),
            within: step.within.map(|time| time.as_secs()),
            on_expiry,
            times,
        }
    }
}

/// Effect of a step without enough approvals in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExpiryAction {
    /// The action does not happen.
    Deny,
    /// The same people are asked once more.
    Again,
    /// The next step follows; behind the last the action does not happen.
    Next,
}
