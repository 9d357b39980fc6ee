//! How the runs of a session ask people: for how long, what counts where nobody answers, and what a model is told.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::gate::Kind;

/// What is set about questions, plans and executions that runs put to people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionSettings {
    /// What a call that asks is told where nobody can be asked; its run is stopped then.
    #[serde(default)]
    pub nobody: Option<String>,
    /// In which words a model is told what was answered.
    #[serde(default)]
    #[serde(rename = "told")]
    pub answer_format: AnswerFormat,
    /// Of questions.
    #[serde(default)]
    pub question: AskTimeouts,
    /// Of plans.
    #[serde(default)]
    pub plan: AskTimeouts,
    /// Of executions.
    #[serde(default)]
    pub execution: AskTimeouts,
}

/// In which words a model is told what was answered to its questions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerFormat {
    /// Each question with its answer below it.
    #[default]
    Listed,
    /// `User selected: …`, `User provided custom input: …`, or a list under `User answers:`.
    Selected,
}

/// How long gates of one kind wait, and what follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskTimeouts {
    /// Until they expire; none means as long as any question.
    pub within: Option<Duration>,
    /// Until people are reminded of them; none means never.
    pub remind: Option<Duration>,
    /// What counts once they have expired.
    pub otherwise: NoAnswerRule,
}

/// What counts where nobody answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoAnswerRule {
    /// Nothing, and the model is told so.
    #[default]
    Nothing,
    /// The choice that is recommended for a question; that a plan is off and an execution is not signed off.
    Default,
}

impl QuestionSettings {
    /// Of gates of this kind.
    pub fn for_kind(&self, kind: Kind) -> AskTimeouts {
        match kind {
            Kind::Plan => self.plan,
            Kind::Execution => self.execution,
            Kind::Question | Kind::Approval | Kind::Pairing | Kind::Budget => self.question,
        }
    }
}
