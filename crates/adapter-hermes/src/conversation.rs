//! Changes of a conversation: taken back, cut, copied, cleared, summed up, listed otherwise. Source: docs/protocol/hermes.md,
//! Changes of a session.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Extension, Router,
    extract::{Query, State},
    response::Response,
};
use countersign_conversations::chats::Extent;
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
    Door,
    fields::{self, Rejection},
    sessions::DOOR,
    transcript::{self, MOST_MESSAGES, Messages},
};

/// How long the name of a copy may be, in characters.
const LONGEST_NAME: usize = 80;
/// How long the topic of a summary may be, in characters.
const LONGEST_TOPIC: usize = 500;
/// How many sessions may be pinned where the settings do not say.
pub(super) const MOST_PINNED: usize = 3;
/// Of how many sessions it is remembered that a summary was asked for.
const REMEMBERED: usize = 256;

type Params = Query<BTreeMap<String, String>>;
type Outcome = Result<Response, Rejection>;

/// Summaries that were asked for, by session: since when, and about what.
#[derive(Default)]
pub(super) struct Summaries(Mutex<BTreeMap<SessionId, (Millis, Option<String>)>>);

impl Summaries {
    fn note(&self, session: SessionId, at: Millis, topic: Option<String>) {
        let mut noted = self.0.lock();
        noted.insert(session, (at, topic));
        if noted.len() > REMEMBERED
            && let Some(oldest) = noted.iter().min_by_key(|(_, (at, _))| *at).map(|(id, _)| id.clone())
        {
            noted.remove(&oldest);
        }
    }

    fn of(&self, session: &SessionId) -> Option<(Millis, Option<String>)> {
        self.0.lock().get(session).cloned()
    }
}

pub(super) fn routes(door: &Arc<Door>) -> Router {
    GuardedRoutes::new(&door.context.auth)
        .add_route("POST", "/api/session/undo", undo)
        .add_route("POST", "/api/session/retry", retry)
        .add_route("POST", "/api/session/truncate", truncate)
        .add_route("POST", "/api/session/clear", clear)
        .add_route("POST", "/api/session/branch", branch)
        .add_route("POST", "/api/session/duplicate", duplicate)
        .add_route("POST", "/api/session/compress/start", compress)
        .add_route("GET", "/api/session/compress/status", compressed)
        .add_route("POST", "/api/session/title/regenerate", name_again)
        .add_route("POST", "/api/session/update", update)
        .add_route("POST", "/api/session/pin", pin)
        .add_route("POST", "/api/session/archive", archive)
        .add_route("POST", "/api/session/delete", delete)
        .with_state(Arc::clone(door))
}

/// The reply to a change: the session as it is now.
async fn changed(door: &Door, id: &SessionId, messages: Messages) -> Outcome {
    match transcript::session(&door.context.handle, id, messages).await {
        Some(session) => Ok(reply::ok(&json!({ "ok": true, "session": session }))),
        None => Err(Rejection::no_session()),
    }
}

fn nothing_to(word: &str) -> Response {
    // Clients show it as a notice: the request itself was fine.
    reply::ok(&json!({ "error": format!("Nothing to {word}: no message was sent in this conversation.") }))
}

async fn undo(State(door): State<Arc<Door>>, body: BodyFields) -> Outcome {
    let id = fields::session(&body)?;
    let Some(back) = door.context.chats.undo(&id).await? else {
        return Ok(nothing_to("undo"));
    };
    let preview: String = back.text.chars().take(40).collect();
    let more = if back.text.chars().nth(40).is_some() { "..." } else { "" };
    Ok(reply::ok(&json!({
        "ok": true, "removed_count": back.messages, "removed_preview": format!("{preview}{more}"),
    })))
}

async fn retry(State(door): State<Arc<Door>>, body: BodyFields) -> Outcome {
    let id = fields::session(&body)?;
    let Some(back) = door.context.chats.undo(&id).await? else {
        return Ok(nothing_to("retry"));
    };
    Ok(reply::ok(&json!({ "ok": true, "last_user_text": back.text, "removed_count": back.messages })))
}

async fn truncate(State(door): State<Arc<Door>>, body: BodyFields) -> Outcome {
    let id = fields::session(&body)?;
    let Some(keep) = fields::count(&body, "keep_count")? else {
        return Err(Rejection::bad("Missing required field(s): keep_count"));
    };
    let Some(last) = transcript::entry_before(&door.context.handle, &id, keep).await else {
        return Err(Rejection::no_session());
    };
    door.context.chats.end_at(&id, last).await?;
    changed(&door, &id, Messages::Last(MOST_MESSAGES)).await
}

async fn clear(State(door): State<Arc<Door>>, Extension(caller): Extension<HttpCaller>, body: BodyFields) -> Outcome {
    let id = fields::session(&body)?;
    door.context.chats.clear(&id, &caller.principal).await?;
    changed(&door, &id, Messages::Last(MOST_MESSAGES)).await
}

async fn branch(State(door): State<Arc<Door>>, body: BodyFields) -> Outcome {
    let id = fields::session(&body)?;
    let keep = fields::count(&body, "keep_count")?;
    let name = fields::text(&body, "title")?;
    let Some(source) = transcript::session(&door.context.handle, &id, Messages::Without).await else {
        return Err(Rejection::no_session());
    };
    let extent = match keep {
        None => Extent::Whole,
        Some(keep) => match transcript::entry_before(&door.context.handle, &id, keep).await {
            Some(last) => Extent::UpTo(last),
            None => return Err(Rejection::no_session()),
        },
    };
    let name =
        name.map_or_else(|| format!("{} (fork)", source.title), |name| name.chars().take(LONGEST_NAME).collect());
    let copy = door.context.chats.copy(DOOR, &id, extent, &name).await?;
    Ok(reply::ok(&json!({ "session_id": copy.as_str(), "title": name, "parent_session_id": id.as_str() })))
}

async fn duplicate(State(door): State<Arc<Door>>, body: BodyFields) -> Outcome {
    let id = fields::session(&body)?;
    let Some(source) = transcript::session(&door.context.handle, &id, Messages::Without).await else {
        return Err(Rejection::no_session());
    };
    let name = format!("{} (copy)", source.title);
    let copy = door.context.chats.copy(DOOR, &id, Extent::Whole, &name).await?;
    changed(&door, &copy, Messages::Last(MOST_MESSAGES)).await
}

async fn compress(State(door): State<Arc<Door>>, body: BodyFields) -> Outcome {
    let id = fields::session(&body)?;
    let topic = match fields::text(&body, "focus_topic")? {
        Some(topic) => Some(topic),
        None => fields::text(&body, "topic")?,
    };
    let topic: Option<String> = topic.map(|topic| topic.chars().take(LONGEST_TOPIC).collect());
    let begun = door.context.clock.now();
    door.context.chats.compact(&id, topic.as_deref()).await?;
    door.summaries.note(id.clone(), begun, topic);
    Ok(summary(&door, &id).await)
}

async fn compressed(State(door): State<Arc<Door>>, asked: Params) -> Outcome {
    let id = fields::session_in(&asked)?;
    Ok(summary(&door, &id).await)
}

/// How the summary stands that was asked for last.
async fn summary(door: &Door, id: &SessionId) -> Response {
    let idle = || reply::ok(&json!({ "ok": true, "status": "idle", "session_id": id.as_str() }));
    let Some((begun, topic)) = door.summaries.of(id) else { return idle() };
    let of = id.clone();
    let source = door.context.handle.source(InboxLane::Request);
    let read = source.read_state(move |engine| {
        let session = engine.state().session(&of)?;
        let is_made = |entry: &&countersign_core::session::SessionEntry| {
            matches!(entry.kind, SessionEntryKind::Compaction { .. }) && entry.at >= begun
        };
        Some((session.active_compaction().is_some(), session.path_entries().into_iter().any(|entry| is_made(&entry))))
    });
    let Some((Some((is_working, is_made)), _)) = read.await else { return idle() };
    let mut told = json!({
        "ok": true, "status": "running", "session_id": id.as_str(), "focus_topic": topic,
        "started_at": transcript::seconds(begun), "updated_at": transcript::seconds(door.context.clock.now()),
    });
    if is_working {
        return reply::ok(&told);
    }
    if !is_made {
        told["ok"] = false.into();
        told["status"] = "error".into();
        told["error"] = "The conversation was not summed up: it was stopped, or the model gave no summary".into();
        told["error_status"] = 502.into();
        return reply::ok(&told);
    }
    told["status"] = "done".into();
    let session = transcript::session(&door.context.handle, id, Messages::Last(MOST_MESSAGES)).await;
    told["session"] = session.map_or(Value::Null, |session| json!(session));
    told["summary"] = json!({ "headline": "What came before was summed up", "token_line": "", "note": null });
    reply::ok(&told)
}

async fn name_again(State(door): State<Arc<Door>>, body: BodyFields) -> Outcome {
    let id = fields::session(&body)?;
    match door.context.chats.rename_by_first(&id).await? {
        Some(name) => Ok(reply::ok(&json!({ "ok": true, "title": transcript::title(Some(&name)) }))),
        None => Err(Rejection::bad("There is no message to name this conversation by")),
    }
}

async fn update(State(door): State<Arc<Door>>, body: BodyFields) -> Outcome {
    let id = fields::session(&body)?;
    let chats = &door.context.chats;
    // What is refused changes nothing, so the model is looked up before the folder is changed.
    let (workspace, model) = (fields::text(&body, "workspace")?, fields::model(&body, chats.models())?);
    if let Some(workspace) = workspace {
        chats.relocate(&id, workspace).await?;
    }
    if let Some(model) = model {
        chats.use_model(&id, model).await?;
    }
    changed(&door, &id, Messages::Last(MOST_MESSAGES)).await
}

async fn pin(State(door): State<Arc<Door>>, body: BodyFields) -> Outcome {
    let id = fields::session(&body)?;
    fields::not_null(&body, "pinned")?;
    let pinned = fields::flag(&body, "pinned", true)?;
    if pinned {
        let most = door.preferences.most_pinned();
        let listed = transcript::list(&door.context.handle).await.unwrap_or_default();
        let others = listed.iter().filter(|other| other.pinned && !other.archived && other.session_id != id.as_str());
        if others.count() >= most {
            let why = format!("Up to {most} sessions can be pinned. Unpin one before pinning another.");
            return Err(Rejection::bad(why));
        }
    }
    listed(&door, &id, |listing| listing.pinned = pinned).await
}

async fn archive(State(door): State<Arc<Door>>, body: BodyFields) -> Outcome {
    let id = fields::session(&body)?;
    fields::not_null(&body, "archived")?;
    let archived = fields::flag(&body, "archived", true)?;
    listed(&door, &id, |listing| listing.archived = archived).await
}

async fn listed(door: &Door, id: &SessionId, change: impl FnOnce(&mut ListingFlags) + Send) -> Outcome {
    door.context.chats.list_as(id, change).await?;
    changed(door, id, Messages::Without).await
}

async fn delete(State(door): State<Arc<Door>>, body: BodyFields) -> Outcome {
    let id = fields::session(&body)?;
    door.context.chats.list_as(&id, |listing| listing.deleted = true).await?;
    door.preferences.forget_draft(&id).await;
    Ok(reply::ok(&json!({ "ok": true, "session_id": id.as_str() })))
}
