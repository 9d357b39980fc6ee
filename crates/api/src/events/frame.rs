//! How an event looks: the fact as it lies in the record, with its text or with where that can be had.

use bytes::Bytes;
use countersign_core::message::Block;
use countersign_http::web::sse;
use countersign_runtime::{
    Live, LiveKind, Part,
    store::{AnyLog, Content, Log as _, Partition, ReadError, Stored},
};
use countersign_view::{record::name, time::iso};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};

use crate::cursor::Cursor;

/// How much of a fact is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// Without its text.
    Plain,
    /// With its text.
    Whole,
}

/// One event. *Shape:* members in this order.
#[derive(Serialize)]
struct Told<'a> {
    lsn: u64,
    at: String,
    session: Option<&'a str>,
    kind: &'a str,
    event: &'a str,
    version: u16,
    /// The text that the chain covers.
    facts: Option<&'a RawValue>,
    content: Option<Value>,
}

/// A record as an event. Its id is the cursor behind it.
///
/// # Errors
/// What the log says.
pub(super) async fn fact(log: &AnyLog, stored: &Stored, view: View) -> Result<Bytes, ReadError> {
    let content = match stored.content_digest {
        None => None,
        Some(digest) => Some(match view {
            View::Plain => json!({ "digest": digest, "href": format!("/api/v1/audit/{}", stored.lsn) }),
            View::Whole => match log.contents(Partition::ZERO, &[stored.lsn]).await?.pop().flatten() {
                Some(Content::Text(text)) => json!({ "digest": digest, "text": &*text }),
                Some(Content::Redacted) | None => json!({ "digest": digest, "redacted": true }),
            },
        }),
    };
    let told = Told {
        lsn: stored.lsn.0,
        at: iso(stored.at),
        session: stored.session.as_ref().map(|session| session.as_str()),
        kind: &stored.kind,
        event: name(stored),
        version: stored.version,
        facts: serde_json::from_str(&stored.facts).ok(),
        content,
    };
    Ok(sse::frame(Some(&Cursor::behind(stored).to_string()), &stored.kind, &told))
}

/// What is said while it is said. It has no id: nobody can ask for it again.
pub(super) fn live(live: &Live) -> Bytes {
    let mut told = match &live.kind {
        LiveKind::MessageStarted { run, provider, model, .. } => {
            json!({ "event": "message_started", "run": run.to_string(), "provider": provider, "model": model })
        }
        LiveKind::PartStarted { index, part } => match part {
            Part::Text => json!({ "event": "part_started", "index": index, "part": "text" }),
            Part::Thinking => json!({ "event": "part_started", "index": index, "part": "thinking" }),
            Part::Redacted => json!({ "event": "part_started", "index": index, "part": "redacted" }),
            Part::ToolCall { id, name } => {
                json!({ "event": "part_started", "index": index, "part": "tool_call", "id": id, "name": name })
            }
        },
        LiveKind::Delta { index, text } => json!({ "event": "delta", "index": index, "text": text }),
        LiveKind::PartEnded { index, .. } => json!({ "event": "part_ended", "index": index }),
        LiveKind::Idle { since, limit } => {
            json!({ "event": "idle", "since_seconds": since.as_secs(), "limit_seconds": limit.as_secs() })
        }
        LiveKind::CallProgress { call, content, .. } => {
            let texts = content.iter().filter_map(|block| match block {
                Block::Text(text) => Some(text.text.as_str()),
                _ => None,
            });
            json!({ "event": "call_progress", "call": call.to_string(), "output": texts.collect::<String>() })
        }
    };
    told["session"] = json!(live.session);
    sse::frame(None, "live", &told)
}
