//! Tells how much of an entry of a session file can be understood.
//!
//! It must not know what a context is made of, nor read images.

use countersign_protocol::omp::{
    AgentMessage,
    session_file::{SessionEntryBody, SessionFileEntry},
};
use countersign_runtime::models::ThinkingLevel;
use serde_json::{Map, Value};

use super::{
    blocks,
    convert::{INHERIT, foreign_model, parse_message},
};

/// How much of an entry can be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryDamage {
    /// All of it, or it is of a newer program.
    None,
    /// It counts, without some of its content.
    Partial,
    /// Nothing, although it belongs to the conversation.
    Total,
}

impl EntryDamage {
    /// Returns how much of `entry` can be understood.
    pub(super) fn from_entry(entry: &SessionFileEntry) -> Self {
        const READ: [&str; 6] =
            ["message", "custom_message", "compaction", "branch_summary", "thinking_level_change", "model_change"];
        let is_total = match &entry.body {
            SessionEntryBody::Message(body) => return Self::from_message(&body.message),
            SessionEntryBody::CustomMessage(body) => return Self::partial_if(blocks::has_damage(&body.content)),
            SessionEntryBody::ThinkingLevelChange(change) => change
                .thinking_level
                .as_deref()
                .is_some_and(|level| level != INHERIT && ThinkingLevel::parse(level).is_none()),
            SessionEntryBody::Unknown(_) if foreign_model(entry).is_some() => false,
            SessionEntryBody::Unknown(line) => {
                let kind = line.decode_as::<Value>().ok().and_then(|line| Some(line.get("type")?.as_str()?.to_owned()));
                kind.is_some_and(|kind| READ.contains(&kind.as_str()))
            }
            _ => false,
        };
        if is_total { Self::Total } else { Self::None }
    }

    fn from_message(message: &AgentMessage) -> Self {
        match message {
            AgentMessage::User(message) => Self::partial_if(blocks::has_damage(&message.content)),
            AgentMessage::Developer(message) => Self::partial_if(blocks::has_damage(&message.content)),
            AgentMessage::Custom(message) => Self::partial_if(blocks::has_damage(&message.content)),
            AgentMessage::ToolResult(message) => Self::partial_if(blocks::have_damage(&message.content)),
            AgentMessage::Assistant(message) => Self::partial_if(blocks::answer_has_damage(&message.content)),
            AgentMessage::Other(message) => match message.decode_as::<Map<String, Value>>() {
                Ok(wire) if parse_message(&wire).is_some() => {
                    let content = wire.get("content").and_then(Value::as_array);
                    Self::partial_if(content.is_some_and(|content| content.iter().any(blocks::is_damaged)))
                }
                Ok(_) | Err(_) => Self::Total,
            },
            _ => Self::None,
        }
    }

    const fn partial_if(is_damaged: bool) -> Self {
        if is_damaged { Self::Partial } else { Self::None }
    }
}
