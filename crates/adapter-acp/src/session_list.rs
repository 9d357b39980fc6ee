//! The list of sessions that an editor may open.

use countersign_acp_protocol::{ErrorCode, ListSessionsParams, ListSessionsReply, ListedSession};
use countersign_conversations::sessions::{ListPosition, SessionListRow, list_page};
use countersign_core::time::Millis;
use countersign_runtime::OwnerHandle;
use countersign_view::{LineMode, escape, time};

use crate::output::RequestFailure;

/// Number of sessions in a page.
const PAGE: usize = 50;

/// Lists a page of sessions, the latest first. Those that an agent or a host of its own speaks in are left out, and those without a
/// message.
///
/// # Errors
/// A cursor that is none, or a record that cannot be read.
pub(crate) async fn list_sessions(
    handle: &OwnerHandle,
    params: &ListSessionsParams,
) -> Result<ListSessionsReply, RequestFailure> {
    let mut position = match &params.cursor {
        Some(cursor) => Some(parse_cursor(cursor).ok_or_else(|| {
            RequestFailure::parameter("cursor", cursor, "expected the nextCursor of an earlier reply")
        })?),
        None => None,
    };
    let cwd = params.cwd.as_deref().map(|cwd| real_path(cwd.to_owned()));
    let cwd = match cwd {
        Some(cwd) => Some(cwd.await),
        None => None,
    };
    let mut sessions = Vec::new();
    loop {
        let page = list_page(handle.log(), position.as_ref(), PAGE).await.map_err(|error| {
            RequestFailure::new(ErrorCode::Internal, format!("the list of sessions cannot be read: {error}"))
        })?;
        let is_last = page.len() < PAGE;
        for row in page {
            position = Some(row.list_position());
            if !row.hosted && row.messages > 0 && cwd.as_ref().is_none_or(|cwd| *cwd == row.cwd) {
                sessions.push(listed_session(row));
            }
            if sessions.len() == PAGE {
                return Ok(ListSessionsReply { sessions, next_cursor: position.map(|at| encode_cursor(&at)) });
            }
        }
        if is_last {
            return Ok(ListSessionsReply { sessions, next_cursor: None });
        }
    }
}

/// Returns a folder as sessions have it.
async fn real_path(path: String) -> String {
    let text = path.clone();
    let real = tokio::task::spawn_blocking(move || std::fs::canonicalize(&text)).await;
    real.ok().and_then(Result::ok).map_or(path, |real| real.display().to_string())
}

fn listed_session(row: SessionListRow) -> ListedSession {
    ListedSession {
        session_id: row.id,
        cwd: row.cwd,
        title: row.name.map(|name| escape(&name, LineMode::One).into_owned()),
        updated_at: time::format_iso(Millis(row.last_at)),
    }
}

fn encode_cursor(position: &ListPosition) -> String {
    format!("{}:{}", position.last_at, position.id)
}

fn parse_cursor(cursor: &str) -> Option<ListPosition> {
    let (last_at, id) = cursor.split_once(':')?;
    Some(ListPosition { last_at: last_at.parse().ok()?, id: id.to_owned() })
}
