//! Sessions that somebody lets through unasked, for as long as this process lives.
//!
//! What a deny rule refuses stays refused, and what the floor asks about or a rule asks certain people about still waits
//! for a person.

use std::{collections::BTreeSet, sync::Arc};

use axum::{
    extract::State,
    http::{StatusCode, Uri},
    response::Response,
};
use countersign_conversations::chats::ChatError;
use countersign_core::{
    engine::{Command, Engine, ResidencyScope as At},
    gate::{self, ApprovalScope, Gate, GateReply},
    id::{GateId, PrincipalId, SessionId},
};
use countersign_http::{
    reply::{self, HttpProblem},
    web::{BodyFields, HttpCaller},
};
use countersign_runtime::{InboxLane, OwnerError};
use serde_json::json;

use super::{
    super::fields,
    SessionPrompts, card,
    form::{FormError, PromptForm},
};

/// How many sessions can be let through at once.
const MOST: usize = 10_000;

/// Why a session is not let through.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotCovered {
    /// What waits in it could not be answered.
    #[error(transparent)]
    Refused(#[from] OwnerError),
    /// There are too many already.
    #[error("{MOST} sessions are let through already")]
    TooMany,
}

pub(super) async fn is_on(State(prompts): State<Arc<SessionPrompts>>, uri: Uri) -> Response {
    let Some(session) = super::session_in(&uri) else { return super::without_session(&uri) };
    reply::ok(&json!({ "yolo_enabled": prompts.is_covered(&session) }))
}

/// Whether a session is to be let through.
pub(super) struct CoverChange {
    session: SessionId,
    is_on: bool,
}

impl PromptForm for CoverChange {
    fn from_body(body: &BodyFields, _: &HttpCaller) -> Result<Self, FormError> {
        fields::not_null(body, "enabled")?;
        Ok(Self {
            session: fields::session_field(body)?,
            is_on: fields::switch_field(body, "enabled")?.unwrap_or(true),
        })
    }

    async fn apply_form(
        self,
        prompts: &Arc<SessionPrompts>,
        caller: &HttpCaller,
        _: &BodyFields,
    ) -> Result<Response, HttpProblem> {
        let Self { session, is_on } = self;
        if is_on && !prompts.has_session(&session).await {
            return Err(HttpProblem::new(StatusCode::NOT_FOUND, ChatError::Unknown.to_string()));
        }
        if !is_on {
            prompts.covered.lock().remove(&session);
        } else if let Err(refused) = prompts.cover_session(&session, &caller.principal).await {
            return Err(HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, refused.to_string()));
        }
        Ok(reply::ok(&json!({ "ok": true, "yolo_enabled": is_on })))
    }
}

impl SessionPrompts {
    /// Whether there is such a session.
    pub(super) async fn has_session(&self, session: &SessionId) -> bool {
        let session_id = session.clone();
        let source = self.handle.source(InboxLane::Result);
        let look = move |engine: &Engine| engine.state().session(&session_id).is_some();
        source.read_of(At::Session(session.clone()), look).await.is_some_and(|(is_there, _)| is_there)
    }

    /// Whether a session is let through.
    pub(super) fn is_covered(&self, session: &SessionId) -> bool {
        self.covered.lock().contains_key(session)
    }

    /// Lets a session through on the word of `by`: what waits in it is allowed once, and so is what comes.
    ///
    /// # Errors
    /// [`NotCovered`]: then it is not let through.
    pub(super) async fn cover_session(&self, session: &SessionId, by: &PrincipalId) -> Result<(), NotCovered> {
        let before = {
            let mut covered = self.covered.lock();
            if covered.len() >= MOST && !covered.contains_key(session) {
                return Err(NotCovered::TooMany);
            }
            covered.insert(session.clone(), by.clone())
        };
        // Behind the note: what opens from now on is seen by whoever follows the log.
        let of = session.clone();
        let waiting = move |engine: &Engine| -> Vec<GateId> {
            let here = engine.state().pending_gates().filter(|gate| gate.session() == Some(&of));
            here.filter(|gate| card::is_coverable(gate)).map(Gate::id).collect()
        };
        let source = self.handle.source(InboxLane::Result);
        let mut outcome = Ok(());
        match source.read_state(waiting).await {
            None => outcome = Err(OwnerError::Closed),
            Some((waiting, _)) => {
                let mut replies = Vec::with_capacity(waiting.len());
                for gate in waiting {
                    replies.push(source.submit_command(allow_once(gate, by)).await);
                }
                for reply in replies {
                    match reply.await.unwrap_or(Err(OwnerError::Closed)) {
                        // Somebody was faster, or may answer where this one may not: that is their business.
                        Ok(_) | Err(OwnerError::Refusal(_)) => {}
                        Err(refused) => outcome = Err(refused),
                    }
                }
            }
        }
        if outcome.is_err() {
            let mut covered = self.covered.lock();
            match before {
                Some(before) => covered.insert(session.clone(), before),
                None => covered.remove(session),
            };
        }
        // Where the owner has ended nothing is shown any more.
        let _ = self.refresh_sessions(&BTreeSet::from([session.clone()])).await;
        outcome.map_err(NotCovered::Refused)
    }

    /// The answer to a gate that has just opened in `session`, if that is let through.
    pub(super) fn covering_answer(&self, session: &SessionId, opened: &gate::Event) -> Option<Command> {
        let gate::Event::Opened { gate, kind, scopes, steps, .. } = opened else { return None };
        let is_coverable =
            *kind == gate::Kind::Approval && steps.is_empty() && scopes.contains(&ApprovalScope::Session);
        let covered = self.covered.lock();
        let by = covered.get(session).filter(|_| is_coverable)?;
        Some(allow_once(*gate, by))
    }
}

/// Allows one call on the word of whoever let its session through.
fn allow_once(gate: GateId, by: &PrincipalId) -> Command {
    let key = Some(format!("web:{by}:yolo"));
    Command::Gate(gate::Command::Answer { gate, answer: GateReply::Allow(ApprovalScope::Once), by: by.clone(), key })
}
