//! How the runs of a session ask people: for how long, what counts where nobody answers, and what a model is told.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::gate::Kind;

/// What is set about questions, plans and executions that runs put to people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asking {
    /// What a call that asks is told where nobody can be asked; its run is stopped then.
    #[serde(default)]
    pub nobody: Option<String>,
    /// In which words a model is told what was answered.
    #[serde(default)]
    #[serde(rename = "told")]
    pub told: Told,
    /// Of questions.
    #[serde(default)]
    pub question: Patience,
    /// Of plans.
    #[serde(default)]
    pub plan: Patience,
    /// Of executions.
    #[serde(default)]
    pub execution: Patience,
}

/// In which words a model is told what was answered to its questions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// Each question with its answer below it.
    #[default]
    Listed,
    /// `User selected: …`, `User provided custom input: …`, or a list under `User answers:`.
    Selected,
}

/// How long gates of one kind wait, and what follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patience {
    /// Until they expire; none means as long as any question.
    pub within: Option<Duration>,
    /// Until people are reminded of them; none means never.
    pub remind: Option<Duration>,
    /// What counts once they have expired.
    pub otherwise: Otherwise,
}

/// What counts where nobody answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Otherwise {
    /// Nothing, and the model is told so.
    #[default]
    Nothing,
    /// The choice that is recommended for a question; that a plan is off and an execution is not signed off.
    Default,
}

impl Asking {
    /// Of gates of this kind.
    pub fn of(&self, kind: Kind) -> Patience {
        match kind {
            Kind::Plan => self.plan,
            Kind::Execution => self.execution,
            Kind::Question | Kind::Approval | Kind::Pairing | Kind::Budget => self.question,
        }
    }
}
