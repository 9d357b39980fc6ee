//! Export of conversations as files, and search in them. Source: docs/protocol/hermes.md, Changes of a session.

use std::{collections::BTreeMap, sync::Arc};

use crate::wire;
use axum::{
    Router,
    extract::{Query, State},
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use countersign_conversations::sessions::find_session;
use countersign_core::{engine::ResidencyScope, id::SessionId, message::StoredMessage, time::Millis};
use countersign_http::{reply, web::GuardedRoutes};
use countersign_runtime::InboxLane;
use countersign_view::export::{ExportHeader, export_html};
use serde_json::json;

use super::{
    HermesAdapter,
    fields::{self, RequestRejection},
    transcript::{self, MessageSelection},
};

/// Most conversations that one search reads, the newest first.
const SEARCHED: usize = 500;
/// Default number of messages of each; a client may request 0 for all.
const DEPTH: usize = 5;
/// Length of the excerpt around a match, in characters.
const AROUND: usize = 50;

type ExportParams = Query<BTreeMap<String, String>>;
type ExportResult = Result<Response, RequestRejection>;

pub(super) fn routes(door: &Arc<HermesAdapter>) -> Router {
    GuardedRoutes::new(&door.context.auth)
        .add_route("GET", "/api/session/export", export_session)
        .add_route("GET", "/api/sessions/search", search_sessions)
        .with_state(Arc::clone(door))
}

async fn export_session(State(door): State<Arc<HermesAdapter>>, params: ExportParams) -> ExportResult {
    let id = fields::session_in(&params)?;
    let missing = || RequestRejection::no_session();
    let session = transcript::load_session(&door.context.handle, &id, MessageSelection::Last(usize::MAX))
        .await
        .ok_or_else(missing)?;
    let (kind, ending, file) = match params.get("format").map(String::as_str) {
        None | Some("json") => {
            let file = serde_json::to_vec_pretty(&session).unwrap_or_default();
            ("application/json; charset=utf-8", "json", file)
        }
        Some("html") => {
            let page = html_page(&door, &id, &session).await.ok_or_else(missing)?;
            ("text/html; charset=utf-8", "html", page.into_bytes())
        }
        Some(other) => {
            return Err(RequestRejection::bad(format!("format must be json or html, not {other}")));
        }
    };
    let mut response = reply::with_content_type(StatusCode::OK, kind, file);
    let name: String = id.as_str().chars().map(|sign| if sign.is_ascii_alphanumeric() { sign } else { '-' }).collect();
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"hermes-{name}.{ending}\"")) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, value);
    }
    Ok(response)
}

async fn html_page(door: &HermesAdapter, id: &SessionId, session: &wire::HermesSession) -> Option<String> {
    let of = id.clone();
    let source = door.context.handle.source(InboxLane::Request);
    let read = source.read_of(ResidencyScope::Session(id.clone()), move |engine| {
        let session = find_session(engine, &of)?;
        let path: Vec<_> = session.path_entries().into_iter().map(|entry| (entry.content, entry.at)).collect();
        Some((session.opened_at(), path))
    });
    let (started, path) = read.await?.0?;
    let lsns: Vec<_> = path.iter().map(|(content, _)| *content).collect();
    let texts = door.context.handle.contents().get(&lsns).await.ok()?;
    let messages = path
        .into_iter()
        .zip(texts)
        .filter_map(|((_, at), text)| Some((serde_json::from_str::<StoredMessage>(&text?).ok()?, at)));
    let messages: Vec<(StoredMessage, Millis)> = messages.collect();
    let model = session.model_provider.as_ref().zip(session.model.as_ref());
    let header = ExportHeader {
        name: Some(session.title.clone()),
        session: id.to_string(),
        cwd: session.workspace.clone(),
        model: model.map(|(provider, id)| format!("{provider}/{id}")),
        started: Some(started),
        exported: door.context.clock.now(),
    };
    Some(export_html(&header, &messages))
}

async fn search_sessions(State(door): State<Arc<HermesAdapter>>, params: ExportParams) -> ExportResult {
    let needle = params.get("q").map(|text| text.trim().to_lowercase()).unwrap_or_default();
    let in_messages = fields::flag_in(&params, "content", true)?;
    let depth = fields::count_in(&params, "depth")?.unwrap_or(DEPTH);
    let Some(listed) = transcript::list_sessions(&door.context.handle).await else {
        return Err(RequestRejection::new(StatusCode::SERVICE_UNAVAILABLE, "the record cannot be read"));
    };
    let mut found = Vec::new();
    for (number, session) in listed.into_iter().enumerate() {
        let mut row = json!(session);
        if needle.is_empty() {
            found.push(row);
            continue;
        }
        if session.title.to_lowercase().contains(&needle) {
            row["match_type"] = "title".into();
            found.push(row);
        } else if in_messages && number < SEARCHED {
            let preview = find_excerpt(&door, &SessionId::new(session.session_id.as_str()), &needle, depth).await;
            if let Some(preview) = preview {
                row["match_type"] = "content".into();
                row["match_preview"] = preview.into();
                found.push(row);
            }
        }
    }
    let count = found.len();
    Ok(reply::ok(&json!({
        "sessions": found, "query": needle, "count": count, "all_profiles": false, "active_profile": "default",
    })))
}

/// Finds a text among the first `depth` messages of a session, and returns an excerpt around it.
async fn find_excerpt(door: &HermesAdapter, id: &SessionId, needle: &str, depth: usize) -> Option<String> {
    let session = transcript::load_session(&door.context.handle, id, MessageSelection::Last(usize::MAX)).await?;
    let messages = session.messages.unwrap_or_default();
    let most = if depth == 0 { messages.len() } else { depth };
    messages.iter().take(most).find_map(|message| excerpt_around(message.content.as_str()?, needle))
}

/// Returns the part of `text` around `needle`, which is in lower case, in one line.
fn excerpt_around(text: &str, needle: &str) -> Option<String> {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let lower = line.to_lowercase();
    let at = lower.get(..lower.find(needle)?)?.chars().count();
    let first = at.saturating_sub(AROUND);
    let length = at - first + needle.chars().count() + AROUND;
    let shown: String = line.chars().skip(first).take(length).collect();
    let before = if first > 0 { "..." } else { "" };
    let after = if first + length < line.chars().count() { "..." } else { "" };
    Some(format!("{before}{}{after}", shown.trim()))
}

#[cfg(test)]
mod tests {
    use super::excerpt_around;

    #[test]
    fn what_was_found_is_shown_with_a_little_around_it() {
        assert_eq!(excerpt_around("Open the\n DOOR now", "door").as_deref(), Some("Open the DOOR now"));
        assert_eq!(excerpt_around("nothing", "door"), None);
        let long = format!("{}door{}", "a ".repeat(100), " b".repeat(100));
        let shown = excerpt_around(&long, "door").unwrap();
        assert!(
            shown.starts_with("...") && shown.ends_with("...") && shown.contains("door") && shown.len() < 120,
            "{shown}"
        );
        assert!(excerpt_around("ẞ İ door", "door").is_some(), "letters whose lower case is longer");
    }
}
