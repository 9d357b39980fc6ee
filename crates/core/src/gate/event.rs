//! Events of a gate.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    call::Pins,
    digest::Digest,
    id::{CallId, GateId, PrincipalId, RunId},
    time::Millis,
};

use super::{sign_off::SignOffDecision, step::ApprovalStep};

/// Kind of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Approval of an action.
    Approval,
    /// Answer of a person to a question.
    Question,
    /// Approval of a plan.
    Plan,
    /// Sign-off of an execution.
    Execution,
    /// Admission of an unknown sender.
    Pairing,
    /// Raise of a limit.
    Budget,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Approval, Self::Question, Self::Plan, Self::Execution, Self::Pairing, Self::Budget];
}

/// Stage of a run's work with people, in which its gates are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateStage {
    /// Questions before the work.
    Interview,
    /// The plan.
    Plan,
    /// The execution.
    Execution,
}

impl Kind {
    /// Returns the stage in which gates of this kind are counted.
    pub const fn stage(self) -> GateStage {
        match self {
            Self::Question => GateStage::Interview,
            Self::Plan | Self::Approval => GateStage::Plan,
            Self::Execution | Self::Pairing | Self::Budget => GateStage::Execution,
        }
    }

    /// Returns the stage of gates from facts that have none.
    pub(super) const fn unsaid_stage(self) -> GateStage {
        match self {
            Self::Approval => GateStage::Execution,
            Self::Question | Self::Plan | Self::Execution | Self::Pairing | Self::Budget => self.stage(),
        }
    }

    /// Reports whether it is answered by a choice or in words, and not allowed or denied.
    pub const fn takes_words(self) -> bool {
        match self {
            Self::Question | Self::Plan | Self::Execution => true,
            Self::Approval | Self::Pairing | Self::Budget => false,
        }
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Scope of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalScope {
    /// This action, now.
    Once,
    /// The same action for the rest of the session.
    Session,
    /// The same action from now on.
    Always,
}

/// Fallback at the deadline of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fallback {
    /// The action does not happen.
    Deny,
    /// The question stays without an answer, and the requester is notified.
    NoAnswer,
    /// The choice at this index counts, from 0. It approves nothing.
    Choice(usize),
}

/// One of the answers that a question offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateChoice {
    /// Text that a person reads and that counts as the answer.
    pub label: String,
}

/// Content of a gate, as it is shown to a person, word for word.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum GateContent {
    /// An action.
    Approval {
        /// The tool.
        tool: Arc<str>,
        /// Its exact arguments.
        arguments: Map<String, Value>,
        /// Signature that rules matched.
        signature: String,
        /// Intent that the model gave.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        intent: Option<Arc<str>>,
        /// Reason for which an approval is required.
        why: String,
        /// Files that it would run from disk, as they were when it was judged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pins: Option<Box<Pins>>,
    },
    /// A question, a plan or an execution, which is answered by a choice or in words.
    Question {
        /// Id of the question within its call.
        id: String,
        /// Full text of the question.
        question: String,
        /// Choices; may be empty.
        choices: Vec<GateChoice>,
        /// True if several choices count.
        multi: bool,
        /// The choice that the requester recommends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        recommended: Option<usize>,
        /// Parts of the question by name, and the requester's position in its work, for adapters with fields for them.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        about: Map<String, Value>,
    },
    /// Decision whether an agent that was held may continue: after repeated denials, at the end of a budget, or at pairing.
    GoOn {
        /// Name of the agent or sender.
        asker: String,
        /// Text of the question.
        question: String,
        /// Reason; absent after denials.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
        /// Known details by name, for adapters with fields for them.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        about: Map<String, Value>,
    },
}

/// Key in the details of a question that allows only its choices as answers.
pub(crate) const CLOSED: &str = "choices_only";

impl GateContent {
    /// Builds a question that only its choices answer, and that recommends the one at `recommended`.
    pub(crate) fn closed_question(
        question: String,
        labels: impl IntoIterator<Item = String>,
        recommended: usize,
    ) -> Self {
        let choices = labels.into_iter().map(|label| GateChoice { label }).collect();
        let about = Map::from_iter([(CLOSED.to_owned(), true.into())]);
        Self::Question { id: String::new(), question, choices, multi: false, recommended: Some(recommended), about }
    }

    /// Returns whether free text answers it, and not only the choices that it offers.
    pub fn takes_own_words(&self) -> bool {
        match self {
            Self::Question { about, .. } => about.get(CLOSED) != Some(&Value::Bool(true)),
            Self::Approval { .. } | Self::GoOn { .. } => false,
        }
    }

    /// Returns the index of the chosen choice: by its label, by its number from 1, or by a unique beginning of its label.
    pub(crate) fn chosen_index(&self, answers: &[String]) -> Option<usize> {
        let (Self::Question { choices, .. }, [answer]) = (self, answers) else { return None };
        if let Some(at) = choices.iter().position(|choice| choice.label == *answer) {
            return Some(at);
        }
        let needle = answer.trim().to_lowercase();
        let number = needle.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        if let Some(at) = number.filter(|at| *at < choices.len()) {
            return Some(at);
        }
        let begins = |choice: &GateChoice| choice.label.to_lowercase().starts_with(&needle);
        let mut fitting = choices.iter().enumerate().filter(|(_, choice)| begins(choice)).map(|(at, _)| at);
        fitting.next().filter(|_| !needle.is_empty() && fitting.next().is_none())
    }

    /// Returns its headline: the title that the requester gave it, or its content.
    pub fn headline(&self) -> &str {
        match self {
            Self::Approval { signature, .. } => signature,
            Self::GoOn { question, .. } => question,
            Self::Question { question, about, .. } => {
                about.get("title").and_then(Value::as_str).filter(|title| !title.trim().is_empty()).unwrap_or(question)
            }
        }
    }
}

/// Outcome of a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateResolution {
    /// The action may happen.
    Allowed {
        /// The scope of the approval.
        scope: ApprovalScope,
    },
    /// The action does not happen.
    Denied,
    /// The question was answered.
    Answered,
    /// The person declined to answer.
    Declined,
    /// A grant covers it.
    Granted,
    /// No answer came in time.
    Expired,
    /// The answer is not needed any more.
    Withdrawn,
}

/// A fact about one gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Opening of a gate. The content is a [`GateContent`].
    Opened {
        /// The gate.
        gate: GateId,
        /// Kind of the decision.
        kind: Kind,
        /// Number among the gates of its session, from 1.
        ordinal: u32,
        /// Number among those of the session in the same stage, from 1. Requests of an agent are not counted and have 0, as have
        /// earlier records.
        #[serde(default, skip_serializing_if = "is_zero")]
        number: u32,
        /// Stage in which it is counted; none if it is not, and in records made before approvals were counted among plans.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stage: Option<GateStage>,
        /// The run that waits.
        run: Option<RunId>,
        /// The call that waits.
        call: Option<CallId>,
        /// Digest of the decided action: the answer binds to it.
        subject: Digest,
        /// Scopes that an approval may have; a denial is always offered.
        scopes: Vec<ApprovalScope>,
        /// Time at which it expires.
        deadline: Option<Millis>,
        /// Fallback at the deadline.
        fallback: Fallback,
        /// Time at which approvers are reminded of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remind_at: Option<Millis>,
        /// Steps of required approvals, if one approver is not enough.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        steps: Vec<ApprovalStep>,
    },
    /// One of several required approvers allowed.
    Voted {
        /// The gate.
        gate: GateId,
        /// The identity that allows.
        by: PrincipalId,
        /// The person with that identity; none if it belongs to no person.
        person: Option<String>,
        /// Maximum scope for that person.
        scope: ApprovalScope,
        /// Idempotency key: a repeated answer with it gets the first result.
        key: Option<String>,
    },
    /// The approvers are asked again, or those of the next step are.
    #[serde(rename = "asked")]
    Escalated {
        /// The gate.
        gate: GateId,
        /// The step, from 0.
        step: u32,
        /// Deadline of the step.
        deadline: Millis,
    },
    /// Approvers are reminded of it.
    Reminded {
        /// The gate.
        gate: GateId,
    },
    /// Its deadline is extended: it passed while no process could take an answer.
    Extended {
        /// The gate.
        gate: GateId,
        /// The new deadline.
        deadline: Millis,
    },
    /// Resolution of the gate. The content of an answer is its text: the reason of a denial, or the words that
    /// [`parse_words`](super::parse_words) reads.
    Resolved {
        /// The gate.
        gate: GateId,
        /// The outcome.
        resolution: GateResolution,
        /// The resolver; absent if the deadline or a grant resolved it.
        by: Option<PrincipalId>,
        /// Idempotency key: a repeated answer with it gets the first result.
        key: Option<String>,
        /// Digest of the answer in the form of its adapter: under the same key another form is another answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        form: Option<Digest>,
        /// Decision for the plan or the execution that it was about; absent for any other gate, if no decision was needed
        /// any more, and in records of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        decision: Option<SignOffDecision>,
    },
    /// A surface shows it. A surface that cannot know whether it showed it shows it again, under another reference.
    Shown {
        /// The gate.
        gate: GateId,
        /// The surface, such as a messenger.
        surface: String,
        /// The surface's name for it, such as the id of a message.
        reference: String,
    },
    /// A surface shows the outcome of the gate.
    Updated {
        /// The gate.
        gate: GateId,
        /// The surface.
        surface: String,
        /// The surface's name for it.
        reference: String,
    },
}

impl Event {
    /// Returns the event of a gate that ends without an answer.
    pub const fn auto_resolved(gate: GateId, resolution: GateResolution) -> Self {
        Self::Resolved { gate, resolution, by: None, key: None, form: None, decision: None }
    }

    /// Returns the gate that it is about.
    pub const fn gate(&self) -> GateId {
        match self {
            Self::Opened { gate, .. }
            | Self::Voted { gate, .. }
            | Self::Escalated { gate, .. }
            | Self::Reminded { gate }
            | Self::Extended { gate, .. }
            | Self::Resolved { gate, .. }
            | Self::Shown { gate, .. }
            | Self::Updated { gate, .. } => *gate,
        }
    }
}
