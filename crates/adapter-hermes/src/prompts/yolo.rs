//! Sessions whose approvals a user lets through automatically, for the lifetime of this process.
//!
//! A deny rule still refuses, and gates of the floor or of a rule with named approvers still wait
//! for an approver.

use std::{collections::BTreeSet, sync::Arc};

use axum::{
    extract::State,
    http::{StatusCode, Uri},
    response::Response,
};
use countersign_conversations::chats::ChatError;
use countersign_core::{
    engine::{Command, Engine},
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
    super::{fields, transcript},
    SessionPrompts,
    form::{FormError, PromptForm},
    prompt_card,
};

/// Most covered sessions at once.
const MOST: usize = 10_000;

/// Reason why a session is not covered.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotCovered {
    /// Its pending gates could not be answered.
    #[error(transparent)]
    Refused(#[from] OwnerError),
    /// Too many sessions are covered already.
    #[error("{MOST} sessions are let through already")]
    TooMany,
}

pub(super) async fn is_on(State(prompts): State<Arc<SessionPrompts>>, uri: Uri) -> Response {
    let Some(session) = super::session_in(&uri) else { return super::without_session(&uri) };
    reply::ok(&json!({ "yolo_enabled": prompts.is_covered(&session).await }))
}

/// Change that covers a session, or ends that.
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
        if !prompts.has_session(&session).await {
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
    /// Reports whether there is such a session.
    pub(super) async fn has_session(&self, session: &SessionId) -> bool {
        transcript::has_session(&self.handle, session).await
    }

    /// Reports whether a session is covered. One that was deleted is not.
    pub(super) async fn is_covered(&self, session: &SessionId) -> bool {
        let is_noted = self.covered.lock().contains_key(session);
        is_noted && self.has_session(session).await
    }

    /// Covers a session in the name of `by`: its pending gates are allowed once, and so are later ones.
    ///
    /// # Errors
    /// [`NotCovered`]: then it is not covered.
    pub(super) async fn cover_session(&self, session: &SessionId, by: &PrincipalId) -> Result<(), NotCovered> {
        let before = {
            let mut covered = self.covered.lock();
            if covered.len() >= MOST && !covered.contains_key(session) {
                return Err(NotCovered::TooMany);
            }
            covered.insert(session.clone(), by.clone())
        };
        // After the note: the follower of the log sees gates that open from now on.
        let of = session.clone();
        let waiting = move |engine: &Engine| -> Vec<GateId> {
            let here = engine.state().pending_gates().filter(|gate| gate.session() == Some(&of));
            here.filter(|gate| prompt_card::is_coverable(gate)).map(Gate::id).collect()
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
                        // Another approver was first, or this one may not answer it: both are fine.
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
        // If the owner has ended nothing is shown any more.
        let _ = self.refresh_sessions(&BTreeSet::from([session.clone()])).await;
        outcome.map_err(NotCovered::Refused)
    }

    /// Returns the answer to a gate that has just opened in `session`, if the session is covered.
    pub(super) fn covering_answer(&self, session: &SessionId, opened: &gate::Event) -> Option<Command> {
        let gate::Event::Opened { gate, kind, scopes, steps, .. } = opened else { return None };
        let is_coverable =
            *kind == gate::Kind::Approval && steps.is_empty() && scopes.contains(&ApprovalScope::Session);
        let covered = self.covered.lock();
        let by = covered.get(session).filter(|_| is_coverable)?;
        Some(allow_once(*gate, by))
    }
}

/// Returns the command that allows one call in the name of the one who covered its session.
fn allow_once(gate: GateId, by: &PrincipalId) -> Command {
    let key = Some(format!("web:{by}:yolo"));
    Command::Gate(gate::Command::Answer { gate, answer: GateReply::Allow(ApprovalScope::Once), by: by.clone(), key })
}
