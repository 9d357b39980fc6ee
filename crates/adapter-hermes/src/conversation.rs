//! Changes of a conversation: undone, cut, copied, cleared, compacted, listed otherwise. Source: docs/protocol/hermes.md,
//! Changes of a session.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Extension, Router,
    extract::{Query, State},
    http::StatusCode,
    response::Response,
};
use countersign_conversations::{
    chats::{ConversationCopy, CopyExtent},
    sessions::{find_session, is_deletable},
};
use countersign_core::{
    id::SessionId,
    session::{ListingFlags, SessionEntryKind},
    time::Millis,
};
use countersign_http::{
    reply,
    web::{BodyFields, GuardedRoutes, HttpCaller},
};
use countersign_runtime::InboxLane;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    HermesAdapter,
    fields::{self, RequestRejection},
    sessions::{ADAPTER, DENIALS, STOPPED},
    transcript::{self, MOST_MESSAGES, MessageSelection},
};

/// Longest name of a copy, in characters.
const LONGEST_NAME: usize = 80;
/// Longest topic of a summary, in characters.
const LONGEST_TOPIC: usize = 500;
/// Most pinned sessions if the settings name no number.
pub(super) const MOST_PINNED: usize = 3;
/// Most sessions whose requested summaries are remembered.
const REMEMBERED: usize = 256;

type ConversationParams = Query<BTreeMap<String, String>>;
type ConversationResult = Result<Response, RequestRejection>;

/// Requested summaries by session: time of the request, and topic.
#[derive(Default)]
pub(super) struct RequestedSummaries(Mutex<BTreeMap<SessionId, (Millis, Option<String>)>>);

impl RequestedSummaries {
    fn note_request(&self, session: SessionId, at: Millis, topic: Option<String>) {
        let mut noted = self.0.lock();
        noted.insert(session, (at, topic));
        if noted.len() > REMEMBERED
            && let Some(oldest) = noted.iter().min_by_key(|(_, (at, _))| *at).map(|(id, _)| id.clone())
        {
            noted.remove(&oldest);
        }
    }

    fn find_request(&self, session: &SessionId) -> Option<(Millis, Option<String>)> {
        self.0.lock().get(session).cloned()
    }
}

pub(super) fn routes(door: &Arc<HermesAdapter>) -> Router {
    GuardedRoutes::new(&door.context.auth)
        .add_route("POST", "/api/session/undo", undo_turn)
        .add_route("POST", "/api/session/retry", retry_turn)
        .add_route("POST", "/api/session/truncate", truncate_session)
        .add_route("POST", "/api/session/clear", clear_session)
        .add_route("POST", "/api/session/branch", branch_session)
        .add_route("POST", "/api/session/duplicate", duplicate_session)
        .add_route("POST", "/api/session/compress/start", start_compression)
        .add_route("GET", "/api/session/compress/status", compression_status)
        .add_route("POST", "/api/session/title/regenerate", name_again)
        .add_route("POST", "/api/session/update", update_session)
        .add_route("POST", "/api/session/pin", pin_session)
        .add_route("POST", "/api/session/archive", archive_session)
        .add_route("POST", "/api/session/delete", delete_session)
        .with_state(Arc::clone(door))
}

/// Returns the reply to a change: the session as it is now.
async fn session_response(door: &HermesAdapter, id: &SessionId, messages: MessageSelection) -> ConversationResult {
    match transcript::load_session(&door.context.handle, id, messages).await {
        Some(session) => Ok(reply::ok(&json!({ "ok": true, "session": session }))),
        None => Err(RequestRejection::no_session()),
    }
}

fn nothing_to(word: &str) -> Response {
    // Clients show it as a notice: the request itself was fine.
    reply::ok(&json!({ "error": format!("Nothing to {word}: no message was sent in this conversation.") }))
}

async fn undo_turn(State(door): State<Arc<HermesAdapter>>, body: BodyFields) -> ConversationResult {
    let id = fields::session_field(&body)?;
    let Some(back) = door.context.chats.undo_last(&id).await? else {
        return Ok(nothing_to("undo"));
    };
    let preview: String = back.text.chars().take(40).collect();
    let more = if back.text.chars().nth(40).is_some() { "..." } else { "" };
    Ok(reply::ok(&json!({
        "ok": true, "removed_count": back.messages, "removed_preview": format!("{preview}{more}"),
    })))
}

async fn retry_turn(State(door): State<Arc<HermesAdapter>>, body: BodyFields) -> ConversationResult {
    let id = fields::session_field(&body)?;
    let Some(back) = door.context.chats.undo_last(&id).await? else {
        return Ok(nothing_to("retry"));
    };
    Ok(reply::ok(&json!({ "ok": true, "last_user_text": back.text, "removed_count": back.messages })))
}

async fn truncate_session(State(door): State<Arc<HermesAdapter>>, body: BodyFields) -> ConversationResult {
    let id = fields::session_field(&body)?;
    let Some(keep) = fields::count_field(&body, "keep_count")? else {
        return Err(RequestRejection::bad("Missing required field(s): keep_count"));
    };
    let Some(last) = transcript::entry_before(&door.context.handle, &id, keep).await else {
        return Err(RequestRejection::no_session());
    };
    door.context.chats.end_at(&id, last).await?;
    session_response(&door, &id, MessageSelection::Last(MOST_MESSAGES)).await
}

async fn clear_session(
    State(door): State<Arc<HermesAdapter>>,
    Extension(caller): Extension<HttpCaller>,
    body: BodyFields,
) -> ConversationResult {
    let id = fields::session_field(&body)?;
    door.context.chats.clear_session(&id, &caller.principal).await?;
    session_response(&door, &id, MessageSelection::Last(MOST_MESSAGES)).await
}

async fn branch_session(State(door): State<Arc<HermesAdapter>>, body: BodyFields) -> ConversationResult {
    let id = fields::session_field(&body)?;
    let keep = fields::count_field(&body, "keep_count")?;
    let name = fields::text_field(&body, "title")?;
    let Some(source) = transcript::load_session(&door.context.handle, &id, MessageSelection::Without).await else {
        return Err(RequestRejection::no_session());
    };
    let extent = match keep {
        None => CopyExtent::Whole,
        Some(keep) => match transcript::entry_before(&door.context.handle, &id, keep).await {
            Some(last) => CopyExtent::UpTo(last),
            None => return Err(RequestRejection::no_session()),
        },
    };
    let name =
        name.map_or_else(|| format!("{} (fork)", source.title), |name| name.chars().take(LONGEST_NAME).collect());
    let copy = door.context.chats.copy_session(&id, new_copy(&extent, &name)).await?;
    Ok(reply::ok(&json!({ "session_id": copy.as_str(), "title": name, "parent_session_id": id.as_str() })))
}

/// Returns a copy with the settings of a session of this adapter, whatever adapter the original is of.
const fn new_copy<'a>(extent: &'a CopyExtent, name: &'a str) -> ConversationCopy<'a> {
    ConversationCopy { door: ADAPTER, extent, name, stopped: STOPPED, denials: DENIALS }
}

async fn duplicate_session(State(door): State<Arc<HermesAdapter>>, body: BodyFields) -> ConversationResult {
    let id = fields::session_field(&body)?;
    let Some(source) = transcript::load_session(&door.context.handle, &id, MessageSelection::Without).await else {
        return Err(RequestRejection::no_session());
    };
    let name = format!("{} (copy)", source.title);
    let copy = door.context.chats.copy_session(&id, new_copy(&CopyExtent::Whole, &name)).await?;
    session_response(&door, &copy, MessageSelection::Last(MOST_MESSAGES)).await
}

async fn start_compression(State(door): State<Arc<HermesAdapter>>, body: BodyFields) -> ConversationResult {
    let id = fields::session_field(&body)?;
    let topic = match fields::text_field(&body, "focus_topic")? {
        Some(topic) => Some(topic),
        None => fields::text_field(&body, "topic")?,
    };
    let topic: Option<String> = topic.map(|topic| topic.chars().take(LONGEST_TOPIC).collect());
    let begun = door.context.clock.now();
    door.context.chats.compact_session(&id, topic.as_deref()).await?;
    door.summaries.note_request(id.clone(), begun, topic);
    Ok(compression_response(&door, &id).await)
}

async fn compression_status(State(door): State<Arc<HermesAdapter>>, params: ConversationParams) -> ConversationResult {
    let id = fields::session_in(&params)?;
    if !transcript::has_session(&door.context.handle, &id).await {
        return Err(RequestRejection::no_session());
    }
    Ok(compression_response(&door, &id).await)
}

/// Returns the state of the last requested summary.
async fn compression_response(door: &HermesAdapter, id: &SessionId) -> Response {
    let idle = || reply::ok(&json!({ "ok": true, "status": "idle", "session_id": id.as_str() }));
    let Some((begun, topic)) = door.summaries.find_request(id) else { return idle() };
    let of = id.clone();
    let source = door.context.handle.source(InboxLane::Request);
    let read = source.read_state(move |engine| {
        let session = find_session(engine, &of)?;
        let is_made = |entry: &&countersign_core::session::SessionEntry| {
            matches!(entry.kind, SessionEntryKind::Compaction { .. }) && entry.at >= begun
        };
        Some((session.active_compaction().is_some(), session.path_entries().into_iter().any(|entry| is_made(&entry))))
    });
    let Some((Some((is_working, is_made)), _)) = read.await else { return idle() };
    let mut body = json!({
        "ok": true, "status": "running", "session_id": id.as_str(), "focus_topic": topic,
        "started_at": transcript::unix_seconds(begun), "updated_at": transcript::unix_seconds(door.context.clock.now()),
    });
    if is_working {
        return reply::ok(&body);
    }
    if !is_made {
        body["ok"] = false.into();
        body["status"] = "error".into();
        body["error"] = "The conversation was not summed up: it was stopped, or the model gave no summary".into();
        body["error_status"] = 502.into();
        return reply::ok(&body);
    }
    body["status"] = "done".into();
    let session = transcript::load_session(&door.context.handle, id, MessageSelection::Last(MOST_MESSAGES)).await;
    body["session"] = session.map_or(Value::Null, |session| json!(session));
    body["summary"] = json!({ "headline": "What came before was summed up", "token_line": "", "note": null });
    reply::ok(&body)
}

async fn name_again(State(door): State<Arc<HermesAdapter>>, body: BodyFields) -> ConversationResult {
    let id = fields::session_field(&body)?;
    match door.context.chats.rename_by_first(&id).await? {
        Some(name) => Ok(reply::ok(&json!({ "ok": true, "title": transcript::shown_title(Some(&name)) }))),
        None => Err(RequestRejection::bad("There is no message to name this conversation by")),
    }
}

async fn update_session(State(door): State<Arc<HermesAdapter>>, body: BodyFields) -> ConversationResult {
    let id = fields::session_field(&body)?;
    let chats = &door.context.chats;
    // A refused change changes nothing, so the model is looked up before the folder is changed.
    let (workspace, model) = (fields::text_field(&body, "workspace")?, fields::model_field(&body, chats.models())?);
    if let Some(workspace) = workspace {
        chats.relocate_session(&id, workspace).await?;
    }
    if let Some(model) = model {
        chats.use_model(&id, model).await?;
    }
    session_response(&door, &id, MessageSelection::Last(MOST_MESSAGES)).await
}

async fn pin_session(State(door): State<Arc<HermesAdapter>>, body: BodyFields) -> ConversationResult {
    let id = fields::session_field(&body)?;
    fields::not_null(&body, "pinned")?;
    let pinned = fields::flag_field(&body, "pinned", true)?;
    // The limit is no answer for a session that cannot be pinned.
    door.context.chats.door_of(&id).await?;
    if pinned {
        let most = door.preferences.most_pinned();
        let listed = transcript::list_sessions(&door.context.handle).await.unwrap_or_default();
        let others = listed.iter().filter(|other| other.pinned && !other.archived && other.session_id != id.as_str());
        if others.count() >= most {
            let why = format!("Up to {most} sessions can be pinned. Unpin one before pinning another.");
            return Err(RequestRejection::bad(why));
        }
    }
    change_listing(&door, &id, |listing| listing.pinned = pinned).await
}

async fn archive_session(State(door): State<Arc<HermesAdapter>>, body: BodyFields) -> ConversationResult {
    let id = fields::session_field(&body)?;
    fields::not_null(&body, "archived")?;
    let archived = fields::flag_field(&body, "archived", true)?;
    change_listing(&door, &id, |listing| listing.archived = archived).await
}

async fn change_listing(
    door: &HermesAdapter,
    id: &SessionId,
    change: impl FnOnce(&mut ListingFlags) + Send,
) -> ConversationResult {
    door.context.chats.list_as(id, change).await?;
    session_response(door, id, MessageSelection::Without).await
}

async fn delete_session(State(door): State<Arc<HermesAdapter>>, body: BodyFields) -> ConversationResult {
    let id = fields::session_field(&body)?;
    let of = door.context.chats.door_of(&id).await?;
    if !is_deletable(of.as_deref()) {
        let of = of.as_deref().unwrap_or("another adapter");
        let why = format!("This session belongs to {of}, whose clients still use it: archive it instead");
        return Err(RequestRejection::new(StatusCode::FORBIDDEN, why));
    }
    door.context.chats.list_as(&id, |listing| listing.deleted = true).await?;
    door.preferences.forget_draft(&id).await;
    Ok(reply::ok(&json!({ "ok": true, "session_id": id.as_str() })))
}
