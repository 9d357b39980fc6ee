//! What waits for people, and answers to it. Source: docs/protocol/api.md, Gates.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::{Path, RawQuery, State},
    http::{HeaderMap, StatusCode},
};
use countersign_core::{
    digest::Digest,
    engine::{Command, Engine, Refusal, Reply, Scope as Place},
    gate::{self, Answer, AnswerRefusal, Command as ToGate, Content, Gate, Grant, Resolution, Scope},
    id::GateId,
};
use countersign_http::{
    reply::{self, Problem},
    web::{Body, Caller, ONCE_ONLY, access},
};
use countersign_runtime::{Lane, Refused};
use countersign_view::{
    Protocol,
    decisions::{self, enough},
    gate_summary,
    time::iso,
};
use serde_json::{Map, Value, json};

use super::{Answered, Api, Failure, cursor::Cursor, params::Params};

/// How long a key for repeated answers may be.
const LONGEST_KEY: usize = 200;
/// How long a grant may last, in seconds: a hundred years.
const LONGEST_GRANT: u64 = 100 * 365 * 86_400;

/// `GET /api/v1/gates`.
pub(super) async fn list(State(api): State<Arc<Api>>, RawQuery(query): RawQuery) -> Answered {
    let params = Params::of(query.as_deref(), &["door", "session", "kind", "tool"])?;
    params.one_of("door", &doors())?;
    params.one_of("kind", &kinds())?;
    let wanted = ["door", "session", "kind", "tool"].map(|name| params.get(name).map(str::to_owned));
    let source = api.context.handle.source(Lane::Result);
    let read = source.read(move |engine| {
        let gates = engine.state().pending_gates().filter_map(|gate| told(engine, gate, None));
        let fits = |gate: &Value| {
            let [door, session, kind, tool] = &wanted;
            let all = [("door", door), ("session", session), ("kind", kind), ("tool", tool)];
            all.into_iter().all(|(name, wanted)| wanted.as_ref().is_none_or(|wanted| gate[name] == **wanted))
        };
        (gates.filter(fits).collect::<Vec<_>>(), engine.state().head())
    });
    let ((gates, head), _) = read.await.ok_or_else(Failure::closing)?;
    let cursor = Cursor::at(api.context.handle.log(), head).await?;
    Ok(reply::ok(&json!({ "gates": gates, "cursor": cursor.to_string() })))
}

/// The adapters whose gates and sessions there may be: those of stdio have their sessions live here if they are attached.
pub(super) fn doors() -> Vec<String> {
    Protocol::OF_GATEWAY.into_iter().chain(Protocol::STDIO).map(|protocol| protocol.name().to_owned()).collect()
}

fn kinds() -> Vec<String> {
    gate::Kind::ALL.iter().filter_map(|kind| json!(kind).as_str().map(str::to_owned)).collect()
}

/// `GET /api/v1/gates/{id}`.
pub(super) async fn one(State(api): State<Arc<Api>>, Path(id): Path<String>) -> Answered {
    let gate = find(&api, &id).await?;
    Ok(reply::ok(&read(&api, gate).await?))
}

/// A gate, whether it waits or not.
async fn read(api: &Api, id: GateId) -> Result<Value, Failure> {
    let source = api.context.handle.source(Lane::Result);
    let look = move |engine: &Engine| {
        let gate = engine.state().gate(id)?;
        let takes_words = gate.kind().takes_words();
        Some((gate.content(), gate.answer_content(), takes_words, told(engine, gate, None)))
    };
    let (found, _) = source.read_of(Place::Gate(id), look).await.ok_or_else(Failure::closing)?;
    let (content, answer, takes_words, told_now) = found.ok_or_else(|| unknown(&id.to_string()))?;
    let mut value = match told_now {
        Some(value) => value,
        // What it showed lies in the record only.
        None => {
            let content = api.context.handle.contents().get(&[content]).await?.pop().flatten();
            let content = content.and_then(|text| serde_json::from_str::<Content>(&text).ok());
            let look = move |engine: &Engine| {
                let gate = engine.state().gate(id)?;
                content.as_ref().map_or_else(|| Some(bare(gate)), |content| told(engine, gate, Some(content)))
            };
            let (value, _) = source.read_of(Place::Gate(id), look).await.ok_or_else(Failure::closing)?;
            value.ok_or_else(|| unknown(&id.to_string()))?
        }
    };
    if let Some(answer) = answer {
        let said = api.context.handle.contents().get(&[answer]).await?.pop().flatten();
        // Answers in words are a list, a denial's reason is a text.
        value["said"] = said.map_or(Value::Null, |said| match gate::said(&said).filter(|_| takes_words) {
            Some(answers) => json!(answers),
            None => json!(&*said),
        });
    }
    Ok(value)
}

/// All of a gate. `content` is what it shows, where that is not at hand.
fn told(engine: &Engine, gate: &Gate, content: Option<&Content>) -> Option<Value> {
    let content = content.or_else(|| engine.admitted().gate(gate.id()).map(|content| &**content))?;
    let row = gate_summary::row_of(engine, gate, content);
    let mut value = bare(gate);
    for (name, more) in [
        ("door", json!(row.door)),
        ("title", json!(row.title)),
        ("subject", json!(row.subject)),
        ("arguments", json!(row.arguments)),
        ("reason", json!(row.reason)),
        ("folder", json!(row.folder)),
        ("proposals", json!(row.proposals)),
        ("approvals", json!(row.approvals)),
    ] {
        value[name] = more;
    }
    match content {
        Content::Approval { tool, intent, .. } => {
            value["tool"] = json!(tool);
            value["intent"] = json!(intent);
            value["runs"] = json!(row.runs);
        }
        Content::Question { choices, multi, recommended, .. } => {
            let choices: Vec<&str> = choices.iter().map(|choice| choice.label.as_str()).collect();
            value["question"] = json!({ "choices": choices, "multi": multi, "recommended": recommended });
        }
        Content::GoOn { asker, .. } => value["asker"] = json!(asker),
    }
    Some(value)
}

/// What there is to say of a gate whose content was taken out of the record.
fn bare(gate: &Gate) -> Value {
    let mut value = json!({
        "id": gate.id().to_string(),
        "state": if gate.is_pending() { "pending" } else { "resolved" },
        "kind": gate.kind(),
        "door": null,
        "session": gate.session().map(ToString::to_string),
        "call": gate.call().map(|call| call.to_string()),
        "tool": null,
        "title": null,
        "subject": null,
        "arguments": null,
        "reason": null,
        "folder": null,
        "intent": null,
        "question": null,
        "scopes": gate.scopes(),
        "proposals": [],
        "approvals": null,
        "opened_at": iso(gate.opened_at()),
        "deadline": gate.deadline().map(iso),
    });
    if let Some(resolution) = gate.resolution() {
        resolved(&mut value, resolution);
        value["by"] = json!(gate.resolved_by());
    }
    value
}

fn resolved(value: &mut Value, resolution: &Resolution) {
    let (word, scope) = words(resolution);
    value["resolution"] = json!(word);
    if let Some(scope) = scope {
        value["scope"] = json!(scope);
    }
}

const fn words(resolution: &Resolution) -> (&'static str, Option<Scope>) {
    match resolution {
        Resolution::Allowed { scope } => ("allowed", Some(*scope)),
        Resolution::Denied => ("denied", None),
        Resolution::Answered => ("answered", None),
        Resolution::Declined => ("declined", None),
        Resolution::Granted => ("granted", None),
        Resolution::Expired => ("expired", None),
        Resolution::Withdrawn => ("withdrawn", None),
    }
}

fn unknown(id: &str) -> Failure {
    Failure::new(StatusCode::NOT_FOUND, format!("there is no gate {id}"))
}

/// The gate whose id is `id`, or of those that wait the only one whose id ends with it.
async fn find(api: &Api, id: &str) -> Result<GateId, Failure> {
    if let Some(gate) = GateId::parse(id) {
        return Ok(gate);
    }
    let wanted = id.to_owned();
    let source = api.context.handle.source(Lane::Result);
    let (found, _) = source.read(move |engine| decisions::find(engine, &wanted)).await.ok_or_else(Failure::closing)?;
    let row = found.map_err(|problem| Failure::new(StatusCode::NOT_FOUND, problem))?;
    GateId::parse(&row.id).ok_or_else(|| unknown(id))
}

/// `POST /api/v1/gates/{id}/allow`.
pub(super) async fn allow(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Answered {
    only(&body, &["scope", "rule", "lasts"])?;
    let scope = match text(&body, "scope")? {
        None | Some("once") => Scope::Once,
        Some("session") => Scope::Session,
        Some("always") => Scope::Always,
        Some(other) => return Err(Failure::bad(format!("scope is once, session or always, not {other:?}"))),
    };
    let pattern = text(&body, "rule")?.map(str::to_owned);
    let lasts = match body.0.get("lasts") {
        None | Some(Value::Null) => None,
        Some(lasts) => {
            let seconds = lasts.as_u64().filter(|seconds| (1..=LONGEST_GRANT).contains(seconds));
            let wrong = || Failure::bad("lasts is a number of seconds, of 1 at least");
            Some(Duration::from_secs(seconds.ok_or_else(wrong)?))
        }
    };
    let answer = if scope == Scope::Once && pattern.is_none() && lasts.is_none() {
        Answer::Allow(Scope::Once)
    } else {
        if !caller.may(access::Scope::Admin) {
            return Err(Failure::new(StatusCode::FORBIDDEN, ONCE_ONLY));
        }
        Answer::Grant(Grant { scope, pattern, lasts })
    };
    resolve(&api, &caller, &id, &headers, answer).await
}

/// `POST /api/v1/gates/{id}/deny`.
pub(super) async fn deny(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Answered {
    only(&body, &["reason"])?;
    let reason = text(&body, "reason")?.map(str::to_owned);
    resolve(&api, &caller, &id, &headers, Answer::Deny { reason }).await
}

/// `POST /api/v1/gates/{id}/answer`.
pub(super) async fn answer(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Answered {
    only(&body, &["answers"])?;
    let wrong = || Failure::bad("answers is a list of texts, none of them empty");
    let Some(Value::Array(answers)) = body.0.get("answers") else { return Err(wrong()) };
    let said: Option<Vec<String>> = answers.iter().map(|one| one.as_str().map(str::to_owned)).collect();
    let said = said.filter(|said| !said.is_empty() && said.iter().all(|one| !one.trim().is_empty()));
    resolve(&api, &caller, &id, &headers, Answer::Say(said.ok_or_else(wrong)?)).await
}

async fn resolve(api: &Api, caller: &Caller, id: &str, headers: &HeaderMap, answer: Answer) -> Answered {
    enough(id).map_err(Failure::bad)?;
    let key = key(caller, headers, &answer)?;
    let gate = find(api, id).await?;
    let command = ToGate::Answer { gate, answer, by: caller.principal.clone(), key };
    let asked = api.context.handle.source(Lane::Result).ask(Command::Gate(command)).await;
    match asked.map(|reply| reply.outcome) {
        Ok(Reply::Resolved(resolution)) => {
            let mut told = json!({ "id": gate.to_string(), "state": "resolved" });
            resolved(&mut told, &resolution);
            Ok(reply::ok(&told))
        }
        Ok(Reply::Voted { have, need }) => {
            let told = json!({ "id": gate.to_string(), "state": "pending", "have": have, "need": need });
            Ok(reply::json(StatusCode::ACCEPTED, &told))
        }
        Ok(_) => Ok(reply::ok(&json!({ "id": gate.to_string() }))),
        Err(Refused::Refusal(Refusal::Answer(refusal))) => Err(refused(refusal)),
        Err(refused) => Err(refused.into()),
    }
}

/// The key under which the same answer of the same caller gets the first result. Another answer under it is another one.
fn key(caller: &Caller, headers: &HeaderMap, answer: &Answer) -> Result<Option<String>, Failure> {
    let Some(key) = named(headers)? else { return Ok(None) };
    let said = Digest::of(format!("{answer:?}").as_bytes()).to_string();
    Ok(Some(format!("{} {key} {}", caller.principal, said.get(..16).unwrap_or(&said))))
}

/// What the header says under which repetitions are known.
pub(super) fn named(headers: &HeaderMap) -> Result<Option<&str>, Failure> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let plain = key.to_str().ok().map(str::trim).filter(|key| (1..=LONGEST_KEY).contains(&key.len()));
    let wrong = || Failure::bad(format!("Idempotency-Key is a text of 1 to {LONGEST_KEY} letters and digits"));
    plain.map(Some).ok_or_else(wrong)
}

fn refused(refusal: AnswerRefusal) -> Failure {
    let told = refusal.to_string();
    match refusal {
        AnswerRefusal::AlreadyResolved { gate, resolution, by } => {
            let (word, scope) = words(&resolution);
            let who = by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
            let problem = Problem::new(StatusCode::CONFLICT, format!("{told}: {word}{who}"));
            let problem = problem.with("gate", json!(gate.to_string())).with("resolution", json!(word));
            let problem = scope.map_or_else(|| problem.clone(), |scope| problem.clone().with("scope", json!(scope)));
            Failure(problem.with("by", json!(by)))
        }
        AnswerRefusal::Unknown(gate) => unknown(&gate.to_string()),
        AnswerRefusal::KeyTaken(_) => Failure::new(StatusCode::CONFLICT, told),
        AnswerRefusal::NotOffered { .. } => Failure::new(StatusCode::UNPROCESSABLE_ENTITY, told),
        AnswerRefusal::NotAmong { .. } | AnswerRefusal::Nobody { .. } | AnswerRefusal::NotAllowed { .. } => {
            Failure::new(StatusCode::FORBIDDEN, told)
        }
    }
}

/// Refuses members of a body that would be passed over.
pub(super) fn only(body: &Body, known: &[&str]) -> Result<(), Failure> {
    // What a page without script sends beside its fields.
    let is_known = |name: &str| known.contains(&name) || name == "csrf";
    match body.0.keys().find(|name| !is_known(name)) {
        Some(name) => Err(Failure::bad(format!("there is no {name:?} here, only: {}", known.join(", ")))),
        None => Ok(()),
    }
}

/// A text of a body, trimmed; none where it is absent or null. An empty one is refused: whoever sends it means something.
pub(super) fn text<'a>(body: &'a Body, name: &str) -> Result<Option<&'a str>, Failure> {
    match body.0.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(_)) => match body.text(name) {
            Some(text) => Ok(Some(text)),
            None => Err(Failure::bad(format!("{name} is empty: leave it out, or say something"))),
        },
        Some(_) => Err(Failure::bad(format!("{name} is a text"))),
    }
}

/// An object of a body; empty where it is absent.
pub(super) fn object(body: &Body, name: &str) -> Result<Map<String, Value>, Failure> {
    match body.0.get(name) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(found)) => Ok(found.clone()),
        Some(_) => Err(Failure::bad(format!("{name} is an object"))),
    }
}
