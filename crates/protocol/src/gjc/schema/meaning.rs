//! Says what an answer that fits its schema means.
//!
//! It must not know what follows from it. Only an exact `approve` lets anything go on, and an answer that fits the
//! schema but says nothing is refused here.

use serde_json::Value;

use super::{Mismatch, shapes::Question};

/// What was said about a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Approval {
    /// It may be carried out.
    Approve {
        /// What else was said.
        comments: Option<String>,
    },
    /// It must be changed first.
    RequestChanges {
        /// How; never blank.
        comments: String,
    },
    /// It is off.
    Reject {
        /// Why.
        comments: Option<String>,
    },
}

/// What was said about an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Execution {
    /// It is signed off.
    Approve {
        /// What else was said.
        reason: Option<String>,
    },
    /// It is not.
    Decline {
        /// Why.
        reason: Option<String>,
    },
}

/// What was chosen of a question's options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Labels, in the order of the answer.
    pub selected: Vec<String>,
    /// An answer in one's own words; never blank.
    pub custom: Option<String>,
}

/// Why an answer that may fit the schema says nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unmeant {
    /// It is something else.
    #[error("the answer has another form")]
    Shape,
    /// There is no such decision.
    #[error("there is no decision {0:?}")]
    UnknownDecision(String),
    /// Changes are wanted and none are named.
    #[error("comments are required when requesting changes")]
    MissingComments,
    /// It names an option that there is not.
    #[error("there is no option {0:?}")]
    UnknownOption(String),
    /// It names one twice.
    #[error("selected options must be unique")]
    Duplicate,
    /// It names none.
    #[error("at least one option, or an answer in other words, is required")]
    Empty,
    /// It names several where one is asked for.
    #[error("this question takes one answer")]
    Several,
    /// It says that it has other words and has none.
    #[error("custom text is required when `other` is true")]
    MissingCustom,
}

impl Unmeant {
    /// The code of the original's consumers.
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

    /// Tells it in the form in which a rejected answer is told what is wrong; the keyword is the code.
    pub fn mismatch(&self) -> Mismatch {
        let path = match self {
            Self::Shape => "#",
            Self::UnknownDecision(_) => "#/decision",
            Self::MissingComments => "#/comments",
            Self::UnknownOption(_) | Self::Duplicate | Self::Empty | Self::Several => "#/selected",
            Self::MissingCustom => "#/custom",
        };
        Mismatch { path: path.to_owned(), keyword: self.code(), message: self.to_string(), expected: None }
    }
}

/// Says what an answer to [`approval`](super::shapes::approval) means.
///
/// # Errors
/// [`Unmeant`] for one that decides nothing, such as changes without comments.
pub fn approval(answer: &Value) -> Result<Approval, Unmeant> {
    let comments = text(answer, "comments")?;
    match decision(answer)? {
        "approve" => Ok(Approval::Approve { comments }),
        "reject" => Ok(Approval::Reject { comments }),
        "request-changes" => comments
            .filter(|comments| !comments.trim().is_empty())
            .map(|comments| Approval::RequestChanges { comments })
            .ok_or(Unmeant::MissingComments),
        other => Err(Unmeant::UnknownDecision(other.to_owned())),
    }
}

/// Says what an answer to [`execution`](super::shapes::execution) means.
///
/// # Errors
/// [`Unmeant`] for one that decides nothing.
pub fn execution(answer: &Value) -> Result<Execution, Unmeant> {
    let reason = text(answer, "reason")?;
    match decision(answer)? {
        "approve" => Ok(Execution::Approve { reason }),
        "decline" => Ok(Execution::Decline { reason }),
        other => Err(Unmeant::UnknownDecision(other.to_owned())),
    }
}

/// Says what an answer to [`question`](super::shapes::question) means.
///
/// # Errors
/// [`Unmeant`] for one that chooses nothing that could be chosen.
pub fn choice(question: &Question, answer: &Value) -> Result<Choice, Unmeant> {
    let label = |item: &Value| item.as_str().map(str::to_owned);
    let selected = answer.get("selected").and_then(Value::as_array).ok_or(Unmeant::Shape)?;
    let selected: Vec<String> = selected.iter().map(label).collect::<Option<_>>().ok_or(Unmeant::Shape)?;
    let other = match answer.get("other") {
        None => false,
        Some(other) => other.as_bool().ok_or(Unmeant::Shape)?,
    };
    let custom = text(answer, "custom")?;
    if let Some(unknown) = selected.iter().find(|label| !question.options.contains(label)) {
        return Err(Unmeant::UnknownOption(unknown.clone()));
    }
    if selected.iter().enumerate().any(|(at, label)| selected[..at].contains(label)) {
        return Err(Unmeant::Duplicate);
    }
    match selected.len() + usize::from(other) {
        0 => return Err(Unmeant::Empty),
        1 => {}
        _ if question.multi => {}
        _ => return Err(Unmeant::Several),
    }
    let custom = match (other, custom.filter(|custom| !custom.trim().is_empty())) {
        (true, None) => return Err(Unmeant::MissingCustom),
        (true, custom @ Some(_)) => custom,
        (false, _) => None,
    };
    Ok(Choice { selected, custom })
}

fn decision(answer: &Value) -> Result<&str, Unmeant> {
    answer.get("decision").and_then(Value::as_str).ok_or(Unmeant::Shape)
}

fn text(answer: &Value, name: &str) -> Result<Option<String>, Unmeant> {
    let text = |value: &Value| value.as_str().map(str::to_owned).ok_or(Unmeant::Shape);
    answer.get(name).map(text).transpose()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_an_exact_approve_approves() {
        for (answer, want) in [
            (json!({"decision": "approve"}), Ok(Approval::Approve { comments: None })),
            (json!({"decision": "reject", "comments": "no"}), Ok(Approval::Reject { comments: Some("no".to_owned()) })),
            (
                json!({"decision": "request-changes", "comments": "smaller"}),
                Ok(Approval::RequestChanges { comments: "smaller".to_owned() }),
            ),
            (json!({"decision": "request-changes"}), Err(Unmeant::MissingComments)),
            (json!({"decision": "request-changes", "comments": " \n"}), Err(Unmeant::MissingComments)),
            (json!({"decision": "Approve"}), Err(Unmeant::UnknownDecision("Approve".to_owned()))),
            (json!({"decision": "approve", "comments": 1}), Err(Unmeant::Shape)),
            (json!("approve"), Err(Unmeant::Shape)),
            (json!(null), Err(Unmeant::Shape)),
        ] {
            assert_eq!(approval(&answer), want, "{answer}");
        }
        for (answer, want) in [
            (json!({"decision": "approve", "reason": "ok"}), Ok(Execution::Approve { reason: Some("ok".to_owned()) })),
            (json!({"decision": "decline"}), Ok(Execution::Decline { reason: None })),
            (json!({"decision": "request-changes"}), Err(Unmeant::UnknownDecision("request-changes".to_owned()))),
            (json!(true), Err(Unmeant::Shape)),
        ] {
            assert_eq!(execution(&answer), want, "{answer}");
        }
    }

    #[test]
    fn an_answer_chooses_what_was_offered_or_says_it_in_other_words() {
        let chosen = |selected: &[&str], custom: Option<&str>| {
            Ok(Choice {
                selected: selected.iter().map(|&label| label.to_owned()).collect(),
                custom: custom.map(str::to_owned),
            })
        };
        for (multi, answer, want) in [
            (false, json!({"selected": ["A"]}), chosen(&["A"], None)),
            (false, json!({"selected": ["A"], "other": false}), chosen(&["A"], None)),
            (false, json!({"selected": [], "other": true, "custom": "mine"}), chosen(&[], Some("mine"))),
            (true, json!({"selected": ["B", "A"], "other": true, "custom": "c"}), chosen(&["B", "A"], Some("c"))),
            (false, json!({"selected": ["A", "B"]}), Err(Unmeant::Several)),
            (false, json!({"selected": ["A"], "other": true, "custom": "c"}), Err(Unmeant::Several)),
            (true, json!({"selected": ["A", "A"]}), Err(Unmeant::Duplicate)),
            (true, json!({"selected": ["C"]}), Err(Unmeant::UnknownOption("C".to_owned()))),
            (
                true,
                json!({"selected": ["Other (type your own)"]}),
                Err(Unmeant::UnknownOption("Other (type your own)".to_owned())),
            ),
            (true, json!({"selected": []}), Err(Unmeant::Empty)),
            (true, json!({"selected": [], "other": true}), Err(Unmeant::MissingCustom)),
            (true, json!({"selected": [], "other": true, "custom": "  "}), Err(Unmeant::MissingCustom)),
            (true, json!({"other": true, "custom": "c"}), Err(Unmeant::Shape)),
            (true, json!({"selected": ["A"], "other": "yes"}), Err(Unmeant::Shape)),
            (true, json!(["A"]), Err(Unmeant::Shape)),
        ] {
            let question = Question { options: vec!["A".to_owned(), "B".to_owned()], multi, ..Question::default() };
            assert_eq!(choice(&question, &answer), want, "{answer}, several: {multi}");
        }
    }
}
