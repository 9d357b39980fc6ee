//! Sessions: their list, their conversations, and messages to them. Source: docs/protocol/api.md, Sessions.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use axum::{
    extract::{Path, RawQuery, State},
    http::StatusCode,
};
use countersign_conversations::{
    chats::{NewConversation, StopOutcome},
    sessions::{self, ListPosition, SessionListRow},
};
use countersign_core::{
    engine::{Engine, EngineReply, ResidencyScope},
    id::{Lsn, SessionId},
    session::{Session, SessionEntry, WhenBusy},
    time::Millis,
};
use countersign_http::reply;
use countersign_runtime::{
    InboxLane,
    store::{AnyLog, LogReadError},
};
use countersign_view::{Protocol, time::format_iso};

use super::{
    ApiError, ApiResult, ApiState, DOOR,
    body::ApiRequest,
    cursor::RecordCursor,
    gates::door_names,
    params::QueryParams,
    wire::{
        ModelName,
        sessions::{
            ConversationEntry, ConversationPage, MessageReceipt, MessageRequest, MessageState, OpenRequest,
            OpenedSession, OpenedState, SessionList, SessionState, SessionSummary, SteerReceipt, SteerRequest,
            StopReport, StopRequest,
        },
    },
};

/// Default and largest number of sessions on a page.
const LISTED: (usize, usize) = (100, 1000);
/// Default and largest number of entries of a transcript.
const ENTRIES: (usize, usize) = (50, 200);

/// Current activity of a session.
#[derive(Clone, Default)]
struct SessionActivity {
    /// Run, compaction of the conversation, or command of a user.
    works: bool,
    run: Option<String>,
    waiting: usize,
}

impl SessionActivity {
    /// Returns what works in a session, without its gates.
    fn of_work(session: &Session) -> Self {
        if session.is_at_rest() {
            return Self::default();
        }
        let run = session.run().or_else(|| session.awaited_run()).map(|run| run.to_string());
        Self { works: true, run, waiting: 0 }
    }
}

/// Returns the activity of one session.
fn activity_of(engine: &Engine, session: &Session) -> SessionActivity {
    let waiting = engine.state().pending_gates().filter(|gate| gate.session() == Some(session.id())).count();
    SessionActivity { waiting, ..SessionActivity::of_work(session) }
}

/// Returns the activity of every session in which something works or waits.
fn session_activity(engine: &Engine) -> BTreeMap<String, SessionActivity> {
    let mut all = BTreeMap::<String, SessionActivity>::new();
    for session in engine.state().sessions().filter(|session| !session.is_at_rest()) {
        all.insert(session.id().to_string(), SessionActivity::of_work(session));
    }
    for session in engine.state().pending_gates().filter_map(|gate| gate.session()) {
        all.entry(session.to_string()).or_default().waiting += 1;
    }
    all
}

/// Handles `GET /api/v1/sessions`.
pub(super) async fn list_sessions(State(api): State<Arc<ApiState>>, RawQuery(query): RawQuery) -> ApiResult {
    let params = QueryParams::from_query(query.as_deref(), &["door", "after", "limit"])?;
    params.one_of("door", &door_names())?;
    let limit = params.get_count("limit", LISTED.0, LISTED.1)?;
    let after = match params.get("after") {
        None => None,
        Some(text) => {
            let read = text
                .split_once('.')
                .and_then(|(at, id)| Some(ListPosition { last_at: at.parse().ok()?, id: id.to_owned() }));
            Some(read.ok_or_else(|| ApiError::bad_request(format!("after: invalid position {text:?}")))?)
        }
    };
    let door = params.get("door").map(str::to_owned);
    let source = api.context.handle.source(InboxLane::Request);
    let (from, of_door) = (after.clone(), door.clone());
    let read = source.read_state(move |engine| {
        let agents = listed_agents(engine, of_door.as_deref(), from.as_ref(), limit + 1);
        (session_activity(engine), agents, engine.state().head_lsn())
    });
    let ((busy, mut rows, head), _) = read.await.ok_or_else(ApiError::gateway_closing)?;
    rows.extend(read_rows(api.context.handle.log(), door.as_deref(), after, limit + 1).await?);
    rows.sort_by(|one, other| list_order((one.last_at, &one.id), (other.last_at, &other.id)));
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| has_more).map(|row| format!("{}.{}", row.last_at, row.id));
    let sessions = rows.iter().map(|row| session_summary(row, busy.get(&row.id))).collect();
    let cursor = RecordCursor::at_lsn(api.context.handle.log(), head).await?;
    Ok(reply::ok(&SessionList { sessions, next, cursor }))
}

/// Compares sessions by the time of their last message and their id, in the order of [`sessions::list_page`].
fn list_order(one: (u64, &str), other: (u64, &str)) -> Ordering {
    other.0.cmp(&one.0).then_with(|| one.1.cmp(other.1))
}

/// Reads up to `most` rows of `door` after a position.
async fn read_rows(
    log: &AnyLog,
    door: Option<&str>,
    mut after: Option<ListPosition>,
    most: usize,
) -> Result<Vec<SessionListRow>, LogReadError> {
    let mut rows = Vec::new();
    loop {
        let page = sessions::list_page(log, after.as_ref(), most).await?;
        let is_last = page.len() < most;
        after = page.last().map(SessionListRow::list_position);
        rows.extend(page.into_iter().filter(|row| door.is_none_or(|door| row.door.as_deref() == Some(door))));
        if is_last || rows.len() >= most {
            rows.truncate(most);
            return Ok(rows);
        }
    }
}

/// Returns the first `most` sessions of agents of `door` after a position. They are in no list: they are always in memory.
fn listed_agents(
    engine: &Engine,
    door: Option<&str>,
    after: Option<&ListPosition>,
    most: usize,
) -> Vec<SessionListRow> {
    let is_after = |session: &&Session| {
        after.is_none_or(|after| {
            list_order((after.last_at, &after.id), (session.opened_at().0, session.id().as_str())) == Ordering::Less
        })
    };
    let mut agents: Vec<&Session> = engine
        .state()
        .sessions()
        .filter(|session| sessions::is_agents(session.id()))
        .filter(|session| door.is_none_or(|door| agent_door(session) == door))
        .filter(is_after)
        .collect();
    let order = |one: &&Session, other: &&Session| {
        list_order((one.opened_at().0, one.id().as_str()), (other.opened_at().0, other.id().as_str()))
    };
    agents.sort_unstable_by(order);
    agents.into_iter().take(most).map(agent_row).collect()
}

fn agent_door(session: &Session) -> &str {
    session.door().unwrap_or(Protocol::AgentGate.name())
}

/// Returns the row of an agent's session.
fn agent_row(session: &Session) -> SessionListRow {
    SessionListRow {
        id: session.id().to_string(),
        door: Some(agent_door(session).to_owned()),
        name: ["agent:", "mcp:"]
            .iter()
            .find_map(|prefix| session.id().as_str().strip_prefix(prefix))
            .map(str::to_owned),
        opened_at: session.opened_at().0,
        last_at: session.opened_at().0,
        ..SessionListRow::default()
    }
}

fn session_summary(row: &SessionListRow, busy: Option<&SessionActivity>) -> SessionSummary {
    let busy = busy.cloned().unwrap_or_default();
    SessionSummary {
        id: row.id.clone(),
        door: row.door.clone(),
        name: row.name.clone(),
        cwd: Some(row.cwd.clone()).filter(|cwd| !cwd.is_empty()),
        model: row.model.clone().map(|(provider, id)| ModelName { provider, id }),
        opened_at: format_iso(Millis(row.opened_at)),
        last_at: format_iso(Millis(row.last_at)),
        messages: row.messages,
        calls: row.calls,
        tokens: row.tokens,
        state: session_state(&busy),
        run: busy.run,
        waiting: busy.waiting,
    }
}

const fn session_state(busy: &SessionActivity) -> SessionState {
    match (busy.waiting, busy.works) {
        (1.., _) => SessionState::Waiting,
        (0, true) => SessionState::Working,
        (0, false) => SessionState::Resting,
    }
}

/// Snapshot of a session for a page whose messages and cursor are in the record.
struct PageSnapshot {
    conversation: ConversationPage,
    /// Position of the message of each entry.
    contents: Vec<Lsn>,
    /// Last record that it shows.
    lsn: Lsn,
}

/// Handles `GET /api/v1/sessions/{id}`.
pub(super) async fn get_session(
    State(api): State<Arc<ApiState>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> ApiResult {
    let params = QueryParams::from_query(query.as_deref(), &["before", "limit"])?;
    let limit = params.get_count("limit", ENTRIES.0, ENTRIES.1)?;
    let before = params.get("before").map(str::to_owned);
    let session = SessionId::new(id.as_str());
    let session_id = session.clone();
    let look = move |engine: &Engine| {
        let session = sessions::find_session(engine, &session_id)?;
        Some(read_page(engine, session, before.as_deref(), limit))
    };
    let read = api.context.handle.source(InboxLane::Request).read_of(ResidencyScope::Session(session), look).await;
    let (found, _) = read.ok_or_else(ApiError::gateway_closing)?;
    let missing = || ApiError::new(StatusCode::NOT_FOUND, format!("there is no session {id}"));
    let PageSnapshot { mut conversation, contents, lsn } = found.ok_or_else(missing)??;
    let contents = api.context.handle.contents().get(&contents).await?;
    for (entry, content) in conversation.entries.iter_mut().zip(contents) {
        entry.message = content.and_then(|text| serde_json::from_str(&text).ok());
    }
    conversation.cursor = RecordCursor::at_lsn(api.context.handle.log(), lsn).await?;
    Ok(reply::ok(&conversation))
}

fn read_page(engine: &Engine, session: &Session, before: Option<&str>, limit: usize) -> Result<PageSnapshot, ApiError> {
    let path = session.path_entries();
    let end = match before {
        None => path.len(),
        Some(before) => path.iter().position(|entry| entry.id.as_str() == before).ok_or_else(|| {
            ApiError::bad_request(format!("before: there is no entry {before:?} in this conversation"))
        })?,
    };
    let start = end.saturating_sub(limit);
    let shown = &path[start..end];
    let entry = |entry: &&SessionEntry| ConversationEntry {
        id: entry.id.to_string(),
        parent: entry.parent.as_ref().map(ToString::to_string),
        at: format_iso(entry.at),
        kind: entry.kind.clone(),
        message: None,
    };
    let busy = activity_of(engine, session);
    let model = session.settings().model.as_ref();
    let conversation = ConversationPage {
        id: session.id().to_string(),
        door: session.door().map(str::to_owned),
        name: session.name().map(str::to_owned),
        parent: session.parent().map(str::to_owned),
        cwd: Some(session.cwd().to_owned()).filter(|cwd| !cwd.is_empty()),
        model: model.map(|model| ModelName { provider: model.provider.to_string(), id: model.id.to_string() }),
        opened_at: format_iso(session.opened_at()),
        state: session_state(&busy),
        run: busy.run,
        waiting: busy.waiting,
        queued: session.queued_count(),
        length: path.len(),
        earlier: shown.first().filter(|_| start > 0).map(|entry| entry.id.to_string()),
        cursor: RecordCursor::START,
        entries: shown.iter().map(entry).collect(),
    };
    let contents = shown.iter().map(|entry| entry.content).collect();
    Ok(PageSnapshot { conversation, contents, lsn: engine.state().head_lsn() })
}

/// Handles `POST /api/v1/sessions`.
pub(super) async fn open_session(State(api): State<Arc<ApiState>>, request: ApiRequest<OpenRequest>) -> ApiResult {
    let key = request.keyed_request("open");
    let OpenRequest { workspace, provider, model, message } = request.body;
    if model.is_none() && provider.is_some() {
        return Err(ApiError::bad_request("provider without model: give both, or leave both out"));
    }
    let (key, model) = (key?, model.map(|model| (provider, model)));
    let new_conversation =
        NewConversation { workspace, model, message: message.clone(), key: key.clone(), ..NewConversation::default() };
    let session = api.context.chats.open_session(DOOR, new_conversation).await?;
    let receipt = match message {
        Some(message) => {
            let key = key.map(|key| key.part_key("message"));
            let reply = api.context.chats.prompt_once(&session, &message, WhenBusy::Refuse, key.as_ref()).await?;
            Some(message_receipt(&reply))
        }
        None => None,
    };
    let (state, run) = receipt.map_or((OpenedState::Resting, None), |receipt| (receipt.state.into(), receipt.run));
    Ok(reply::json(StatusCode::CREATED, &OpenedSession { state, run, id: session.to_string() }))
}

fn message_receipt(reply: &EngineReply) -> MessageReceipt {
    let (state, run) = match reply {
        EngineReply::Started(run) => (MessageState::Working, Some(run)),
        EngineReply::BehindCompaction(run) => (MessageState::Queued, Some(run)),
        EngineReply::Queued => (MessageState::Queued, None),
        _ => (MessageState::Done, None),
    };
    MessageReceipt { state, run: run.map(ToString::to_string) }
}

/// Handles `POST /api/v1/sessions/{id}/messages`.
pub(super) async fn send_message(
    State(api): State<Arc<ApiState>>,
    Path(id): Path<String>,
    request: ApiRequest<MessageRequest>,
) -> ApiResult {
    let key = request.keyed_request("say")?;
    let MessageRequest { text, when_busy } = request.body;
    let when_busy = when_busy.map_or(WhenBusy::Refuse, WhenBusy::from);
    let reply = api.context.chats.prompt_once(&SessionId::new(id.as_str()), &text, when_busy, key.as_ref()).await?;
    Ok(reply::json(StatusCode::ACCEPTED, &message_receipt(&reply)))
}

/// Handles `POST /api/v1/sessions/{id}/steer`.
pub(super) async fn steer_session(
    State(api): State<Arc<ApiState>>,
    Path(id): Path<String>,
    request: ApiRequest<SteerRequest>,
) -> ApiResult {
    let key = request.keyed_request("steer")?;
    match api.context.chats.steer_run(&SessionId::new(id.as_str()), &request.body.text, key.as_ref()).await? {
        Some(run) => Ok(reply::json(StatusCode::ACCEPTED, &SteerReceipt { run: run.to_string() })),
        None => Err(ApiError::new(StatusCode::CONFLICT, "no run is active in this session: send a message instead")),
    }
}

/// Handles `POST /api/v1/sessions/{id}/stop`.
pub(super) async fn stop_session(
    State(api): State<Arc<ApiState>>,
    Path(id): Path<String>,
    _: ApiRequest<StopRequest>,
) -> ApiResult {
    let (run, stopped) = match api.context.chats.stop_session(&SessionId::new(id.as_str())).await? {
        StopOutcome::Run(run) => (Some(run.to_string()), true),
        StopOutcome::Other => (None, true),
        StopOutcome::Nothing => (None, false),
    };
    Ok(reply::ok(&StopReport { run, stopped }))
}
