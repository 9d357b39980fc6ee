//! Entries of a session: as the log holds them, and as a session file has them.

pub(crate) use countersign_core::session::model_change;
use countersign_core::{
    id::EntryId,
    message::{Message, estimate_tokens},
    session::{Entry, Imported, Kind, Said},
    time::Millis,
};
use countersign_protocol::{
    Extra, Json,
    omp::session_file::{Body, CompactionEntry, Entry as FileEntry, MessageEntry, ModelChange, ThinkingLevelChange},
};
use countersign_runtime::estimated;
use countersign_view::time;
use serde_json::{Value, json};

use crate::session_file::{Blobs, convert};

/// The content of a `thinking_level_change` entry.
pub(crate) fn thinking_change(level: Option<&str>) -> Said {
    note(&json!({ "thinkingLevel": level }))
}

fn note(value: &Value) -> Said {
    Said { content: value.to_string().into(), tokens: 0 }
}

/// An entry of the log as a line of a session file. `None` if its content cannot be read.
pub(crate) fn to_file(entry: &Entry, content: &str) -> Option<FileEntry> {
    let body = match &entry.kind {
        Kind::ModelChange => {
            let value: Value = serde_json::from_str(content).ok()?;
            let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
            Body::ModelChange(ModelChange { model: text("model")?, role: text("role"), extra: Extra::default() })
        }
        Kind::ThinkingChange => {
            let value: Value = serde_json::from_str(content).ok()?;
            let thinking_level = value.get("thinkingLevel").and_then(Value::as_str).map(str::to_owned);
            Body::ThinkingLevelChange(ThinkingLevelChange { thinking_level, extra: Extra::default() })
        }
        Kind::Other => {
            let mut line = FileEntry::parse(content).ok()?;
            line.id = entry.id.to_string();
            line.parent_id = entry.parent.as_ref().map(ToString::to_string);
            return Some(line);
        }
        Kind::Compaction { first_kept, tokens_before } => {
            let Ok(Message::CompactionSummary(summary)) = serde_json::from_str(content) else { return None };
            let extra = |key: &str| summary.extra.get(key).cloned().map(Json::from);
            Body::Compaction(CompactionEntry {
                summary: summary.summary.clone(),
                short_summary: summary.short_summary.clone(),
                first_kept_entry_id: first_kept.to_string(),
                tokens_before: *tokens_before,
                details: extra("details"),
                preserve_data: extra("preserveData"),
                from_extension: None,
                extra: Extra::default(),
            })
        }
        Kind::User
        | Kind::Developer
        | Kind::Assistant { .. }
        | Kind::ToolResult { .. }
        | Kind::Bash { .. }
        | Kind::BranchSummary
        | Kind::Custom => {
            let message: Message = serde_json::from_str(content).ok()?;
            let message = convert::to_wire(&message, entry.at);
            Body::Message(Box::new(MessageEntry { message, extra: Extra::default() }))
        }
    };
    Some(FileEntry {
        id: entry.id.to_string(),
        parent_id: entry.parent.as_ref().map(ToString::to_string),
        timestamp: time::iso(entry.at),
        body,
    })
}

/// A line of a session file as an entry of the log. Nothing in it counts as a decision.
pub(crate) fn from_file(entry: &FileEntry, blobs: &Blobs) -> Imported {
    let id = EntryId::new(entry.id.as_str());
    let parent = entry.parent_id.as_deref().map(EntryId::new);
    let at = time::millis(&entry.timestamp);
    let imported = |kind, content: String, tokens, made_at| Imported {
        id: id.clone(),
        parent: parent.clone(),
        kind,
        said: Said { content: content.into(), tokens },
        made_at,
    };
    let raw = || serde_json::to_string(entry).unwrap_or_default();
    match &entry.body {
        Body::ModelChange(change) => {
            let value = json!({ "model": change.model, "role": change.role });
            imported(Kind::ModelChange, value.to_string(), 0, at)
        }
        Body::ThinkingLevelChange(change) => {
            imported(Kind::ThinkingChange, json!({ "thinkingLevel": change.thinking_level }).to_string(), 0, at)
        }
        _ => match convert::of_entry(entry) {
            None => match convert::foreign_model(entry) {
                Some((provider, id)) => {
                    imported(Kind::ModelChange, model_change(&provider, &id).content.to_string(), 0, at)
                }
                None => imported(Kind::Other, raw(), 0, at),
            },
            Some((mut message, own)) => {
                blobs.inline(&mut message);
                let content = serde_json::to_string(&message).unwrap_or_default();
                let kind = kind(&message, entry);
                let tokens = estimated(&message).unwrap_or_else(|| estimate_tokens(content.len()));
                imported(kind, content, tokens, own.or(at))
            }
        },
    }
}

fn kind(message: &Message, entry: &FileEntry) -> Kind {
    match message {
        Message::User(_) => Kind::User,
        Message::Developer(_) => Kind::Developer,
        Message::Assistant(assistant) => {
            Kind::Assistant { stop: assistant.stop_reason, total_tokens: assistant.usage.total_tokens }
        }
        Message::ToolResult(result) => Kind::ToolResult { prunable: result.tool_name != "read" },
        Message::BashExecution(bash) => Kind::Bash { in_context: !bash.exclude_from_context },
        Message::CompactionSummary(_) => match &entry.body {
            Body::Compaction(body) => Kind::Compaction {
                first_kept: EntryId::new(body.first_kept_entry_id.as_str()),
                tokens_before: body.tokens_before,
            },
            _ => Kind::Custom,
        },
        Message::BranchSummary(_) => Kind::BranchSummary,
        Message::FileMention(_) | Message::Custom(_) => Kind::Custom,
    }
}

/// The wire form of an entry's message, as events and answers have it. `None` for what is no message.
pub(crate) fn to_wire(entry: &Entry, content: &str) -> Option<Json> {
    let mut message: Message = serde_json::from_str(content).ok()?;
    if let (Kind::Compaction { .. }, Message::CompactionSummary(summary)) = (&entry.kind, &mut message) {
        // The file's entry has more than its message: which files were read, and what is kept.
        summary.extra.clear();
    }
    Some(Json::of(&convert::to_wire(&message, entry.at)))
}

/// The wire form of a message's content.
pub(crate) fn wire(content: &str, at: Millis) -> Option<Json> {
    let message: Message = serde_json::from_str(content).ok()?;
    Some(Json::of(&convert::to_wire(&message, at)))
}
