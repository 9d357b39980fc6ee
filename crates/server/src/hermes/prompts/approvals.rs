//! Approvals: what waits, every change of it, and the answers of people.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    http::{StatusCode, Uri},
    response::Response,
};
use countersign_core::{
    engine::{Refusal, Reply},
    gate::{Answer, AnswerRefusal, Scope},
    id::SessionId,
};
use countersign_runtime::Refused;
use serde_json::{Value, json};

use super::{Closed, Found, Prompts, card, queue::Line, streams};
use crate::web::{BadBody, Body, Caller, Problem, Via, reply};

/// What a person can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Allow(Scope),
    Deny,
}

impl Choice {
    /// The choice of a body: none is a denial.
    fn of(body: &Body) -> Result<Self, String> {
        match body.0.get("choice") {
            None | Some(Value::Null) => Ok(Self::Deny),
            Some(Value::String(word)) => match word.as_str() {
                "once" => Ok(Self::Allow(Scope::Once)),
                "session" => Ok(Self::Allow(Scope::Session)),
                "always" => Ok(Self::Allow(Scope::Always)),
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
struct Told {
    status: StatusCode,
    is_ok: bool,
    /// What is said beside that.
    more: Value,
}

impl Told {
    fn ok(more: Value) -> Self {
        Self { status: StatusCode::OK, is_ok: true, more }
    }

    fn refused(status: StatusCode, why: &str) -> Self {
        Self { status, is_ok: false, more: json!({ "error": why }) }
    }
}

pub(super) async fn pending(State(prompts): State<Arc<Prompts>>, uri: Uri) -> Response {
    streams::pending(&prompts, &uri, Line::Approvals).await
}

pub(super) async fn stream(State(prompts): State<Arc<Prompts>>, uri: Uri) -> Response {
    streams::of_line(&prompts, &uri, Line::Approvals).await
}

pub(super) async fn respond(
    State(prompts): State<Arc<Prompts>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    body: Result<Body, BadBody>,
) -> Result<Response, BadBody> {
    let body = body?;
    let Some(session) = super::session_of(&body) else { return Ok(super::without_session(&uri)) };
    let choice = match Choice::of(&body) {
        Ok(choice) => choice,
        Err(word) => {
            let problem = Problem::new(StatusCode::BAD_REQUEST, format!("Invalid choice: {word}"));
            return Ok(problem.reply(uri.path()));
        }
    };
    if body.is_set("yolo") && matches!(caller.via, Via::Token { .. }) {
        // It would go on allowing after the token was taken away.
        let problem =
            Problem::new(StatusCode::FORBIDDEN, "Letting a session through is for people: a token is not enough");
        return Ok(problem.reply(uri.path()));
    }
    let named = super::name_of(&body, "approval_id");
    let told = decide(&prompts, &session, named.as_deref(), choice, &caller).await;
    let mut told = match told {
        Ok(told) => told,
        Err(closed) => return Ok(Problem::from(closed).reply(uri.path())),
    };
    if body.is_set("yolo") {
        let mut is_on = prompts.is_covered(&session);
        // Whoever denies lets nothing through, and an answer that was not taken changes nothing.
        if !is_on && told.is_ok && choice != Choice::Deny {
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

/// Hands an answer to what it is for.
async fn decide(
    prompts: &Prompts,
    session: &SessionId,
    named: Option<&str>,
    choice: Choice,
    caller: &Caller,
) -> Result<Told, Closed> {
    loop {
        let gate = match prompts.find(session, named, Line::Approvals).await? {
            Found::Gate(gate, _) => gate,
            Found::Nothing(_) if named.is_none() => return Ok(Told::ok(json!({}))),
            Found::Nothing(0) => return Ok(Told::ok(json!({ "stale_cleared": true }))),
            // Never another one than it names.
            Found::Nothing(_) => return Ok(Told { status: StatusCode::OK, is_ok: false, more: json!({}) }),
        };
        let answer = match choice {
            Choice::Deny => Answer::Deny { reason: None },
            Choice::Allow(scope) => Answer::Allow(card::offered(&gate, scope)),
        };
        let key = format!("web:{}:{}", caller.principal, choice.word());
        let refused = match prompts.answer(&gate, answer, &caller.principal, key).await {
            Ok(Reply::Voted { have, need }) => return Ok(Told::ok(json!({ "have": have, "need": need }))),
            Ok(_) => return Ok(Told::ok(json!({}))),
            Err(refused) => refused,
        };
        return Ok(match refused {
            Refused::Refusal(Refusal::Answer(AnswerRefusal::AlreadyResolved { .. } | AnswerRefusal::Unknown(_))) => {
                if named.is_none() {
                    // Somebody else answered the oldest just now: there is another oldest, or none.
                    continue;
                }
                Told::ok(json!({ "stale_cleared": true }))
            }
            Refused::Refusal(Refusal::Answer(
                refusal @ (AnswerRefusal::NotAmong { .. }
                | AnswerRefusal::Nobody { .. }
                | AnswerRefusal::NotAllowed { .. }),
            )) => Told::refused(StatusCode::FORBIDDEN, &refusal.to_string()),
            Refused::Refusal(refusal) => Told::refused(StatusCode::CONFLICT, &refusal.to_string()),
            refused => Told::refused(StatusCode::SERVICE_UNAVAILABLE, &refused.to_string()),
        });
    }
}
