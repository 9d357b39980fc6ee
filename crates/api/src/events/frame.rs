//! Form of an event: the fact as it is in the record, with its text or with a link to it.

use bytes::Bytes;
use countersign_core::message::MessageBlock;
use countersign_http::web::sse;
use countersign_runtime::{
    LiveKind, LivePartKind, LiveUpdate,
    store::{AnyLog, Log as _, LogReadError, Partition, StoredContent, StoredRecord},
};
use countersign_view::{record::event_name, time::format_iso};

use crate::{
    cursor::RecordCursor,
    wire::{
        audit::RecordContent,
        events::{FactData, LiveData, LiveEvent, LivePart},
    },
};

/// Part of a fact that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentMode {
    /// Without its text.
    Plain,
    /// With its text.
    Whole,
}

/// Returns a record as an event. Its id is the cursor after it.
///
/// # Errors
/// An error of the log.
pub(super) async fn fact_frame(log: &AnyLog, stored: &StoredRecord, view: ContentMode) -> Result<Bytes, LogReadError> {
    let content = match stored.content_digest {
        None => None,
        digest => Some(match view {
            ContentMode::Plain => RecordContent::with_href(digest, format!("/api/v1/audit/{}", stored.lsn)),
            ContentMode::Whole => match log.read_contents(Partition::ZERO, &[stored.lsn]).await?.pop().flatten() {
                Some(StoredContent::Text(text)) => RecordContent::with_text(digest, text.to_string()),
                Some(StoredContent::Redacted) | None => RecordContent::redacted(digest),
            },
        }),
    };
    let data = FactData {
        lsn: stored.lsn.0,
        at: format_iso(stored.at),
        session: stored.session.as_ref().map(|session| session.as_str()),
        kind: &stored.kind,
        event: event_name(stored),
        version: stored.version,
        facts: serde_json::from_str(&stored.facts).ok(),
        content,
    };
    Ok(sse::encode_frame(Some(&RecordCursor::after_record(stored).to_string()), &stored.kind, &data))
}

/// Returns a live frame. It has no id: it cannot be requested again.
pub(super) fn live_frame(live: &LiveUpdate) -> Bytes {
    let event = match &live.kind {
        LiveKind::MessageStarted { run, provider, model, .. } => {
            LiveEvent::MessageStarted { run: run.to_string(), provider, model }
        }
        LiveKind::PartStarted { index, part } => {
            let (part, id, name) = match part {
                LivePartKind::Text => (LivePart::Text, None, None),
                LivePartKind::Thinking => (LivePart::Thinking, None, None),
                LivePartKind::Redacted => (LivePart::Redacted, None, None),
                LivePartKind::ToolCall { id, name } => (LivePart::ToolCall, Some(&**id), Some(&**name)),
            };
            LiveEvent::PartStarted { index: *index, part, id, name }
        }
        LiveKind::Delta { index, text } => LiveEvent::Delta { index: *index, text },
        LiveKind::PartEnded { index, .. } => LiveEvent::PartEnded { index: *index },
        LiveKind::Idle { since, limit } => {
            LiveEvent::Idle { since_seconds: since.as_secs(), limit_seconds: limit.as_secs() }
        }
        LiveKind::CallProgress { call, content, .. } => {
            let texts = content.iter().filter_map(|block| match block {
                MessageBlock::Text(text) => Some(text.text.as_str()),
                _ => None,
            });
            LiveEvent::CallProgress { call: call.to_string(), output: texts.collect() }
        }
    };
    sse::encode_frame(None, "live", &LiveData { event, session: live.session.as_str() })
}
