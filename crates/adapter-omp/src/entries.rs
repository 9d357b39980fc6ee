//! Entries of a session: as the log holds them, and as a session file has them.

pub(crate) use countersign_core::session::model_change;
use countersign_core::{
    id::EntryId,
    message::{StoredMessage, estimate_tokens},
    session::{ImportedEntry, MessageContent, SessionEntry, SessionEntryKind},
    time::Millis,
};
use countersign_protocol::{
    ExtraMembers, RawJson,
    omp::session_file::{
        CompactionEntry, MessageEntry, ModelChange, SessionEntryBody, SessionFileEntry as FileEntry,
        ThinkingLevelChange,
    },
};
use countersign_runtime::estimate_message_tokens;
use countersign_view::time;
use serde_json::{Value, json};

use crate::session_file::{BlobStore, context_cuts, convert};

/// Returns the content of a `thinking_level_change` entry.
pub(crate) fn thinking_change(level: Option<&str>) -> MessageContent {
    note_content(&json!({ "thinkingLevel": level }))
}

fn note_content(value: &Value) -> MessageContent {
    MessageContent { content: value.to_string().into(), tokens: 0 }
}

/// Returns an entry of the log as a line of a session file. `None` if its content cannot be read.
pub(crate) fn to_file(entry: &SessionEntry, content: &str) -> Option<FileEntry> {
    let body = match &entry.kind {
        SessionEntryKind::ModelChange => {
            let value: Value = serde_json::from_str(content).ok()?;
            let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
            SessionEntryBody::ModelChange(ModelChange {
                model: text("model")?,
                role: text("role"),
                extra: ExtraMembers::default(),
            })
        }
        SessionEntryKind::ThinkingChange => {
            let value: Value = serde_json::from_str(content).ok()?;
            let thinking_level = value.get("thinkingLevel").and_then(Value::as_str).map(str::to_owned);
            SessionEntryBody::ThinkingLevelChange(ThinkingLevelChange {
                thinking_level,
                extra: ExtraMembers::default(),
            })
        }
        SessionEntryKind::ContextReset | SessionEntryKind::Other => {
            let mut line = FileEntry::parse(content).ok()?;
            line.id = entry.id.to_string();
            line.parent_id = entry.parent.as_ref().map(ToString::to_string);
            return Some(line);
        }
        SessionEntryKind::Compaction { first_kept, tokens_before } => {
            let Ok(StoredMessage::CompactionSummary(summary)) = serde_json::from_str(content) else { return None };
            let extra = |key: &str| summary.extra.get(key).cloned().map(RawJson::from);
            let mut members = ExtraMembers::default();
            if let Some(method) = summary.extra.get("method") {
                members.insert("method", method.clone());
            }
            SessionEntryBody::Compaction(CompactionEntry {
                summary: summary.summary.clone(),
                short_summary: summary.short_summary.clone(),
                first_kept_entry_id: first_kept.to_string(),
                tokens_before: *tokens_before,
                details: extra("details"),
                preserve_data: extra("preserveData"),
                from_extension: None,
                extra: members,
            })
        }
        SessionEntryKind::User
        | SessionEntryKind::Developer
        | SessionEntryKind::Assistant { .. }
        | SessionEntryKind::ToolResult { .. }
        | SessionEntryKind::Bash { .. }
        | SessionEntryKind::BranchSummary
        | SessionEntryKind::Custom => {
            let message: StoredMessage = serde_json::from_str(content).ok()?;
            let message = convert::to_wire(&message, entry.at);
            SessionEntryBody::Message(Box::new(MessageEntry { message, extra: ExtraMembers::default() }))
        }
    };
    Some(FileEntry {
        id: entry.id.to_string(),
        parent_id: entry.parent.as_ref().map(ToString::to_string),
        timestamp: time::format_iso(entry.at),
        body,
    })
}

/// A line of a session file as an entry of the log.
#[derive(Debug)]
pub(crate) struct FileImport {
    /// The entry.
    pub(crate) entry: ImportedEntry,
    /// Number of images in it that cannot be read.
    pub(crate) lost_images: usize,
}

/// Returns a line of a session file as an entry of the log. Nothing in it counts as a decision.
pub(crate) fn from_file(entry: &FileEntry, blobs: &BlobStore) -> FileImport {
    let id = EntryId::new(entry.id.as_str());
    let parent = entry.parent_id.as_deref().map(EntryId::new);
    let at = time::parse_iso(&entry.timestamp);
    let imported = |kind, content: String, tokens, made_at| ImportedEntry {
        id: id.clone(),
        parent: parent.clone(),
        kind,
        message: MessageContent { content: content.into(), tokens },
        made_at,
    };
    let raw = || serde_json::to_string(entry).unwrap_or_default();
    let mut lost_images = 0;
    let entry = match &entry.body {
        SessionEntryBody::ModelChange(change) => {
            let value = json!({ "model": change.model, "role": change.role });
            imported(SessionEntryKind::ModelChange, value.to_string(), 0, at)
        }
        SessionEntryBody::ThinkingLevelChange(change) => imported(
            SessionEntryKind::ThinkingChange,
            json!({ "thinkingLevel": change.thinking_level }).to_string(),
            0,
            at,
        ),
        _ => match convert::from_entry(entry) {
            None => match convert::foreign_model(entry) {
                Some((provider, id)) => {
                    imported(SessionEntryKind::ModelChange, model_change(&provider, &id).content.to_string(), 0, at)
                }
                None if context_cuts::is_reset(entry) => imported(SessionEntryKind::ContextReset, raw(), 0, at),
                None => imported(SessionEntryKind::Other, raw(), 0, at),
            },
            Some((mut message, own)) => {
                lost_images = blobs.inline_images(&mut message);
                let content = serde_json::to_string(&message).unwrap_or_default();
                let kind = entry_kind(&message, entry);
                let tokens = estimate_message_tokens(&message).unwrap_or_else(|| estimate_tokens(content.len()));
                imported(kind, content, tokens, own.or(at))
            }
        },
    };
    FileImport { entry, lost_images }
}

fn entry_kind(message: &StoredMessage, entry: &FileEntry) -> SessionEntryKind {
    match message {
        StoredMessage::User(_) => SessionEntryKind::User,
        StoredMessage::Developer(_) => SessionEntryKind::Developer,
        StoredMessage::Assistant(assistant) => {
            SessionEntryKind::Assistant { stop: assistant.stop_reason, total_tokens: assistant.usage.total_tokens }
        }
        StoredMessage::ToolResult(result) => SessionEntryKind::ToolResult { prunable: result.tool_name != "read" },
        StoredMessage::BashExecution(bash) => SessionEntryKind::Bash { in_context: !bash.exclude_from_context },
        StoredMessage::CompactionSummary(_) => match &entry.body {
            SessionEntryBody::Compaction(body) => SessionEntryKind::Compaction {
                first_kept: EntryId::new(body.first_kept_entry_id.as_str()),
                tokens_before: body.tokens_before,
            },
            _ => SessionEntryKind::Custom,
        },
        StoredMessage::BranchSummary(_) => SessionEntryKind::BranchSummary,
        StoredMessage::FileMention(_) | StoredMessage::Custom(_) => SessionEntryKind::Custom,
    }
}

/// Returns the wire form of an entry's message, as events and answers have it. `None` for what is no message.
pub(crate) fn to_wire(entry: &SessionEntry, content: &str) -> Option<RawJson> {
    let mut message: StoredMessage = serde_json::from_str(content).ok()?;
    if let (SessionEntryKind::Compaction { .. }, StoredMessage::CompactionSummary(summary)) =
        (&entry.kind, &mut message)
    {
        // The file's entry has more than its message: which files were read, and what is kept.
        summary.extra.clear();
    }
    Some(RawJson::from_wire(&convert::to_wire(&message, entry.at)))
}

/// Returns the wire form of a message's content.
pub(crate) fn content_to_wire(content: &str, at: Millis) -> Option<RawJson> {
    let message: StoredMessage = serde_json::from_str(content).ok()?;
    Some(RawJson::from_wire(&convert::to_wire(&message, at)))
}
