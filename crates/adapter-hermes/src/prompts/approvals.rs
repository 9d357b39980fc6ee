//! Approvals: pending ones, every change of them, and the answers of users.

use std::sync::Arc;

use axum::{http::StatusCode, response::Response};
use countersign_core::{
    engine::{CommandError, EngineReply},
    gate::{AnswerError, ApprovalScope, GateReply, GateResolution},
    id::SessionId,
};
use countersign_http::{
    reply::{self, HttpProblem},
    web::{AuthMethod, BodyFields, HttpCaller, ONCE_ONLY, access},
};
use countersign_runtime::OwnerError;
use serde_json::{Value, json};

use super::{
    super::fields::{self, RequestRejection},
    OwnerClosed, PromptLookup, SessionPrompts,
    answer_dedup::PostedAnswer,
    form::{FormError, PromptForm},
    prompt_card,
    queue::{HasPromptKind, PromptKind},
};

/// Choice of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ApprovalChoice {
    Allow(ApprovalScope),
    Deny,
}

impl ApprovalChoice {
    /// Reads the choice of a body: a missing one is a denial.
    fn from_body(body: &BodyFields) -> Result<Self, String> {
        match body.0.get("choice") {
            None | Some(Value::Null) => Ok(Self::Deny),
            Some(Value::String(word)) => match word.as_str() {
                "once" => Ok(Self::Allow(ApprovalScope::Once)),
                "session" => Ok(Self::Allow(ApprovalScope::Session)),
                "always" => Ok(Self::Allow(ApprovalScope::Always)),
                "deny" => Ok(Self::Deny),
                word => Err(word.to_owned()),
            },
            Some(other) => Err(other.to_string()),
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Allow(scope) => prompt_card::scope_word(scope),
            Self::Deny => "deny",
        }
    }
}

/// Outcome of an answer, in the terms of the wire.
#[derive(Clone)]
pub(super) struct ApprovalOutcome {
    status: StatusCode,
    is_ok: bool,
    /// Further members of the reply.
    more: Value,
    /// True if there was a gate for it.
    had_gate: bool,
    /// True if the call is allowed now, or has one more vote.
    is_allowed: bool,
}

impl ApprovalOutcome {
    fn accepted(more: Value) -> Self {
        Self { status: StatusCode::OK, is_ok: true, more, had_gate: true, is_allowed: true }
    }

    /// Returns the outcome for a gate that another approver decided first.
    fn already_resolved(is_allowed: bool) -> Self {
        Self { is_allowed, ..Self::accepted(json!({ "stale_cleared": true })) }
    }

    fn with_error(status: StatusCode, why: &str) -> Self {
        Self { status, is_ok: false, more: json!({ "error": why }), had_gate: true, is_allowed: false }
    }

    fn without_gate(is_ok: bool, more: Value) -> Self {
        Self { status: StatusCode::OK, is_ok, more, had_gate: false, is_allowed: false }
    }
}

/// Answer to an approval.
pub(super) struct ApprovalAnswer {
    session: SessionId,
    /// Approval that it names.
    named: Option<String>,
    /// True if it also covers the session.
    lets_through: bool,
    choice: ApprovalChoice,
}

impl HasPromptKind for ApprovalAnswer {
    const KIND: PromptKind = PromptKind::Approvals;
}

impl PromptForm for ApprovalAnswer {
    fn from_body(body: &BodyFields, caller: &HttpCaller) -> Result<Self, FormError> {
        let session = fields::session_field(body)?;
        let named = fields::text_field(body, "approval_id")?.map(str::to_owned);
        let lets_through = fields::switch_field(body, "yolo")?.unwrap_or_default();
        let choice =
            ApprovalChoice::from_body(body).map_err(|word| RequestRejection::bad(format!("Invalid choice: {word}")))?;
        if matches!(choice, ApprovalChoice::Allow(ApprovalScope::Session | ApprovalScope::Always))
            && !caller.has_scope(access::TokenScope::Admin)
        {
            let error_body = json!({ "ok": false, "choice": choice.as_str(), "error": ONCE_ONLY });
            return Err(FormError::WithBody(StatusCode::FORBIDDEN, error_body));
        }
        if lets_through && matches!(caller.via, AuthMethod::Token { .. }) {
            // The cover would stay after the token was revoked.
            let rejection = RequestRejection::new(
                StatusCode::FORBIDDEN,
                "Letting a session through is for people: a token is not enough",
            );
            return Err(rejection.into());
        }
        Ok(Self { session, named, lets_through, choice })
    }

    async fn apply_form(
        self,
        prompts: &Arc<SessionPrompts>,
        caller: &HttpCaller,
        body: &BodyFields,
    ) -> Result<Response, HttpProblem> {
        let Self { session, named, lets_through, choice } = self;
        let mut outcome = match named {
            Some(named) => decide_gate(prompts, &session, Some(&named), choice, caller).await?,
            None => decide_once(prompts, &session, choice, caller, body).await?,
        };
        if lets_through {
            let mut is_on = prompts.is_covered(&session).await;
            // A denial covers nothing, and neither does an answer after a denial or one without a gate.
            let may_cover = !is_on && outcome.is_allowed && choice != ApprovalChoice::Deny;
            if may_cover && prompts.has_session(&session).await {
                is_on = match prompts.cover_session(&session, &caller.principal).await {
                    Ok(()) => true,
                    Err(refused) => {
                        outcome = ApprovalOutcome::with_error(StatusCode::SERVICE_UNAVAILABLE, &refused.to_string());
                        false
                    }
                };
            }
            outcome.more["yolo_enabled"] = is_on.into();
        }
        let mut reply = json!({ "ok": outcome.is_ok, "choice": choice.as_str() });
        if let (Some(reply), Value::Object(more)) = (reply.as_object_mut(), outcome.more) {
            reply.extend(more);
        }
        Ok(reply::json(outcome.status, &reply))
    }
}

/// Gives an answer without a name to the oldest gate. A repetition by the same caller gets the
/// first result: the oldest gate is another one by then.
async fn decide_once(
    prompts: &Arc<SessionPrompts>,
    session: &SessionId,
    choice: ApprovalChoice,
    caller: &HttpCaller,
    body: &BodyFields,
) -> Result<ApprovalOutcome, OwnerClosed> {
    let (of, to, by) = (Arc::clone(prompts), session.clone(), caller.clone());
    let answer = async move { decide_gate(&of, &to, None, choice, &by).await };
    // Without a gate to answer the next post is no repetition.
    let had_gate =
        |outcome: &Result<ApprovalOutcome, OwnerClosed>| outcome.as_ref().is_ok_and(|outcome| outcome.had_gate);
    prompts.choice_answers.answer_once(&PostedAnswer::new(caller, session, body), answer, had_gate).await
}

/// Gives an answer to its gate.
async fn decide_gate(
    prompts: &SessionPrompts,
    session: &SessionId,
    named: Option<&str>,
    choice: ApprovalChoice,
    caller: &HttpCaller,
) -> Result<ApprovalOutcome, OwnerClosed> {
    loop {
        let gate = match prompts.find_gate(session, named, PromptKind::Approvals).await? {
            PromptLookup::Gate(gate, _) => gate,
            PromptLookup::Nothing(_) if named.is_none() => return Ok(ApprovalOutcome::without_gate(true, json!({}))),
            PromptLookup::Nothing(0) => {
                return Ok(ApprovalOutcome::without_gate(true, json!({ "stale_cleared": true })));
            }
            // Never another gate than the named one.
            PromptLookup::Nothing(_) => return Ok(ApprovalOutcome::without_gate(false, json!({}))),
        };
        let answer = match choice {
            ApprovalChoice::Deny => GateReply::Deny { reason: None },
            ApprovalChoice::Allow(scope) => GateReply::Allow(prompt_card::widest_scope(&gate, scope)),
        };
        let key = format!("web:{}:{}", caller.principal, choice.as_str());
        let refused = match prompts.answer_gate(&gate, answer, &caller.principal, key).await {
            Ok(EngineReply::Voted { have, need }) => {
                return Ok(ApprovalOutcome::accepted(json!({ "have": have, "need": need })));
            }
            Ok(_) => return Ok(ApprovalOutcome::accepted(json!({}))),
            Err(refused) => refused,
        };
        return Ok(match refused {
            OwnerError::Refusal(CommandError::Answer(
                refusal @ (AnswerError::AlreadyResolved { .. } | AnswerError::Unknown(_)),
            )) => {
                if named.is_none() {
                    // Another approver decided the oldest just now: there is another oldest, or none.
                    continue;
                }
                ApprovalOutcome::already_resolved(matches!(
                    refusal,
                    AnswerError::AlreadyResolved {
                        resolution: GateResolution::Allowed { .. } | GateResolution::Granted,
                        ..
                    }
                ))
            }
            OwnerError::Refusal(CommandError::Answer(
                refusal @ (AnswerError::NotAmong { .. } | AnswerError::Nobody { .. } | AnswerError::NotAllowed { .. }),
            )) => ApprovalOutcome::with_error(StatusCode::FORBIDDEN, &refusal.to_string()),
            OwnerError::Refusal(refusal) => ApprovalOutcome::with_error(StatusCode::CONFLICT, &refusal.to_string()),
            refused => ApprovalOutcome::with_error(StatusCode::SERVICE_UNAVAILABLE, &refused.to_string()),
        });
    }
}
