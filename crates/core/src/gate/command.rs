//! What can be asked of a gate, and why an answer may not count.

use std::time::Duration;

use serde_json::Value;

use crate::{
    digest::Digest,
    gate::event::{ApprovalScope, GateResolution},
    id::{GateId, PrincipalId},
};

/// An answer to a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateReply {
    /// The action may happen.
    Allow(ApprovalScope),
    /// The action may happen, and so may others like it.
    Grant(GrantTerms),
    /// The action does not happen.
    Deny {
        /// What the agent is told.
        reason: Option<String>,
    },
    /// The answer to a question: labels of its choices, or free text.
    Say(Vec<String>),
    /// Any of these, as a door that has forms has it.
    Form(Box<AnswerForm>),
    /// Whoever was asked does not want to answer.
    Decline,
}

/// An answer in the form of its door, which was checked there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerForm {
    /// What it says.
    pub answer: GateReply,
    /// The form, word for word.
    pub form: Value,
    /// Of the form, by which one that is repeated is known.
    pub digest: Digest,
}

/// What a person allows beside the action itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantTerms {
    /// How far it reaches: the session or always.
    pub scope: ApprovalScope,
    /// One of the patterns that are proposed for the action; none means exactly this action.
    pub pattern: Option<String>,
    /// How long it lasts; none means until it is revoked.
    pub lasts: Option<Duration>,
}

impl GateReply {
    /// How far it lets the action reach, if it allows it.
    pub fn approval_scope(&self) -> Option<ApprovalScope> {
        match self {
            Self::Allow(scope) => Some(*scope),
            Self::Grant(grant) => Some(grant.scope),
            Self::Form(form) => form.answer.approval_scope(),
            Self::Deny { .. } | Self::Say(_) | Self::Decline => None,
        }
    }

    /// What it says, without the form that it came in.
    pub fn without_form(&self) -> &Self {
        match self {
            Self::Form(form) => form.answer.without_form(),
            Self::Allow(_) | Self::Grant(_) | Self::Deny { .. } | Self::Say(_) | Self::Decline => self,
        }
    }

    /// Of the form that it came in, if it came in one.
    pub fn form_digest(&self) -> Option<Digest> {
        match self {
            Self::Form(form) => Some(form.digest),
            Self::Allow(_) | Self::Grant(_) | Self::Deny { .. } | Self::Say(_) | Self::Decline => None,
        }
    }
}

/// A command to a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Ends it because nobody will be there to decide. Unlike a denial this binds nothing.
    Withdraw {
        /// Which.
        gate: GateId,
        /// On whose word.
        by: PrincipalId,
    },
    /// Answers it. The first valid answer counts.
    Answer {
        /// Which.
        gate: GateId,
        /// What.
        answer: GateReply,
        /// Who answers.
        by: PrincipalId,
        /// The same key again gets the first result.
        key: Option<String>,
    },
    /// Answers it. If that decides it, the run that waits for it is called otherwise from then on.
    AnswerAs {
        /// Which.
        gate: GateId,
        /// What.
        answer: GateReply,
        /// Who answers.
        by: PrincipalId,
        /// What the run is called.
        reference: String,
        /// The same key again gets the first result.
        key: Option<String>,
    },
    /// A surface shows it to people. Told twice, it is recorded once.
    Shown {
        /// Which.
        gate: GateId,
        /// Where.
        surface: String,
        /// What the surface calls it.
        reference: String,
    },
    /// What a surface shows says how the gate ended.
    Updated {
        /// Which.
        gate: GateId,
        /// Where.
        surface: String,
        /// What the surface calls it.
        reference: String,
    },
}

impl Command {
    /// The gate that it is about.
    pub const fn gate(&self) -> GateId {
        match self {
            Self::Withdraw { gate, .. }
            | Self::Answer { gate, .. }
            | Self::AnswerAs { gate, .. }
            | Self::Shown { gate, .. }
            | Self::Updated { gate, .. } => *gate,
        }
    }
}

/// Why an answer did not count. Doors turn each case into wire form once.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// There is no such gate, or it was resolved long ago.
    #[error("{0} does not exist")]
    Unknown(GateId),
    /// Somebody else was first.
    #[error("{gate} is already resolved")]
    AlreadyResolved {
        /// Which.
        gate: GateId,
        /// How it was resolved.
        resolution: GateResolution,
        /// By whom.
        by: Option<PrincipalId>,
    },
    /// The same key came with another answer before, which counted.
    #[error("{0} was answered otherwise under the same key")]
    KeyTaken(GateId),
    /// The gate does not offer that answer. It stays pending.
    #[error("{gate} does not offer this answer: {problem}")]
    NotOffered {
        /// Which.
        gate: GateId,
        /// What does not fit.
        problem: &'static str,
    },
    /// Its rule names people, and this is none of them.
    #[error("{by} is not among those who may allow {gate}")]
    NotAmong {
        /// Which.
        gate: GateId,
        /// Who tried.
        by: PrincipalId,
    },
    /// Several people have to allow, and this may be an identity of somebody who already did.
    #[error("{by} belongs to no person, so it cannot be a further approval of {gate}")]
    Nobody {
        /// Which.
        gate: GateId,
        /// Who tried.
        by: PrincipalId,
    },
    /// An agent may not answer for a person.
    #[error("{by} may not answer {gate}")]
    NotAllowed {
        /// Which.
        gate: GateId,
        /// Who tried.
        by: PrincipalId,
    },
}
