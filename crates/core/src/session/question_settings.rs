//! Settings of the questions of a session's runs: their time, the default without an answer, and the text for the model.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::gate::Kind;

/// Settings of questions, plans and executions that runs present to people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionSettings {
    /// Result of a call that asks if no person can be asked; its run is stopped then.
    #[serde(default)]
    pub nobody: Option<String>,
    /// Format of the answers for a model.
    #[serde(default)]
    #[serde(rename = "told")]
    pub answer_format: AnswerFormat,
    /// Timeouts of questions.
    #[serde(default)]
    pub question: AskTimeouts,
    /// Timeouts of plans.
    #[serde(default)]
    pub plan: AskTimeouts,
    /// Timeouts of executions.
    #[serde(default)]
    pub execution: AskTimeouts,
}

/// Format of the answers for a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerFormat {
    /// Each question with its answer below it.
    #[default]
    Listed,
    /// `User selected: …`, `User provided custom input: …`, or a list under `User answers:`.
    Selected,
}

/// Time that gates of one kind wait, and the consequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskTimeouts {
    /// Time until they expire; none means that of any question.
    pub within: Option<Duration>,
    /// Time until people are reminded of them; none means never.
    pub remind: Option<Duration>,
    /// Consequence of their expiry.
    pub otherwise: NoAnswerRule,
}

/// Consequence of a missing answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoAnswerRule {
    /// No answer, which the model is notified of.
    #[default]
    Nothing,
    /// The choice that is recommended for a question; a plan is rejected and an execution is not signed off.
    Default,
}

impl QuestionSettings {
    /// Returns the timeouts of gates of this kind.
    pub fn for_kind(&self, kind: Kind) -> AskTimeouts {
        match kind {
            Kind::Plan => self.plan,
            Kind::Execution => self.execution,
            Kind::Question | Kind::Approval | Kind::Pairing | Kind::Budget => self.question,
        }
    }
}
