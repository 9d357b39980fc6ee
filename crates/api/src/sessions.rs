//! Sessions: which there are, what was said, and what is said next. Source: docs/protocol/api.md, Sessions.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Extension,
    extract::{Path, RawQuery, State},
    http::{HeaderMap, StatusCode},
};
use countersign_conversations::{
    chats::{Asking, Halted, Wish},
    sessions::{self, Row},
};
use countersign_core::{
    engine::{Engine, Reply, Scope},
    id::{Lsn, SessionId},
    session::{Session, WhenBusy},
    time::Millis,
};
use countersign_http::{
    reply,
    web::{Body, Caller},
};
use countersign_runtime::Lane;
use countersign_view::{Protocol, time::iso};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};

use super::{
    Answered, Api, DOOR, Failure,
    cursor::Cursor,
    gates::{doors, named, only, text},
    params::Params,
};

/// How many sessions a page has, if nobody says, and how many it may have.
const LISTED: (usize, usize) = (100, 1000);
/// How many entries of a transcript.
const ENTRIES: (usize, usize) = (50, 200);

/// What a session is busy with now.
#[derive(Clone, Default)]
struct Busy {
    /// A run, a summary of the conversation, or a command of a person.
    works: bool,
    run: Option<String>,
    waiting: usize,
}

fn busy(engine: &Engine) -> BTreeMap<String, Busy> {
    let mut all = BTreeMap::<String, Busy>::new();
    for session in engine.state().sessions().filter(|session| !session.is_at_rest()) {
        let run = session.run().or_else(|| session.awaited_run()).map(|run| run.to_string());
        all.insert(session.id().to_string(), Busy { works: true, run, waiting: 0 });
    }
    for session in engine.state().pending_gates().filter_map(|gate| gate.session()) {
        all.entry(session.to_string()).or_default().waiting += 1;
    }
    all
}

/// `GET /api/v1/sessions`.
pub(super) async fn list(State(api): State<Arc<Api>>, RawQuery(query): RawQuery) -> Answered {
    let params = Params::of(query.as_deref(), &["door", "after", "limit"])?;
    params.one_of("door", &doors())?;
    let limit = params.count("limit", LISTED.0, LISTED.1)?;
    let after = match params.get("after") {
        None => None,
        Some(text) => {
            let read = text.split_once('.').and_then(|(at, id)| Some((at.parse::<u64>().ok()?, id.to_owned())));
            Some(read.ok_or_else(|| Failure::bad(format!("after: {text:?} is no place in this list")))?)
        }
    };
    let source = api.context.handle.source(Lane::Request);
    let read = source.read(|engine| {
        let agents = engine.state().sessions().filter(|session| sessions::is_agents(session.id()));
        let agents: Vec<Row> = agents.map(of_agent).collect();
        (busy(engine), agents, engine.state().head())
    });
    let ((busy, mut rows, head), _) = read.await.ok_or_else(Failure::closing)?;
    rows.extend(sessions::list(api.context.handle.log()).await?);
    rows.sort_by(|one, other| (other.last_at, &other.id).cmp(&(one.last_at, &one.id)));
    let door = params.get("door");
    let fits = |row: &&Row| {
        door.is_none_or(|door| row.door.as_deref() == Some(door))
            && after.as_ref().is_none_or(|(at, id)| (row.last_at, &row.id) < (*at, id))
    };
    let mut found = rows.iter().filter(fits);
    let page: Vec<&Row> = found.by_ref().take(limit).collect();
    let next = found.next().and_then(|_| page.last()).map(|row| format!("{}.{}", row.last_at, row.id));
    let told: Vec<Value> = page.iter().map(|row| listed(row, busy.get(&row.id))).collect();
    let cursor = Cursor::at(api.context.handle.log(), head).await?;
    Ok(reply::ok(&json!({ "sessions": told, "next": next, "cursor": cursor.to_string() })))
}

/// An agent's session is in no list: it is always at hand.
fn of_agent(session: &Session) -> Row {
    Row {
        id: session.id().to_string(),
        door: Some(session.door().unwrap_or(Protocol::AgentGate.name()).to_owned()),
        name: session.id().as_str().strip_prefix("agent:").map(str::to_owned),
        opened_at: session.opened_at().0,
        last_at: session.opened_at().0,
        ..Row::default()
    }
}

fn listed(row: &Row, busy: Option<&Busy>) -> Value {
    let busy = busy.cloned().unwrap_or_default();
    json!({
        "id": row.id,
        "door": row.door,
        "name": row.name,
        "cwd": Some(&row.cwd).filter(|cwd| !cwd.is_empty()),
        "model": row.model.as_ref().map(|(provider, id)| json!({ "provider": provider, "id": id })),
        "opened_at": iso(Millis(row.opened_at)),
        "last_at": iso(Millis(row.last_at)),
        "messages": row.messages,
        "calls": row.calls,
        "tokens": row.tokens,
        "state": state(&busy),
        "run": busy.run,
        "waiting": busy.waiting,
    })
}

/// In one word: what it waits for goes before what it does.
const fn state(busy: &Busy) -> &'static str {
    match (busy.waiting, busy.works) {
        (1.., _) => "waiting",
        (0, true) => "working",
        (0, false) => "resting",
    }
}

/// One entry of a transcript.
#[derive(Serialize)]
struct Entry {
    id: String,
    parent: Option<String>,
    at: String,
    kind: Value,
    /// Null where it was taken out of the record.
    message: Option<Box<RawValue>>,
}

/// What is read of a session.
struct Page {
    head: Value,
    entries: Vec<(Entry, Lsn)>,
    earlier: Option<String>,
    lsn: Lsn,
}

/// `GET /api/v1/sessions/{id}`.
pub(super) async fn one(State(api): State<Arc<Api>>, Path(id): Path<String>, RawQuery(query): RawQuery) -> Answered {
    let params = Params::of(query.as_deref(), &["before", "limit"])?;
    let limit = params.count("limit", ENTRIES.0, ENTRIES.1)?;
    let before = params.get("before").map(str::to_owned);
    let session = SessionId::new(id.as_str());
    let wanted = session.clone();
    let look = move |engine: &Engine| {
        let session = engine.state().session(&wanted)?;
        Some(page(engine, session, before.as_deref(), limit))
    };
    let read = api.context.handle.source(Lane::Request).read_of(Scope::Session(session), look).await;
    let (found, _) = read.ok_or_else(Failure::closing)?;
    let missing = || Failure::new(StatusCode::NOT_FOUND, format!("there is no session {id}"));
    let Page { head: mut told, entries, earlier, lsn } = found.ok_or_else(missing)??;
    let (mut entries, lsns): (Vec<Entry>, Vec<Lsn>) = entries.into_iter().unzip();
    let contents = api.context.handle.contents().get(&lsns).await?;
    for (entry, content) in entries.iter_mut().zip(contents) {
        entry.message = content.and_then(|text| RawValue::from_string(text.to_string()).ok());
    }
    told["earlier"] = json!(earlier);
    told["cursor"] = json!(Cursor::at(api.context.handle.log(), lsn).await?.to_string());
    told["entries"] = serde_json::to_value(&entries).unwrap_or_default();
    Ok(reply::ok(&told))
}

fn page(engine: &Engine, session: &Session, before: Option<&str>, limit: usize) -> Result<Page, Failure> {
    let path = session.path();
    let end = match before {
        None => path.len(),
        Some(before) => path
            .iter()
            .position(|entry| entry.id.as_str() == before)
            .ok_or_else(|| Failure::bad(format!("before: there is no entry {before:?} in this conversation")))?,
    };
    let start = end.saturating_sub(limit);
    let told = |entry: &&countersign_core::session::Entry| {
        let told = Entry {
            id: entry.id.to_string(),
            parent: entry.parent.as_ref().map(ToString::to_string),
            at: iso(entry.at),
            kind: json!(entry.kind),
            message: None,
        };
        (told, entry.content)
    };
    let entries: Vec<_> = path[start..end].iter().map(told).collect();
    let earlier = entries.first().filter(|_| start > 0).map(|(entry, _)| entry.id.clone());
    let busy = busy(engine).remove(session.id().as_str()).unwrap_or_default();
    let model = session.settings().model.as_ref();
    let head = json!({
        "id": session.id(),
        "door": session.door(),
        "name": session.name(),
        "parent": session.parent(),
        "cwd": Some(session.cwd()).filter(|cwd| !cwd.is_empty()),
        "model": model.map(|model| json!({ "provider": model.provider, "id": model.id })),
        "opened_at": iso(session.opened_at()),
        "state": state(&busy),
        "run": busy.run,
        "waiting": busy.waiting,
        "queued": session.queued(),
        "length": path.len(),
    });
    Ok(Page { head, entries, earlier, lsn: engine.state().head() })
}

/// `POST /api/v1/sessions`.
pub(super) async fn open(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Answered {
    only(&body, &["workspace", "provider", "model", "message"])?;
    let owned = |name| text(&body, name).map(|text| text.map(str::to_owned));
    let (provider, message) = (owned("provider")?, owned("message")?);
    let model = owned("model")?.map(|model| (provider.clone(), model));
    if model.is_none() && provider.is_some() {
        return Err(Failure::bad("provider without model says nothing: name both"));
    }
    let key = asking(&caller, &headers, "open", &body)?;
    let wish =
        Wish { workspace: owned("workspace")?, model, message: message.clone(), key: key.clone(), ..Wish::default() };
    let session = api.context.chats.open(DOOR, wish).await?;
    let run = match message {
        Some(message) => {
            let key = key.map(|key| key.part("message"));
            Some(api.context.chats.prompt_once(&session, &message, WhenBusy::Refuse, key.as_ref()).await?)
        }
        None => None,
    };
    let mut told = run.map_or_else(|| json!({ "state": "resting" }), |reply| started(&reply));
    told["id"] = json!(session);
    Ok(reply::json(StatusCode::CREATED, &told))
}

fn started(reply: &Reply) -> Value {
    match reply {
        Reply::Started(run) => json!({ "state": "working", "run": run.to_string() }),
        Reply::BehindCompaction(run) => json!({ "state": "queued", "run": run.to_string() }),
        Reply::Queued => json!({ "state": "queued" }),
        _ => json!({ "state": "done" }),
    }
}

/// The key under which a repetition of a request has no effect of its own.
fn asking(caller: &Caller, headers: &HeaderMap, what: &str, body: &Body) -> Result<Option<Asking>, Failure> {
    let name = named(headers)?;
    Ok(name.map(|name| Asking::new(&caller.principal, name, what, &body.0)))
}

fn needed<'a>(body: &'a Body, name: &str) -> Result<&'a str, Failure> {
    text(body, name)?.ok_or_else(|| Failure::bad(format!("{name} is missing: what is to be said")))
}

/// `POST /api/v1/sessions/{id}/messages`.
pub(super) async fn say(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Answered {
    only(&body, &["text", "when_busy"])?;
    let said = needed(&body, "text")?;
    let when_busy = match text(&body, "when_busy")? {
        None | Some("refuse") => WhenBusy::Refuse,
        Some("queue") => WhenBusy::FollowUp,
        Some("steer") => WhenBusy::Steer,
        Some(other) => return Err(Failure::bad(format!("when_busy is refuse, queue or steer, not {other:?}"))),
    };
    let key = asking(&caller, &headers, "say", &body)?;
    let reply = api.context.chats.prompt_once(&SessionId::new(id.as_str()), said, when_busy, key.as_ref()).await?;
    Ok(reply::json(StatusCode::ACCEPTED, &started(&reply)))
}

/// `POST /api/v1/sessions/{id}/steer`.
pub(super) async fn steer(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Answered {
    only(&body, &["text"])?;
    let said = needed(&body, "text")?;
    let key = asking(&caller, &headers, "steer", &body)?;
    match api.context.chats.steer(&SessionId::new(id.as_str()), said, key.as_ref()).await? {
        Some(run) => Ok(reply::json(StatusCode::ACCEPTED, &json!({ "run": run.to_string() }))),
        None => Err(Failure::new(StatusCode::CONFLICT, "no run works in this session: say it as a message")),
    }
}

/// `POST /api/v1/sessions/{id}/stop`.
pub(super) async fn stop(State(api): State<Arc<Api>>, Path(id): Path<String>, body: Body) -> Answered {
    only(&body, &[])?;
    let (run, stopped) = match api.context.chats.stop(&SessionId::new(id.as_str())).await? {
        Halted::Run(run) => (Some(run.to_string()), true),
        Halted::Other => (None, true),
        Halted::Nothing => (None, false),
    };
    Ok(reply::ok(&json!({ "run": run, "stopped": stopped })))
}
