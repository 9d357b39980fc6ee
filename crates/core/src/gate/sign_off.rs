//! Answers to a plan or to an execution, and their meaning.
//!
//! Only an exact [`APPROVE`] lets the work continue. Free text without a decision before it is an objection.

use serde::{Deserialize, Serialize};

use super::event::{GateContent, GateResolution, Kind};

/// Approves the plan, or signs the execution off.
pub const APPROVE: &str = "approve";
/// Requests changes of the plan, as described in the text after it.
pub const CHANGE: &str = "request-changes";
/// Rejects the plan.
pub const REJECT: &str = "reject";
/// Declines to sign the execution off.
pub const DECLINE: &str = "decline";

/// Decision of a sign-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignOffDecision {
    /// The plan may be carried out, or the execution is signed off.
    Approve,
    /// The plan must be changed first.
    Change,
    /// The plan is rejected, or the execution is not signed off.
    Refuse,
}

impl GateContent {
    /// Returns the kind of sign-off that a gate of `kind` is: [`Kind::Plan`], [`Kind::Execution`], or none. A question is
    /// one if the agent marked it so.
    pub fn sign_off(&self, kind: Kind) -> Option<Kind> {
        match (kind, self) {
            (Kind::Plan | Kind::Execution, _) => Some(kind),
            (Kind::Question, Self::Question { about, .. }) => match about.get(NAMED)?.get("kind")?.as_str()? {
                "approval" => Some(Kind::Plan),
                "execution" => Some(Kind::Execution),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Key in the details of a question under which the agent gave its stage and its kind.
pub const NAMED: &str = "workflow_gate";

/// Returns the decision that the end of a gate is for the plan or the execution that it shows. None for any other gate, and if
/// no decision was needed any more.
///
/// Only an approval of a person approves: neither a missing answer nor a default does.
pub(crate) fn sign_off_outcome(
    kind: Kind,
    shown: &GateContent,
    resolution: &GateResolution,
    answers: &[String],
) -> Option<SignOffDecision> {
    shown.sign_off(kind)?;
    match (resolution, kind) {
        (GateResolution::Withdrawn, _) => None,
        (GateResolution::Answered, Kind::Question) => Some(question_decision(shown, answers)),
        (GateResolution::Answered, _) => {
            Some(parse_decision(answers).map_or(SignOffDecision::Refuse, |(decision, _)| decision))
        }
        _ => Some(SignOffDecision::Refuse),
    }
}

/// Returns the decision that the answer to a question with a sign-off is. Its labels are the agent's own words: one that begins
/// with the word `approve` approves, free text asks for changes, and everything else refuses.
fn question_decision(shown: &GateContent, answers: &[String]) -> SignOffDecision {
    let GateContent::Question { choices, .. } = shown else { return SignOffDecision::Refuse };
    let is_label = |words: &String| choices.iter().any(|choice| choice.label == *words);
    match answers {
        [label] if is_label(label) && is_approving(label) => SignOffDecision::Approve,
        labels if labels.iter().all(is_label) => SignOffDecision::Refuse,
        _ => SignOffDecision::Change,
    }
}

/// Reports whether a choice with this label approves.
pub(crate) fn is_approving(label: &str) -> bool {
    let first = label.split(|letter: char| !letter.is_alphanumeric()).find(|word| !word.is_empty());
    first.is_some_and(|word| word.eq_ignore_ascii_case(APPROVE))
}

/// Returns the choices of a gate of this kind; none for other kinds.
pub(crate) const fn choice_labels(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Plan => &[APPROVE, CHANGE, REJECT],
        Kind::Execution => &[APPROVE, DECLINE],
        Kind::Approval | Kind::Question | Kind::Pairing | Kind::Budget => &[],
    }
}

/// Parses words that counted into the decision and the text after it.
pub fn parse_decision(answers: &[String]) -> Option<(SignOffDecision, Option<&str>)> {
    let (first, rest) = answers.split_first()?;
    let decision = match first.as_str() {
        APPROVE => SignOffDecision::Approve,
        CHANGE => SignOffDecision::Change,
        REJECT | DECLINE => SignOffDecision::Refuse,
        _ => return None,
    };
    Some((decision, rest.first().map(String::as_str)))
}

/// Puts words into the order in which they are recorded: a decision, then the text after it.
pub(super) fn normalise_words(kind: Kind, answers: &[String]) -> Result<Vec<String>, &'static str> {
    let is_label = |word: &String| choice_labels(kind).contains(&word.as_str());
    let normalised: Vec<String> = match answers {
        [label] if is_label(label) => vec![label.clone()],
        [label, words] if is_label(label) && !is_label(words) => vec![label.clone(), words.clone()],
        [words] => vec![if kind == Kind::Plan { CHANGE } else { DECLINE }.to_owned(), words.clone()],
        _ => return Err("it takes one decision, and words beside it"),
    };
    if normalised == [CHANGE] { Err("changes have to be named") } else { Ok(normalised) }
}
