//! Gates, and answers to them. Source: docs/protocol/api.md, Gates.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{Path, RawQuery, State},
    http::StatusCode,
};
use countersign_core::{
    digest::Digest,
    engine::{Command, CommandError, Engine, EngineReply, ResidencyScope as Place},
    gate::{self, AnswerError, ApprovalScope, Command as ToGate, Gate, GateReply, GrantTerms},
    id::GateId,
};
use countersign_http::{
    reply::{self, HttpProblem},
    web::{ONCE_ONLY, access},
};
use countersign_runtime::{InboxLane, OwnerError};
use countersign_view::{
    GateRequest, GateRow, GateSummary, Protocol,
    decisions::{self, check_id_length},
    gate_request::RequestKind,
    time::format_iso,
};
use serde::Serialize;
use serde_json::json;

use super::{
    ApiError, ApiResult, ApiState,
    body::ApiRequest,
    cursor::RecordCursor,
    params::QueryParams,
    wire::gates::{
        AllowRequest, AnswerRequest, AnswerWords, DenyRequest, GateBody, GateKind, GateList, GateOutcome, GateQuestion,
        GateState, GateVote, GrantScope, ResolutionWord, ResolvedGate,
    },
};

/// Handles `GET /api/v1/gates`.
pub(super) async fn list_gates(State(api): State<Arc<ApiState>>, RawQuery(query): RawQuery) -> ApiResult {
    let params = QueryParams::from_query(query.as_deref(), &["door", "session", "kind", "tool"])?;
    params.one_of("door", &door_names())?;
    params.one_of("kind", &kind_names())?;
    let [door, session, kind, tool] =
        ["door", "session", "kind", "tool"].map(|name| params.get(name).map(str::to_owned));
    let source = api.context.handle.source(InboxLane::Result);
    let read = source.read_state(move |engine| {
        let gates = engine
            .state()
            .pending_gates()
            .filter_map(|gate| Some(gate_body(engine, &GateSummary::at_hand(engine, gate)?)));
        let is = |expected: &Option<String>, found: Option<&str>| expected.is_none() || expected.as_deref() == found;
        let fits = |gate: &GateBody| {
            is(&door, gate.door.as_deref())
                && is(&session, gate.session.as_deref())
                && is(&kind, Some(gate.kind.as_str()))
                && is(&tool, gate.tool.as_deref())
        };
        (gates.filter(fits).collect::<Vec<_>>(), engine.state().head_lsn())
    });
    let ((gates, head), _) = read.await.ok_or_else(ApiError::gateway_closing)?;
    let cursor = RecordCursor::at_lsn(api.context.handle.log(), head).await?;
    Ok(reply::ok(&GateList { gates, cursor }))
}

/// Returns the adapters that may have gates and sessions: sessions of stdio adapters live here if they are attached.
pub(super) fn door_names() -> Vec<String> {
    Protocol::OF_GATEWAY.into_iter().chain(Protocol::STDIO).map(|protocol| protocol.name().to_owned()).collect()
}

fn kind_names() -> Vec<String> {
    gate::Kind::ALL.into_iter().map(|kind| GateKind::from(kind).as_str().to_owned()).collect()
}

/// Handles `GET /api/v1/gates/{id}`.
pub(super) async fn get_gate(State(api): State<Arc<ApiState>>, Path(id): Path<String>) -> ApiResult {
    let gate = find_gate(&api, &id).await?;
    Ok(reply::ok(&read_gate(&api, gate).await?))
}

/// Reads a gate, pending or resolved.
async fn read_gate(api: &ApiState, id: GateId) -> Result<GateBody, ApiError> {
    let source = api.context.handle.source(InboxLane::Result);
    let look = move |engine: &Engine| {
        let gate = engine.state().gate(id)?;
        let takes_words = gate.kind().takes_words();
        Some((
            gate.content_lsn(),
            gate.answer_content(),
            takes_words,
            GateSummary::at_hand(engine, gate).map(|summary| gate_body(engine, &summary)),
        ))
    };
    let (found, _) = source.read_of(Place::Gate(id), look).await.ok_or_else(ApiError::gateway_closing)?;
    let (content, answer, takes_words, at_hand) = found.ok_or_else(|| unknown_gate(&id.to_string()))?;
    let mut body = match at_hand {
        Some(body) => body,
        // Its content is only in the record.
        None => {
            let content = api.context.handle.contents().get(&[content]).await?.pop().flatten();
            let request = content.and_then(|text| GateRequest::from_record(&text));
            let look = move |engine: &Engine| {
                let gate = engine.state().gate(id)?;
                match request {
                    Some(request) => Some(gate_body(engine, &GateSummary::new(engine, gate, request))),
                    None => Some(bare_body(gate)),
                }
            };
            let (body, _) = source.read_of(Place::Gate(id), look).await.ok_or_else(ApiError::gateway_closing)?;
            body.ok_or_else(|| unknown_gate(&id.to_string()))?
        }
    };
    if let Some(answer) = answer {
        let answer_text = api.context.handle.contents().get(&[answer]).await?.pop().flatten();
        // Answers in words are a list, a denial's reason is a text.
        body.answer = Some(answer_text.map(|text| match gate::parse_words(&text).filter(|_| takes_words) {
            Some(answers) => AnswerWords::Answers(answers),
            None => AnswerWords::Reason(text.to_string()),
        }));
    }
    Ok(body)
}

/// Returns all of a gate.
fn gate_body(engine: &Engine, summary: &GateSummary) -> GateBody {
    let row = GateRow::new(engine, summary);
    let body = GateBody {
        door: Some(row.door),
        title: Some(row.title),
        subject: Some(row.subject),
        arguments: Some(row.arguments),
        reason: Some(row.reason),
        folder: row.folder,
        requester: row.requester,
        proposals: row.proposals,
        approvals: row.approvals,
        ..bare_body(&summary.gate)
    };
    match summary.request.kind() {
        RequestKind::Call(call) => GateBody {
            tool: Some(call.tool.to_owned()),
            intent: call.intent.map(str::to_owned),
            runs: Some(row.runs),
            ..body
        },
        RequestKind::Question(question) => {
            let (multi, recommended) = (question.is_multi, question.recommended);
            GateBody { question: Some(GateQuestion { choices: row.choices, multi, recommended }), ..body }
        }
        RequestKind::GoOn(go_on) => GateBody { asker: Some(go_on.asker.to_owned()), ..body },
    }
}

/// Returns the members of a gate whose content was removed from the record.
fn bare_body(gate: &Gate) -> GateBody {
    let outcome = gate.resolution().map(|resolution| {
        let (resolution, scope) = ResolutionWord::with_scope(resolution);
        GateOutcome { resolution, scope, by: gate.resolved_by().cloned() }
    });
    GateBody {
        id: gate.id().to_string(),
        state: if gate.is_pending() { GateState::Pending } else { GateState::Resolved },
        kind: gate.kind().into(),
        door: None,
        session: gate.session().map(ToString::to_string),
        call: gate.call().map(|call| call.to_string()),
        tool: None,
        title: None,
        subject: None,
        arguments: None,
        reason: None,
        folder: None,
        requester: None,
        intent: None,
        question: None,
        scopes: gate.scopes().iter().copied().map(GrantScope::from).collect(),
        proposals: Vec::new(),
        approvals: None,
        opened_at: format_iso(gate.opened_at()),
        deadline: gate.deadline().map(format_iso),
        outcome,
        runs: None,
        asker: None,
        answer: None,
    }
}

fn unknown_gate(id: &str) -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, format!("there is no gate {id}"))
}

/// Finds the gate with the id `id`, or the only pending one whose id ends with it.
async fn find_gate(api: &ApiState, id: &str) -> Result<GateId, ApiError> {
    if let Some(gate) = GateId::parse(id) {
        return Ok(gate);
    }
    let owned_id = id.to_owned();
    let source = api.context.handle.source(InboxLane::Result);
    let (found, _) = source
        .read_state(move |engine| decisions::find_pending(engine, &owned_id))
        .await
        .ok_or_else(ApiError::gateway_closing)?;
    let row = found.map_err(|problem| ApiError::new(StatusCode::NOT_FOUND, problem))?;
    GateId::parse(&row.id).ok_or_else(|| unknown_gate(id))
}

/// Handles `POST /api/v1/gates/{id}/allow`.
pub(super) async fn allow_gate(
    State(api): State<Arc<ApiState>>,
    Path(id): Path<String>,
    mut request: ApiRequest<AllowRequest>,
) -> ApiResult {
    let scope = request.body.scope.map_or(ApprovalScope::Once, ApprovalScope::from);
    let pattern = request.body.rule.take();
    let lasts = request.body.lasts.map(|seconds| Duration::from_secs(seconds.0));
    let answer = if scope == ApprovalScope::Once && pattern.is_none() && lasts.is_none() {
        GateReply::Allow(ApprovalScope::Once)
    } else {
        if !request.caller.has_scope(access::TokenScope::Admin) {
            return Err(ApiError::new(StatusCode::FORBIDDEN, ONCE_ONLY));
        }
        GateReply::Grant(GrantTerms { scope, pattern, lasts })
    };
    resolve_gate(&api, &id, &request, answer).await
}

/// Handles `POST /api/v1/gates/{id}/deny`.
pub(super) async fn deny_gate(
    State(api): State<Arc<ApiState>>,
    Path(id): Path<String>,
    mut request: ApiRequest<DenyRequest>,
) -> ApiResult {
    let reason = request.body.reason.take();
    resolve_gate(&api, &id, &request, GateReply::Deny { reason }).await
}

/// Handles `POST /api/v1/gates/{id}/answer`.
pub(super) async fn answer_gate(
    State(api): State<Arc<ApiState>>,
    Path(id): Path<String>,
    mut request: ApiRequest<AnswerRequest>,
) -> ApiResult {
    let answers = std::mem::take(&mut request.body.answers.0);
    resolve_gate(&api, &id, &request, GateReply::Say(answers)).await
}

async fn resolve_gate<T>(api: &ApiState, id: &str, request: &ApiRequest<T>, answer: GateReply) -> ApiResult {
    check_id_length(id).map_err(ApiError::bad_request)?;
    let key = answer_key(request, &answer)?;
    let gate = find_gate(api, id).await?;
    let command = ToGate::Answer { gate, answer, by: request.caller.principal.clone(), key };
    let response = api.context.handle.source(InboxLane::Result).send_command(Command::Gate(command)).await;
    let id = gate.to_string();
    match response.map(|reply| reply.outcome) {
        Ok(EngineReply::Resolved(resolution)) => {
            let (resolution, scope) = ResolutionWord::with_scope(&resolution);
            Ok(reply::ok(&ResolvedGate { id, state: GateState::Resolved, resolution, scope }))
        }
        Ok(EngineReply::Voted { have, need }) => {
            Ok(reply::json(StatusCode::ACCEPTED, &GateVote { id, state: GateState::Pending, have, need }))
        }
        Ok(_) => Ok(reply::ok(&GateName { id })),
        Err(OwnerError::Refusal(CommandError::Answer(refusal))) => Err(answer_failure(refusal)),
        Err(refused) => Err(refused.into()),
    }
}

/// Gate of which only the name is known: the engine has no such reply to an answer.
#[derive(Serialize)]
struct GateName {
    id: String,
}

/// Returns the key under which a repetition by the same caller gets the first result. Another answer has another key.
fn answer_key<T>(request: &ApiRequest<T>, answer: &GateReply) -> Result<Option<String>, ApiError> {
    let Some(key) = request.idempotency_key()? else { return Ok(None) };
    let digest = Digest::hash_bytes(format!("{answer:?}").as_bytes()).to_string();
    Ok(Some(format!("{} {key} {}", request.caller.principal, digest.get(..16).unwrap_or(&digest))))
}

fn answer_failure(refusal: AnswerError) -> ApiError {
    let text = refusal.to_string();
    match refusal {
        AnswerError::AlreadyResolved { gate, resolution, by } => {
            let (word, scope) = ResolutionWord::with_scope(&resolution);
            let text = format!("{text}: {}", word.as_str());
            let who = by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
            let problem = HttpProblem::new(StatusCode::CONFLICT, format!("{text}{who}"));
            let problem = problem.with_member("gate", json!(gate.to_string())).with_member("resolution", json!(word));
            let problem =
                scope.map_or_else(|| problem.clone(), |scope| problem.clone().with_member("scope", json!(scope)));
            ApiError(problem.with_member("by", json!(by)))
        }
        AnswerError::Unknown(gate) => unknown_gate(&gate.to_string()),
        AnswerError::KeyTaken(_) => ApiError::new(StatusCode::CONFLICT, text),
        AnswerError::NotOffered { .. } => ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, text),
        AnswerError::NotAmong { .. } | AnswerError::Nobody { .. } | AnswerError::NotAllowed { .. } => {
            ApiError::new(StatusCode::FORBIDDEN, text)
        }
    }
}
