//! Answers of approvers: forms become commands of the engine, and a late answer gets the name of the approver who was first.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Redirect, Response},
};
use countersign_core::{
    engine::{CommandError, EngineReply},
    gate::{AnswerError, ApprovalScope, GateReply, GrantTerms, IdentityMap, Kind},
    id::GateId,
};
use countersign_http::{
    reply,
    web::{BodyFields, HttpCaller},
};
use countersign_runtime::{InboxLane, OwnerError};
use countersign_view::{decisions, gate_request::QuestionRequest};

use super::{
    ConsoleState,
    console_card::{CardContext, CardPlace, ConsoleGate},
    gates::fresh_key,
    labels,
    page::PageError,
};

/// Longest reason or answer, in characters.
const LONGEST: usize = 20_000;

pub(super) async fn answer_gate(
    State(console): State<Arc<ConsoleState>>,
    Extension(caller): Extension<HttpCaller>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: BodyFields,
) -> Result<Response, PageError> {
    let ctx = console.page_context(caller).await?;
    let gate = GateId::parse(&id).ok_or_else(|| PageError::not_found(format!("approval {id}")))?;
    let found = console.load_gate(gate).await?;
    let (console_gate, _) = found.ok_or_else(|| PageError::not_found(format!("approval {id}")))?;
    let problem = match parse_answer(&body, &console_gate) {
        Err(problem) => Some((StatusCode::BAD_REQUEST, problem)),
        Ok(answer) => {
            let source = console.context.handle.source(InboxLane::Result);
            let key = body.text_field("key").map(str::to_owned);
            match decisions::answer_gate(&source, gate, answer, &ctx.caller.principal, key).await {
                Ok(EngineReply::Voted { have, need }) => {
                    Some((StatusCode::OK, format!("Your approval was recorded: {have} of {need} approvals.")))
                }
                Ok(_) => None,
                Err(refused) => Some(answer_error(&refused, &ctx.people)),
            }
        }
    };
    let is_page = body.text_field("from") == Some("page");
    if headers.contains_key("x-fragment") {
        // The script replaces the old card with this one.
        let (console_gate, answered) =
            console.load_gate(gate).await?.ok_or_else(|| PageError::not_found(format!("approval {id}")))?;
        let key = fresh_key();
        let reader = CardContext {
            now: ctx.now,
            csrf: ctx.caller.csrf_token(),
            key: &key,
            place: if is_page { CardPlace::Page } else { CardPlace::List },
            notice: problem.as_ref().map(|(_, text)| text.as_str()),
        };
        let status = problem.as_ref().map_or(StatusCode::OK, |(status, _)| *status);
        return Ok(reply::html(status, console_gate.render_card(&reader, &answered).into_string()));
    }
    match problem {
        Some((status, problem)) => console.gate_page(&ctx, gate, Some((status, &problem))).await,
        None if is_page => Ok(redirect_to(&labels::url_path("/console/gates/", &gate.to_string()))),
        None => Ok(redirect_to(&format!("/console/?done={gate}"))),
    }
}

/// Answers several gates, each of which was shown whole.
pub(super) async fn answer_several(
    State(console): State<Arc<ConsoleState>>,
    Extension(caller): Extension<HttpCaller>,
    body: BodyFields,
) -> Result<Response, PageError> {
    let ctx = console.page_context(caller).await?;
    let bad = |text: &str| PageError::new(StatusCode::BAD_REQUEST, text);
    let answer = match body.text_field("answer") {
        Some("once") => GateReply::Allow(ApprovalScope::Once),
        Some("deny") => GateReply::Deny { reason: body.text_field("reason").map(str::to_owned) },
        _ => return Err(bad("Invalid answer: expected once or deny.")),
    };
    let mut done = Vec::new();
    let source = console.context.handle.source(InboxLane::Result);
    for (name, shown) in body.0.iter().filter_map(|(name, value)| Some((name.strip_prefix("gate.")?, value.as_str()?)))
    {
        let gate = GateId::parse(name).ok_or_else(|| bad("Invalid id in the selection."))?;
        let Some((console_gate, _)) = console.load_gate(gate).await? else { continue };
        // The card of each shows whether it counted.
        if console_gate.digest() == shown && console_gate.is_whole(CardPlace::List) {
            let _ = decisions::answer_gate(&source, gate, answer.clone(), &ctx.caller.principal, None).await;
        }
        done.push(gate.to_string());
    }
    if done.is_empty() {
        return Err(bad("No approval is selected."));
    }
    Ok(redirect_to(&format!("/console/?done={}", done.join(","))))
}

fn redirect_to(at: &str) -> Response {
    Redirect::to(at).into_response()
}

/// Returns the answer that a form gives to a gate.
fn parse_answer(body: &BodyFields, console_gate: &ConsoleGate) -> Result<GateReply, String> {
    let text = |name: &str| body.text_field(name).map(str::to_owned);
    if [text("reason"), text("text")].iter().flatten().any(|text| text.chars().count() > LONGEST) {
        return Err(format!("The text is longer than {LONGEST} characters."));
    }
    let word = body.text_field("answer").unwrap_or_default();
    // An approval covers only the call that was shown.
    if matches!(word, "once" | "session" | "grant") && body.text_field("digest") != Some(&console_gate.digest()) {
        return Err("The request has changed since this page was loaded. Review it again.".to_owned());
    }
    match word {
        "once" => Ok(GateReply::Allow(ApprovalScope::Once)),
        "session" => Ok(GateReply::Allow(ApprovalScope::Session)),
        "grant" => parse_grant(body),
        "deny" => Ok(GateReply::Deny { reason: text("reason") }),
        "decline" => Ok(GateReply::Decline),
        "say" => chosen_answer(body, console_gate),
        _ => Err("Choose one of the answers.".to_owned()),
    }
}

fn parse_grant(body: &BodyFields) -> Result<GateReply, String> {
    let scope = match body.text_field("reach") {
        Some("session") => ApprovalScope::Session,
        Some("always") => ApprovalScope::Always,
        _ => return Err("Choose a scope.".to_owned()),
    };
    let lasts = match body.text_field("lasts").unwrap_or("0").parse::<u64>() {
        Ok(0) => None,
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => return Err("Choose a duration.".to_owned()),
    };
    let pattern = match body.text_field("covers") {
        Some("exact") => None,
        Some(covers) => Some(covers.strip_prefix("pattern:").ok_or("Choose the calls to allow.")?.to_owned()),
        None => return Err("Choose the calls to allow.".to_owned()),
    };
    Ok(GateReply::Grant(GrantTerms { scope, pattern, lasts }))
}

fn chosen_answer(body: &BodyFields, console_gate: &ConsoleGate) -> Result<GateReply, String> {
    let Some(QuestionRequest { choices, is_multi, .. }) = console_gate.request.question() else {
        return Err("This is not a question.".to_owned());
    };
    let chosen: Vec<String> = if is_multi {
        let chosen = choices.iter().enumerate().filter(|(at, _)| body.is_set(&format!("choice.{at}")));
        chosen.map(|(_, choice)| choice.label.clone()).collect()
    } else {
        let chosen = body.text_field("choice").and_then(|at| at.parse::<usize>().ok()).and_then(|at| choices.get(at));
        chosen.map(|choice| choice.label.clone()).into_iter().collect()
    };
    let own = body.text_field("text").map(str::to_owned);
    // For a question with one answer, the written text counts; with a decision it is added to it.
    let answers: Vec<String> = match own {
        Some(own) if !is_multi && console_gate.kind == Kind::Question => vec![own],
        own => chosen.into_iter().chain(own).collect(),
    };
    if answers.is_empty() { Err("Choose an answer, or write one.".to_owned()) } else { Ok(GateReply::Say(answers)) }
}

/// Returns the reason why an answer did not count.
pub(super) fn answer_error(refused: &OwnerError, people: &IdentityMap) -> (StatusCode, String) {
    match refused {
        OwnerError::Refusal(CommandError::Answer(AnswerError::AlreadyResolved { resolution, by, .. })) => {
            let how = labels::resolution_text(resolution);
            let text = match by {
                Some(by) => labels::capitalise(&format!(
                    "{} was first: {}.",
                    labels::principal_name(people, by),
                    how.to_lowercase()
                )),
                None => format!("Already resolved: {}.", how.to_lowercase()),
            };
            (StatusCode::CONFLICT, text)
        }
        OwnerError::Refusal(CommandError::Answer(AnswerError::NotOffered { problem, .. })) => {
            (StatusCode::BAD_REQUEST, format!("This answer is not offered: {problem}."))
        }
        OwnerError::Refusal(CommandError::Answer(AnswerError::NotAmong { .. })) => {
            (StatusCode::FORBIDDEN, "You are not an approver of this call. You can deny it.".to_owned())
        }
        OwnerError::Refusal(CommandError::Answer(AnswerError::Nobody { .. })) => (
            StatusCode::FORBIDDEN,
            "This call needs several approvers, and your login is not listed under `people` in the configuration."
                .to_owned(),
        ),
        OwnerError::Unsure(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "It is unknown whether the decision was recorded: reload the page.".to_owned(),
        ),
        OwnerError::NotRecorded(_) | OwnerError::Unreadable(_) | OwnerError::Closed => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("Could not record the decision: {refused}."))
        }
        OwnerError::Refusal(CommandError::Answer(AnswerError::KeyTaken(_))) => {
            (StatusCode::CONFLICT, "This window already sent another answer, which was recorded.".to_owned())
        }
        OwnerError::Refusal(_) => (StatusCode::BAD_REQUEST, format!("The decision was rejected: {refused}.")),
        OwnerError::TooLarge | OwnerError::Panicked => {
            (StatusCode::BAD_REQUEST, format!("Could not record the decision: {refused}."))
        }
    }
}
