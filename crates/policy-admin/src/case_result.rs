//! Results of the cases that a rules file is tested with, as texts for people.

use std::fmt;

use countersign_config::{DEFAULT_AGENT, PolicyCase};
use countersign_core::policy::RuleAction;

/// A case and its result.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseResult {
    /// The case.
    pub case: PolicyCase,
    /// Resulting action.
    pub got: RuleAction,
    /// Why.
    pub why: String,
}

impl CaseResult {
    /// Returns true if that is the result that its author expects.
    pub fn is_as_expected(&self) -> bool {
        self.got == self.case.expect
    }

    /// Returns the same, if it is not.
    pub fn into_failure(self) -> Option<CaseFailure> {
        (!self.is_as_expected()).then(|| CaseFailure(Box::new(self)))
    }
}

/// A case of which something else becomes than its author expects.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseFailure(pub Box<CaseResult>);

impl fmt::Display for CaseFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CaseResult { case, got, why } = &*self.0;
        write!(f, "{}:{}: ", case.file.display(), case.line)?;
        write!(f, "{} {}, but {}: {why}", request_line(case), verdict_text(*got), expectation_text(case.expect))
    }
}

/// Returns a case's request as it is written on the command line, with the agent if it is not the usual one.
fn request_line(case: &PolicyCase) -> String {
    let mut text = case.tool.clone();
    for (name, value) in &case.args {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text.push_str(&format!(" {name}={value}"));
    }
    if case.agent != DEFAULT_AGENT {
        text.push_str(&format!(" of {}", case.agent));
    }
    text
}

/// Returns the word for a verdict in texts for people.
pub const fn verdict_word(action: RuleAction) -> &'static str {
    match action {
        RuleAction::Allow => "allowed",
        RuleAction::Deny => "denied",
        RuleAction::Ask => "needs approval",
    }
}

/// Returns the verdict that a request got, as a predicate.
pub const fn verdict_text(action: RuleAction) -> &'static str {
    match action {
        RuleAction::Allow => "is allowed",
        RuleAction::Deny => "is denied",
        RuleAction::Ask => "needs approval",
    }
}

/// Returns the verdict that a case expects, as a predicate.
pub const fn expectation_text(action: RuleAction) -> &'static str {
    match action {
        RuleAction::Allow => "should be allowed",
        RuleAction::Deny => "should be denied",
        RuleAction::Ask => "should need approval",
    }
}
