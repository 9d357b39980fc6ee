//! Commands to a gate, and the reasons for which an answer may not count.

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
        /// Text for the agent.
        reason: Option<String>,
    },
    /// The answer to a question: labels of its choices, or free text.
    Say(Vec<String>),
    /// Any of these, in the form that its adapter uses.
    Form(Box<AnswerForm>),
    /// The person declines to answer.
    Decline,
}

/// An answer in the form of its adapter, which was validated there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerForm {
    /// Its answer.
    pub answer: GateReply,
    /// The form, word for word.
    pub form: Value,
    /// Digest of the form, which reveals a repeated one.
    pub digest: Digest,
}

/// Terms of a grant that a person gives with an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantTerms {
    /// Its scope: the session or always.
    pub scope: ApprovalScope,
    /// One of the patterns that are proposed for the action; none means exactly this action.
    pub pattern: Option<String>,
    /// Its lifetime; none means until it is revoked.
    pub lasts: Option<Duration>,
}

impl GateReply {
    /// Returns the scope of the approval, if it allows the action.
    pub fn approval_scope(&self) -> Option<ApprovalScope> {
        match self {
            Self::Allow(scope) => Some(*scope),
            Self::Grant(grant) => Some(grant.scope),
            Self::Form(form) => form.answer.approval_scope(),
            Self::Deny { .. } | Self::Say(_) | Self::Decline => None,
        }
    }

    /// Returns the answer without its form.
    pub fn without_form(&self) -> &Self {
        match self {
            Self::Form(form) => form.answer.without_form(),
            Self::Allow(_) | Self::Grant(_) | Self::Deny { .. } | Self::Say(_) | Self::Decline => self,
        }
    }

    /// Returns the digest of its form, if it has one.
    pub fn form_digest(&self) -> Option<Digest> {
        match self {
            Self::Form(form) => Some(form.digest),
            Self::Allow(_) | Self::Grant(_) | Self::Deny { .. } | Self::Say(_) | Self::Decline => None,
        }
    }
}

/// A command to a gate.
///
/// # Example
///
/// ```
/// # use std::error::Error;
/// # use countersign_core::{
/// #     call::{self, AgentRequest}, engine::{self, ActiveRules, CommandError, DecisionContext, Engine},
/// #     gate::{ApprovalScope, GateReply, GateResolution, IdentityMap}, id::{IdGenerator, PrincipalId, SessionId},
/// #     policy::{CompiledRules, DefaultPolicy, PathContext}, session, time::Millis, tool::{RepeatMode, ToolEffect},
/// # };
/// use countersign_core::gate::{self, AnswerError};
///
/// # let mut engine = Engine::new(ActiveRules {
/// #     compiled: CompiledRules::default(),
/// #     default_policy: DefaultPolicy::Gateway,
/// #     path_context: PathContext::default(),
/// #     people: IdentityMap::default(),
/// # });
/// # let mut context = DecisionContext { now: Millis(1_000), fresh: IdGenerator::new([7; 16]) };
/// # let session = SessionId::new("agent:pi");
/// # let settings = Box::new(session::Settings { max_pending: 10, ..session::Settings::default() });
/// # let open = session::Command::Open { cwd: String::new(), name: None, parent: None, door: None, settings };
/// # engine.handle_command(engine::Command::Session(session.clone(), open), &mut context)?;
/// # let request = AgentRequest {
/// #     session,
/// #     principal: PrincipalId::new("agent:pi"),
/// #     door: "agent-gate".into(),
/// #     wire: "1".into(),
/// #     key: None,
/// #     tool: "open_door".into(),
/// #     arguments: serde_json::Map::new(),
/// #     signatures: vec!["open_door".to_owned()],
/// #     named: Vec::new(),
/// #     undeclared: Vec::new(),
/// #     service: Some("house".into()),
/// #     executor: call::RequestExecutor::Service,
/// #     paths: Vec::new(),
/// #     cwd: String::new(),
/// #     leads_to: None,
/// #     for_principals: Vec::new(),
/// #     effect: ToolEffect::Changes,
/// #     repeat: RepeatMode::Once,
/// # };
/// # let request = engine::Command::Call(call::Command::Request(Box::new(request)));
/// // No rule covers the request of an agent, so it opens a gate.
/// engine.handle_command(request, &mut context)?;
/// let gate = engine.state().pending_gates().next().ok_or("no gate is pending")?.id();
///
/// let answer = |answer, by| {
///     let by = PrincipalId::new(by);
///     engine::Command::Gate(gate::Command::Answer { gate, answer, by, key: None })
/// };
/// engine.handle_command(answer(GateReply::Allow(ApprovalScope::Once), "person:ana"), &mut context)?;
/// let allowed = GateResolution::Allowed { scope: ApprovalScope::Once };
/// assert_eq!(engine.state().gate(gate).and_then(|gate| gate.resolution()), Some(&allowed));
///
/// // The first answer counts, and each later one is refused.
/// let late = engine.handle_command(answer(GateReply::Decline, "person:ben"), &mut context);
/// assert!(matches!(late, Err(CommandError::Answer(AnswerError::AlreadyResolved { .. }))));
/// # Ok::<(), Box<dyn Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Withdraws it because no approver will be able to decide. Unlike a denial this binds nothing.
    Withdraw {
        /// The gate.
        gate: GateId,
        /// The principal that withdraws it.
        by: PrincipalId,
    },
    /// Answers it. The first valid answer counts.
    Answer {
        /// The gate.
        gate: GateId,
        /// The answer.
        answer: GateReply,
        /// The person who answers.
        by: PrincipalId,
        /// Idempotency key: a repeated key gets the first result.
        key: Option<String>,
    },
    /// Answers it. If that decides it, the run that waits for it is renamed.
    AnswerAs {
        /// The gate.
        gate: GateId,
        /// The answer.
        answer: GateReply,
        /// The person who answers.
        by: PrincipalId,
        /// The new name of the run.
        reference: String,
        /// Idempotency key: a repeated key gets the first result.
        key: Option<String>,
    },
    /// Records that a surface shows it. A repeated command is recorded once.
    Shown {
        /// The gate.
        gate: GateId,
        /// The surface.
        surface: String,
        /// The surface's name for it.
        reference: String,
    },
    /// Records that a surface shows the outcome of the gate.
    Updated {
        /// The gate.
        gate: GateId,
        /// The surface.
        surface: String,
        /// The surface's name for it.
        reference: String,
    },
}

impl Command {
    /// Returns the gate that it is about.
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
