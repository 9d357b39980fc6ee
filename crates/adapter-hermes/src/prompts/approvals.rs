//! Approvals: what waits, every change of it, and the answers of people.

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
    super::fields::{self, Rejection},
    Closed, Found, Prompts, card,
    form::{Form, FormError},
    nameless::Post,
    queue::{Line, Queued},
};

/// What a person can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Allow(ApprovalScope),
    Deny,
}

impl Choice {
    /// The choice of a body: none is a denial.
    fn of(body: &BodyFields) -> Result<Self, String> {
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

    const fn word(self) -> &'static str {
        match self {
            Self::Allow(scope) => card::word(scope),
            Self::Deny => "deny",
        }
    }
}

/// What an answer came to, in the words of the table.
#[derive(Clone)]
pub(super) struct Told {
    status: StatusCode,
    is_ok: bool,
    /// What is said beside that.
    more: Value,
    /// Whether there was a gate for it.
    had_gate: bool,
    /// Whether what was asked for is allowed now, or has one more voice for it.
    is_allowed: bool,
}

impl Told {
    fn ok(more: Value) -> Self {
        Self { status: StatusCode::OK, is_ok: true, more, had_gate: true, is_allowed: true }
    }

    /// Somebody was faster.
    fn stale(is_allowed: bool) -> Self {
        Self { is_allowed, ..Self::ok(json!({ "stale_cleared": true })) }
    }

    fn refused(status: StatusCode, why: &str) -> Self {
        Self { status, is_ok: false, more: json!({ "error": why }), had_gate: true, is_allowed: false }
    }

    fn without_gate(is_ok: bool, more: Value) -> Self {
        Self { status: StatusCode::OK, is_ok, more, had_gate: false, is_allowed: false }
    }
}

/// An answer to an approval.
pub(super) struct ApprovalAnswer {
    session: SessionId,
    /// The approval that it names.
    named: Option<String>,
    /// Whether it lets the session through.
    lets_through: bool,
    choice: Choice,
}

impl Queued for ApprovalAnswer {
    const LINE: Line = Line::Approvals;
}

impl Form for ApprovalAnswer {
    fn read(body: &BodyFields, caller: &HttpCaller) -> Result<Self, FormError> {
        let session = fields::session(body)?;
        let named = fields::text(body, "approval_id")?.map(str::to_owned);
        let lets_through = fields::switch(body, "yolo")?.unwrap_or_default();
        let choice = Choice::of(body).map_err(|word| Rejection::bad(format!("Invalid choice: {word}")))?;
        if matches!(choice, Choice::Allow(ApprovalScope::Session | ApprovalScope::Always))
            && !caller.has_scope(access::TokenScope::Admin)
        {
            let told = json!({ "ok": false, "choice": choice.word(), "error": ONCE_ONLY });
            return Err(FormError::Told(StatusCode::FORBIDDEN, told));
        }
        if lets_through && matches!(caller.via, AuthMethod::Token { .. }) {
            // It would go on allowing after the token was taken away.
            let rejection =
                Rejection::new(StatusCode::FORBIDDEN, "Letting a session through is for people: a token is not enough");
            return Err(rejection.into());
        }
        Ok(Self { session, named, lets_through, choice })
    }

    async fn act(
        self,
        prompts: &Arc<Prompts>,
        caller: &HttpCaller,
        body: &BodyFields,
    ) -> Result<Response, HttpProblem> {
        let Self { session, named, lets_through, choice } = self;
        let mut told = match named {
            Some(named) => decide(prompts, &session, Some(&named), choice, caller).await?,
            None => decide_once(prompts, &session, choice, caller, body).await?,
        };
        if lets_through {
            let mut is_on = prompts.is_covered(&session);
            // Whoever denies lets nothing through, and neither does who comes behind a denial or names nothing that there was.
            if !is_on && told.is_allowed && choice != Choice::Deny {
                is_on = match prompts.cover(&session, &caller.principal).await {
                    Ok(()) => true,
                    Err(refused) => {
                        told = Told::refused(StatusCode::SERVICE_UNAVAILABLE, &refused.to_string());
                        false
                    }
                };
            }
            told.more["yolo_enabled"] = is_on.into();
        }
        let mut reply = json!({ "ok": told.is_ok, "choice": choice.word() });
        if let (Some(reply), Value::Object(more)) = (reply.as_object_mut(), told.more) {
            reply.extend(more);
        }
        Ok(reply::json(told.status, &reply))
    }
}

/// Hands an answer that names nothing to the oldest that waits. What the same caller posts twice is one answer, and its
/// repetition gets the first result: the oldest is another one by then.
async fn decide_once(
    prompts: &Arc<Prompts>,
    session: &SessionId,
    choice: Choice,
    caller: &HttpCaller,
    body: &BodyFields,
) -> Result<Told, Closed> {
    let (of, to, by) = (Arc::clone(prompts), session.clone(), caller.clone());
    let answer = async move { decide(&of, &to, None, choice, &by).await };
    // Where there was nothing to answer the next one is no repetition.
    let had_gate = |told: &Result<Told, Closed>| told.as_ref().is_ok_and(|told| told.had_gate);
    prompts.nameless_choices.once(&Post::new(caller, session, body), answer, had_gate).await
}

/// Hands an answer to what it is for.
async fn decide(
    prompts: &Prompts,
    session: &SessionId,
    named: Option<&str>,
    choice: Choice,
    caller: &HttpCaller,
) -> Result<Told, Closed> {
    loop {
        let gate = match prompts.find(session, named, Line::Approvals).await? {
            Found::Gate(gate, _) => gate,
            Found::Nothing(_) if named.is_none() => return Ok(Told::without_gate(true, json!({}))),
            Found::Nothing(0) => return Ok(Told::without_gate(true, json!({ "stale_cleared": true }))),
            // Never another one than it names.
            Found::Nothing(_) => return Ok(Told::without_gate(false, json!({}))),
        };
        let answer = match choice {
            Choice::Deny => GateReply::Deny { reason: None },
            Choice::Allow(scope) => GateReply::Allow(card::offered(&gate, scope)),
        };
        let key = format!("web:{}:{}", caller.principal, choice.word());
        let refused = match prompts.answer(&gate, answer, &caller.principal, key).await {
            Ok(EngineReply::Voted { have, need }) => return Ok(Told::ok(json!({ "have": have, "need": need }))),
            Ok(_) => return Ok(Told::ok(json!({}))),
            Err(refused) => refused,
        };
        return Ok(match refused {
            OwnerError::Refusal(CommandError::Answer(
                refusal @ (AnswerError::AlreadyResolved { .. } | AnswerError::Unknown(_)),
            )) => {
                if named.is_none() {
                    // Somebody else answered the oldest just now: there is another oldest, or none.
                    continue;
                }
                Told::stale(matches!(
                    refusal,
                    AnswerError::AlreadyResolved {
                        resolution: GateResolution::Allowed { .. } | GateResolution::Granted,
                        ..
                    }
                ))
            }
            OwnerError::Refusal(CommandError::Answer(
                refusal @ (AnswerError::NotAmong { .. } | AnswerError::Nobody { .. } | AnswerError::NotAllowed { .. }),
            )) => Told::refused(StatusCode::FORBIDDEN, &refusal.to_string()),
            OwnerError::Refusal(refusal) => Told::refused(StatusCode::CONFLICT, &refusal.to_string()),
            refused => Told::refused(StatusCode::SERVICE_UNAVAILABLE, &refused.to_string()),
        });
    }
}
