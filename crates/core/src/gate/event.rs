//! What happened to a gate.

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

/// What a gate decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Whether an action happens.
    Approval,
    /// What a person has to say to a question.
    Question,
    /// Whether a plan may be carried out.
    Plan,
    /// Whether an execution is signed off.
    Execution,
    /// Whether somebody unknown may come in.
    Pairing,
    /// Whether a limit is raised.
    Budget,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Approval, Self::Question, Self::Plan, Self::Execution, Self::Pairing, Self::Budget];
}

/// A part of what a run does with people, in which its gates are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateStage {
    /// What it wants to know.
    Interview,
    /// What it means to do.
    Plan,
    /// What it does.
    Execution,
}

impl Kind {
    /// Where gates of this kind are counted.
    pub const fn stage(self) -> GateStage {
        match self {
            Self::Question => GateStage::Interview,
            Self::Plan | Self::Approval => GateStage::Plan,
            Self::Execution | Self::Pairing | Self::Budget => GateStage::Execution,
        }
    }

    /// Where they were counted while facts did not say it.
    pub(super) const fn unsaid_stage(self) -> GateStage {
        match self {
            Self::Approval => GateStage::Execution,
            Self::Question | Self::Plan | Self::Execution | Self::Pairing | Self::Budget => self.stage(),
        }
    }

    /// Whether it is answered by a choice or in words, and not allowed or denied.
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

/// How far an approval reaches.
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

/// What happens when nobody answers in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fallback {
    /// The action does not happen.
    Deny,
    /// The question stays without an answer, and whoever asked is told.
    NoAnswer,
    /// That one of the choices counts, from 0. It approves nothing.
    Choice(usize),
}

/// One of the answers that a question offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateChoice {
    /// What a person reads and what counts as the answer.
    pub label: String,
}

/// The content of a gate: what a person is shown, word for word.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum GateContent {
    /// An action.
    Approval {
        /// The tool.
        tool: Arc<str>,
        /// Its exact arguments.
        arguments: Map<String, Value>,
        /// What rules were matched against.
        signature: String,
        /// What the model says it wants with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        intent: Option<Arc<str>>,
        /// Why a person is asked.
        why: String,
        /// What it would run from disk, as it was when it was judged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pins: Option<Box<Pins>>,
    },
    /// A question, a plan or an execution: what is answered by a choice or in words.
    Question {
        /// Names it among the questions of its call.
        id: String,
        /// What is asked, all of it.
        question: String,
        /// What it offers; may be empty.
        choices: Vec<GateChoice>,
        /// Whether several count.
        multi: bool,
        /// The choice that whoever asks would take.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        recommended: Option<usize>,
        /// Pieces of what is asked by name, and where in its work whoever asks is, for doors that have a place for it.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        about: Map<String, Value>,
    },
    /// Whether somebody may go on who was held: denied again and again, at the end of a budget, or at the door.
    GoOn {
        /// Who was held.
        asker: String,
        /// What is asked, in words.
        question: String,
        /// Why, in words; absent after denials.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
        /// What is known of them by name, for doors that have a place for it.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        about: Map<String, Value>,
    },
}

/// The key in what a question is about which says that only its choices answer it.
const CLOSED: &str = "choices_only";

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

    /// Returns whether words of a person's own answer it, and not only the choices that it offers.
    pub fn takes_own_words(&self) -> bool {
        match self {
            Self::Question { about, .. } => about.get(CLOSED) != Some(&Value::Bool(true)),
            Self::Approval { .. } | Self::GoOn { .. } => false,
        }
    }

    /// Returns which of its choices was said: by its label, by its number from 1, or by how no other label begins.
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

    /// What it is about in a line: the title that whoever asks gave it, or what it shows.
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

/// How a gate was resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateResolution {
    /// The action may happen.
    Allowed {
        /// How far that reaches.
        scope: ApprovalScope,
    },
    /// The action does not happen.
    Denied,
    /// The question was answered.
    Answered,
    /// Whoever was asked does not want to answer.
    Declined,
    /// A grant covers it.
    Granted,
    /// Nobody answered in time.
    Expired,
    /// Nobody needs an answer any more.
    Withdrawn,
}

/// A fact about one gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// It waits. The content is a [`Content`].
    Opened {
        /// Which.
        gate: GateId,
        /// What it decides.
        kind: Kind,
        /// Counts the gates of its session from 1.
        ordinal: u32,
        /// Counts those of the session in the same stage, from 1. What an agent requests is not counted and has 0, as has what was
        /// recorded before.
        #[serde(default, skip_serializing_if = "is_zero")]
        number: u32,
        /// Where it is counted; none where it is not, and in what was recorded before approvals were counted among plans.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stage: Option<GateStage>,
        /// The run that waits.
        run: Option<RunId>,
        /// The call that waits.
        call: Option<CallId>,
        /// Of what is decided: the answer binds to it.
        subject: Digest,
        /// What an approval may reach; a denial is always offered.
        scopes: Vec<ApprovalScope>,
        /// When it expires.
        deadline: Option<Millis>,
        /// What happens then.
        fallback: Fallback,
        /// When people are reminded of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remind_at: Option<Millis>,
        /// Who has to allow, where that is more than any one person.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        steps: Vec<ApprovalStep>,
    },
    /// One of several people who have to allow did.
    Voted {
        /// Which.
        gate: GateId,
        /// The identity that allows.
        by: PrincipalId,
        /// Whose identity that is; none if it belongs to no person.
        person: Option<String>,
        /// How far it may reach, for that person.
        scope: ApprovalScope,
        /// The key under which a repeated answer gets the first result.
        key: Option<String>,
    },
    /// It is asked again, or the people of the next step are.
    #[serde(rename = "asked")]
    Escalated {
        /// Which.
        gate: GateId,
        /// The step, from 0.
        step: u32,
        /// When that expires.
        deadline: Millis,
    },
    /// People are reminded that it waits.
    Reminded {
        /// Which.
        gate: GateId,
    },
    /// It waits longer: its deadline passed while nobody was there to take an answer.
    Extended {
        /// Which.
        gate: GateId,
        /// The new deadline.
        deadline: Millis,
    },
    /// It was resolved. The content of an answer is its text: the reason of a denial, or what [`said`](super::said) reads.
    Resolved {
        /// Which.
        gate: GateId,
        /// How.
        resolution: GateResolution,
        /// By whom; absent when nobody did.
        by: Option<PrincipalId>,
        /// The key under which a repeated answer gets the first result.
        key: Option<String>,
        /// Of the answer in the form that its door has for it: under the same key another one is another answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        form: Option<Digest>,
        /// What it means for the plan or the execution that it was about; absent for any other gate, where nobody was to decide
        /// any more, and in what earlier versions wrote.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        decision: Option<SignOffDecision>,
    },
    /// People can see it. A surface that cannot know whether it showed it shows it again, under another reference.
    Shown {
        /// Which.
        gate: GateId,
        /// Where, such as a messenger.
        surface: String,
        /// What the surface calls it, such as the id of a message.
        reference: String,
    },
    /// What was shown says how the gate ended.
    Updated {
        /// Which.
        gate: GateId,
        /// Where.
        surface: String,
        /// What the surface calls it.
        reference: String,
    },
}

impl Event {
    /// A gate ends without anybody's answer.
    pub const fn auto_resolved(gate: GateId, resolution: GateResolution) -> Self {
        Self::Resolved { gate, resolution, by: None, key: None, form: None, decision: None }
    }

    /// The gate that it is about.
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
