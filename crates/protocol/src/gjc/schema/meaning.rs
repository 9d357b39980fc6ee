//! Reads the meaning of an answer that fits its schema.
//!
//! It must not know the consequences. Only an exact `approve` lets anything continue, and an answer that fits the schema but has
//! no meaning is refused here.

use serde_json::Value;

use super::{SchemaMismatch, shapes::AgentQuestion};

/// Decision on a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanDecision {
    /// The plan may be carried out.
    Approve {
        /// Additional comments.
        comments: Option<String>,
    },
    /// The plan must be changed first.
    RequestChanges {
        /// The requested changes; never blank.
        comments: String,
    },
    /// The plan is rejected.
    Reject {
        /// Reason.
        comments: Option<String>,
    },
}

/// Decision on an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecutionDecision {
    /// The execution is signed off.
    Approve {
        /// Additional reason.
        reason: Option<String>,
    },
    /// The execution is not signed off.
    Decline {
        /// Reason.
        reason: Option<String>,
    },
}

/// Chosen options of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuestionChoice {
    /// Labels, in the order of the answer.
    pub selected: Vec<String>,
    /// An answer in one's own words; never blank.
    pub custom: Option<String>,
}

/// Reason that an answer has no meaning although it may fit the schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerMeaningError {
    /// The answer has another shape.
    #[error("the answer has another form")]
    Shape,
    /// There is no such decision.
    #[error("there is no decision {0:?}")]
    UnknownDecision(String),
    /// Changes are requested and none are named.
    #[error("comments are required when requesting changes")]
    MissingComments,
    /// The answer names an option that does not exist.
    #[error("there is no option {0:?}")]
    UnknownOption(String),
    /// The answer names an option twice.
    #[error("selected options must be unique")]
    Duplicate,
    /// The answer names no option.
    #[error("at least one option, or an answer in other words, is required")]
    Empty,
    /// The answer names several options where one is allowed.
    #[error("this question takes one answer")]
    Several,
    /// The answer announces own words and has none.
    #[error("custom text is required when `other` is true")]
    MissingCustom,
}

impl AnswerMeaningError {
    /// Returns the code of the original's consumers.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Shape => "invalid_answer_shape",
            Self::UnknownDecision(_) => "unknown_decision",
            Self::MissingComments => "missing_comments",
            Self::UnknownOption(_) => "unknown_option",
            Self::Duplicate => "duplicate_selection",
            Self::Empty => "empty_selection",
            Self::Several => "multi_not_allowed",
            Self::MissingCustom => "missing_custom",
        }
    }

    /// Returns the error in the form that a rejected answer is reported in; the keyword is the code.
    pub fn to_mismatch(&self) -> SchemaMismatch {
        let path = match self {
            Self::Shape => "#",
            Self::UnknownDecision(_) => "#/decision",
            Self::MissingComments => "#/comments",
            Self::UnknownOption(_) | Self::Duplicate | Self::Empty | Self::Several => "#/selected",
            Self::MissingCustom => "#/custom",
        };
        SchemaMismatch { path: path.to_owned(), keyword: self.code(), message: self.to_string(), expected: None }
    }
}

/// Returns the meaning of an answer to [`approval_gate`](super::shapes::approval_gate).
///
/// # Errors
/// [`AnswerMeaningError`] for one that decides nothing, such as changes without comments.
pub fn plan_decision(answer: &Value) -> Result<PlanDecision, AnswerMeaningError> {
    let comments = optional_text(answer, "comments")?;
    match decision_text(answer)? {
        "approve" => Ok(PlanDecision::Approve { comments }),
        "reject" => Ok(PlanDecision::Reject { comments }),
        "request-changes" => comments
            .filter(|comments| !comments.trim().is_empty())
            .map(|comments| PlanDecision::RequestChanges { comments })
            .ok_or(AnswerMeaningError::MissingComments),
        other => Err(AnswerMeaningError::UnknownDecision(other.to_owned())),
    }
}

/// Returns the meaning of an answer to [`execution_gate`](super::shapes::execution_gate).
///
/// # Errors
/// [`AnswerMeaningError`] for one that decides nothing.
pub fn execution_decision(answer: &Value) -> Result<ExecutionDecision, AnswerMeaningError> {
    let reason = optional_text(answer, "reason")?;
    match decision_text(answer)? {
        "approve" => Ok(ExecutionDecision::Approve { reason }),
        "decline" => Ok(ExecutionDecision::Decline { reason }),
        other => Err(AnswerMeaningError::UnknownDecision(other.to_owned())),
    }
}

/// Returns the meaning of an answer to [`question_gate`](super::shapes::question_gate).
///
/// # Errors
/// [`AnswerMeaningError`] for one that chooses nothing that could be chosen.
pub fn question_choice(question: &AgentQuestion, answer: &Value) -> Result<QuestionChoice, AnswerMeaningError> {
    let label = |item: &Value| item.as_str().map(str::to_owned);
    let selected = answer.get("selected").and_then(Value::as_array).ok_or(AnswerMeaningError::Shape)?;
    let selected: Vec<String> = selected.iter().map(label).collect::<Option<_>>().ok_or(AnswerMeaningError::Shape)?;
    let other = match answer.get("other") {
        None => false,
        Some(other) => other.as_bool().ok_or(AnswerMeaningError::Shape)?,
    };
    let custom = optional_text(answer, "custom")?;
    if let Some(unknown) = selected.iter().find(|label| !question.options.contains(label)) {
        return Err(AnswerMeaningError::UnknownOption(unknown.clone()));
    }
    if selected.iter().enumerate().any(|(at, label)| selected[..at].contains(label)) {
        return Err(AnswerMeaningError::Duplicate);
    }
    match selected.len() + usize::from(other) {
        0 => return Err(AnswerMeaningError::Empty),
        1 => {}
        _ if question.multi => {}
        _ => return Err(AnswerMeaningError::Several),
    }
    let custom = match (other, custom.filter(|custom| !custom.trim().is_empty())) {
        (true, None) => return Err(AnswerMeaningError::MissingCustom),
        (true, custom @ Some(_)) => custom,
        (false, _) => None,
    };
    Ok(QuestionChoice { selected, custom })
}

fn decision_text(answer: &Value) -> Result<&str, AnswerMeaningError> {
    answer.get("decision").and_then(Value::as_str).ok_or(AnswerMeaningError::Shape)
}

fn optional_text(answer: &Value, name: &str) -> Result<Option<String>, AnswerMeaningError> {
    let text = |value: &Value| value.as_str().map(str::to_owned).ok_or(AnswerMeaningError::Shape);
    answer.get(name).map(text).transpose()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_an_exact_approve_approves() {
        for (answer, want) in [
            (json!({"decision": "approve"}), Ok(PlanDecision::Approve { comments: None })),
            (
                json!({"decision": "reject", "comments": "no"}),
                Ok(PlanDecision::Reject { comments: Some("no".to_owned()) }),
            ),
            (
                json!({"decision": "request-changes", "comments": "smaller"}),
                Ok(PlanDecision::RequestChanges { comments: "smaller".to_owned() }),
            ),
            (json!({"decision": "request-changes"}), Err(AnswerMeaningError::MissingComments)),
            (json!({"decision": "request-changes", "comments": " \n"}), Err(AnswerMeaningError::MissingComments)),
            (json!({"decision": "Approve"}), Err(AnswerMeaningError::UnknownDecision("Approve".to_owned()))),
            (json!({"decision": "approve", "comments": 1}), Err(AnswerMeaningError::Shape)),
            (json!("approve"), Err(AnswerMeaningError::Shape)),
            (json!(null), Err(AnswerMeaningError::Shape)),
        ] {
            assert_eq!(plan_decision(&answer), want, "{answer}");
        }
        for (answer, want) in [
            (
                json!({"decision": "approve", "reason": "ok"}),
                Ok(ExecutionDecision::Approve { reason: Some("ok".to_owned()) }),
            ),
            (json!({"decision": "decline"}), Ok(ExecutionDecision::Decline { reason: None })),
            (
                json!({"decision": "request-changes"}),
                Err(AnswerMeaningError::UnknownDecision("request-changes".to_owned())),
            ),
            (json!(true), Err(AnswerMeaningError::Shape)),
        ] {
            assert_eq!(execution_decision(&answer), want, "{answer}");
        }
    }

    #[test]
    fn an_answer_chooses_what_was_offered_or_says_it_in_other_words() {
        let chosen = |selected: &[&str], custom: Option<&str>| {
            Ok(QuestionChoice {
                selected: selected.iter().map(|&label| label.to_owned()).collect(),
                custom: custom.map(str::to_owned),
            })
        };
        for (multi, answer, want) in [
            (false, json!({"selected": ["A"]}), chosen(&["A"], None)),
            (false, json!({"selected": ["A"], "other": false}), chosen(&["A"], None)),
            (false, json!({"selected": [], "other": true, "custom": "mine"}), chosen(&[], Some("mine"))),
            (true, json!({"selected": ["B", "A"], "other": true, "custom": "c"}), chosen(&["B", "A"], Some("c"))),
            (false, json!({"selected": ["A", "B"]}), Err(AnswerMeaningError::Several)),
            (false, json!({"selected": ["A"], "other": true, "custom": "c"}), Err(AnswerMeaningError::Several)),
            (true, json!({"selected": ["A", "A"]}), Err(AnswerMeaningError::Duplicate)),
            (true, json!({"selected": ["C"]}), Err(AnswerMeaningError::UnknownOption("C".to_owned()))),
            (
                true,
                json!({"selected": ["Other (type your own)"]}),
                Err(AnswerMeaningError::UnknownOption("Other (type your own)".to_owned())),
            ),
            (true, json!({"selected": []}), Err(AnswerMeaningError::Empty)),
            (true, json!({"selected": [], "other": true}), Err(AnswerMeaningError::MissingCustom)),
            (true, json!({"selected": [], "other": true, "custom": "  "}), Err(AnswerMeaningError::MissingCustom)),
            (true, json!({"other": true, "custom": "c"}), Err(AnswerMeaningError::Shape)),
            (true, json!({"selected": ["A"], "other": "yes"}), Err(AnswerMeaningError::Shape)),
            (true, json!(["A"]), Err(AnswerMeaningError::Shape)),
        ] {
            let question =
                AgentQuestion { options: vec!["A".to_owned(), "B".to_owned()], multi, ..AgentQuestion::default() };
            assert_eq!(question_choice(&question, &answer), want, "{answer}, several: {multi}");
        }
    }
}
