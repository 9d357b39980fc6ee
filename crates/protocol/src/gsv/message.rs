//! Messages of a session, as events and previews show them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::json::WireValue;

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum GsvMessage {
    /// Somebody said it.
    User {
        /// Text, or parts where there are images.
        content: UserContent,
        /// When, in milliseconds.
        timestamp: u64,
    },
    /// The model said it.
    Assistant {
        /// In order.
        content: Vec<AssistantPart>,
        /// What it took.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<MessageUsage>,
        /// Why it stopped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stop_reason: Option<String>,
        /// What went wrong.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error_message: Option<String>,
        /// When, in milliseconds.
        timestamp: u64,
    },
    /// What a tool gave.
    ToolResult {
        /// The call.
        tool_call_id: String,
        /// The tool's full name.
        tool_name: String,
        /// What it gave.
        content: Vec<TextPart>,
        /// Whether it failed.
        is_error: bool,
        /// When, in milliseconds.
        timestamp: u64,
    },
}

impl WireValue for GsvMessage {}

/// What somebody said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum UserContent {
    /// Text alone. The command line shows nothing else.
    Text(String),
    /// Text and images.
    Parts(Vec<UserPart>),
}

/// A part of what somebody said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum UserPart {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image, within or in the store.
    Image {
        /// Base64.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<String>,
        /// Its key in the store.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        r2_key: Option<String>,
        /// Its type.
        mime_type: String,
    },
}

/// A part of what the model said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum AssistantPart {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// What it thought.
    Thinking {
        /// The thought.
        thinking: String,
    },
    /// A call that it wants.
    ToolCall {
        /// The call's id.
        id: String,
        /// The tool's full name.
        name: String,
        /// The arguments.
        arguments: Map<String, Value>,
    },
}

/// Text that a tool gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "text")]
pub struct TextPart {
    /// The text.
    pub text: String,
}

/// Tokens that an answer took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageUsage {
    /// Read.
    pub input: u64,
    /// Written.
    pub output: u64,
    /// Both.
    pub total_tokens: u64,
}

impl GsvMessage {
    /// All of its text. Empty if it has none.
    pub fn plain_text(&self) -> String {
        match self {
            Self::User { content: UserContent::Text(text), .. } => text.clone(),
            Self::User { content: UserContent::Parts(parts), .. } => {
                join_lines(parts.iter().filter_map(|part| match part {
                    UserPart::Text { text } => Some(text.as_str()),
                    UserPart::Image { .. } => None,
                }))
            }
            Self::Assistant { content, .. } => join_lines(content.iter().filter_map(|part| match part {
                AssistantPart::Text { text } => Some(text.as_str()),
                AssistantPart::Thinking { .. } | AssistantPart::ToolCall { .. } => None,
            })),
            Self::ToolResult { content, .. } => join_lines(content.iter().map(|part| part.text.as_str())),
        }
    }

    /// What the gateway itself says in a chat, such as what waits for an answer.
    pub fn gateway_message(text: &str, timestamp: u64) -> Self {
        Self::Assistant {
            content: vec![AssistantPart::Text { text: text.to_owned() }],
            usage: None,
            stop_reason: Some("stop".to_owned()),
            error_message: None,
            timestamp,
        }
    }
}

fn join_lines<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.collect::<Vec<_>>().join("\n")
}

/// Where the command line cuts a tool's text, in bytes, and falls if that is within a character.
const CUT: usize = 200;

/// The text with a space or two in it, if it needs them to be shown by the command line: no character lies across the
/// place where that cuts.
pub fn safe_to_show(text: &str) -> String {
    if text.len() <= CUT || text.is_char_boundary(CUT) {
        return text.to_owned();
    }
    let before = text.floor_char_boundary(CUT);
    let mut safe = String::with_capacity(text.len() + 3);
    safe.push_str(&text[..before]);
    safe.extend(std::iter::repeat_n(' ', CUT - before));
    safe.push_str(&text[before..]);
    safe
}
